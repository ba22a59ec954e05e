//! The producer's side: messages are inserted in the caller's own transaction.

use std::sync::Arc;

use posthaste::{Clock, Due, Error, ErrorKind, Message, Receipt, Rules, SystemClock, Waker};
use rusqlite::{CachedStatement, Connection, ffi, params};

use crate::sql::Sql;
use crate::table::TableName;
use crate::{error, schema, time};

/// Enqueues messages in transactions of rusqlite. Cheap to clone.
///
/// ```
/// use posthaste::Message;
/// use posthaste_sqlite::{SqliteOutbox, rusqlite};
///
/// fn pay(connection: &mut rusqlite::Connection, order: i64) -> Result<(), Box<dyn std::error::Error>> {
///     let outbox = SqliteOutbox::new("outbox")?;
///     let tx = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
///     tx.execute("UPDATE orders SET paid = 1 WHERE id = ?1", [order])?;
///     let message = Message::new("order.paid").aggregate("order", order);
///     let receipt = outbox.enqueue(&tx, &message)?;
///     tx.commit()?;
///     receipt.wake();
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct SqliteOutbox {
    sql: Arc<Sql>,
    rules: Rules,
    waker: Waker,
    clock: Arc<dyn Clock>,
}

/// A transaction of rusqlite: [`rusqlite::Transaction`] or [`rusqlite::Savepoint`].
pub trait SqliteTransaction: sealed::Sealed {
    /// The connection it is open on.
    #[doc(hidden)]
    fn connection(&self) -> &Connection;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for rusqlite::Transaction<'_> {}
    impl Sealed for rusqlite::Savepoint<'_> {}
}

impl SqliteTransaction for rusqlite::Transaction<'_> {
    fn connection(&self) -> &Connection {
        self
    }
}

impl SqliteTransaction for rusqlite::Savepoint<'_> {
    fn connection(&self) -> &Connection {
        self
    }
}

impl SqliteOutbox {
    /// An outbox of this table name, with the default [`Rules`].
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: see [`SqliteOptions::table`](crate::SqliteOptions::table) for what a name may
    /// be.
    pub fn new(table: &str) -> Result<Self, Error> {
        let sql = Arc::new(Sql::new(TableName::new(table)?));
        Ok(Self::from_parts(sql, Waker::default(), Arc::new(SystemClock)))
    }

    pub(crate) fn from_parts(sql: Arc<Sql>, waker: Waker, clock: Arc<dyn Clock>) -> Self {
        Self { sql, rules: Rules::default(), waker, clock }
    }

    /// Sets the rules that messages are held to.
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets whom [`Receipt::wake`] wakes: the relay on the [`SqliteStore`](crate::SqliteStore) with this
    /// [`waker`](crate::SqliteStore::waker).
    pub fn with_waker(mut self, waker: Waker) -> Self {
        self.waker = waker;
        self
    }

    /// Sets the clock that stamps messages, and from which delays count.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Enqueues a message: it exists if and only if the transaction commits.
    ///
    /// Begin the transaction with `BEGIN IMMEDIATE` if it reads before it writes: a deferred one that has read
    /// cannot write any more once another connection wrote, however long it waits ([`ErrorKind::Conflict`]).
    ///
    /// # Errors
    /// The transaction stays usable and holds nothing of the message, whatever the error:
    /// - [`ErrorKind::InvalidMessage`], [`ErrorKind::PayloadTooLarge`]: the message breaks a rule.
    /// - [`ErrorKind::DuplicateKey`]: its idempotency key was enqueued before.
    /// - [`ErrorKind::DuplicateId`]: its id was enqueued before.
    /// - [`ErrorKind::NotMigrated`], [`ErrorKind::SchemaTooNew`], [`ErrorKind::ForeignTable`]: the tables do not
    ///   fit.
    ///
    /// After [`ErrorKind::Unavailable`] because the disk is full or failed, SQLite may have rolled the whole
    /// transaction back.
    pub fn enqueue(&self, tx: &impl SqliteTransaction, message: &Message) -> Result<Receipt, Error> {
        self.rules.check(message)?;
        let connection = tx.connection();
        if message.idempotency_key_str().is_some() {
            self.all_or_none(connection, &[message])?;
        } else {
            self.insert(connection, &[message])?;
        }
        Ok(self.receipt(message))
    }

    /// Enqueues many messages, in the order given: all, or on an error none. All are checked before the first is
    /// inserted.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue); the text says which message it was about.
    pub fn enqueue_all<'m>(
        &self,
        tx: &impl SqliteTransaction,
        messages: impl IntoIterator<Item = &'m Message>,
    ) -> Result<Vec<Receipt>, Error> {
        let messages: Vec<_> = messages.into_iter().collect();
        for (index, message) in messages.iter().enumerate() {
            self.rules.check(message).map_err(|error| at(index, error))?;
        }
        if !messages.is_empty() {
            self.all_or_none(tx.connection(), &messages)?;
        }
        Ok(messages.into_iter().map(|message| self.receipt(message)).collect())
    }

    fn receipt(&self, message: &Message) -> Receipt {
        Receipt::new(message.id(), self.waker.clone())
    }

    /// Inserts messages within a savepoint, so that an error leaves nothing behind.
    fn all_or_none(&self, connection: &Connection, messages: &[&Message]) -> Result<(), Error> {
        let run = |statement: &str| {
            let done = connection.prepare_cached(statement).and_then(|mut statement| statement.execute([]));
            done.map_err(|source| error::map("enqueuing", source))
        };
        run("SAVEPOINT posthaste_enqueue")?;
        let inserted = self.insert(connection, messages);
        if inserted.is_err() {
            // Where this fails, SQLite has rolled back the whole transaction before.
            let _ = run("ROLLBACK TO posthaste_enqueue");
        }
        let released = run("RELEASE posthaste_enqueue");
        inserted.and(released.map(drop))
    }

    fn insert(&self, connection: &Connection, messages: &[&Message]) -> Result<(), Error> {
        let mut insert = Insert::new(connection, &self.sql, time::Now::new(self.clock.now()))?;
        for (index, message) in messages.iter().enumerate() {
            let inserted = insert.key(message).and_then(|()| insert.message(message));
            inserted.map_err(|error| if messages.len() > 1 { at(index, error) } else { error })?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for SqliteOutbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteOutbox")
            .field("table", &self.sql.table.as_str())
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// An insert under way.
struct Insert<'c> {
    connection: &'c Connection,
    sql: &'c Sql,
    message: CachedStatement<'c>,
    now: time::Now,
}

impl<'c> Insert<'c> {
    fn new(connection: &'c Connection, sql: &'c Sql, now: time::Now) -> Result<Self, Error> {
        let message =
            connection.prepare_cached(&sql.enqueue).map_err(|source| explain(connection, sql, source))?;
        Ok(Self { connection, sql, message, now })
    }

    /// Takes the idempotency key, if the message has one.
    fn key(&self, message: &Message) -> Result<(), Error> {
        let Some(key) = message.idempotency_key_str() else { return Ok(()) };
        let statement = self.connection.prepare_cached(&self.sql.enqueue_key);
        let taken = statement.and_then(|mut statement| statement.execute(params![key, self.now.millis]));
        match taken.map_err(|source| explain(self.connection, self.sql, source))? {
            0 => {
                let text =
                    format!("idempotency key {key:?} is there already: its message was enqueued before");
                Err(Error::new(ErrorKind::DuplicateKey, text))
            }
            _ => Ok(()),
        }
    }

    fn message(&mut self, message: &Message) -> Result<(), Error> {
        let mut buffer = [0; uuid::fmt::Hyphenated::LENGTH];
        let id = &*message.id().as_uuid().hyphenated().encode_lower(&mut buffer);
        let inserted = self.message.execute(params![
            id,
            message.event_type(),
            message.aggregate_type(),
            message.aggregate_id(),
            held_back_until(message.due(), self.now),
            self.now.millis,
            message.content_type_str(),
            headers(message)?,
            message.idempotency_key_str(),
            message.payload_bytes().map(|payload| &payload[..]),
            schema::VERSION,
        ]);
        match inserted.map_err(|source| explain(self.connection, self.sql, source))? {
            0 => {
                let text = format!("id {id} is there already: the message was enqueued before");
                Err(Error::new(ErrorKind::DuplicateId, text))
            }
            _ => Ok(()),
        }
    }
}

/// Until when a message is held back; `None` if it is not, as one whose time has come.
fn held_back_until(due: Due, now: time::Now) -> Option<i64> {
    match due {
        Due::Now => None,
        Due::After(delay) => Some(now.plus(delay)),
        Due::At(at) => Some(time::deadline(at)).filter(|at| *at > now.millis),
    }
}

fn headers(message: &Message) -> Result<Option<String>, Error> {
    if message.headers().is_empty() {
        return Ok(None);
    }
    serde_json::to_string(message.headers()).map(Some).map_err(|source| {
        Error::new(ErrorKind::InvalidMessage, "the headers cannot be written as JSON").with_source(source)
    })
}

/// Says which of many messages an error is about.
fn at(index: usize, error: Error) -> Error {
    Error::new(error.kind(), format!("message {index} (counting from 0): {error}")).with_source(error)
}

fn explain(connection: &Connection, sql: &Sql, source: rusqlite::Error) -> Error {
    // How the statement reports that the schema has another version.
    let refused = error::extended_code(&source) == Some(ffi::SQLITE_CONSTRAINT_NOTNULL);
    if refused && let Err(reason) = schema::check(connection, sql) {
        return reason;
    }
    schema::explain(connection, sql, error::map("enqueuing", source))
}
