//! Several connections, threads and processes on one file.

use std::collections::HashSet;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use posthaste::{ErrorKind, LeaseRequest, Message, Outbox, Outcome, RelayId, Store};
use posthaste_sqlite::rusqlite::{Connection, ErrorCode, TransactionBehavior};
use posthaste_sqlite::{SqliteOptions, fair_busy_timeout};

use crate::support::{Database, Holder, begin};

fn lease_request() -> LeaseRequest {
    LeaseRequest {
        relay: RelayId::random(),
        name: "test".to_owned(),
        duration: Duration::from_mins(1),
        give_back: Vec::new(),
    }
}

#[tokio::test]
async fn a_read_does_not_wait_for_a_writer() {
    let database = Database::migrated().await;
    let mut connection = database.connect();
    let tx = begin(&mut connection);
    database.store.outbox().enqueue(&tx, &Message::new("e")).unwrap();
    assert_eq!(database.read().await, []);
    tx.commit().unwrap();
    assert_eq!(database.read().await.len(), 1);
}

#[tokio::test]
async fn a_lock_is_waited_for_as_long_as_the_busy_timeout_says() {
    let options = SqliteOptions::default().busy_timeout(Duration::from_millis(50));
    let database = Database::migrated_with(options).await;
    let mut connection = database.connect();
    let tx = begin(&mut connection);
    let error = database.store.lease(&lease_request()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("locked"), "{error}");
    drop(tx);
    database.store.lease(&lease_request()).await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_released_in_time_is_no_trouble() {
    let database = Database::migrated().await;
    let mut connection = database.connect();
    let tx = begin(&mut connection);
    let store = database.store.clone();
    let lease = tokio::spawn(async move { store.lease(&lease_request()).await });
    tokio::task::yield_now().await;
    tx.commit().unwrap();
    assert_eq!(lease.await.unwrap().unwrap().lanes.len(), 1);
}

#[tokio::test]
async fn a_fair_busy_timeout_ends() {
    let database = Database::migrated().await;
    let (mut holder, mut waiter) = (database.connect(), database.connect());
    fair_busy_timeout(&mut waiter, Duration::from_millis(20)).unwrap();
    let held = begin(&mut holder);
    let refused = waiter.transaction_with_behavior(TransactionBehavior::Immediate).map(drop).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    drop(held);
    begin(&mut waiter);
}

#[tokio::test]
async fn no_read_transaction_survives_a_call() {
    let database = Database::migrated().await;
    let mut connection = database.connect();
    let holder = Holder::new(&database.store).await;
    for _ in 0..3 {
        let tx = begin(&mut connection);
        database.store.outbox().enqueue(&tx, &Message::new("e")).unwrap();
        tx.commit().unwrap();
        let records = database.read().await;
        holder.settle(&records, &Outcome::Processed).await;
        // Fails where a snapshot is held, even after all its data is in the database file.
        let busy: bool =
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
        assert!(!busy);
    }
}

const PATH: &str = "POSTHASTE_TEST_ENQUEUE_TO";
const DIE: &str = "POSTHASTE_TEST_DIE_AT";
const EACH: usize = 200;
const THREADS: usize = 4;
const PROCESSES: usize = 4;

fn enqueue_many(path: &std::path::Path) {
    let outbox = Outbox::new("outbox").unwrap();
    let mut connection = Connection::open(path).unwrap();
    fair_busy_timeout(&mut connection, Duration::from_secs(30)).unwrap();
    for number in 0..EACH {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let message = Message::new("e").aggregate("order", number % 10).payload(vec![b'x'; 200]);
        outbox.enqueue(&tx, &message).unwrap();
        tx.commit().unwrap();
    }
}

/// Not a test by itself: what the next test runs as other processes.
#[test]
fn a_producer_in_another_process() {
    if let Some(path) = std::env::var_os(PATH) {
        enqueue_many(path.as_ref());
    }
}

/// Not a test by itself, either: a process that dies with a transaction open.
#[test]
fn a_producer_that_dies() {
    if let Some(path) = std::env::var_os(DIE) {
        enqueue_many(path.as_ref());
        let mut connection = Connection::open(path).unwrap();
        let tx = begin(&mut connection);
        let outbox = Outbox::new("outbox").unwrap();
        let messages = [Message::new("lost").idempotency_key("k"), Message::new("lost")];
        outbox.enqueue_all(&tx, &messages).unwrap();
        std::process::abort();
    }
}

fn start(test: &str, variable: &str, database: &Database) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(variable, database.path()).spawn().unwrap()
}

#[tokio::test]
async fn a_process_that_dies_takes_its_open_transaction_with_it() {
    let database = Database::migrated().await;
    let status = start("locks::a_producer_that_dies", DIE, &database).wait().unwrap();
    assert!(!status.success());
    let records = database.read().await;
    assert_eq!(records.len(), EACH);
    assert!(records.iter().all(|record| record.event_type == "e"));
    // Its lock is gone, and its idempotency key is free.
    let mut connection = database.connect();
    let tx = begin(&mut connection);
    database.store.outbox().enqueue(&tx, &Message::new("e").idempotency_key("k")).unwrap();
    tx.commit().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_locked_while_many_enqueue_and_a_relay_settles() {
    let database = Database::migrated().await;
    let running = AtomicUsize::new(THREADS);
    let standby = database.second();
    let holder = Holder::new(&database.store).await;
    let mut producers: Vec<_> =
        (0..PROCESSES).map(|_| start("locks::a_producer_in_another_process", PATH, &database)).collect();
    let mut settled = HashSet::new();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                enqueue_many(&database.path());
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let relay = async {
            loop {
                let threads_run = running.load(Ordering::Relaxed) > 0;
                let processes_run = producers.iter_mut().any(|child| child.try_wait().unwrap().is_none());
                let records = database.read().await;
                standby.lease(&lease_request()).await.unwrap();
                let report = holder.settle(&records, &Outcome::Processed).await;
                assert_eq!(report.applied, records.len());
                for record in &records {
                    assert!(settled.insert(record.id));
                }
                if records.is_empty() && !threads_run && !processes_run {
                    break;
                }
            }
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(relay));
    });
    for producer in &mut producers {
        assert!(producer.wait().unwrap().success(), "a producer failed, and said why above");
    }
    assert_eq!(settled.len(), (THREADS + PROCESSES) * EACH);
}
