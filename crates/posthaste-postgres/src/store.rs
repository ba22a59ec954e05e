//! The store: what the relay asks of PostgreSQL.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::dialect::PostgresTable as TableName;
use posthaste::{
    BeginAttempt, Error, ErrorKind, Inbox, LeaseRequest, Leases, Outbox, Page, ReadRequest, RelayId,
    SettleReport, SettleRequest, Store, UpkeepReport, UpkeepRequest, Waker,
};
use tokio_postgres::Row;

use crate::connection::{Begin, Connections, Params, Session, Use, session_settings};
use crate::error::Failure;
use crate::firm::Firm;
use crate::options::PostgresOptions;
use crate::places::Places;
use crate::sql::Sql;
use crate::target::Target;
use crate::upkeep::Purger;
use crate::wake::Bell;

/// An outbox in PostgreSQL 13 or later. Clones share the same connections.
///
/// It makes its own few connections when it needs them, and replaces them when they break: a restart or a failover of
/// the server is ridden out. Nothing it does depends on a session, so it works behind a pooler in transaction mode.
#[derive(Clone)]
pub struct PostgresStore(pub(crate) Arc<Inner>);

/// What the clones of a store share.
pub(crate) struct Inner {
    pub(crate) options: PostgresOptions,
    pub(crate) table: TableName,
    pub(crate) sql: Sql,
    pub(crate) begin_read: Begin,
    pub(crate) begin_write: Begin,
    pub(crate) connections: Connections,
    pub(crate) waker: Waker,
    pub(crate) bell: Bell,
    pub(crate) purger: Purger,
    pub(crate) firm: Firm,
    pub(crate) places: Places,
    outbox: Outbox,
    inbox: Inbox,
}

impl PostgresStore {
    /// A store that connects when it is used.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if a setting makes no sense.
    pub fn new(options: PostgresOptions) -> Result<Self, Error> {
        check(&options)?;
        let (connect, statement) = (options.connect_timeout, options.statement_timeout);
        let target = Target::parse("the database URL", &options.url, connect, statement)?;
        let mut table = TableName::parse(&options.table)?;
        if let Some(schema) = &target.schema {
            table = table.in_schema(schema)?;
        }
        let listen = match &options.listen_url {
            Some(url) => Target::parse("the URL to listen at", url, connect, statement)?,
            None => target.clone(),
        };
        let waker = Waker::default();
        let outbox = Outbox::new(&table.to_string())?;
        let outbox = outbox.with_rules(options.rules.clone()).with_waker(waker.clone());
        let bell = Bell::new(listen, &table, &options, waker.clone());
        Ok(Self(Arc::new(Inner {
            sql: Sql::new(&table),
            begin_read: Begin::read(options.statement_timeout),
            begin_write: Begin::write(options.statement_timeout),
            connections: Connections::new(
                target,
                session_settings(options.statement_timeout),
                options.connections,
                options.connect_timeout,
            ),
            waker,
            bell,
            purger: Purger::default(),
            firm: Firm::default(),
            places: Places::default(),
            outbox,
            inbox: Inbox::new(&table.to_string())?,
            table,
            options,
        })))
    }

    /// A store whose first connection is made at once, so that a wrong URL, user or database is found out now. The
    /// tables need not be there yet.
    ///
    /// # Errors
    /// As [`new`](Self::new), and what is wrong with the connection.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn connect(options: PostgresOptions) -> Result<Self, Error> {
        let store = Self::new(options)?;
        let session = store.0.connections.session(Use::Other, store.0.limit()).await;
        let session = session.map_err(|failure| store.0.error("connecting", failure))?;
        let answered = session.within(session.client().batch_execute("SELECT 1")).await;
        session.done(answered).map_err(|failure| store.0.error("connecting", failure))?;
        Ok(store)
    }

    /// A connection of the caller's own to the same database, for a producer that has no other. It is made with the
    /// URL's TLS and the store's time limit, and closed when the client is dropped.
    ///
    /// # Errors
    /// What is wrong with the connection.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn client(&self) -> Result<tokio_postgres::Client, Error> {
        self.0.connections.start().await.map_err(|failure| self.0.error("connecting", failure))
    }

    /// The producer's side of this outbox, for transactions of any driver. Its receipts wake the relays of this store in
    /// this process.
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

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("table", &self.0.table.to_string()).finish_non_exhaustive()
    }
}

fn check(options: &PostgresOptions) -> Result<(), Error> {
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
        // The server ends a statement first, so that its connection can be kept where that is possible.
        self.options.statement_timeout + Duration::from_millis(250)
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

    /// Runs one statement in a transaction of its own.
    pub(crate) async fn run(
        &self,
        usage: Use,
        doing: &str,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Vec<Row>, Error> {
        let begin = if usage == Use::Read { &self.begin_read } else { &self.begin_write };
        let session = self.session(usage, doing).await?;
        let rows = session.run(begin, sql, params).await;
        session.done(rows).map_err(|failure| self.error(doing, failure))
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
        self.0.lease(request).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), Error> {
        self.0.forget_idle(relay);
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

    async fn set_idle(&self, relay: RelayId, idle: bool) -> Result<(), Error> {
        self.0.set_idle(relay, idle).await
    }

    async fn rung(&self) {
        self.0.bell.rung().await;
    }
}
