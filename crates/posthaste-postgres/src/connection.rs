//! The store's own few connections: made when they are needed, closed when anything about them is in doubt.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use posthaste::{Error, ErrorKind};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement};

use crate::direct::is_direct_to_primary;
use crate::error::Failure;
use crate::target::Target;

/// What a connection is used for. Each use has its own, as long as there are enough: a long read never holds up a
/// lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    Lease,
    Read,
    Settle,
    Other,
}

/// The connections.
pub(crate) struct Connections {
    target: Target,
    /// What is set once on a connection that leads straight to a server.
    settings: String,
    slots: Vec<Arc<Mutex<Slot>>>,
    connect_timeout: Duration,
}

/// The place of one connection.
#[derive(Default)]
struct Slot {
    live: Option<Live>,
    /// A statement that was prepared was not there: something hands this connection from one server session to another.
    moves: bool,
    /// How many attempts to connect have failed since the last that did not.
    failures: u32,
    not_before: Option<Instant>,
}

/// Prepared statements, by their text.
type Prepared = std::sync::Mutex<HashMap<String, Statement>>;

/// A connection and the task that drives it.
pub(crate) struct Live {
    pub(crate) client: Client,
    task: JoinHandle<()>,
    /// The statements that were prepared on it, if it leads straight to a server that takes writes: then the session is
    /// ours, its settings were made once, and a statement needs no planning and no transaction around it.
    prepared: Option<Prepared>,
}

impl Drop for Live {
    /// Closes the socket at once, whatever is under way on it.
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection in use. It goes back to its place by [`done`](Self::done); otherwise it is closed.
pub(crate) struct Session {
    slot: OwnedMutexGuard<Slot>,
    live: Live,
    deadline: Instant,
    /// Whether the connection was made for this session.
    is_new: bool,
}

/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Connections {
    pub(crate) fn new(target: Target, settings: String, count: usize, connect_timeout: Duration) -> Self {
        let slots = (0..count.max(1)).map(|_| Arc::default()).collect();
        Self { target, settings, slots, connect_timeout }
    }

    /// Takes the connection for a use, making it if need be. All that is done with it must be done within `limit`.
    pub(crate) async fn session(&self, usage: Use, limit: Duration) -> Result<Session, Failure> {
        let deadline = Instant::now() + limit;
        let slot = self.slots[usage as usize % self.slots.len()].clone();
        let taken = tokio::time::timeout_at(deadline, async {
            let mut slot = slot.lock_owned().await;
            let kept = slot.live.take().filter(|live| !live.client.is_closed());
            let is_new = kept.is_none();
            let live = match kept {
                Some(live) => live,
                None => self.connect(&mut slot).await?,
            };
            Ok(Session { slot, live, deadline, is_new })
        });
        taken.await.unwrap_or(Err(Failure::TimedOut))
    }

    /// Makes a connection that is nobody's place.
    pub(crate) async fn start(&self) -> Result<Client, Failure> {
        Ok(start(&self.target, self.connect_timeout).await?.0)
    }

    async fn connect(&self, slot: &mut Slot) -> Result<Live, Failure> {
        if let Some(not_before) = slot.not_before {
            tokio::time::sleep_until(not_before).await;
        }
        // Noted beforehand: this future may be dropped while it waits.
        slot.failures = slot.failures.saturating_add(1);
        slot.not_before = Some(Instant::now() + pause(slot.failures));
        let settings = (!slot.moves).then_some(self.settings.as_str());
        let live = connect(&self.target, settings, self.connect_timeout).await?;
        (slot.failures, slot.not_before) = (0, None);
        Ok(live)
    }
}

/// How long to wait after so many failures: nothing after the first, then doubling, with jitter.
fn pause(failures: u32) -> Duration {
    let Some(doublings) = failures.checked_sub(2) else { return Duration::ZERO };
    let longest = (Duration::from_millis(50) * (1 << doublings.min(5))).min(LONGEST_PAUSE);
    longest / 2 + longest.mul_f64(fastrand::f64()) / 2
}

/// Makes a connection for the store's own statements. `settings` are made if the session is ours; `None`: it is not.
async fn connect(target: &Target, settings: Option<&str>, limit: Duration) -> Result<Live, Failure> {
    let (client, task) = start(target, limit).await?;
    let mut live = Live { client, task, prepared: None };
    let setting_up = tokio::time::timeout(limit, async {
        if let Some(settings) = settings
            && is_direct_to_primary(&live.client).await?
        {
            live.client.batch_execute(settings).await?;
            live.prepared = Some(Prepared::default());
        }
        Ok::<_, tokio_postgres::Error>(live)
    });
    Ok(setting_up.await.map_err(|_elapsed| Failure::TimedOut)??)
}

/// Makes a connection that ends with its client.
pub(crate) async fn start(target: &Target, limit: Duration) -> Result<(Client, JoinHandle<()>), Failure> {
    let connecting = tokio::time::timeout(limit, target.connect());
    let connected = connecting.await.map_err(|_elapsed| Failure::TimedOut)?;
    let (client, connection) = connected.map_err(|error| refused(target, error))?;
    let task = tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(error = &error as &dyn std::error::Error, "a database connection ended");
        }
    });
    Ok((client, task))
}

/// Where the server wants more than the user's name, the driver reports no error of the server.
pub(crate) fn refused(target: &Target, error: tokio_postgres::Error) -> Failure {
    let of_driver = error.as_db_error().is_none() && !error.is_closed();
    let source = std::error::Error::source(&error).filter(|source| !source.is::<std::io::Error>());
    match source {
        Some(source) if of_driver && target.config.get_password().is_none() => {
            let text = format!(
                "connecting: the server does not let the user in ({source}); put the password into the URL"
            );
            Failure::Ours(Error::new(ErrorKind::PermissionDenied, text))
        }
        Some(_) | None => error.into(),
    }
}

/// Parameters of a statement with their types, so that it needs no round trip to be prepared and leaves nothing behind
/// in the session: behind a pooler the next transaction may run in another one.
pub(crate) type Params<'a> = &'a [(&'a (dyn ToSql + Sync), Type)];

impl Session {
    pub(crate) fn client(&self) -> &Client {
        &self.live.client
    }

    /// Does a step within the session's time.
    pub(crate) async fn within<T, E: Into<Failure>>(
        &self,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout_at(self.deadline, step).await {
            Ok(result) => result.map_err(Into::into),
            Err(_elapsed) => Err(Failure::TimedOut),
        }
    }

    /// Whether the connection was made for this session.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Runs one statement in a transaction of its own, in one round trip.
    pub(crate) async fn run(
        &self,
        begin: &Begin,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let answers = self.run_all(begin, &[(sql, params)]).await?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Runs statements one after another, in one round trip: in a transaction of their own, unless they only read and
    /// the session is ours; then each is its own.
    pub(crate) async fn run_all(
        &self,
        begin: &Begin,
        statements: &[(&str, Params<'_>)],
    ) -> Result<Vec<Vec<Row>>, Failure> {
        let all = async {
            let prepared = self.prepare(statements).await?;
            let client = self.client();
            // Each is sent when it is first polled, and all are polled in their order.
            let answers = join_all(statements.iter().enumerate().map(async |(n, (sql, params))| {
                let Some(statement) = prepared.get(n) else { return client.query_typed(sql, params).await };
                let values: Vec<_> = params.iter().map(|(value, _)| *value).collect();
                client.query(statement, &values).await
            }));
            let begin = if prepared.is_empty() {
                Some(begin.anywhere.as_str())
            } else {
                begin.here(statements.len())
            };
            let (started, answers, committed) = tokio::join!(
                biased;
                execute(client, begin),
                answers,
                execute(client, begin.map(|_| "COMMIT")),
            );
            started?;
            let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
            committed?;
            Ok::<_, tokio_postgres::Error>(answers)
        };
        self.within(all).await
    }

    /// The statements prepared, if the session is ours.
    async fn prepare(
        &self,
        statements: &[(&str, Params<'_>)],
    ) -> Result<Vec<Statement>, tokio_postgres::Error> {
        let Some(cache) = &self.live.prepared else { return Ok(Vec::new()) };
        let mut prepared = Vec::with_capacity(statements.len());
        for (sql, params) in statements {
            let known = cache.lock().unwrap_or_else(PoisonError::into_inner).get(*sql).cloned();
            let statement = match known {
                Some(statement) => statement,
                None => self.prepare_anew(cache, sql, params).await?,
            };
            prepared.push(statement);
        }
        Ok(prepared)
    }

    async fn prepare_anew(
        &self,
        cache: &Prepared,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Statement, tokio_postgres::Error> {
        let types: Vec<_> = params.iter().map(|(_, ty)| ty.clone()).collect();
        let statement = self.client().prepare_typed(sql, &types).await?;
        cache.lock().unwrap_or_else(PoisonError::into_inner).insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }

    /// The session is over: the connection goes back to its place unless the result puts it in doubt.
    pub(crate) fn done<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        let Self { mut slot, live, .. } = self;
        slot.moves |= result.as_ref().is_err_and(Failure::is_of_another_session);
        if !result.as_ref().is_err_and(Failure::is_fatal) {
            slot.live = Some(live);
        }
        result
    }
}

/// Runs a statement that has no result, if there is one.
async fn execute(client: &Client, sql: Option<&str>) -> Result<(), tokio_postgres::Error> {
    match sql {
        Some(sql) => client.batch_execute(sql).await,
        None => Ok(()),
    }
}

/// What begins our transactions.
///
/// The isolation is ours whatever the server's default. The planner's settings make each statement take its index,
/// whatever the statistics say: an outbox is usually empty, and a table that was just analysed while it was empty
/// invites sequential scans.
#[derive(Debug)]
pub(crate) struct Begin {
    /// With all settings, which hold for the transaction only: in a session that may not be ours.
    pub(crate) anywhere: String,
    /// In a session with our settings.
    plain: String,
    reads: bool,
}

impl Begin {
    pub(crate) fn write(limit: Duration) -> Self {
        Self::new("", limit)
    }

    /// What a relay reads is believed only from a server that takes writes: a standby may be behind, and knows nothing of
    /// the transactions that are open on its primary. READ WRITE makes it refuse.
    pub(crate) fn read(limit: Duration) -> Self {
        Self { reads: true, ..Self::new(" READ WRITE", limit) }
    }

    fn new(mode: &str, limit: Duration) -> Self {
        let plain = format!("BEGIN ISOLATION LEVEL READ COMMITTED{mode}");
        let settings: Vec<_> = settings(limit).into_iter().map(|it| format!("; SET LOCAL {it}")).collect();
        Self { anywhere: plain.clone() + &settings.concat(), plain, reads: false }
    }

    /// What begins a transaction of so many statements in a session with our settings, if they need one.
    fn here(&self, statements: usize) -> Option<&str> {
        (statements > 1 && !self.reads).then_some(self.plain.as_str())
    }
}

/// What a session of our own is set to.
pub(crate) fn session_settings(limit: Duration) -> String {
    let ours = ["default_transaction_isolation = 'read committed'", "plan_cache_mode = force_generic_plan"];
    let all = settings(limit).into_iter().chain(ours.map(str::to_owned));
    all.map(|it| format!("SET {it}")).collect::<Vec<_>>().join("; ")
}

fn settings(limit: Duration) -> Vec<String> {
    let millis = limit.as_millis().max(1);
    let timeouts = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];
    let planner = ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"]
        .map(|it| format!("{it} = off"));
    let parallel = ["max_parallel_workers_per_gather = 0".to_owned()];
    timeouts.map(|it| format!("{it} = {millis}")).into_iter().chain(planner).chain(parallel).collect()
}

/// An error for an operation that gave no row where it must.
pub(crate) fn no_row(doing: &str) -> Failure {
    let text = format!("{doing}: the database answered without a row");
    Failure::Ours(Error::new(ErrorKind::Database, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection whose session is changed behind its back, as a pooler would that cannot be told from a server.
    #[tokio::test]
    async fn a_session_that_is_not_ours_after_all_is_used_without_prepared_statements() {
        let Ok(url) = std::env::var("POSTHASTE_TEST_POSTGRES") else {
            assert!(std::env::var_os("CI").is_none(), "POSTHASTE_TEST_POSTGRES is not set");
            return;
        };
        let limit = Duration::from_secs(5);
        let target = Target::parse("database", &url, limit, limit).unwrap();
        let connections = Connections::new(target, session_settings(limit), 1, limit);
        let begin = Begin::read(limit);
        let ask = async || {
            let session = connections.session(Use::Read, limit).await.unwrap();
            let is_prepared = session.live.prepared.is_some();
            let answer = session.run(&begin, "SELECT 1", &[]).await;
            session.done(answer).map(|rows| (rows.len(), is_prepared))
        };
        assert_eq!(ask().await.unwrap(), (1, true));
        let session = connections.session(Use::Read, limit).await.unwrap();
        let emptied = session.within(session.client().batch_execute("DEALLOCATE ALL")).await;
        session.done(emptied).unwrap();
        assert!(ask().await.is_err(), "its statement is gone");
        assert_eq!(ask().await.unwrap(), (1, false));
    }
}
