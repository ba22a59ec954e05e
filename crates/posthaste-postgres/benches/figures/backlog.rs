//! Whether the rate depends on how much stands in the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use posthaste::{BoxError, Relay, publish_fn};
use tokio::sync::Notify;

use crate::measure::{Bench, median, rounds, timed};

/// Rows of a long and of a short backlog. The latter is what is drained in each measurement.
const LONG: u32 = 1_000_000;
const SHORT: u32 = 10_000;
/// How many measurements are made of each kind in a round.
const TURNS: u32 = 6;

/// Drains so many rows, and what comes with them until the relay has stopped. The rate, and the
/// microseconds of CPU time a row in the server and here.
async fn drain_some(bench: &Bench, rows: u32) -> (f64, f64) {
    let (count, done) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let relay = Relay::builder(Arc::new(bench.fixture.store.clone()))
        .publisher(publish_fn({
            let (count, done) = (count.clone(), done.clone());
            move |_| {
                if count.fetch_add(1, Ordering::Relaxed) + 1 == rows {
                    done.notify_one();
                }
                async { Ok::<_, BoxError>(()) }
            }
        }))
        .build()
        .unwrap();
    let handle = relay.handle();
    let mut published = 0;
    let took = timed(bench, 1, async {
        let run = tokio::spawn(relay.run_until(std::future::pending()));
        done.notified().await;
        handle.stop();
        published = u32::try_from(run.await.unwrap().unwrap().published).unwrap();
    })
    .await;
    let published = f64::from(published);
    (took.rate * published, (took.server + took.here) / published)
}

/// The medians of some measurements.
fn middle(runs: Vec<(f64, f64)>) -> (f64, f64) {
    let (rates, cpus) = runs.into_iter().unzip();
    (median(rates), median(cpus))
}

fn print(name: &str, (rate, cpu): (f64, f64), usual: (f64, f64)) {
    println!(
        "{name}: {rate:.0}/s ({cpu:.1} µs)  ratio {:.2} (of CPU time {:.2})",
        rate / usual.0,
        cpu / usual.1
    );
}

/// 10,000 against 1,000,000 rows.
pub(crate) async fn long_and_short() {
    let Some(bench) = Bench::new().await else { return };
    let (mut short, mut long) = (Vec::new(), Vec::new());
    for _ in 0..rounds() {
        bench.fill(LONG).await;
        for _ in 0..TURNS {
            long.push(drain_some(&bench, SHORT).await);
        }
        for _ in 0..TURNS {
            bench.fill(SHORT).await;
            short.push(drain_some(&bench, SHORT).await);
        }
    }
    let short = middle(short);
    print("backlog of 10,000", short, short);
    print("backlog of 1,000,000", middle(long), short);
}

/// 120,000 ready rows, alone, and behind a million delayed rows and 10,000 keys that wait with a row behind each.
pub(crate) async fn behind_delayed_rows_and_blocked_keys() {
    const READY: u32 = 120_000;
    let Some(bench) = Bench::new().await else { return };
    let held = "INSERT INTO {}outbox (event_type, aggregate_type, aggregate_id, payload, next_attempt_at)
        SELECT 'order.created', kind, id, convert_to(repeat('x', 512), 'UTF8'), held FROM (
            SELECT n, 'delayed' AS kind, CASE WHEN n % 2 = 0 THEN '' ELSE 'of ' || n END AS id,
                   now() + interval '1 week' AS held FROM generate_series(1, 1000000) n
            UNION ALL
            SELECT n, 'blocked', (n % 10000)::text, CASE WHEN n < 10000 THEN now() + interval '1 week' END
            FROM generate_series(0, 19999) n) rows ORDER BY n, kind";
    let (mut free, mut behind) = (Vec::new(), Vec::new());
    for _ in 0..rounds() {
        bench.fill(READY).await;
        free.push(drain_some(&bench, READY / 2).await);
        bench.fixture.schema.execute("TRUNCATE {}outbox").await;
        bench.fixture.schema.execute(held).await;
        bench.add(&format!("generate_series(1, {READY}) n")).await;
        bench.settle_down().await;
        behind.push(drain_some(&bench, READY / 2).await);
    }
    let free = middle(free);
    print("120,000 ready rows", free, free);
    print("behind 1,000,000 delayed rows and 10,000 blocked keys", middle(behind), free);
}
