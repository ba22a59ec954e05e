//! Messages that programs without this crate insert.

use std::process::Command;
use std::time::Duration;

use posthaste::{Clock, Key, MessageId, Record, SystemClock};
use posthaste_sqlite::rusqlite::{Connection, ErrorCode, ToSql, params};

use crate::support::Database;

/// Whether the id and the time that SQL made are those of a message enqueued just now.
fn assert_made_now(record: &Record) {
    let id = MessageId::new(*record.id.as_uuid()).unwrap();
    let (seconds, nanos) = id.as_uuid().get_timestamp().unwrap().to_unix();
    let made = std::time::UNIX_EPOCH + Duration::new(seconds, nanos);
    assert_eq!(made, record.enqueued_at, "both to the millisecond");
    let age = SystemClock.now().duration_since(record.enqueued_at).unwrap();
    assert!(age < Duration::from_mins(1), "{age:?}");
}

#[tokio::test]
async fn a_plain_insert_is_a_complete_message() {
    let database = Database::migrated().await;
    let connection = database.connect();
    connection
        .execute("INSERT INTO outbox (event_type, payload) VALUES ('order.created', '{\"id\": 7}')", [])
        .unwrap();
    let records = database.read().await;
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_made_now(record);
    assert_eq!(record.event_type, "order.created");
    assert_eq!(record.payload.as_deref(), Some(&br#"{"id": 7}"#[..]));
    assert_eq!(record.aggregate, Key::new("", ""));
    assert_eq!((record.attempts, record.held_back), (0, false));
    assert_eq!((&record.content_type, &record.idempotency_key), (&None, &None));
    assert!(record.headers.is_empty());
}

#[tokio::test]
async fn a_plain_insert_may_set_everything() {
    let database = Database::migrated().await;
    let connection = database.connect();
    let id = MessageId::generate();
    connection
        .execute(
            "INSERT INTO outbox (id, event_type, aggregate_type, aggregate_id, content_type, headers, idempotency_key,
                next_attempt_at, payload)
             VALUES (?1, 'e', 'order', '7', 'text/plain', '{\"tenant\": \"acme\", \"retries\": 3}', 'once', 1, ?2)",
            params![id.to_string(), b"bytes"],
        )
        .unwrap();
    let records = database.read().await;
    let [record] = &records[..] else { panic!("{records:?}") };
    assert_eq!(record.id, id);
    assert_eq!(record.aggregate, Key::new("order", "7"));
    assert_eq!(record.content_type.as_deref(), Some("text/plain"));
    assert_eq!(record.idempotency_key.as_deref(), Some("once"));
    assert_eq!((record.headers["tenant"].as_str(), record.headers["retries"].as_str()), ("acme", "3"));
    assert!(record.held_back);
}

#[tokio::test]
async fn payloads_come_out_as_they_are_stored() {
    let database = Database::migrated().await;
    let connection = database.connect();
    let every_byte: Vec<u8> = (0..=255).collect();
    connection.execute("INSERT INTO outbox (event_type, payload) VALUES ('e', ?1)", [&every_byte]).unwrap();
    let texts = ["", "\0", r#""\u0000""#, r#""\ud800""#, r#"{"b":1,"a":1.0,"a":2}"#, "12.50", " 7 ", "ü€😀"];
    for text in texts {
        connection.execute("INSERT INTO outbox (event_type, payload) VALUES ('e', ?1)", [text]).unwrap();
    }
    connection
        .execute_batch(
            "INSERT INTO outbox (event_type, payload) VALUES ('e', x'ff00fe');
             INSERT INTO outbox (event_type, payload) VALUES ('e', CAST(x'ff00fe' AS TEXT));
             INSERT INTO outbox (event_type, payload) VALUES ('e', NULL);
             INSERT INTO outbox (event_type, payload) VALUES ('e', x'')",
        )
        .unwrap();
    let mut expected: Vec<Option<Vec<u8>>> = vec![Some(every_byte)];
    expected.extend(texts.map(|text| Some(text.as_bytes().to_vec())));
    let bytes = Some(vec![0xff, 0, 0xfe]);
    expected.extend([bytes.clone(), bytes, None, Some(Vec::new())]);
    let payloads: Vec<_> = database
        .read()
        .await
        .into_iter()
        .map(|record| record.payload.map(|payload| payload.to_vec()))
        .collect();
    assert_eq!(payloads, expected);
}

#[tokio::test]
async fn text_that_is_not_utf8_stalls_nobody() {
    let database = Database::migrated().await;
    database
        .connect()
        .execute_batch(
            "INSERT INTO outbox (event_type, aggregate_type, aggregate_id, next_attempt_at)
             VALUES (CAST(x'61ff' AS TEXT), 'order', CAST(x'ff' AS TEXT), 1);
             INSERT INTO outbox (event_type, aggregate_type, aggregate_id)
             VALUES ('blocked', 'order', CAST(x'ff' AS TEXT));
             INSERT INTO outbox (event_type) VALUES ('other')",
        )
        .unwrap();
    let types: Vec<_> = database.read().await.into_iter().map(|record| record.event_type).collect();
    assert_eq!(types, ["a\u{fffd}", "other"]);
}

#[tokio::test]
async fn rules_hold_for_plain_inserts_too() {
    let database = Database::migrated().await;
    let connection = database.connect();
    let long = "x".repeat(129);
    let cases: &[(&str, &dyn ToSql, &str)] = &[
        ("event_type", &"", "event_type must be"),
        ("event_type", &long, "event_type must be"),
        ("event_type", &"a\0b", "event_type must be"),
        ("event_type", &b"blob", "event_type must be"),
        ("aggregate_type", &long, "aggregate_type must be"),
        ("aggregate_id", &"7", "aggregate_type must be set"),
        ("content_type", &long, "content_type must be"),
        ("headers", &"[]", "headers must be"),
        ("headers", &"{", "headers must be"),
        ("headers", &"\"text\"", "headers must be"),
        ("idempotency_key", &"", "idempotency_key must be"),
        ("idempotency_key", &"ü".repeat(128), "idempotency_key must be"),
        ("id", &"", "id must be"),
        ("id", &"f47ac10b-58cc-4372-a567-0e02b2c3d479", "id must be"),
        ("id", &"01890A5D-AC96-774B-BCCE-B302099A8057", "id must be"),
        ("id", &"01890a5d-ac96-774b-bcce-b302099a8057\0", "id must be"),
        ("status", &2, "status must be"),
        ("attempts", &-1, "attempts must be"),
        ("next_attempt_at", &"tomorrow", "next_attempt_at must be"),
        ("created_at", &"today", "created_at must be"),
        ("payload", &1.5, "payload must be"),
    ];
    for (column, value, complaint) in cases {
        let sql = if *column == "event_type" {
            "INSERT INTO outbox (event_type) VALUES (?1)".to_owned()
        } else {
            format!("INSERT INTO outbox (event_type, {column}) VALUES ('e', ?1)")
        };
        let error = connection.execute(&sql, [value]).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::ConstraintViolation), "{column}: {error}");
        assert!(error.to_string().contains(complaint), "{column}: {error}");
    }
    assert_eq!(database.read().await, []);
    let limits = ["x".repeat(128), "ü".repeat(128)];
    for name in &limits {
        connection
            .execute(
                "INSERT INTO outbox (event_type, aggregate_type, aggregate_id, content_type) VALUES (?1, ?1, ?1, ?1)",
                [name],
            )
            .unwrap();
    }
    assert_eq!(database.read().await.len(), 2);
}

#[tokio::test]
async fn an_idempotency_key_can_be_taken_in_plain_sql() {
    let database = Database::migrated().await;
    let connection = database.connect();
    let enqueue = "BEGIN IMMEDIATE;
        INSERT INTO outbox_key (idempotency_key) VALUES ('once');
        INSERT INTO outbox (event_type, idempotency_key) VALUES ('e', 'once');
        COMMIT";
    connection.execute_batch(enqueue).unwrap();
    assert!(connection.execute_batch(enqueue).is_err());
    connection.execute_batch("ROLLBACK").unwrap();
    assert_eq!(database.read().await.len(), 1);
}

/// Runs another program's SQLite on the file. `false`: there is no such program here.
fn run(program: &str, arguments: &[&str]) -> bool {
    match Command::new(program).args(arguments).output() {
        Ok(output) => {
            assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
            true
        }
        Err(error) => {
            eprintln!("SKIPPED: {program} cannot be run: {error}");
            false
        }
    }
}

/// What both programs below insert.
const INSERTS: &str = "
    INSERT INTO outbox (event_type, payload) VALUES ('text', 'ü');
    INSERT INTO outbox (event_type, payload, headers) VALUES ('blob', x'00ff', '{\"a\": true}');
    INSERT INTO outbox (event_type) VALUES ('none');";

async fn assert_inserted(database: &Database) {
    let records = database.read().await;
    let payloads: Vec<_> = records.iter().map(|record| record.payload.as_deref()).collect();
    assert_eq!(payloads, [Some("ü".as_bytes()), Some(&[0, 255][..]), None]);
    assert_eq!(records[1].headers["a"], "true");
    records.iter().for_each(assert_made_now);
}

#[tokio::test]
async fn python_can_enqueue() {
    let database = Database::migrated().await;
    let path = database.path();
    let script = format!(
        "import sqlite3, sys\nconnection = sqlite3.connect(sys.argv[1])\nconnection.executescript('''{INSERTS}''')\n"
    );
    if run("python3", &["-c", &script, path.to_str().unwrap()]) {
        assert_inserted(&database).await;
    }
}

#[tokio::test]
async fn the_sqlite_shell_can_enqueue() {
    let database = Database::migrated().await;
    let path = database.path();
    if run("sqlite3", &[path.to_str().unwrap(), INSERTS]) {
        assert_inserted(&database).await;
    }
}

#[test]
fn many_ids_made_by_sql_are_all_different() {
    let connection = Connection::open_in_memory().unwrap();
    let database = Database::missing(posthaste_sqlite::SqliteOptions::default());
    let migrations = posthaste::Admin::migration_sql(&database.store);
    connection.execute_batch(&migrations[0].sql).unwrap();
    let inserted = connection
        .execute(
            "WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 50000)
             INSERT INTO outbox (event_type) SELECT 'e' FROM counter",
            [],
        )
        .unwrap();
    assert_eq!(inserted, 50_000);
}
