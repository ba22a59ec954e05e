//! What the behaviours are written with.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use posthaste::{FailureClass, Key, Lane, MessageId, Position, PublishError, Publisher, Record};

use super::fixture::{Arrival, PublisherFixture};

/// A record with a key, whose payload is its label.
pub(crate) fn record(label: &str) -> Record {
    Record {
        id: MessageId::generate(),
        lane: Lane(0),
        position: Position::from_sequence(1),
        event_type: "thing.happened".into(),
        aggregate: Key::new("thing", label),
        payload: Some(Bytes::copy_from_slice(label.as_bytes())),
        content_type: Some("text/plain".into()),
        headers: BTreeMap::new(),
        idempotency_key: None,
        attempts: 0,
        enqueued_at: UNIX_EPOCH + Duration::from_secs(1_767_225_600),
        held_back: false,
    }
}

pub(super) fn records(prefix: &str, count: usize) -> Vec<Record> {
    (0..count).map(|n| record(&format!("{prefix}{n}"))).collect()
}

/// Publishes, and panics if it takes longer than it may.
pub(super) async fn publish(f: &dyn PublisherFixture, record: Record) -> Result<(), PublishError> {
    publish_to(f.publisher(), record, f.time_limit()).await
}

async fn publish_to(
    publisher: Arc<dyn Publisher>,
    record: Record,
    limit: Duration,
) -> Result<(), PublishError> {
    let publish = publisher.publish(Arc::new(record));
    let result = tokio::time::timeout(limit * 2, publish).await;
    result.unwrap_or_else(|_| panic!("a publish must end within {limit:?}, whatever the destination does"))
}

/// Publishes a record that must arrive.
pub(super) async fn deliver(f: &dyn PublisherFixture, record: Record) {
    if let Err(error) = publish(f, record).await {
        panic!("a publish failed: {error:?}");
    }
}

/// Publishes records all at once; the results come in the order of the records.
pub(super) async fn publish_at_once(
    f: &dyn PublisherFixture,
    records: Vec<Record>,
) -> Vec<Result<(), PublishError>> {
    let tasks: Vec<_> = records
        .into_iter()
        .map(|record| tokio::spawn(publish_to(f.publisher(), record, f.time_limit())))
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap_or_else(|error| panic!("a publish panicked: {error}")));
    }
    results
}

/// Publishes records that must all arrive.
pub(super) async fn deliver_at_once(f: &dyn PublisherFixture, records: Vec<Record>) {
    for result in publish_at_once(f, records).await {
        assert!(result.is_ok(), "a publish failed: {result:?}");
    }
}

/// The payloads that arrived, as text.
pub(super) async fn payloads(f: &dyn PublisherFixture) -> Vec<String> {
    let arrived = f.arrived().await;
    arrived.iter().map(text).collect()
}

/// The payloads that arrived, each as often as it did, sorted.
pub(super) async fn sorted_payloads(f: &dyn PublisherFixture) -> Vec<String> {
    let mut payloads = payloads(f).await;
    payloads.sort_unstable();
    payloads
}

fn text(arrival: &Arrival) -> String {
    let payload = arrival.payload.as_deref().unwrap_or_default();
    String::from_utf8_lossy(payload).into_owned()
}

/// The only record that arrived.
pub(super) async fn only_arrival(f: &dyn PublisherFixture) -> Arrival {
    let mut arrived = f.arrived().await;
    assert_eq!(arrived.len(), 1, "one record was published: {arrived:?}");
    arrived.remove(0)
}

/// The labels of records, sorted.
pub(super) fn labels(records: &[Record]) -> Vec<String> {
    let mut labels: Vec<_> =
        records.iter().map(|record| record.aggregate.aggregate_id().to_owned()).collect();
    labels.sort_unstable();
    labels
}

/// An outage is not the record's fault.
#[track_caller]
pub(super) fn assert_unavailable(result: &Result<(), PublishError>) {
    let class = result.as_ref().map_err(PublishError::class);
    assert_eq!(class, Err(FailureClass::Unavailable), "the destination is down: {result:?}");
}
