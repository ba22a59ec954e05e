//! Draining against what a loop on the server alone does to the same rows.

use std::time::Duration;

use posthaste::{
    DueRecords, Lane, LeaseRequest, Outcome, Page, Position, ReadRequest, RecordRef, RelayId, Retain, Scan,
    SettleRequest, Settlement, Store,
};
use tokio::time::Instant;

use crate::measure::{Bench, Took, medians, rounds, timed};
use crate::support;

const ROWS: u32 = 60_000;

pub(crate) async fn drain(bench: &Bench, rows: u32, retain: Retain) -> Took {
    let relay = bench.relay().retain(retain).build().unwrap();
    timed(bench, rows, async {
        assert_eq!(relay.drain().await.unwrap().published, u64::from(rows));
    })
    .await
}

/// What the server does alone: the same rows in batches of 1,000.
async fn server_side(bench: &Bench, statement: &str) -> Took {
    let schema = &bench.fixture.schema;
    let statement = schema.named(statement);
    let (cpu, began) = (bench.loop_cpu().await, Instant::now());
    for _ in 0..ROWS / 1_000 {
        assert_eq!(schema.client.execute(&statement, &[]).await.unwrap(), 1_000);
    }
    let time = began.elapsed();
    Took::new(ROWS, time, bench.loop_cpu().await.saturating_sub(cpu), Duration::ZERO)
}

pub(crate) async fn against_a_server_side_loop() {
    let Some(bench) = Bench::new().await else { return };
    let pick = "(SELECT id FROM {}outbox WHERE status = 0 AND next_attempt_at IS NULL LIMIT 1000)";
    let mark = format!("UPDATE {{}}outbox SET status = 1, processed_at = now() WHERE id IN {pick}");
    let delete = format!("DELETE FROM {{}}outbox WHERE id IN {pick}");
    for (name, statement, retain) in
        [("kept", &mark, Retain::default()), ("deleted", &delete, Retain::DeleteOnSettle)]
    {
        let (mut alone, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds() {
            bench.fill(ROWS).await;
            alone.push(server_side(&bench, statement).await);
            bench.fill(ROWS).await;
            ours.push(drain(&bench, ROWS, retain).await);
        }
        let (alone, ours) = (medians(&alone), medians(&ours));
        println!(
            "drain, rows {name}: server {:.0}/s ({:.1} µs)  relay {:.0}/s (server {:.1} µs, here {:.1} µs)  ratio {:.2}",
            alone.rate,
            alone.server,
            ours.rate,
            ours.server,
            ours.here,
            ours.rate / alone.rate
        );
    }
}

/// The store without the relay's own work: one page after another, each settled at once.
pub(crate) async fn the_store_alone() {
    let Some(bench) = Bench::new().await else { return };
    let relay = RelayId::random();
    let duration = Duration::from_secs(600);
    let request = LeaseRequest { relay, name: String::new(), duration, give_back: Vec::new() };
    bench.fixture.store.lease(&request).await.unwrap();
    for delete in [false, true] {
        bench.fill(ROWS).await;
        let (mut reads, mut settles, mut count) = (Vec::new(), Vec::new(), 0);
        let mut after = vec![None; 64];
        loop {
            let mut page = Page::default();
            let read = next_page(&after, count);
            reads.push(
                timed(&bench, 1, async { page = bench.fixture.store.read(&read).await.unwrap() }).await,
            );
            if page.records.is_empty() {
                break;
            }
            for (scan, reached) in read.scans.iter().zip(&page.reached) {
                after[usize::from(scan.lane.0)] = reached.position.or(scan.after);
            }
            count += page.records.len();
            settles.push(timed(&bench, 1, settle(&bench, relay, &page, delete)).await);
        }
        let count = u32::try_from(count).unwrap();
        let sum = |all: &[Took]| {
            let server = all.iter().map(|took| took.server).sum::<f64>() / f64::from(count);
            let here = all.iter().map(|took| took.here).sum::<f64>() / f64::from(count);
            let time = all.iter().map(|took| 1.0 / took.rate).sum::<f64>();
            format!("{:.0}/s (server {server:.1} µs, here {here:.1} µs)", f64::from(count) / time)
        };
        let name = if delete { "deleted" } else { "kept" };
        println!("the store alone, rows {name}: read {}  settle {}", sum(&reads), sum(&settles));
    }
}

fn next_page(after: &[Option<Position>], count: usize) -> ReadRequest {
    let scans = (0..64).map(|lane| Scan {
        lane: Lane(lane),
        after: after[usize::from(lane)],
        until: None,
        due: DueRecords::All,
    });
    let mut scans: Vec<_> = scans.collect();
    scans.rotate_left(count / 1_024 % 64);
    ReadRequest { scans, max_rows: 1_024, max_per_key: 64, max_scanned: 1_024 / 64, ..support::all_lanes() }
}

async fn settle(bench: &Bench, relay: RelayId, page: &Page, delete_processed: bool) {
    let settlements = page.records.iter().map(|record| Settlement {
        record: RecordRef { id: record.id, position: record.position, lane: record.lane, token: 1 },
        outcome: Outcome::Processed,
    });
    let request = SettleRequest { relay, delete_processed, settlements: settlements.collect() };
    assert_eq!(bench.fixture.store.settle(&request).await.unwrap().applied, page.records.len());
}
