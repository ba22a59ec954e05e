//! The database as files.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use posthaste::{
    Admin, DeadSelection, ErrorKind, LeaseRequest, ListFilter, Message, Mode, Outcome, RelayId, Store,
    UpkeepRequest,
};
use posthaste_sqlite::rusqlite::Connection;
use posthaste_sqlite::{SqliteOptions, SqliteStore, Synchronous, fair_busy_timeout};

use crate::support::{Database, Holder, begin, read_from};

fn log_size(database: &Database) -> u64 {
    fs::metadata(database.beside("outbox.db-wal")).map_or(0, |file| file.len())
}

fn upkeep_request() -> UpkeepRequest {
    UpkeepRequest {
        relay: RelayId::random(),
        lease: Duration::from_secs(1),
        keep_processed: None,
        keep_keys: None,
        keep_inbox: None,
        limit: 100,
    }
}

/// Commits so many messages of 10 kB, each in a transaction of its own.
fn enqueue(database: &Database, connection: &mut Connection, messages: usize) {
    let outbox = database.store.outbox();
    for _ in 0..messages {
        let tx = begin(connection);
        outbox.enqueue(&tx, &Message::new("e").payload(vec![b'x'; 10_000])).unwrap();
        tx.commit().unwrap();
    }
}

#[tokio::test]
async fn a_log_that_nobody_checkpoints_is_truncated() {
    const LIMIT: u64 = 1024 * 1024;
    let database = Database::migrated_with(SqliteOptions::default().wal_limit(LIMIT)).await;
    let mut connection = database.connect();
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0").unwrap();
    enqueue(&database, &mut connection, 10);
    let before = log_size(&database);
    database.store.upkeep(&upkeep_request()).await.unwrap();
    assert!(log_size(&database) >= before, "a log below the limit is left alone");
    for _ in 0..2 {
        enqueue(&database, &mut connection, 90);
        assert!(log_size(&database) > LIMIT);
        database.clock.advance(Duration::from_secs(2));
        // Any write of the store does.
        database.store.leave(RelayId::random()).await.unwrap();
        assert_eq!(log_size(&database), 0);
    }
    assert_eq!(database.read().await.len(), 190);
}

#[tokio::test]
async fn upkeep_puts_up_with_a_reader_that_holds_the_log() {
    let database = Database::migrated_with(SqliteOptions::default().wal_limit(0)).await;
    let mut reader = database.connect();
    let snapshot = reader.transaction().unwrap();
    let seen: i64 = snapshot.query_row("SELECT count(*) FROM outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 0);
    let mut writer = database.connect();
    enqueue(&database, &mut writer, 5);
    assert!(database.store.upkeep(&upkeep_request()).await.unwrap().ours);
    // Others can write again.
    enqueue(&database, &mut writer, 1);
    drop(snapshot);
    database.clock.advance(Duration::from_secs(2));
    database.store.upkeep(&upkeep_request()).await.unwrap();
    assert_eq!(log_size(&database), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_log_stays_small_under_load() {
    const PRODUCERS: usize = 4;
    const LIMIT: u64 = 2 * 1024 * 1024;
    let database = Database::migrated_with(SqliteOptions::default().wal_limit(LIMIT)).await;
    let holder = Holder::new(&database.store).await;
    let running = AtomicUsize::new(PRODUCERS);
    thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| {
                let mut connection = database.connect();
                fair_busy_timeout(&mut connection, Duration::from_secs(30)).unwrap();
                connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
                enqueue(&database, &mut connection, 1_500);
                running.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let relay = async {
            let mut after = None;
            while running.load(Ordering::Relaxed) > 0 {
                let records = read_from(&database.store, after).await;
                holder.settle(&records, &Outcome::Processed).await;
                after = records.last().map(|record| record.position).or(after);
            }
        };
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(relay));
    });
    // The messages are 60 MB, and each is written twice. How large the log was in between is the scheduler's affair.
    database.store.leave(holder.relay).await.unwrap();
    assert!(log_size(&database) <= LIMIT, "{} bytes", log_size(&database));
}

#[tokio::test]
async fn a_store_for_reading_reads_and_nothing_else() {
    let database = Database::migrated().await;
    enqueue(&database, &mut database.connect(), 1);
    let store = SqliteStore::open(database.path(), database.options.clone().read_only(true)).unwrap();
    assert_eq!(store.stats(None).await.unwrap().ready.count, 1);
    assert_eq!(read_from(&store, None).await.len(), 1);
    assert_eq!(store.redrive(&DeadSelection::All, Mode::DryRun).await.unwrap(), 0);
    assert_eq!(store.migrate().await.unwrap(), [], "there is nothing to do");
    let error = store.leave(RelayId::random()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    let error = store.discard(&DeadSelection::All, Mode::UpTo(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert_eq!(store.stats(None).await.unwrap().ready.count, 1, "and it goes on reading");
}

#[tokio::test]
async fn looking_at_an_outbox_writes_nothing() {
    let database = Database::migrated().await;
    enqueue(&database, &mut database.connect(), 3);
    let holder = Holder::new(&database.store).await;
    let records = database.read().await;
    holder.give_up(&records[..1], true).await;
    let files = || {
        let read = |name: &str| fs::read(database.beside(name)).unwrap();
        (read("outbox.db"), read("outbox.db-wal"))
    };
    let before = files();
    let other = database.second();
    other.stats(Some(100)).await.unwrap();
    other.list(&ListFilter { state: None, event_type: None, limit: 10 }).await.unwrap();
    other.show(records[0].id).await.unwrap().unwrap();
    other.pending_migrations().await.unwrap();
    other.redrive(&DeadSelection::All, Mode::DryRun).await.unwrap();
    other.migrate().await.unwrap();
    read_from(&other, None).await;
    assert!(files() == before);
    // The relay was not disturbed.
    assert_eq!(holder.settle(&records[1..], &Outcome::Processed).await.applied, 2);
}

fn remove(database: &Database) {
    for name in ["outbox.db", "outbox.db-wal", "outbox.db-shm"] {
        let _ = fs::remove_file(database.beside(name));
    }
}

#[tokio::test]
async fn a_file_that_is_replaced_is_opened_again() {
    let database = Database::migrated().await;
    enqueue(&database, &mut database.connect(), 1);
    assert_eq!(database.read().await.len(), 1);

    remove(&database);
    let cautious = SqliteStore::open(database.path(), SqliteOptions::default()).unwrap();
    assert_eq!(cautious.stats(None).await.unwrap_err().kind(), ErrorKind::NotMigrated);
    assert!(!database.path().exists());

    let restored = Database::migrated().await;
    enqueue(&restored, &mut restored.connect(), 3);
    let path = restored.beside("copy.db");
    restored.connect().execute("VACUUM INTO ?1", [path.to_str().unwrap()]).unwrap();
    fs::rename(path, database.path()).unwrap();
    assert_eq!(database.read().await.len(), 3);
    assert_eq!(cautious.stats(None).await.unwrap().ready.count, 3);
}

#[tokio::test]
async fn a_damaged_file_is_an_error_and_no_panic() {
    let database = Database::migrated().await;
    let path = database.path();
    enqueue(&database, &mut database.connect(), 50);
    let copy = database.beside("copy.db");
    database.connect().execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    let mut bytes = fs::read(&copy).unwrap();
    // All but the page of the schema.
    bytes[4096..].fill(0xa5);
    remove(&database);
    fs::write(&path, bytes).unwrap();
    let error = database.store.stats(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Database);
    assert!(error.to_string().contains("damaged"), "{error}");
}

#[tokio::test]
async fn a_commit_can_wait_for_the_disk() {
    let database = Database::migrated_with(SqliteOptions::default().synchronous(Synchronous::Full)).await;
    enqueue(&database, &mut database.connect(), 1);
    let holder = Holder::new(&database.store).await;
    assert_eq!(holder.settle(&database.read().await, &Outcome::Processed).await.applied, 1);
}

/// Whether file permissions mean anything to this user. To root they do not.
fn is_bound_by_permissions(directory: &Path) -> bool {
    let bound = fs::File::create(directory.join("probe")).is_err();
    if !bound {
        eprintln!("SKIPPED: this user may write to read-only files");
    }
    bound
}

#[cfg(unix)]
#[tokio::test]
async fn a_file_that_may_only_be_read_can_be_looked_at() {
    use std::os::unix::fs::PermissionsExt;

    let database = Database::missing(SqliteOptions::default());
    let directory = database.beside("protected");
    fs::create_dir(&directory).unwrap();
    let path = directory.join("outbox.db");
    {
        let store = SqliteStore::open(&path, database.options.clone().create(true)).unwrap();
        store.migrate().await.unwrap();
        let copy = database.beside("copy.db");
        let connection = Connection::open(&path).unwrap();
        connection.execute("INSERT INTO outbox (event_type) VALUES ('e')", []).unwrap();
        connection.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
        drop((connection, store));
        for name in ["outbox.db", "outbox.db-wal", "outbox.db-shm"] {
            let _ = fs::remove_file(directory.join(name));
        }
        let copied = Connection::open(&copy).unwrap();
        copied.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        drop(copied);
        fs::rename(copy, &path).unwrap();
    }
    let protect = |mode: u32| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode & 0o666)).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
    };
    protect(0o555);
    if is_bound_by_permissions(&directory) {
        let store = SqliteStore::open(&path, database.options.clone()).unwrap();
        for _ in 0..2 {
            assert_eq!(store.stats(None).await.unwrap().ready.count, 1);
        }
        let lease = LeaseRequest {
            relay: RelayId::random(),
            name: "test".to_owned(),
            duration: Duration::from_secs(1),
            give_back: Vec::new(),
        };
        assert_eq!(store.lease(&lease).await.unwrap_err().kind(), ErrorKind::ReadOnly);
        protect(0o111);
        assert_eq!(store.stats(None).await.unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
    protect(0o755);
}
