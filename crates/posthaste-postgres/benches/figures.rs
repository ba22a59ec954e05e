//! Figures against the server of the tests, as ratios in one run: `cargo bench -p posthaste-postgres`.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use posthaste::tokio_postgres_0_7::Prepared;
use posthaste::{
    BoxError, DueRecords, Lane, LeaseRequest, Message, Outcome, ReadRequest, RecordRef, Relay, RelayId,
    Retain, Scan, SettleRequest, Settlement, Store, publish_fn,
};
use support::PostgresFixture;
use tokio::time::Instant;

const ROWS: u32 = 60_000;

async fn fill(fixture: &PostgresFixture, rows: u32) {
    let insert = format!(
        "INSERT INTO {{}}outbox (event_type, aggregate_type, aggregate_id, payload)
         SELECT 'order.created', 'order', (n % 5000)::text, convert_to(repeat('x', 512), 'UTF8')
         FROM generate_series(1, {rows}) n"
    );
    fixture.schema.execute("TRUNCATE {}outbox").await;
    fixture.schema.execute(&insert).await;
    fixture.schema.execute("VACUUM ANALYZE {}outbox").await;
    fixture.schema.execute("CHECKPOINT").await;
}

fn rate(rows: u32, took: Duration) -> f64 {
    f64::from(rows) / took.as_secs_f64()
}

async fn drain(fixture: &PostgresFixture, retain: Retain) -> f64 {
    let relay = Relay::builder(Arc::new(fixture.store.clone()))
        .publisher(publish_fn(|_| async { Ok::<_, BoxError>(()) }))
        .retain(retain)
        .build()
        .unwrap();
    let began = Instant::now();
    let summary = relay.drain().await.unwrap();
    assert_eq!(summary.published, u64::from(ROWS));
    rate(ROWS, began.elapsed())
}

/// What the server does alone: the same rows in batches of 1,000.
async fn server_side(fixture: &PostgresFixture, statement: &str) -> f64 {
    let statement = fixture.schema.named(statement);
    let began = Instant::now();
    for _ in 0..ROWS / 1_000 {
        assert_eq!(fixture.schema.client.execute(&statement, &[]).await.unwrap(), 1_000);
    }
    rate(ROWS, began.elapsed())
}

async fn drain_against_a_server_side_loop() {
    let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
    let pick = "(SELECT id FROM {}outbox WHERE status = 0 AND next_attempt_at IS NULL LIMIT 1000)";
    let mark = format!("UPDATE {{}}outbox SET status = 1, processed_at = now() WHERE id IN {pick}");
    let delete = format!("DELETE FROM {{}}outbox WHERE id IN {pick}");
    fill(&fixture, ROWS).await;
    let marked = server_side(&fixture, &mark).await;
    fill(&fixture, ROWS).await;
    let kept = drain(&fixture, Retain::default()).await;
    fill(&fixture, ROWS).await;
    let deleted = server_side(&fixture, &delete).await;
    fill(&fixture, ROWS).await;
    let dropped = drain(&fixture, Retain::DeleteOnSettle).await;
    println!("mark   server {marked:.0}/s  relay {kept:.0}/s  ratio {:.2}", kept / marked);
    println!("delete server {deleted:.0}/s  relay {dropped:.0}/s  ratio {:.2}", dropped / deleted);
}

/// The store without the relay's own work: one page after another, each settled at once.
async fn the_store_alone() {
    let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
    fill(&fixture, ROWS).await;
    let relay = RelayId::random();
    let request = LeaseRequest {
        relay,
        name: String::new(),
        duration: Duration::from_secs(600),
        give_back: Vec::new(),
    };
    fixture.store.lease(&request).await.unwrap();
    let (mut reading, mut settling, mut count) = (Duration::ZERO, Duration::ZERO, 0);
    let mut after = vec![None; 64];
    loop {
        let scans = (0..64).map(|lane| Scan {
            lane: Lane(lane),
            after: after[usize::from(lane)],
            until: None,
            due: DueRecords::All,
        });
        let mut scans: Vec<_> = scans.collect();
        scans.rotate_left(count / 1_024 % 64);
        let read =
            ReadRequest { scans, max_rows: 1_024, max_per_key: 64, max_scanned: 256, ..support::all_lanes() };
        let began = Instant::now();
        let page = fixture.store.read(&read).await.unwrap();
        reading += began.elapsed();
        if page.records.is_empty() {
            break;
        }
        for (scan, reached) in read.scans.iter().zip(&page.reached) {
            after[usize::from(scan.lane.0)] = reached.position.or(scan.after);
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
    let count = u32::try_from(count).unwrap();
    println!("read {:.0}/s  settle {:.0}/s  of {count}", rate(count, reading), rate(count, settling));
}

/// Enqueue by producers, one message a transaction, against a bare INSERT.
async fn enqueue_against_a_bare_insert() {
    const PRODUCERS: usize = 32;
    const TIME: Duration = Duration::from_secs(3);
    let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
    let mut rates = Vec::new();
    for way in [0, 1, 2, 0, 1, 2] {
        fixture.schema.execute("TRUNCATE {}outbox").await;
        let until = Instant::now() + TIME;
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let outbox = fixture.store.outbox();
                let sql = fixture.schema.named(
                    "INSERT INTO {}outbox (id, event_type, aggregate_type, aggregate_id, payload, content_type)
                     VALUES ($1, $2, $3, $4, $5, $6)",
                );
                tokio::spawn(async move {
                    let mut client = support::client().await.unwrap();
                    let statement = client.prepare(&sql).await.unwrap();
                    let prepared = Prepared::new(&client, &outbox).await.unwrap();
                    let mut count = 0_u32;
                    while Instant::now() < until {
                        let message = Message::new("order.created").aggregate("order", producer).payload(vec![b'x'; 512]);
                        let tx = client.transaction().await.unwrap();
                        if way == 0 {
                            let payload = message.payload_bytes().map(AsRef::<[u8]>::as_ref);
                            let (kind, id) = (message.aggregate_type(), message.aggregate_id());
                            tx.execute(&statement, &[message.id().as_uuid(), &"order.created", &kind, &id, &payload, &None::<&str>]).await.unwrap();
                        } else if way == 1 {
                            outbox.enqueue(&tx, &message).await.unwrap();
                        } else {
                            outbox.enqueue(prepared.on(&tx), &message).await.unwrap();
                        }
                        tx.commit().await.unwrap();
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let mut sum = 0;
        for producer in producers {
            sum += producer.await.unwrap();
        }
        rates.push(rate(sum, TIME));
    }
    let [bare, enqueue, prepared] = [0, 1, 2].map(|way| f64::midpoint(rates[way], rates[way + 3]));
    println!("bare {bare:.0}/s  enqueue {enqueue:.0}/s  ratio {:.2}", enqueue / bare);
    println!("prepared {prepared:.0}/s  ratio {:.2}", prepared / bare);
}

/// Many messages in one call, in one transaction.
async fn enqueue_many_at_once() {
    const MESSAGES: u32 = 100_000;
    let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
    let outbox = fixture.store.outbox();
    let messages: Vec<_> = (0..MESSAGES)
        .map(|n| Message::new("order.created").aggregate("order", n % 1_000).payload(vec![b'x'; 512]))
        .collect();
    let mut client = support::client().await.unwrap();
    let began = Instant::now();
    let tx = client.transaction().await.unwrap();
    outbox.enqueue_all(&tx, &messages).await.unwrap();
    tx.commit().await.unwrap();
    println!("enqueue_all of {MESSAGES}: {:.1?}", began.elapsed());
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    drain_against_a_server_side_loop().await;
    the_store_alone().await;
    enqueue_against_a_bare_insert().await;
    enqueue_many_at_once().await;
}
