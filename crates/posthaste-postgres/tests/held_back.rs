//! Rows behind one that is held back, whether few or many rows are.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use posthaste::Store;
use support::{PostgresFixture, all_lanes};

/// The event types of what can be read.
async fn read(fixture: &PostgresFixture) -> Vec<String> {
    let page = fixture.store.read(&all_lanes()).await.unwrap();
    let mut types: Vec<_> = page.records.into_iter().map(|record| record.event_type).collect();
    types.sort();
    types
}

async fn index_size(fixture: &PostgresFixture) -> i64 {
    fixture.schema.value("SELECT pg_relation_size('{}outbox_held_back')").await
}

/// A row of a key, held back or not.
async fn insert(fixture: &PostgresFixture, event_type: &str, key: &str, held_back: bool) {
    let at = if held_back { "now() + interval '1 day'" } else { "NULL" };
    let sql = format!(
        "INSERT INTO {{}}outbox (event_type, aggregate_type, aggregate_id, next_attempt_at)
         VALUES ('{event_type}', 'k', '{key}', {at})"
    );
    fixture.schema.execute(&sql).await;
}

async fn the_only_key_that_waits_is_blocked(fixture: &PostgresFixture) {
    insert(fixture, "a1", "a", false).await;
    insert(fixture, "b1", "b", false).await;
    assert_eq!(read(fixture).await, ["a1", "b1"], "nothing is held back");
    insert(fixture, "c1", "c", true).await;
    insert(fixture, "c2", "c", false).await;
    insert(fixture, "a2", "a", false).await;
    assert_eq!(read(fixture).await, ["a1", "a2", "b1"]);
    let mend = "UPDATE {}outbox SET next_attempt_at = NULL WHERE event_type = 'c1'";
    fixture.schema.execute(mend).await;
    assert_eq!(read(fixture).await, ["a1", "a2", "b1", "c1", "c2"]);
}

#[tokio::test]
async fn a_key_is_blocked_where_no_other_ever_was() {
    let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
    the_only_key_that_waits_is_blocked(&fixture).await;
    assert!(index_size(&fixture).await <= 65_536);
}

#[tokio::test]
async fn a_key_is_blocked_where_many_others_were() {
    let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
    let many = "INSERT INTO {}outbox (event_type, aggregate_type, aggregate_id, next_attempt_at)
        SELECT 'old', 'k', 'old ' || n, now() + interval '1 day' FROM generate_series(1, 5000) n";
    fixture.schema.execute(many).await;
    fixture.schema.execute("DELETE FROM {}outbox").await;
    assert!(index_size(&fixture).await > 65_536);
    the_only_key_that_waits_is_blocked(&fixture).await;
}
