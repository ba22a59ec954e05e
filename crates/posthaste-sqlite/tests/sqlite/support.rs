//! A database file for one test.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posthaste::{
    Admin, Clock, DueRecords, Keys, Lane, LeaseRequest, ManualClock, Outcome, Position, ReadRequest, Record,
    RecordRef, RelayId, Scan, SettleReport, SettleRequest, Settlement, Store, SystemClock,
};
use posthaste_sqlite::rusqlite::{Connection, Transaction, TransactionBehavior};
use posthaste_sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

pub(crate) struct Database {
    pub(crate) store: SqliteStore,
    pub(crate) clock: ManualClock,
    pub(crate) options: SqliteOptions,
    directory: TempDir,
}

impl Database {
    /// A file that does not exist yet.
    pub(crate) fn missing(options: SqliteOptions) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::new(SystemClock.now());
        let options = options.with_clock(Arc::new(clock.clone()));
        let store = SqliteStore::open(directory.path().join("outbox.db"), options.clone()).unwrap();
        Self { store, clock, options, directory }
    }

    /// An outbox with its schema up to date.
    pub(crate) async fn migrated() -> Self {
        Self::migrated_with(SqliteOptions::default()).await
    }

    pub(crate) async fn migrated_with(options: SqliteOptions) -> Self {
        let database = Self::missing(options.create(true));
        database.store.migrate().await.unwrap();
        database
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("outbox.db")
    }

    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Another store on the same file.
    pub(crate) fn second(&self) -> SqliteStore {
        SqliteStore::open(self.path(), self.options.clone()).unwrap()
    }

    /// A connection as a producer has one.
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.path()).unwrap()
    }

    /// All that may be published now.
    pub(crate) async fn read(&self) -> Vec<Record> {
        read_from(&self.store, None).await
    }
}

/// Begins a transaction as the documentation says.
pub(crate) fn begin(connection: &mut Connection) -> Transaction<'_> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap()
}

pub(crate) async fn read_from(store: &SqliteStore, after: Option<Position>) -> Vec<Record> {
    let request = ReadRequest {
        scans: vec![Scan { lane: Lane(0), after, until: None, due: DueRecords::All }],
        keys: Keys::Except(Vec::new()),
        in_hand: Vec::new(),
        max_rows: 10_000,
        max_per_key: 10_000,
        max_bytes: 1 << 30,
        max_scanned: 1_000_000,
    };
    store.read(&request).await.unwrap().records
}

/// A relay that holds the lane.
pub(crate) struct Holder<'s> {
    store: &'s SqliteStore,
    pub(crate) relay: RelayId,
    token: i64,
}

impl<'s> Holder<'s> {
    pub(crate) async fn new(store: &'s SqliteStore) -> Self {
        let relay = RelayId::random();
        let duration = Duration::from_hours(1);
        let request = LeaseRequest { relay, name: "test".to_owned(), duration, give_back: Vec::new() };
        let leases = store.lease(&request).await.unwrap();
        Self { store, relay, token: leases.lanes[0].token }
    }

    pub(crate) async fn settle(&self, records: &[Record], outcome: &Outcome) -> SettleReport {
        let settlement = |record: &Record| Settlement {
            record: RecordRef {
                id: record.id,
                position: record.position,
                lane: record.lane,
                token: self.token,
            },
            outcome: outcome.clone(),
        };
        let request = SettleRequest {
            relay: self.relay,
            delete_processed: false,
            settlements: records.iter().map(settlement).collect(),
        };
        self.store.settle(&request).await.unwrap()
    }

    pub(crate) async fn give_up(&self, records: &[Record], park: bool) {
        let outcome = Outcome::Dead { attempts: 1, error: "refused".to_owned(), park };
        assert_eq!(self.settle(records, &outcome).await.applied, records.len());
    }
}
