//! The inbox: has this consumer seen this message before?

use std::fmt::Display;
use std::time::Duration;

use mysql_async::Transaction;
use posthaste::{Error, ErrorKind};

use crate::connection::ask;
use crate::error::{DUPLICATE, code, map};
use crate::sql::Sql;
use crate::store::MySqlStore;
use crate::table::TableName;
use crate::value::bytes;

/// The most bytes that a consumer's name and a message's id may have.
const MAX_BYTES: usize = 255;

/// The consumer's side: notes which messages it has seen, in its own transaction, so that one delivered twice takes
/// effect once. It needs no outbox: a service that only consumes migrates the inbox alone
/// ([`MySqlStore::migrate_inbox`]).
///
/// ```no_run
/// use mysql_async::TxOpts;
/// use mysql_async::prelude::Queryable;
/// use posthaste::BoxError;
/// use posthaste_mysql::MySqlInbox;
///
/// # async fn on_message(conn: &mut mysql_async::Conn, id: &str) -> Result<(), BoxError> {
/// let inbox = MySqlInbox::new("outbox")?;
/// let mut tx = conn.start_transaction(TxOpts::default()).await?;
/// if inbox.first_time(&mut tx, "invoicing", id).await? {
///     tx.query_drop("INSERT INTO invoices () VALUES ()").await?;
/// }
/// tx.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MySqlInbox {
    sql: Sql,
    table: TableName,
}

impl MySqlInbox {
    /// The inbox that belongs to the outbox of this name, `<table>_inbox`: `table` (in the connection's database) or
    /// `database.table`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the name cannot be one.
    pub fn new(table: &str) -> Result<Self, Error> {
        Ok(Self::of(&TableName::parse(table)?))
    }

    fn of(table: &TableName) -> Self {
        Self { sql: Sql::new(table), table: table.clone() }
    }

    /// Notes that a consumer has seen a message, by the id that came with it, and says whether it is for the first
    /// time. It counts once the transaction commits; while another open transaction has noted the same, this waits to
    /// see what becomes of it.
    ///
    /// It remembers as long as entries are kept: a message that comes again after they were purged is new.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`] if the consumer's name or the id has more than 255 bytes.
    /// - [`ErrorKind::Conflict`] if the transaction lost against another one and is to be run again; it was rolled back.
    /// - What the database reports.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the message was noted in the transaction: roll it back.
    pub async fn first_time(
        &self,
        tx: &mut Transaction<'_>,
        consumer: &str,
        id: impl Display + Send,
    ) -> Result<bool, Error> {
        let id = id.to_string();
        for (what, value) in [("the consumer's name", consumer), ("the message's id", &id)] {
            if value.len() > MAX_BYTES {
                let text = format!("{what} has {} bytes, more than {MAX_BYTES}", value.len());
                return Err(Error::new(ErrorKind::InvalidInput, text));
            }
        }
        let values = [("consumer", bytes(consumer.as_bytes())), ("message", bytes(id.as_bytes()))];
        match ask(tx, &self.sql.first_time.bind(&values)).await.1 {
            Ok(()) => Ok(true),
            Err(error) if code(&error) == Some(DUPLICATE) => Ok(false),
            Err(error) => {
                let grants = format!("INSERT on {}", self.table.qualified("inbox"));
                Err(map("noting a message", &grants, error))
            }
        }
    }
}

impl MySqlStore {
    /// The inbox of the same name.
    pub fn inbox(&self) -> MySqlInbox {
        MySqlInbox::of(&self.0.table)
    }

    /// Deletes entries of the inbox that are older than an age, oldest first, in one step of at most `limit`. Returns
    /// how many. Keep them longer than a message may be delivered again, redriven ones included.
    ///
    /// # Errors
    /// What the database reports.
    ///
    /// # Cancel safety
    /// What was deleted stays deleted.
    pub async fn purge_inbox(&self, older_than: Duration, limit: usize) -> Result<usize, Error> {
        self.0.purge_inbox(older_than, limit).await
    }
}
