//! [`Store`] for SQLite.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use posthaste::dialect::SqliteTable as TableName;
use posthaste::{
    BeginAttempt, Error, ErrorKind, Inbox, LeaseRequest, Leases, Outbox, Page, ReadRequest, RelayId,
    SettleReport, SettleRequest, Store, UpkeepReport, UpkeepRequest, Waker,
};

use crate::connection::Connection;
use crate::database::Settings;
use crate::options::SqliteOptions;
use crate::sql::Sql;
use crate::{lease, read, settle, upkeep};

/// An outbox in an SQLite database, as the relay and operators use it.
///
/// It has one connection, on a thread of its own that ends when the last clone is dropped. An outbox in SQLite has
/// one lane: one relay publishes, others stand by.
///
/// The time by which leases and delays are judged is the process's own ([`SqliteOptions::clock`]), so relays on one
/// file, which are on one machine, share it.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    pub(crate) connection: Connection,
    outbox: Outbox,
    inbox: Inbox,
    waker: Waker,
}

impl SqliteStore {
    /// A store on a database file. The file is opened at the first operation, and again when it was replaced or
    /// came back after a failure.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] where the table's name, the path or a time makes no sense.
    pub fn open(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, Error> {
        let path = path.as_ref();
        if path.as_os_str().is_empty() || path == Path::new(":memory:") {
            let shown = path.display();
            let text =
                format!("\"{shown}\" is no database file; other programs have to reach the outbox too");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        if options.time_limit.is_zero() {
            return Err(Error::new(ErrorKind::InvalidInput, "time_limit is 0; it must be longer"));
        }
        let path: PathBuf = std::path::absolute(path).map_err(|source| {
            let text = format!("the path {} cannot be resolved", path.display());
            Error::new(ErrorKind::InvalidInput, text).with_source(source)
        })?;
        let sql = Arc::new(Sql::new(TableName::new(&options.table)?));
        let (waker, clock) = (Waker::default(), &options.clock);
        let outbox = Outbox::new(&options.table)?.with_waker(waker.clone()).with_clock(Arc::clone(clock));
        let inbox = Inbox::new(&options.table)?.with_clock(Arc::clone(clock));
        let connection = Connection::start(Settings { path, options, sql })?;
        Ok(Self { connection, outbox, inbox, waker })
    }

    /// The producer's side, on the same table and clock, for transactions of any driver. Its receipts wake the relay on
    /// this store.
    pub fn outbox(&self) -> Outbox {
        self.outbox.clone()
    }

    /// The inbox on the same table and clock.
    pub fn inbox(&self) -> Inbox {
        self.inbox.clone()
    }

    /// Wakes the relay on this store.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The path of the database file, absolute.
    pub fn path(&self) -> &Path {
        &self.connection.settings().path
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
        let request = request.clone();
        self.connection.run(move |database| lease::lease(database, &request)).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), Error> {
        self.connection.run(move |database| lease::leave(database, relay)).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        let request = request.clone();
        self.connection.run(move |database| read::read(database, &request)).await
    }

    async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error> {
        let attempt = *attempt;
        self.connection.run(move |database| settle::begin_attempt(database, &attempt)).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error> {
        let request = request.clone();
        self.connection.run(move |database| settle::settle(database, &request)).await
    }

    async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
        let request = request.clone();
        self.connection.run(move |database| upkeep::upkeep(database, &request)).await
    }

    /// Does nothing: SQLite has no way to wake another process, so relays there find new messages by polling.
    async fn set_idle(&self, _relay: RelayId, _idle: bool) -> Result<(), Error> {
        Ok(())
    }

    async fn rung(&self) {
        self.waker.woken().await;
    }
}
