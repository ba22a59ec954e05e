//! Whether the rate depends on how much stands in the table.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use posthaste::{BoxError, Relay, Retain, publish_fn};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::measure::{Bench, median, own_cpu, rate, rounds};

/// Rows that are drained in each measurement.
const DRAINED: u32 = 60_000;
/// A long backlog.
const LONG: u32 = 1_000_000;
/// A short one.
const SHORT: u32 = 10_000;

/// Drains so many rows and stops; the rate, and the microseconds of CPU time a row in the server and here, from the first
/// that is published to the last.
async fn drain_some(bench: &Bench, rows: u32) -> (f64, f64) {
    let (count, done) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let began = Arc::new(std::sync::OnceLock::new());
    let relay = Relay::builder(Arc::new(bench.fixture.store.clone()))
        .publisher(publish_fn({
            let (count, done, began) = (count.clone(), done.clone(), began.clone());
            move |_| {
                began.get_or_init(Instant::now);
                if count.fetch_add(1, Ordering::Relaxed) + 1 == rows {
                    done.notify_one();
                }
                async { Ok::<_, BoxError>(()) }
            }
        }))
        .retain(Retain::default())
        .build()
        .unwrap();
    let (server, here) = (bench.server_cpu().await, own_cpu());
    let handle = relay.handle();
    let run = tokio::spawn(relay.run_until(std::future::pending()));
    done.notified().await;
    let time = began.get().unwrap().elapsed();
    let cpu = bench.server_cpu().await.saturating_sub(server) + own_cpu().saturating_sub(here);
    handle.stop();
    run.await.unwrap().unwrap();
    (rate(rows, time), cpu.as_secs_f64() * 1e6 / f64::from(rows))
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
        let mut few = Vec::new();
        for _ in 0..DRAINED / SHORT {
            bench.fill(SHORT).await;
            few.push(drain_some(&bench, SHORT).await);
        }
        short.push(middle(few));
        bench.fill(LONG).await;
        long.push(drain_some(&bench, DRAINED).await);
    }
    let short = middle(short);
    print("backlog of 10,000", short, short);
    print("backlog of 1,000,000", middle(long), short);
}

/// 100,000 ready rows, alone, and behind a million delayed rows and 10,000 keys that wait with 100 rows each.
pub(crate) async fn behind_delayed_rows_and_blocked_keys() {
    let Some(bench) = Bench::new().await else { return };
    let held = "INSERT INTO {}outbox (event_type, aggregate_type, aggregate_id, payload, next_attempt_at)
        SELECT 'order.created', kind, id, convert_to(repeat('x', 512), 'UTF8'), held FROM (
            SELECT n, 'delayed' AS kind, CASE WHEN n % 2 = 0 THEN '' ELSE 'of ' || n END AS id,
                   now() + interval '1 week' AS held FROM generate_series(1, 1000000) n
            UNION ALL
            SELECT n, 'blocked', (n % 10000)::text, CASE WHEN n < 10000 THEN now() + interval '1 week' END
            FROM generate_series(0, 99999) n) rows ORDER BY n, kind";
    let (mut free, mut behind) = (Vec::new(), Vec::new());
    for _ in 0..rounds() {
        bench.fill(2 * DRAINED).await;
        free.push(drain_some(&bench, DRAINED).await);
        bench.fixture.schema.execute("TRUNCATE {}outbox").await;
        bench.fixture.schema.execute(held).await;
        bench.add(&format!("generate_series(1, {}) n", 2 * DRAINED)).await;
        bench.settle_down().await;
        behind.push(drain_some(&bench, DRAINED).await);
    }
    let free = middle(free);
    print("120,000 ready rows", free, free);
    print("behind 1,000,000 delayed rows and 10,000 blocked keys", middle(behind), free);
}
