//! The parts of which every message pays, without a database: `cargo bench -p posthaste --bench hot`.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use posthaste::driver::{Answer, Dialect, Progress, Work};
use posthaste::{
    BoxError, MemoryStore, Message, MessageId, Outbox, OutboxTransaction, Relay, Rules, publish_fn,
};

fn message(payload_bytes: usize, key: u64) -> Message {
    let payload = format!("{{\"x\":\"{}\"}}", "y".repeat(payload_bytes.saturating_sub(8)));
    Message::new("order.created")
        .aggregate("order", key)
        .payload(payload)
        .content_type("application/json")
        .header("tenant", "acme")
}

fn ids(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ids");
    group.throughput(Throughput::Elements(1));
    group.bench_function("generate", |bencher| bencher.iter(MessageId::generate));
    let text = MessageId::generate().to_string();
    group.bench_function("parse", |bencher| bencher.iter(|| black_box(&text).parse::<MessageId>().unwrap()));
    group.finish();
}

fn validation(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("validation");
    for bytes in [128, 512, 16_384] {
        let (message, rules) = (message(bytes, 7), Rules::default());
        group.throughput(Throughput::Bytes(bytes as u64));
        group.bench_function(BenchmarkId::new("of JSON", bytes), |bencher| {
            bencher.iter(|| rules.check(black_box(&message)).unwrap());
        });
        let unseen = Rules::default().validate_payload(false);
        group.bench_function(BenchmarkId::new("payload unseen", bytes), |bencher| {
            bencher.iter(|| unseen.check(black_box(&message)).unwrap());
        });
    }
    group.finish();
}

/// A transaction in a database that does nothing and answers that all went well.
struct Nowhere(Dialect);

impl OutboxTransaction for Nowhere {
    type Outcome<'a, R: Send + 'a> = Result<R, posthaste::Error>;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Self::Outcome<'a, R>
    where
        Self: 'a,
    {
        let mut script = work.begin(self.0);
        loop {
            match script.next() {
                Progress::Run(step) => {
                    let one = (!step.columns.is_empty()).then(|| vec![Some(1); step.columns.len()]);
                    black_box(&step.values);
                    script.answer(Ok(Answer { row: one }));
                }
                Progress::Done(result) => return result,
            }
        }
    }
}

fn encoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encoding");
    let outbox = Outbox::new("outbox").unwrap();
    let message = message(512, 7);
    group.throughput(Throughput::Elements(1));
    for dialect in [Dialect::Postgres, Dialect::Sqlite, Dialect::MySql] {
        group.bench_function(format!("enqueue, {dialect:?}"), |bencher| {
            // What the database would have answered does not matter: it was encoded.
            bencher.iter(|| outbox.enqueue(Nowhere(dialect), black_box(&message)).is_ok());
        });
    }
    group.finish();
}

/// The window and its key queues: a relay on a store in memory, whose own part is the smaller one.
fn key_queues(criterion: &mut Criterion) {
    const MESSAGES: u64 = 1_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut group = criterion.benchmark_group("key queues");
    group.throughput(Throughput::Elements(MESSAGES)).sample_size(20);
    for keys in [1, 100, MESSAGES] {
        let messages: Vec<_> = (0..MESSAGES).map(|number| message(128, number % keys)).collect();
        let filled = || {
            let store = MemoryStore::new(64);
            let mut tx = store.begin();
            tx.enqueue_all(&messages).unwrap();
            tx.commit();
            store
        };
        group.bench_function(BenchmarkId::new("relay, keys", keys), |bencher| {
            bencher.iter_batched(
                filled,
                |store| {
                    runtime.block_on(async {
                        let publisher = publish_fn(|_| async { Ok::<_, BoxError>(()) });
                        let relay = Relay::builder(Arc::new(store)).publisher(publisher).build().unwrap();
                        assert_eq!(relay.drain().await.unwrap().published, MESSAGES);
                    });
                },
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, ids, validation, encoding, key_queues);
criterion_main!(benches);
