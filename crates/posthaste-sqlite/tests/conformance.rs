//! The conformance suite, on a database file for each test.
#![expect(clippy::unwrap_used, reason = "a fixture that fails is a test that fails")]

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use posthaste::{Admin, Clock, Error, ManualClock, Message, MessageId, Outbox, Receipt, Store, SystemClock};
use posthaste_sqlite::rusqlite::Connection;
use posthaste_sqlite::{SqliteOptions, SqliteStore};
use posthaste_testkit::{FixtureTransaction, Payloads, StoreFixture, store_conformance};
use tempfile::TempDir;

store_conformance!(SqliteFixture);

struct SqliteFixture {
    store: SqliteStore,
    options: SqliteOptions,
    clock: ManualClock,
    directory: TempDir,
}

impl SqliteFixture {
    fn empty() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(whole_millisecond(SystemClock.now()));
        let options = SqliteOptions::default().create(true).with_clock(Arc::new(clock.clone()));
        let store = SqliteStore::open(directory.path().join("outbox.db"), options.clone()).unwrap();
        Self { store, options, clock, directory }
    }
}

/// The table's times are milliseconds: so that what is asked for after five is due after five, and not after six.
fn whole_millisecond(time: SystemTime) -> SystemTime {
    let age = time.duration_since(UNIX_EPOCH).unwrap().as_millis();
    UNIX_EPOCH + Duration::from_millis(u64::try_from(age).unwrap())
}

#[async_trait]
impl StoreFixture for SqliteFixture {
    async fn new() -> Option<Self> {
        let fixture = Self::empty();
        fixture.store.migrate().await.unwrap();
        Some(fixture)
    }

    async fn unmigrated() -> Option<Self> {
        Some(Self::empty())
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn admin(&self) -> Arc<dyn Admin> {
        Arc::new(self.store.clone())
    }

    async fn second(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.store.path(), self.options.clone()).unwrap())
    }

    fn lanes(&self) -> u16 {
        1
    }

    fn concurrent_transactions(&self) -> bool {
        false
    }

    fn payloads(&self) -> Payloads {
        Payloads::AnyBytes
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn begin(&self) -> Box<dyn FixtureTransaction> {
        let connection = Connection::open(self.directory.path().join("outbox.db")).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        Box::new(Transaction { connection, outbox: self.store.outbox() })
    }
}

/// Dropping the connection rolls back.
struct Transaction {
    connection: Connection,
    outbox: Outbox,
}

#[async_trait]
impl FixtureTransaction for Transaction {
    async fn enqueue(&mut self, message: &Message) -> Result<MessageId, Error> {
        let savepoint = self.connection.savepoint().unwrap();
        let receipt = self.outbox.enqueue(&savepoint, message);
        // The error alone has to see to it that nothing stays behind.
        savepoint.commit().unwrap();
        receipt.map(|receipt| receipt.id())
    }

    async fn enqueue_all(&mut self, messages: &[Message]) -> Result<Vec<MessageId>, Error> {
        let savepoint = self.connection.savepoint().unwrap();
        let receipts = self.outbox.enqueue_all(&savepoint, messages);
        savepoint.commit().unwrap();
        receipts.map(|receipts| receipts.iter().map(Receipt::id).collect())
    }

    async fn commit(self: Box<Self>) {
        self.connection.execute_batch("COMMIT").unwrap();
    }

    async fn rollback(self: Box<Self>) {
        self.connection.execute_batch("ROLLBACK").unwrap();
    }
}
