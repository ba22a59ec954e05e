//! Migrating, and databases that are not what they should be.

use std::thread;

use posthaste::{Admin, ErrorKind, Message, Outbox, RelayId, Store};
use posthaste_sqlite::rusqlite::Connection;
use posthaste_sqlite::{SqliteOptions, SqliteStore};

use crate::support::{Database, begin};

#[tokio::test]
async fn a_migration_is_applied_once() {
    let database = Database::missing(SqliteOptions::default().create(true));
    assert_eq!(database.store.pending_migrations().await.unwrap().len(), 2);
    let applied = database.store.migrate().await.unwrap();
    assert_eq!(applied, database.store.migration_sql());
    assert_eq!(database.store.migrate().await.unwrap(), []);
    assert_eq!(database.second().migrate().await.unwrap(), []);
    assert_eq!(database.store.pending_migrations().await.unwrap(), []);
    let recorded: (i64, String, bool) = database
        .connect()
        .query_row(
            "SELECT version, name, applied_at > 1600000000000 FROM outbox_migrations ORDER BY version",
            [],
            |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
        )
        .unwrap();
    assert_eq!(recorded, (1, "create outbox".to_owned(), true));
}

#[test]
fn many_may_migrate_at_the_same_time() {
    let database = Database::missing(SqliteOptions::default().create(true));
    let applied: usize = thread::scope(|scope| {
        let migrate = || {
            let store = database.second();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(store.migrate()).unwrap().len()
        };
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(migrate)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(applied, 2, "one of them did it, and the others saw it");
}

#[tokio::test]
async fn the_sql_can_be_run_by_other_tools() {
    let database = Database::missing(SqliteOptions::default().table("events"));
    let connection = database.connect();
    for migration in database.store.migration_sql() {
        connection.execute_batch(&migration.sql).unwrap();
    }
    assert_eq!(database.store.migrate().await.unwrap(), []);
    connection.execute("INSERT INTO events (event_type) VALUES ('made')", []).unwrap();
    assert_eq!(database.read().await.len(), 1);
}

#[tokio::test]
async fn a_database_comes_into_a_write_ahead_log() {
    let mode = |database: &Database| {
        database.connect().query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0)).unwrap()
    };
    let database = Database::migrated().await;
    assert_eq!(mode(&database), "wal");

    // As after a restore from a dump.
    let database = Database::missing(SqliteOptions::default());
    let connection = database.connect();
    for migration in database.store.migration_sql() {
        connection.execute_batch(&migration.sql).unwrap();
    }
    drop(connection);
    assert_eq!(mode(&database), "delete");
    database.store.leave(RelayId::random()).await.unwrap();
    assert_eq!(mode(&database), "wal");
}

#[tokio::test]
async fn a_missing_file_is_not_created() {
    let database = Database::missing(SqliteOptions::default());
    let error = database.store.stats(None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotMigrated);
    assert!(error.to_string().contains("outbox.db; run `posthaste migrate`"), "{error}");
    assert_eq!(database.store.pending_migrations().await.unwrap().len(), 2);
    assert_eq!(database.store.migrate().await.unwrap_err().kind(), ErrorKind::NotMigrated);
    assert!(!database.path().exists());
}

#[tokio::test]
async fn a_database_without_an_outbox_says_what_to_do() {
    let database = Database::missing(SqliteOptions::default());
    let mut connection = database.connect();
    connection.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)").unwrap();
    let error = database.store.leave(RelayId::random()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotMigrated);
    assert!(error.to_string().contains("run `posthaste migrate`"), "{error}");

    let tx = begin(&mut connection);
    let outbox = Outbox::new("outbox").unwrap();
    for message in [Message::new("e"), Message::new("e").idempotency_key("k")] {
        let error = outbox.enqueue(&tx, &message).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotMigrated);
        assert!(error.to_string().contains("run `posthaste migrate`"), "{error}");
    }
    tx.execute("INSERT INTO orders DEFAULT VALUES", []).unwrap();
    tx.commit().unwrap();

    assert_eq!(database.store.migrate().await.unwrap().len(), 2, "beside the tables that are there");
}

#[tokio::test]
async fn a_table_that_is_no_outbox_is_left_alone() {
    for taken in [
        "CREATE TABLE Outbox (id INTEGER PRIMARY KEY)",
        "CREATE VIEW outbox AS SELECT 1",
        "CREATE TABLE outbox_migrations (id TEXT)",
        "CREATE TABLE outbox_migrations (version INTEGER PRIMARY KEY)",
        "CREATE TABLE outbox_LANE (lane INTEGER)",
        "CREATE TABLE other (x); CREATE INDEX outbox_ready ON other (x)",
    ] {
        let database = Database::missing(SqliteOptions::default());
        let mut connection = database.connect();
        connection.execute_batch(taken).unwrap();
        let error = database.store.migrate().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignTable, "{taken}");
        assert!(error.to_string().contains("choose another table name"), "{error}");
        if !taken.contains("LANE") && !taken.contains("INDEX") {
            let error = database.store.stats(None).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ForeignTable, "{taken}");
            let tx = begin(&mut connection);
            let error = database.store.outbox().enqueue(&tx, &Message::new("e")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ForeignTable, "{taken}");
        }
    }
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let database = Database::migrated().await;
    let mut connection = database.connect();
    database.store.leave(RelayId::random()).await.unwrap();
    connection.execute("INSERT INTO outbox_migrations (version, name) VALUES (3, 'later')", []).unwrap();
    let errors = [
        database.store.leave(RelayId::random()).await.unwrap_err(),
        database.store.stats(None).await.unwrap_err(),
        database.store.pending_migrations().await.unwrap_err(),
        database.store.migrate().await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::SchemaTooNew);
        assert!(error.to_string().contains("upgrade this program"), "{error}");
    }
    let outbox = database.store.outbox();
    let message = || Message::new("e").idempotency_key("k");
    let tx = begin(&mut connection);
    assert_eq!(outbox.enqueue(&tx, &message()).unwrap_err().kind(), ErrorKind::SchemaTooNew);
    let batch = [Message::new("e"), message()];
    assert_eq!(outbox.enqueue_all(&tx, &batch).unwrap_err().kind(), ErrorKind::SchemaTooNew);
    tx.execute("DELETE FROM outbox_migrations WHERE version = 3", []).unwrap();
    outbox.enqueue(&tx, &message()).unwrap();
    tx.commit().unwrap();
    assert_eq!(database.read().await.len(), 1);
}

#[tokio::test]
async fn a_dropped_table_is_noticed() {
    let database = Database::migrated().await;
    assert_eq!(database.read().await, []);
    database.connect().execute_batch("DROP TABLE outbox").unwrap();
    assert_eq!(database.store.stats(None).await.unwrap_err().kind(), ErrorKind::NotMigrated);
}

#[tokio::test]
async fn a_failed_migration_leaves_nothing_behind() {
    let database = Database::missing(SqliteOptions::default());
    let connection = database.connect();
    let sql = &database.store.migration_sql()[0].sql;
    // Each part of it alone, as if the process had been killed behind it: nothing is committed.
    for (end, _) in sql.match_indices(";\n") {
        let other = database.connect();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        other.execute_batch(&sql[..=end]).unwrap();
        drop(other);
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
        assert_eq!(tables, 0);
    }
    assert_eq!(database.store.migrate().await.unwrap().len(), 2);
}

#[tokio::test]
async fn files_that_are_no_database_are_refused() {
    let database = Database::missing(SqliteOptions::default());
    let open =
        |path: std::path::PathBuf| SqliteStore::open(path, SqliteOptions::default().create(true)).unwrap();

    std::fs::write(
        database.beside("text"),
        "This is a text and no database, and long enough to be sure.".repeat(9),
    )
    .unwrap();
    let error = open(database.beside("text")).migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("not an SQLite database"), "{error}");

    let error = open(database.beside("")).migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("directory"), "{error}");

    let error = open(database.beside("nowhere/outbox.db")).migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("its directory does not exist"), "{error}");

    for path in ["", ":memory:"] {
        assert_eq!(
            SqliteStore::open(path, SqliteOptions::default()).unwrap_err().kind(),
            ErrorKind::InvalidInput
        );
    }
}

#[tokio::test]
async fn strange_file_names_are_no_trouble() {
    let database = Database::missing(SqliteOptions::default());
    for name in ["file:a?mode=memory", "%41", "a#b", "ü \"quoted\""] {
        let path = database.beside(name);
        let store = SqliteStore::open(&path, SqliteOptions::default().create(true)).unwrap();
        store.migrate().await.unwrap();
        assert!(path.exists(), "{name}");
        assert!(Connection::open(&path).is_ok());
    }
}
