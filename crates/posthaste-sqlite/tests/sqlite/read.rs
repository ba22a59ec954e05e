//! Reading past what is blocked.

use posthaste::{DueRecords, Keys, Lane, ReadRequest, Scan, Store};

use crate::support::Database;

fn request(max_scanned: usize) -> ReadRequest {
    ReadRequest {
        scans: vec![Scan { lane: Lane(0), after: None, until: None, due: DueRecords::All }],
        keys: Keys::Except(Vec::new()),
        in_hand: Vec::new(),
        max_rows: 10,
        max_per_key: 10,
        max_bytes: 1_000_000,
        max_scanned,
    }
}

/// A dead row parks its key, and holds up many of the same key that are due for longer than the last one.
const PARKED: &str = "
    INSERT INTO outbox (event_type, aggregate_type, aggregate_id, status, next_attempt_at)
    VALUES ('dead', 'order', '1', -1, 1);
    WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 95)
    INSERT INTO outbox (event_type, aggregate_type, aggregate_id, next_attempt_at)
    SELECT 'blocked', 'order', '1', n FROM counter;
    INSERT INTO outbox (event_type, aggregate_type, aggregate_id, next_attempt_at)
    VALUES ('due', 'order', '2', 1000)";

#[tokio::test]
async fn many_blocked_due_rows_do_not_hide_those_behind_them() {
    let database = Database::migrated().await;
    database.connect().execute_batch(PARKED).unwrap();
    let mut reads = 0;
    let found = loop {
        reads += 1;
        let page = database.store.read(&request(10)).await.unwrap();
        if let Some(record) = page.records.first() {
            break record.event_type.clone();
        }
        assert!(reads < 10, "each read looks at ten more");
    };
    assert_eq!(found, "due");
    // And around again.
    let page = database.store.read(&request(1_000)).await.unwrap();
    assert_eq!(page.records.len(), 1);
}

#[tokio::test]
async fn processed_rows_are_not_looked_at() {
    let database = Database::migrated().await;
    database
        .connect()
        .execute_batch(
            "WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 50000)
             INSERT INTO outbox (event_type, status) SELECT 'e', 1 FROM counter;
             INSERT INTO outbox (event_type) VALUES ('ready')",
        )
        .unwrap();
    let page = database.store.read(&request(1)).await.unwrap();
    assert_eq!(page.records[0].event_type, "ready", "it is the first row that is looked at");
    assert!(page.reached[0].end);
}
