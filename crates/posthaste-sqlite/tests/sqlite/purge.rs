//! Purging in steps.

use std::time::Duration;

use posthaste::{Admin, Purge, RelayId, Store, UpkeepRequest};
use posthaste_sqlite::rusqlite::Connection;

use crate::support::{Database, begin};

/// 25,000 rows of every status, some settled long ago and some just now: more than one step looks at.
const MIXED: &str = "
    WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 25000)
    INSERT INTO outbox (event_type, status, created_at, status_at)
    SELECT 'e', n * 7919 % 3 - 1, 1, CASE WHEN n * 104729 % 5 < 3 THEN 1 ELSE 4000000000000 END
    FROM counter";

fn positions(connection: &Connection, condition: &str) -> Vec<i64> {
    let mut statement =
        connection.prepare(&format!("SELECT seq FROM outbox WHERE {condition} ORDER BY seq")).unwrap();
    statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_purge_deletes_what_was_settled_long_ago_and_nothing_else() {
    for (include_dead, stays) in
        [(false, "status <> 1 OR status_at > 1"), (true, "status = 0 OR status_at > 1")]
    {
        let database = Database::migrated().await;
        let connection = database.connect();
        connection.execute_batch(MIXED).unwrap();
        let expected = positions(&connection, stays);
        let dead = positions(&connection, "status = -1 AND status_at = 1").len() as u64;
        let limit = 1_700;
        let purge = Purge { older_than: Duration::from_secs(1), include_dead, limit };
        let mut purged = (0, 0);
        loop {
            let step = database.store.purge(&purge).await.unwrap();
            let sum = step.processed + step.dead;
            assert!(sum <= limit as u64);
            purged = (purged.0 + step.processed, purged.1 + step.dead);
            if sum < limit as u64 {
                break;
            }
        }
        assert_eq!(positions(&connection, "1"), expected);
        assert_eq!(purged.0 + purged.1, 25_000 - expected.len() as u64);
        assert_eq!(purged.1, if include_dead { dead } else { 0 });
    }
}

#[tokio::test]
async fn a_purge_comes_around_to_where_the_last_one_began() {
    let database = Database::migrated().await;
    let connection = database.connect();
    connection.execute_batch(MIXED).unwrap();
    let some = Purge { older_than: Duration::from_secs(1), include_dead: false, limit: 2_000 };
    assert_eq!(database.store.purge(&some).await.unwrap().processed, 2_000);
    // Rows that the first purge passed over can be purged now.
    connection.execute("UPDATE outbox SET status = 1, status_at = 1, next_attempt_at = NULL", []).unwrap();
    let all = Purge { limit: 100_000, ..some };
    assert_eq!(database.store.purge(&all).await.unwrap().processed, 23_000);
    assert!(positions(&connection, "1").is_empty());
}

fn upkeep_request(limit: usize) -> UpkeepRequest {
    UpkeepRequest {
        relay: RelayId::random(),
        lease: Duration::from_secs(1),
        keep_processed: Some(Duration::from_secs(1)),
        keep_keys: Some(Duration::from_secs(1)),
        keep_inbox: Some(Duration::from_secs(1)),
        limit,
    }
}

#[tokio::test]
async fn upkeep_gets_through_rows_that_stay() {
    let database = Database::migrated().await;
    let connection = database.connect();
    connection
        .execute_batch(
            "WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 21500)
             INSERT INTO outbox (event_type, status, created_at, status_at)
             SELECT 'e', n > 20000, 1, 1 FROM counter",
        )
        .unwrap();
    let request = upkeep_request(1_000);
    let mut reports = Vec::new();
    for _ in 0..4 {
        let report = database.store.upkeep(&request).await.unwrap();
        reports.push((report.purged, report.more));
    }
    // Two steps look at the rows that stay, and do not ask for more at once.
    assert_eq!(reports, [(0, false), (0, false), (1_000, true), (500, false)]);
    assert_eq!(positions(&connection, "1").len(), 20_000);
}

#[tokio::test]
async fn idempotency_keys_are_purged_by_age() {
    let database = Database::migrated().await;
    let connection = database.connect();
    connection
        .execute_batch(
            "WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 250)
             INSERT INTO outbox_key (idempotency_key, created_at)
             SELECT 'key ' || n, CASE WHEN n <= 240 THEN 1 ELSE 4000000000000 END FROM counter",
        )
        .unwrap();
    let request = upkeep_request(100);
    let mut reports = Vec::new();
    for _ in 0..3 {
        let report = database.store.upkeep(&request).await.unwrap();
        reports.push((report.keys_purged, report.more));
    }
    assert_eq!(reports, [(100, true), (100, true), (40, false)]);
    let left: i64 = connection.query_row("SELECT count(*) FROM outbox_key", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 10);
}

#[tokio::test]
async fn the_inbox_forgets_what_is_old() {
    let database = Database::migrated().await;
    let (mut connection, inbox) = (database.connect(), database.store.inbox());
    let mut first_time = |id: &str| {
        let tx = begin(&mut connection);
        let is_first = inbox.first_time(&tx, "invoicing", id).unwrap();
        tx.commit().unwrap();
        is_first
    };
    assert!(first_time("old") && first_time("older than it looks") && !first_time("old"));
    database.clock.advance(Duration::from_secs(60));
    assert!(first_time("young"));
    let age = Duration::from_secs(30);
    assert_eq!(database.store.purge_inbox(age, 1).await.unwrap(), 1, "in small steps");
    assert_eq!(database.store.purge_inbox(age, 10).await.unwrap(), 1);
    assert_eq!(database.store.purge_inbox(age, 10).await.unwrap(), 0);
    assert!(first_time("old") && !first_time("young"));
}

#[tokio::test]
async fn upkeep_purges_the_inbox_in_small_steps() {
    let database = Database::migrated().await;
    let (mut connection, inbox) = (database.connect(), database.store.inbox());
    for id in ["1", "2"] {
        let tx = begin(&mut connection);
        assert!(inbox.first_time(&tx, "invoicing", id).unwrap());
        tx.commit().unwrap();
    }
    database.clock.advance(Duration::from_secs(60));
    let forever = UpkeepRequest { keep_inbox: None, ..upkeep_request(10) };
    let request = upkeep_request(1);
    let mut purged = Vec::new();
    for request in [&forever, &request, &request, &request] {
        let request = UpkeepRequest { relay: forever.relay, ..*request };
        let report = database.store.upkeep(&request).await.unwrap();
        purged.push((report.inbox_purged, report.more));
    }
    assert_eq!(purged, [(0, false), (1, true), (1, true), (0, false)]);
}
