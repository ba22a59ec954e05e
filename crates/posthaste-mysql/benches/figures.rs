//! Figures against the servers of the tests, as ratios in one run: `cargo bench -p posthaste-mysql`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, TxOpts};
use posthaste::{
    BoxError, LeaseRequest, Message, Outcome, ReadRequest, RecordRef, Relay, RelayId, Retain, SettleRequest,
    Settlement, Store, publish_fn,
};
use posthaste_mysql::Payload;
use support::{Fixture, SERVERS, Server, enqueue, everything};
use tokio::time::Instant;

const ROWS: usize = 60_000;

fn payload() -> String {
    format!("{{\"x\":\"{}\"}}", "y".repeat(504))
}

async fn fill(fixture: &Fixture) {
    fixture.database.execute("TRUNCATE outbox").await;
    for chunk in 0..ROWS / 5_000 {
        let message = |n: usize| {
            Message::new("order.created").aggregate("order", (chunk * 5_000 + n) % 5_000).payload(payload())
        };
        let messages: Vec<_> = (0..5_000).map(message).collect();
        enqueue(&fixture.database, &fixture.store.outbox(), &messages).await;
    }
}

fn rate(rows: usize, took: Duration) -> f64 {
    rows as f64 / took.as_secs_f64()
}

async fn drain(fixture: &Fixture, retain: Retain) -> f64 {
    let relay = Relay::builder(Arc::new(fixture.store.clone()))
        .publisher(publish_fn(|_| async { Ok::<_, BoxError>(()) }))
        .retain(retain)
        .build()
        .unwrap();
    let began = Instant::now();
    let summary = relay.drain().await.unwrap();
    assert_eq!(summary.published, ROWS as u64);
    rate(ROWS, began.elapsed())
}

/// What workers of the usual kind do, without publishing: each picks and locks 100 rows, marks or deletes them, and commits.
async fn usual_loop(fixture: &Fixture, delete: bool) -> f64 {
    const WORKERS: usize = 8;
    let mut conns = Vec::new();
    for _ in 0..WORKERS {
        let mut conn = fixture.database.client().await;
        conn.query_drop("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await.unwrap();
        conns.push(conn);
    }
    let left = Arc::new(AtomicUsize::new(ROWS));
    let began = Instant::now();
    let mut workers = Vec::new();
    for conn in conns {
        workers.push(tokio::spawn(usual_worker(conn, delete, left.clone())));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    rate(ROWS, began.elapsed())
}

async fn usual_worker(mut conn: Conn, delete: bool, left: Arc<AtomicUsize>) {
    while left.load(Ordering::Relaxed) > 0 {
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        let pick = "SELECT id, aggregate_type, aggregate_id, event_type, payload, headers, created_at, attempt_count \
                    FROM outbox WHERE status = ? ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED";
        let rows: Vec<mysql_async::Row> = tx.exec(pick, (0, 100)).await.unwrap();
        let ids: Vec<Vec<u8>> = rows.iter().map(|row| row.get(0).unwrap()).collect();
        if !ids.is_empty() {
            let places = vec!["?"; ids.len()].join(",");
            let what = if delete {
                format!("DELETE FROM outbox WHERE id IN ({places})")
            } else {
                format!("UPDATE outbox SET status = 1, processed_at = NOW(6) WHERE id IN ({places})")
            };
            let count = ids.len();
            tx.exec_drop(what, ids).await.unwrap();
            left.fetch_sub(count, Ordering::Relaxed);
        }
        tx.commit().await.unwrap();
    }
}

async fn drain_against_the_usual_loop(server: Server) {
    let fixture = Fixture::migrated(server, |options| options.payload(Payload::Json)).await;
    for (what, delete, retain) in
        [("mark", false, Retain::default()), ("delete", true, Retain::DeleteOnSettle)]
    {
        fill(&fixture).await;
        let usual = usual_loop(&fixture, delete).await;
        fill(&fixture).await;
        let ours = drain(&fixture, retain).await;
        println!("{server:?} {what}: usual loop {usual:.0}/s  relay {ours:.0}/s  ratio {:.2}", ours / usual);
    }
}

/// The store without the relay's own work: one page after another, each settled at once.
async fn the_store_alone(server: Server) {
    let fixture = Fixture::migrated(server, |options| options.payload(Payload::Json)).await;
    fill(&fixture).await;
    let relay = RelayId::random();
    let request =
        LeaseRequest { relay, name: String::new(), duration: Duration::from_mins(10), give_back: Vec::new() };
    fixture.store.lease(&request).await.unwrap();
    let (mut reading, mut settling, mut count) = (Duration::ZERO, Duration::ZERO, 0);
    loop {
        let mut request = ReadRequest { max_rows: 1_024, max_per_key: 64, max_scanned: 256, ..everything() };
        request.scans.rotate_left(count / 1_024 % 64);
        let began = Instant::now();
        let page = fixture.store.read(&request).await.unwrap();
        reading += began.elapsed();
        if page.records.is_empty() {
            break;
        }
        count += page.records.len();
        let settlements = page.records.iter().map(|record| Settlement {
            record: RecordRef { id: record.id, position: record.position, lane: record.lane, token: 1 },
            outcome: Outcome::Processed,
        });
        let settle = SettleRequest { relay, delete_processed: false, settlements: settlements.collect() };
        let began = Instant::now();
        assert_eq!(fixture.store.settle(&settle).await.unwrap().applied, page.records.len());
        settling += began.elapsed();
    }
    let began = Instant::now();
    for _ in 0..200 {
        fixture.store.read(&everything()).await.unwrap();
    }
    let idle = began.elapsed() / 200;
    println!(
        "{server:?} store: read {:.0}/s  settle {:.0}/s  of {count}; a read of nothing {idle:?}",
        rate(count, reading),
        rate(count, settling)
    );
}

/// Enqueue by producers, one message a transaction, against a bare prepared INSERT.
async fn enqueue_against_a_bare_insert(server: Server) {
    const TIME: Duration = Duration::from_secs(3);
    for producers in [4, 16] {
        let fixture = Fixture::migrated(server, |options| options.payload(Payload::Json)).await;
        let mut rates = [0.0; 2];
        for way in [0, 1, 0, 1] {
            fixture.database.execute("TRUNCATE outbox").await;
            let until = Instant::now() + TIME;
            let mut tasks = Vec::new();
            for producer in 0..producers {
                let outbox = fixture.store.outbox();
                let mut conn = fixture.database.client().await;
                tasks.push(tokio::spawn(async move {
                    let insert = "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers) \
                                  VALUES (?, ?, ?, ?, ?, ?)";
                    let statement = conn.prep(insert).await.unwrap();
                    let mut count = 0;
                    while Instant::now() < until {
                        let message = Message::new("order.created").aggregate("order", producer).payload(payload());
                        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
                        if way == 0 {
                            let values = (
                                message.id().as_uuid().as_bytes().to_vec(),
                                "order",
                                message.aggregate_id().to_owned(),
                                "order.created",
                                payload(),
                                None::<String>,
                            );
                            tx.exec_drop(&statement, values).await.unwrap();
                        } else {
                            outbox.enqueue(&mut tx, &message).await.unwrap();
                        }
                        tx.commit().await.unwrap();
                        count += 1;
                    }
                    count
                }));
            }
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            rates[way] += rate(sum, TIME) / 2.0;
        }
        let [bare, ours] = rates;
        println!(
            "{server:?} {producers} producers: bare {bare:.0}/s  enqueue {ours:.0}/s  ratio {:.2}",
            ours / bare
        );
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    for server in SERVERS {
        drain_against_the_usual_loop(server).await;
        the_store_alone(server).await;
        enqueue_against_a_bare_insert(server).await;
    }
}
