//! Tidying up what only PostgreSQL has.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use posthaste::{BoxError, Relay, RelayId, Store, UpkeepRequest, publish_fn};
use support::PostgresFixture;

const DAY: Duration = Duration::from_hours(24);

fn request() -> UpkeepRequest {
    UpkeepRequest {
        relay: RelayId::random(),
        lease: Duration::from_millis(1),
        keep_processed: None,
        keep_keys: None,
        keep_inbox: Some(DAY),
        limit: 10,
    }
}

async fn inbox(fixture: &PostgresFixture, rows: &str) {
    let insert = "INSERT INTO {}outbox_inbox (consumer, message_id, seen_at)";
    fixture.schema.execute(&format!("{insert} {rows}")).await;
}

async fn left(fixture: &PostgresFixture) -> i64 {
    fixture.schema.value("SELECT count(*) FROM {}outbox_inbox").await
}

#[tokio::test]
async fn the_inbox_is_purged_in_bounded_steps_and_only_of_what_is_old() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    inbox(&fixture, "SELECT 'c', n::text, now() - interval '25 hours' FROM generate_series(1, 25) n").await;
    inbox(&fixture, "SELECT 'c', 'young ' || n, now() - interval '23 hours' FROM generate_series(1, 3) n")
        .await;
    let forever = UpkeepRequest { keep_inbox: None, ..request() };
    assert_eq!(fixture.store.upkeep(&forever).await.unwrap().inbox_purged, 0);
    let mut steps = Vec::new();
    let again = UpkeepRequest { relay: forever.relay, ..request() };
    for _ in 0..3 {
        let report = fixture.store.upkeep(&again).await.unwrap();
        steps.push((report.inbox_purged, report.more));
    }
    assert_eq!(steps, [(10, true), (10, true), (5, false)]);
    assert_eq!(left(&fixture).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_purges_the_inbox() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    inbox(&fixture, "VALUES ('c', 'old', now() - interval '31 days'), ('c', 'young', now())").await;
    let relay = Relay::builder(Arc::new(fixture.store.clone()))
        .publisher(publish_fn(async |_| Ok::<_, BoxError>(())))
        .upkeep_every(Duration::from_millis(20))
        .build()
        .unwrap();
    let handle = relay.handle();
    let task = tokio::spawn(relay.run_until(std::future::pending()));
    support::until("the old entry is gone", async || left(&fixture).await == 1).await;
    handle.stop();
    task.await.unwrap().unwrap();
}
