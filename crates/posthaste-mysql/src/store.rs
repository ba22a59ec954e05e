//! The store: what the relay asks of MySQL or MariaDB.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Row;
use posthaste::{
    BeginAttempt, Error, ErrorKind, Inbox, LeaseRequest, Leases, Outbox, Page, ReadRequest, RelayId,
    SettleReport, SettleRequest, Store, UpkeepReport, UpkeepRequest, Waker,
};

use crate::connection::{Connections, Session, Use};
use crate::error::Failure;
use crate::options::MySqlOptions;
use crate::sql::Sql;
use crate::target::Target;
use crate::upkeep::Purger;
use posthaste::dialect::MySqlTable;

/// An outbox in MySQL 8.0 or MariaDB 10.6, or later. Clones share the same connections.
///
/// It makes its own few connections when it needs them, and replaces them when they break: a restart or a failover of
/// the server is ridden out.
#[derive(Clone)]
pub struct MySqlStore(pub(crate) Arc<Inner>);

/// What the clones of a store share.
pub(crate) struct Inner {
    pub(crate) options: MySqlOptions,
    pub(crate) table: MySqlTable,
    /// The database that the table lies in.
    pub(crate) database: String,
    pub(crate) sql: Sql,
    pub(crate) connections: Connections,
    pub(crate) waker: Waker,
    outbox: Outbox,
    inbox: Inbox,
    pub(crate) purger: Purger,
    /// Whether the last read found about a record for each lane, or more.
    pub(crate) reads_find_much: AtomicBool,
}

impl MySqlStore {
    /// A store that connects when it is used.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if a setting makes no sense.
    pub fn new(options: MySqlOptions) -> Result<Self, Error> {
        check(&options)?;
        let target = Target::parse(&options.url)?;
        let table = MySqlTable::parse(&options.table)?;
        let database = table.database().unwrap_or(&target.database).to_owned();
        let waker = Waker::default();
        let outbox = Outbox::new(&options.table)?;
        let outbox = outbox.with_rules(options.rules.clone()).with_waker(waker.clone());
        let inbox = Inbox::new(&options.table)?;
        Ok(Self(Arc::new(Inner {
            sql: Sql::new(&table),
            connections: Connections::new(
                target,
                options.connections,
                options.connect_timeout,
                // The server gives up first, so that the connection can be kept.
                options.statement_timeout.mul_f64(0.75),
            ),
            waker,
            outbox,
            inbox,
            purger: Purger::default(),
            reads_find_much: AtomicBool::new(false),
            database,
            table,
            options,
        })))
    }

    /// A store whose first connection is made at once, so that a wrong URL, user, database or server is found out now, and
    /// a table that is there but cannot be an outbox. The tables need not be there yet.
    ///
    /// # Errors
    /// As [`new`](Self::new), and what is wrong with the connection or the table.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn connect(options: MySqlOptions) -> Result<Self, Error> {
        let store = Self::new(options)?;
        let mut session = store.0.session(Use::Other, "connecting").await?;
        let looked = store.0.check_table(&mut session).await;
        session.done(looked).await.map_err(|failure| store.0.error("connecting", failure))?;
        Ok(store)
    }

    /// A connection of the caller's own to the same database, for a producer that has no other. It is made with the
    /// URL's TLS and the store's time limit.
    ///
    /// # Errors
    /// What is wrong with the connection.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn client(&self) -> Result<mysql_async::Conn, Error> {
        self.0.connections.start().await.map_err(|failure| self.0.error("connecting", failure))
    }

    /// The producer's side of this outbox, for transactions of any driver. Its receipts wake the relays of this store in
    /// this process.
    ///
    /// ```no_run
    /// use mysql_async::TxOpts;
    /// use mysql_async::prelude::Queryable;
    /// use posthaste::{BoxError, Message, Outbox};
    ///
    /// # async fn place_order(outbox: &Outbox, conn: &mut mysql_async::Conn) -> Result<(), BoxError> {
    /// let mut tx = conn.start_transaction(TxOpts::default()).await?;
    /// tx.query_drop("UPDATE orders SET state = 'paid' WHERE id = 7").await?;
    /// let message = Message::new("order.paid").aggregate("order", 7).json(&serde_json::json!({"id": 7}))?;
    /// let receipt = outbox.enqueue(&mut tx, &message).await?;
    /// tx.commit().await?;
    /// receipt.wake();
    /// # Ok(()) }
    /// ```
    pub fn outbox(&self) -> Outbox {
        self.0.outbox.clone()
    }

    /// The inbox of the same name.
    pub fn inbox(&self) -> Inbox {
        self.0.inbox.clone()
    }

    /// What wakes the relays of this store in this process.
    pub fn waker(&self) -> &Waker {
        &self.0.waker
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlStore").field("table", &self.0.table.to_string()).finish_non_exhaustive()
    }
}

fn check(options: &MySqlOptions) -> Result<(), Error> {
    let invalid = |text: &str| Err(Error::new(ErrorKind::InvalidInput, text));
    if !(1..=1_024).contains(&options.lanes) {
        return invalid("lanes must be 1 to 1024");
    }
    if options.connections == 0 {
        return invalid("connections is 0; it must be at least 1");
    }
    let timeouts = [options.connect_timeout, options.statement_timeout, options.migration_timeout];
    if timeouts.iter().any(|timeout| timeout.as_millis() == 0 || timeout.as_millis() > i32::MAX as u128) {
        return invalid("a timeout must be between a millisecond and 24 days");
    }
    Ok(())
}

impl Inner {
    /// How long a step may take.
    pub(crate) fn limit(&self) -> Duration {
        self.options.statement_timeout
    }

    pub(crate) fn error(&self, doing: &str, failure: Failure) -> Error {
        let grants = format!("SELECT, INSERT, UPDATE and DELETE on {} and its side tables", self.table);
        failure.into_error(doing, &grants)
    }

    /// Takes a connection.
    pub(crate) async fn session(&self, usage: Use, doing: &str) -> Result<Session, Error> {
        let session = self.connections.session(usage, self.limit()).await;
        session.map_err(|failure| self.error(doing, failure))
    }

    /// Runs one statement, as a transaction of its own.
    pub(crate) async fn run(&self, usage: Use, doing: &str, sql: &str) -> Result<Vec<Row>, Error> {
        let mut session = self.session(usage, doing).await?;
        let rows = session.rows(sql).await;
        session.done(rows).await.map_err(|failure| self.error(doing, failure))
    }

    /// Runs one statement that changes rows, as a transaction of its own. Returns how many it found.
    pub(crate) async fn change(&self, usage: Use, doing: &str, sql: &str) -> Result<u64, Error> {
        let mut session = self.session(usage, doing).await?;
        let changed = session.ask(sql).await;
        let changed = changed.map(|answers| answers.first().map_or(0, |answer| answer.affected));
        session.done(changed).await.map_err(|failure| self.error(doing, failure))
    }
}

/// How often one of our transactions is run again that lost against another one.
pub(crate) const TRIES: usize = 4;

#[async_trait]
impl Store for MySqlStore {
    async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
        self.0.lease(request).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), Error> {
        self.0.leave(relay).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        self.0.read(request).await
    }

    async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error> {
        self.0.begin_attempt(attempt).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error> {
        self.0.settle(request).await
    }

    async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
        self.0.upkeep(request).await
    }

    /// Does nothing: MySQL has no way to call another connection.
    async fn set_idle(&self, _relay: RelayId, _idle: bool) -> Result<(), Error> {
        Ok(())
    }

    async fn rung(&self) {
        self.0.waker.woken().await;
    }
}
