//! The producer's side: messages are written in the caller's own transaction, whatever its driver.
//!
//! `mod.rs` is what users call; `postgres/`, `mysql/` and `sqlite/` know the statements and their values, and what
//! follows from the answers; `script.rs` hands them step by step to a driver, of which `drivers/` has one small file each.

mod batch;
mod failure;
mod inbox;
mod mysql;
mod postgres;
mod script;
mod sqlite;
mod trace;
mod transaction;

use std::fmt;
use std::sync::{Arc, OnceLock};

pub use failure::{DriverError, ErrorCode};
pub use inbox::Inbox;
pub use mysql::{MySqlTable, mysql_breaks_connection, mysql_error};
pub use postgres::{PostgresTable, literal, postgres_error, postgres_statements, quote};
pub(crate) use script::Memory;
pub use script::{Answer, Progress, Script, Step, Value, Work};
pub use sqlite::{SQLITE_SCHEMA, SqliteTable, sqlite_code, sqlite_error};
#[cfg(feature = "opentelemetry-0_33")]
pub(crate) use trace::{TRACEPARENT, TRACESTATE};
pub use transaction::{Dialect, OutboxTransaction, Pending};

use self::script::Io;
use self::trace::TraceContext;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::message::Message;
use crate::validate::Rules;
use crate::wake::{Receipt, Waker};

/// The producer's side of an outbox: writes messages in a transaction that the caller has open, so that they exist if
/// and only if it commits. It has no connection of its own. Cheap to clone.
///
/// It works with every driver behind this crate's features ([`OutboxTransaction`] lists them), with the same two calls.
/// With an asynchronous driver they return futures; with a blocking one, results.
///
/// ```
/// use posthaste::{MemoryStore, Message, Outbox};
///
/// # async fn example() -> Result<(), posthaste::Error> {
/// let outbox = Outbox::new("outbox")?;
/// # let store = MemoryStore::new(4);
/// let mut tx = store.begin(); // or `pool.begin().await?`, or what begins a transaction with your driver
/// // … the business change, in `tx` …
/// let receipt = outbox.enqueue(&mut tx, &Message::new("order.paid").aggregate("order", 7)).await?;
/// tx.commit();
/// receipt.wake(); // a relay in this process need not wait for its next poll
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Outbox {
    statements: Arc<Statements>,
    rules: Rules,
    waker: Waker,
    clock: Arc<dyn Clock>,
}

impl Outbox {
    /// The outbox of this table: `table`, or on PostgreSQL `schema.table` (default schema: `public`), and on MySQL
    /// `database.table` (default: that of the connection).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the name can be that of no table. What only one of
    /// the databases refuses is found at the first use.
    pub fn new(table: &str) -> Result<Self, Error> {
        let statements = Arc::new(Statements::new(table)?);
        Ok(Self {
            statements,
            rules: Rules::default(),
            waker: Waker::default(),
            clock: Arc::new(SystemClock),
        })
    }

    /// Sets the rules that messages are held to. Default: [`Rules::default`].
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets whom [`wake`](Self::wake) wakes: the relay on the store with this waker. `outbox()` of a store does it.
    pub fn with_waker(mut self, waker: Waker) -> Self {
        self.waker = waker;
        self
    }

    /// Sets the clock that stamps messages on SQLite, which has none of its own. Default: the system's.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Enqueues a message in a transaction: one statement, one round trip. (On MySQL two where it has
    /// an idempotency key, and one more where it is larger than 64 KiB.)
    ///
    /// On SQLite, begin the transaction with `BEGIN IMMEDIATE` if it reads before it writes: a deferred one that has read
    /// cannot write any more once another connection wrote, however long it waits ([`ErrorKind::Conflict`]).
    ///
    /// # Errors
    /// The transaction stays usable, and holds nothing of the message, after:
    /// - [`ErrorKind::InvalidMessage`], [`ErrorKind::PayloadTooLarge`]: the message breaks a [rule](Rules); nothing was
    ///   sent.
    /// - [`ErrorKind::DuplicateKey`], [`ErrorKind::DuplicateId`]: one with the same was enqueued before. While another
    ///   open transaction has enqueued the same, this waits to see what becomes of it.
    ///
    /// After [`ErrorKind::Conflict`] the transaction lost against another one: roll it back, and run it again from its
    /// start. After all others roll it back too ([`ErrorKind::NotMigrated`], [`ErrorKind::PermissionDenied`],
    /// [`ErrorKind::Unavailable`], …). Diesel passes on no error codes: there, most errors are told apart by what a server
    /// that speaks English says, and all others are an [`ErrorKind::Database`].
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the message is in the transaction: roll that back.
    ///
    /// [`ErrorKind::InvalidMessage`]: crate::ErrorKind::InvalidMessage
    /// [`ErrorKind::PayloadTooLarge`]: crate::ErrorKind::PayloadTooLarge
    /// [`ErrorKind::DuplicateKey`]: crate::ErrorKind::DuplicateKey
    /// [`ErrorKind::DuplicateId`]: crate::ErrorKind::DuplicateId
    /// [`ErrorKind::Conflict`]: crate::ErrorKind::Conflict
    /// [`ErrorKind::NotMigrated`]: crate::ErrorKind::NotMigrated
    /// [`ErrorKind::PermissionDenied`]: crate::ErrorKind::PermissionDenied
    /// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
    /// [`ErrorKind::Database`]: crate::ErrorKind::Database
    pub fn enqueue<'a, T>(&'a self, tx: T, message: &'a Message) -> T::Outcome<'a, Receipt>
    where
        T: OutboxTransaction + 'a,
    {
        let trace = TraceContext::current();
        tx.perform(Work::new(move |dialect, io| {
            Box::pin(async move {
                self.rules.check(message)?;
                match dialect {
                    Dialect::Postgres => self.statements.postgres()?.enqueue(&io, message, &trace).await?,
                    Dialect::MySql => self.statements.mysql()?.enqueue(&io, message, &trace).await?,
                    Dialect::Sqlite => {
                        self.statements.sqlite()?.enqueue(&io, message, &trace, self.clock.now()).await?;
                    }
                    Dialect::Memory => {
                        let message = trace.added_to(message).into_owned();
                        in_memory(&io, Memory::Enqueue(vec![message].into())).await?;
                    }
                }
                Ok(self.receipt(message))
            })
        }))
    }

    /// Enqueues messages in the order given: all, or on an error that leaves the transaction usable none. All are
    /// checked before the first is sent. Many go in one statement (5,000 on PostgreSQL, 500 on MySQL; 50 on SQLite; fewer
    /// where they are large), so that 100,000 can be given at once.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Cancel safety
    /// Dropping the future leaves open which messages are in the transaction: roll that back.
    pub fn enqueue_all<'a, T>(&'a self, tx: T, messages: &'a [Message]) -> T::Outcome<'a, Vec<Receipt>>
    where
        T: OutboxTransaction + 'a,
    {
        let trace = TraceContext::current();
        tx.perform(Work::new(move |dialect, io| {
            Box::pin(async move {
                for (index, message) in messages.iter().enumerate() {
                    self.rules.check(message).map_err(|error| batch::at(index, error))?;
                }
                if !messages.is_empty() {
                    self.send_all(dialect, &io, messages, &trace).await?;
                }
                Ok(messages.iter().map(|message| self.receipt(message)).collect())
            })
        }))
    }

    async fn send_all<'a>(
        &'a self,
        dialect: Dialect,
        io: &Io<'a>,
        messages: &'a [Message],
        trace: &TraceContext,
    ) -> Result<(), Error> {
        match dialect {
            Dialect::Postgres => self.statements.postgres()?.enqueue_all(io, messages, trace).await,
            Dialect::MySql => self.statements.mysql()?.enqueue_all(io, messages, trace).await,
            Dialect::Sqlite => {
                self.statements.sqlite()?.enqueue_all(io, messages, trace, self.clock.now()).await
            }
            Dialect::Memory => {
                let messages: Vec<_> =
                    messages.iter().map(|message| trace.added_to(message).into_owned()).collect();
                in_memory(io, Memory::Enqueue(messages.into())).await.map(drop)
            }
        }
    }

    /// Wakes the relays in this process that work on the same store: call it after the transaction has committed. To leave
    /// it out costs no more than a polling interval.
    pub fn wake(&self) {
        self.waker.wake();
    }

    fn receipt(&self, message: &Message) -> Receipt {
        Receipt::new(message.id(), self.waker.clone())
    }

    /// The statements that are worth preparing on a connection to PostgreSQL that is kept.
    #[cfg(feature = "tokio-postgres-0_7")]
    pub(crate) fn hot_statements(&self) -> Result<[Arc<str>; 3], Error> {
        Ok(self.statements.postgres()?.hot())
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("table", &self.statements.table)
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

async fn in_memory<'a>(io: &Io<'a>, memory: Memory<'a>) -> Result<Answer, Error> {
    let answer = io.run(Step::in_memory(memory)).await;
    answer.map_err(|error| postgres_error("enqueueing", "", error))
}

/// The statements of each database, made when they are first used.
struct Statements {
    table: String,
    postgres: OnceLock<postgres::Sql>,
    mysql: OnceLock<mysql::Sql>,
    sqlite: OnceLock<sqlite::Sql>,
}

impl Statements {
    fn new(table: &str) -> Result<Self, Error> {
        if MySqlTable::parse(table).is_err() && SqliteTable::new(table).is_err() {
            PostgresTable::parse(table)?;
        }
        Ok(Self {
            table: table.to_owned(),
            postgres: OnceLock::new(),
            mysql: OnceLock::new(),
            sqlite: OnceLock::new(),
        })
    }

    fn postgres(&self) -> Result<&postgres::Sql, Error> {
        get_or_make(&self.postgres, || postgres::Sql::new(&self.table))
    }

    fn mysql(&self) -> Result<&mysql::Sql, Error> {
        get_or_make(&self.mysql, || mysql::Sql::new(&self.table))
    }

    fn sqlite(&self) -> Result<&sqlite::Sql, Error> {
        get_or_make(&self.sqlite, || sqlite::Sql::new(&self.table))
    }
}

fn get_or_make<S>(cell: &OnceLock<S>, make: impl FnOnce() -> Result<S, Error>) -> Result<&S, Error> {
    match cell.get() {
        Some(statements) => Ok(statements),
        None => make().map(|statements| cell.get_or_init(|| statements)),
    }
}
