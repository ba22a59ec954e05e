//! The store's own few connections: made when they are needed, closed when anything about them is in doubt.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Row};
use posthaste::{Error, ErrorKind};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::time::Instant;

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
    lock_timeout: Duration,
}

/// The place of one connection.
#[derive(Default)]
struct Slot {
    live: Option<Live>,
    /// How many attempts to connect have failed since the last that did not.
    failures: u32,
    not_before: Option<Instant>,
}

/// A connection, and what is at its other end.
pub(crate) struct Live {
    conn: Option<Conn>,
    pub(crate) server: Server,
    /// When it was last used.
    used_at: Instant,
}

/// Which server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) is_mariadb: bool,
    pub(crate) version: (u16, u16),
}

/// How long a connection may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);

impl Drop for Live {
    /// Closes the connection, whatever is under way on it. The driver would wait for that without a limit.
    fn drop(&mut self) {
        if let (Some(conn), Ok(runtime)) = (self.conn.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                if let Ok(Err(error)) = tokio::time::timeout(GOODBYE, conn.disconnect()).await {
                    tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended badly");
                }
            });
        }
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

/// What a statement answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) rows: Vec<Row>,
    /// How many rows it found to change.
    pub(crate) affected: u64,
}

/// The longest pause between two attempts to connect.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl Connections {
    pub(crate) fn new(
        target: Target,
        count: usize,
        connect_timeout: Duration,
        lock_timeout: Duration,
    ) -> Self {
        let slots = (0..count.max(1)).map(|_| Arc::default()).collect();
        Self { target, slots, connect_timeout, lock_timeout }
    }

    /// Takes the connection for a use, making it if need be. All that is done with it must be done within `limit`.
    pub(crate) async fn session(&self, usage: Use, limit: Duration) -> Result<Session, Failure> {
        let deadline = Instant::now() + limit;
        let slot = self.slots[usage as usize % self.slots.len()].clone();
        let taken = tokio::time::timeout_at(deadline, async {
            let mut slot = slot.lock_owned().await;
            let longest = patience(self.lock_timeout) / 2;
            let kept = slot.live.take().filter(|live| live.used_at.elapsed() < longest);
            let is_new = kept.is_none();
            let live = match kept {
                Some(live) => live,
                None => self.connect(&mut slot).await?,
            };
            Ok(Session { slot, live, deadline, is_new })
        });
        taken.await.unwrap_or(Err(Failure::TimedOut))
    }

    /// A session of its own, with nobody waiting for its place, for work that takes long.
    pub(crate) async fn apart(&self, limit: Duration, lock_timeout: Duration) -> Result<Session, Failure> {
        let deadline = Instant::now() + limit;
        let live = open(&self.target, self.connect_timeout, lock_timeout).await?;
        let slot = Arc::<Mutex<Slot>>::default().lock_owned().await;
        Ok(Session { slot, live, deadline, is_new: true })
    }

    /// Makes a connection that is nobody's place, as the driver makes it.
    pub(crate) async fn start(&self) -> Result<Conn, Failure> {
        within(self.connect_timeout, Conn::new(self.target.opts.clone())).await
    }

    async fn connect(&self, slot: &mut Slot) -> Result<Live, Failure> {
        if let Some(not_before) = slot.not_before {
            tokio::time::sleep_until(not_before).await;
        }
        // Noted beforehand: this future may be dropped while it waits.
        slot.failures = slot.failures.saturating_add(1);
        slot.not_before = Some(Instant::now() + pause(slot.failures));
        let live = open(&self.target, self.connect_timeout, self.lock_timeout).await?;
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

async fn within<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, mysql_async::Error>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, step).await {
        Ok(result) => Ok(result?),
        Err(_elapsed) => Err(Failure::TimedOut),
    }
}

/// Makes a connection and sets up its session.
async fn open(target: &Target, limit: Duration, lock_timeout: Duration) -> Result<Live, Failure> {
    let conn = within(limit, Conn::new(target.opts.clone())).await?;
    let server = Server { is_mariadb: false, version: (0, 0) };
    let mut live = Live { conn: Some(conn), server, used_at: Instant::now() };
    let set_up = tokio::time::timeout(limit, async {
        let version = live.ask("SELECT VERSION()").await?.pop();
        let version = version.and_then(|mut answer| answer.rows.pop()).and_then(|mut row| row.take(0));
        live.server = Server::parse(&version.unwrap_or_else(String::new))?;
        live.ask(&session_settings(lock_timeout)).await?;
        Ok::<_, Failure>(())
    });
    set_up.await.unwrap_or(Err(Failure::TimedOut))?;
    Ok(live)
}

/// How long the server waits for us to go on before it ends a session. A relay that is frozen or cut off in the middle of a
/// transaction holds locks that hide its lanes from others; the server would wait for hours.
fn patience(lock_timeout: Duration) -> Duration {
    Duration::from_secs(lock_timeout.mul_f64(2.0).as_secs().max(1) + 1)
}

/// What each of our sessions is set to, whatever the server's defaults. Times are UTC. Strict, so that nothing is ever cut
/// off without an error. READ COMMITTED, which takes no gap locks. A statement that stops coming or whose answer is not
/// taken ends with its connection.
fn session_settings(lock_timeout: Duration) -> String {
    let (seconds, patience) = (lock_timeout.as_secs().max(1), patience(lock_timeout).as_secs());
    format!(
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; SET NAMES utf8mb4; \
         SET SESSION time_zone = '+00:00', SESSION autocommit = 1, \
         SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO', \
         SESSION wait_timeout = {patience}, SESSION net_read_timeout = 10, SESSION net_write_timeout = 10, \
         SESSION sql_safe_updates = 0, SESSION sql_select_limit = DEFAULT, \
         SESSION innodb_lock_wait_timeout = {seconds}, SESSION lock_wait_timeout = {seconds}"
    )
}

impl Server {
    /// From what the server says about itself, as in `8.4.2` or `10.11.6-MariaDB-1`.
    fn parse(version: &str) -> Result<Self, Failure> {
        let is_mariadb = version.contains("MariaDB");
        let mut numbers =
            version.split(|it: char| !it.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
        let server = Self { is_mariadb, version: (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) };
        let (least, name) = if is_mariadb { ((10, 6), "MariaDB 10.6") } else { ((8, 0), "MySQL 8.0") };
        if server.version < least {
            let text = format!("the server is {version:?}; posthaste works with {name} and later");
            return Err(Error::new(ErrorKind::InvalidInput, text).into());
        }
        Ok(server)
    }
}

impl Live {
    /// Sends statements in one round trip, and takes all of their answers.
    async fn ask(&mut self, sql: &str) -> Result<Vec<Answer>, mysql_async::Error> {
        let Some(conn) = self.conn.as_mut() else {
            return Err(mysql_async::DriverError::ConnectionClosed.into());
        };
        let (answers, result) = ask(conn, sql).await;
        result.map(|()| answers)
    }
}

/// Sends statements on a connection in one round trip. Returns the answers that came before an error, if there was one.
pub(crate) async fn ask<Q: Queryable>(
    conn: &mut Q,
    sql: &str,
) -> (Vec<Answer>, Result<(), mysql_async::Error>) {
    let mut answers = Vec::new();
    let mut result = match conn.query_iter(sql).await {
        Ok(result) => result,
        Err(error) => return (answers, Err(error)),
    };
    loop {
        // An answer without rows is here as a whole, and taking it moves on to the next: what fails then is that one.
        let (has_rows, is_last) = (!result.columns_ref().is_empty(), result.is_empty());
        if !has_rows {
            answers.push(Answer { rows: Vec::new(), affected: result.affected_rows() });
        }
        match result.collect::<Row>().await {
            Ok(rows) if has_rows => answers.push(Answer { rows, affected: 0 }),
            Ok(_) => {}
            Err(error) => return (answers, Err(error)),
        }
        if is_last {
            return (answers, Ok(()));
        }
        if result.is_empty() {
            // If another one was moved to, it is the last, and without rows, or an error that was kept for whoever asks.
            let affected = result.affected_rows();
            if let Err(error) = result.collect::<Row>().await {
                return (answers, Err(error));
            }
            if !has_rows {
                answers.push(Answer { rows: Vec::new(), affected });
            }
            return (answers, Ok(()));
        }
    }
}

impl Session {
    /// Which server it is.
    pub(crate) fn server(&self) -> Server {
        self.live.server
    }

    /// Whether the connection was made for this session.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    /// Sends statements in one round trip, within the session's time.
    pub(crate) async fn ask(&mut self, sql: &str) -> Result<Vec<Answer>, Failure> {
        match tokio::time::timeout_at(self.deadline, self.live.ask(sql)).await {
            Ok(result) => Ok(result?),
            Err(_elapsed) => Err(Failure::TimedOut),
        }
    }

    /// Sends statements, and takes the rows of the one at this place.
    pub(crate) async fn rows_of(&mut self, sql: &str, place: usize) -> Result<Vec<Row>, Failure> {
        let mut answers = self.ask(sql).await?;
        if place < answers.len() { Ok(answers.swap_remove(place).rows) } else { Err(nothing_came_back()) }
    }

    /// Sends one statement, and takes its rows.
    pub(crate) async fn rows(&mut self, sql: &str) -> Result<Vec<Row>, Failure> {
        self.rows_of(sql, 0).await
    }

    /// The session is over: the connection goes back to its place unless the result puts it in doubt. What is left open
    /// of a transaction is rolled back.
    pub(crate) async fn done<T>(mut self, result: Result<T, Failure>) -> Result<T, Failure> {
        self.live.used_at = Instant::now();
        match &result {
            Ok(_) => self.slot.live = Some(self.live),
            Err(failure) if failure.is_fatal() => {}
            Err(_) => {
                if self.ask("ROLLBACK").await.is_ok() {
                    self.slot.live = Some(self.live);
                }
            }
        }
        result
    }
}

/// An error for an operation that gave no row where it must.
pub(crate) fn nothing_came_back() -> Failure {
    Failure::Ours(Error::new(ErrorKind::Database, "the database answered without a row"))
}

/// The value of a column that must be there.
pub(crate) fn get<T: mysql_async::prelude::FromValue>(row: &Row, column: &str) -> Result<T, Failure> {
    let value = row.get_opt::<T, _>(column);
    value.and_then(Result::ok).ok_or_else(|| {
        let text = format!("the database answered without a {column} that can be read");
        Failure::Ours(Error::new(ErrorKind::Database, text))
    })
}

/// The id in a column.
pub(crate) fn get_uuid(row: &Row, column: &str) -> Result<uuid::Uuid, Failure> {
    let bytes: Vec<u8> = get(row, column)?;
    uuid::Uuid::from_slice(&bytes).map_err(|source| {
        let text = format!("the database answered with a {column} that is no UUID");
        Failure::Ours(Error::new(ErrorKind::Database, text).with_source(source))
    })
}

/// The first value of a column of rows, as of an aggregate.
pub(crate) fn first<T: mysql_async::prelude::FromValue>(rows: &[Row], column: &str) -> Result<T, Failure> {
    get(rows.first().ok_or_else(nothing_came_back)?, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_apart() {
        let mysql = Server::parse("8.0.36-0ubuntu0.22.04.1").unwrap();
        assert_eq!(mysql, Server { is_mariadb: false, version: (8, 0) });
        let mariadb = Server::parse("10.11.6-MariaDB-0+deb12u1").unwrap();
        assert_eq!(mariadb, Server { is_mariadb: true, version: (10, 11) });
        for old in ["5.7.44-log", "10.5.22-MariaDB", "strange"] {
            let error = Server::parse(old).unwrap_err().into_error("connecting", "");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{old}");
            assert!(error.to_string().contains("and later"), "{error}");
        }
    }
}
