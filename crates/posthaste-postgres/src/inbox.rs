//! The inbox: has this consumer seen this message before?

use std::fmt::Display;
use std::time::Duration;

use posthaste::Error;
use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use crate::error::map;
use crate::sql::Sql;
use crate::store::PostgresStore;
use crate::table::TableName;

/// The consumer's side: notes which messages it has seen, in its own transaction, so that one delivered twice takes
/// effect once. It needs no outbox: a service that only consumes migrates the inbox alone
/// ([`PostgresStore::migrate_inbox`]).
///
/// ```no_run
/// use posthaste::BoxError;
/// use posthaste_postgres::PostgresInbox;
///
/// # async fn on_message(client: &mut tokio_postgres::Client, id: &str) -> Result<(), BoxError> {
/// let inbox = PostgresInbox::new("outbox")?;
/// let tx = client.transaction().await?;
/// if inbox.first_time(&tx, "invoicing", id).await? {
///     tx.execute("INSERT INTO invoices DEFAULT VALUES", &[]).await?;
/// }
/// tx.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PostgresInbox {
    sql: Sql,
    table: TableName,
}

impl PostgresInbox {
    /// The inbox that belongs to the outbox of this name, `<table>_inbox`: `table` (in the schema `public`) or
    /// `schema.table`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](posthaste::ErrorKind::InvalidInput) if the name cannot be one.
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
    /// [`ErrorKind::Conflict`](posthaste::ErrorKind::Conflict) if the transaction lost against another one and is to be
    /// run again, and what the database reports; then the transaction has failed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the message was noted in the transaction: roll it back.
    pub async fn first_time(
        &self,
        tx: &Transaction<'_>,
        consumer: &str,
        id: impl Display + Send,
    ) -> Result<bool, Error> {
        let id = id.to_string();
        let params = [(&consumer as _, Type::TEXT), (&id as _, Type::TEXT)];
        let rows = tx.query_typed(&self.sql.first_time, &params).await.map_err(|error| {
            map("noting a message", &format!("INSERT on {}", self.table.qualified("inbox")), error)
        })?;
        Ok(!rows.is_empty())
    }
}

impl PostgresStore {
    /// The inbox of the same name.
    pub fn inbox(&self) -> PostgresInbox {
        PostgresInbox::of(&self.0.table)
    }

    /// Deletes entries of the inbox that are older than an age, oldest first, in one step of at most `limit`. Returns
    /// how many. Keep them longer than a message may be delivered again, redriven ones included.
    ///
    /// # Errors
    /// What the database reports.
    ///
    /// # Cancel safety
    /// The step is either done or undone.
    pub async fn purge_inbox(&self, older_than: Duration, limit: usize) -> Result<usize, Error> {
        self.0.purge_old(&self.0.sql.purge_inbox, older_than, limit).await
    }
}
