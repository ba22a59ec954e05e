//! The store's own few connections: made when they are needed, closed when anything about them is in doubt.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use posthaste::{Error, ErrorKind};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row};

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
    slots: Vec<Arc<Mutex<Slot>>>,
    connect_timeout: Duration,
}

/// The place of one connection.
#[derive(Default)]
struct Slot {
    live: Option<Live>,
    /// How many attempts to connect have failed since the last that did not.
    failures: u32,
    not_before: Option<Instant>,
}

/// A connection and the task that drives it.
pub(crate) struct Live {
    pub(crate) client: Client,
    task: JoinHandle<()>,
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
    pub(crate) fn new(target: Target, count: usize, connect_timeout: Duration) -> Self {
        let slots = (0..count.max(1)).map(|_| Arc::default()).collect();
        Self { target, slots, connect_timeout }
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
        let live = connect(&self.target, self.connect_timeout).await?;
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

/// Makes a connection.
pub(crate) async fn connect(target: &Target, limit: Duration) -> Result<Live, Failure> {
    let (client, task) = start(target, limit).await?;
    Ok(Live { client, task })
}

/// Makes a connection that ends with its client.
pub(crate) async fn start(target: &Target, limit: Duration) -> Result<(Client, JoinHandle<()>), Failure> {
    let connecting = tokio::time::timeout(limit, target.config.connect(target.tls.clone()));
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
    pub(crate) async fn run(&self, begin: &str, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Failure> {
        let answers = self.run_all(begin, &[(sql, params)]).await?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Runs statements one after another in a transaction of their own, in one round trip.
    pub(crate) async fn run_all(
        &self,
        begin: &str,
        statements: &[(&str, Params<'_>)],
    ) -> Result<Vec<Vec<Row>>, Failure> {
        self.within(async {
            let client = self.client();
            // Each is sent when it is first polled, and all are polled in their order.
            let statements = statements.iter().map(|(sql, params)| client.query_typed(sql, params));
            let (started, answers, committed) = tokio::join!(
                biased;
                client.batch_execute(begin),
                futures_util::future::join_all(statements),
                client.batch_execute("COMMIT"),
            );
            started?;
            let answers = answers.into_iter().collect::<Result<Vec<_>, _>>()?;
            committed?;
            Ok::<_, tokio_postgres::Error>(answers)
        })
        .await
    }

    /// The session is over: the connection goes back to its place unless the result puts it in doubt.
    pub(crate) fn done<T>(self, result: Result<T, Failure>) -> Result<T, Failure> {
        let Self { mut slot, live, .. } = self;
        if !result.as_ref().is_err_and(Failure::is_fatal) {
            slot.live = Some(live);
        }
        result
    }
}

/// What begins each of our transactions.
///
/// The isolation is ours whatever the server's default. The planner's settings make each statement take its index,
/// whatever the statistics say: an outbox is usually empty, and a table that was just analysed while it was empty
/// invites sequential scans. They hold for the transaction only, and so behind a pooler too.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) write: String,
    /// What a relay reads is believed only from a server that takes writes: a standby may be behind, and knows nothing of
    /// the transactions that are open on its primary. READ WRITE makes it refuse.
    pub(crate) read: String,
}

impl Begin {
    pub(crate) fn new(limit: Duration) -> Self {
        let millis = limit.as_millis().max(1);
        let settings = format!(
            "SET LOCAL statement_timeout = {millis}; SET LOCAL lock_timeout = {millis}; \
             SET LOCAL idle_in_transaction_session_timeout = {millis}; \
             SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off; \
             SET LOCAL enable_mergejoin = off; SET LOCAL jit = off; SET LOCAL max_parallel_workers_per_gather = 0"
        );
        let begin = |mode: &str| format!("BEGIN ISOLATION LEVEL READ COMMITTED{mode}; {settings}");
        Self { write: begin(""), read: begin(" READ WRITE") }
    }
}

/// An error for an operation that gave no row where it must.
pub(crate) fn no_row(doing: &str) -> Failure {
    let text = format!("{doing}: the database answered without a row");
    Failure::Ours(Error::new(ErrorKind::Database, text))
}
