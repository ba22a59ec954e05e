//! How soon a message is published, and what a relay costs that has nothing to do.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste::{BoxError, Message, MessageId, Record, Relay, RelayHandle, publish_fn};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use crate::measure::{Bench, Took, timed};
use crate::support;
use crate::support::cutter::Cutter;

/// How many producers share the load: a transaction may last longer than the time between two.
const PRODUCERS: u32 = 8;

/// When each message was committed, until it is published.
type Committed = Arc<Mutex<HashMap<MessageId, Instant>>>;

/// Milliseconds from commit to publish, by the second in which they were published.
type Latencies = Arc<Mutex<Vec<(Instant, f64)>>>;

struct Running {
    handle: RelayHandle,
    task: JoinHandle<()>,
    committed: Committed,
    latencies: Latencies,
}

impl Running {
    fn start(bench: &Bench) -> Self {
        let (committed, latencies): (Committed, Latencies) = Default::default();
        let relay = Relay::builder(Arc::new(bench.fixture.store.clone()))
            .publisher(publish_fn({
                let (committed, latencies) = (committed.clone(), latencies.clone());
                move |record: Arc<Record>| {
                    let now = Instant::now();
                    // A message that comes before its producer has heard of the commit took no time.
                    let at = committed.lock().unwrap().remove(&record.id).unwrap_or(now);
                    latencies.lock().unwrap().push((now, (now - at).as_secs_f64() * 1e3));
                    async { Ok::<_, BoxError>(()) }
                }
            }))
            .build()
            .unwrap();
        let handle = relay.handle();
        let task = tokio::spawn(async move {
            relay.run_until(std::future::pending()).await.unwrap();
        });
        Self { handle, task, committed, latencies }
    }

    /// Commits so many messages a second, one a transaction, for a time.
    async fn produce(&self, bench: &Bench, rate: u32, time: Duration) {
        let until = Instant::now() + time;
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|producer| {
                let (outbox, committed) = (bench.fixture.store.outbox(), self.committed.clone());
                tokio::spawn(async move {
                    let mut client = support::client().await.unwrap();
                    let mut ticks = tokio::time::interval(Duration::from_secs(1) * PRODUCERS / rate);
                    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
                    let mut number = 0;
                    while ticks.tick().await < until {
                        number += 1;
                        let key = producer * 1_000 + number % 1_000;
                        let message = Message::new("e").aggregate("k", key).payload(vec![b'x'; 512]);
                        let tx = client.transaction().await.unwrap();
                        let receipt = outbox.enqueue(&tx, &message).await.unwrap();
                        tx.commit().await.unwrap();
                        committed.lock().unwrap().insert(message.id(), Instant::now());
                        drop(receipt);
                    }
                })
            })
            .collect();
        for producer in producers {
            producer.await.unwrap();
        }
    }

    /// The latencies so far, in order of time, and begins anew.
    fn take(&self) -> Vec<(Instant, f64)> {
        std::mem::take(&mut self.latencies.lock().unwrap())
    }

    async fn stop(self) {
        self.handle.stop();
        self.task.await.unwrap();
    }
}

/// So many hundredths of these lie below.
fn percentile(latencies: &[(Instant, f64)], percent: usize) -> f64 {
    let mut sorted: Vec<_> = latencies.iter().map(|(_, millis)| *millis).collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() * percent / 100).copied().unwrap_or_default()
}

fn seconds(variable: &str, usual: u64) -> Duration {
    Duration::from_secs(std::env::var(variable).map_or(usual, |seconds| seconds.parse().unwrap()))
}

/// Milliseconds of CPU time a second, in the server's sessions and here.
fn print_cpu(took: Took, time: Duration) {
    let [server, here] = [took.server, took.here].map(|micros| micros / 1e3 / time.as_secs_f64());
    println!("  CPU time a second: server {server:.1} ms  here {here:.1} ms");
}

/// 100 messages a second.
pub(crate) async fn from_commit_to_publish() {
    let Some(bench) = Bench::new().await else { return };
    let running = Running::start(&bench);
    running.produce(&bench, 100, Duration::from_secs(2)).await;
    running.take();
    let time = seconds("SECONDS", 20);
    let took = timed(&bench, 1, running.produce(&bench, 100, time)).await;
    let taken = running.take();
    let [p50, p90, p99] = [50, 90, 99].map(|percent| percentile(&taken, percent));
    println!("100 messages/s, commit to publish: p50 {p50:.1} ms  p90 {p90:.1} ms  p99 {p99:.1} ms");
    print_cpu(took, time);
    running.stop().await;
}

/// 1,000 messages a second, without and with another session that holds a snapshot. `SECONDS` says for how long (300).
pub(crate) async fn while_a_snapshot_is_held() {
    const PARTS: usize = 5;
    let Some(bench) = Bench::new().await else { return };
    let running = Running::start(&bench);
    let time = seconds("SECONDS", 300);
    running.produce(&bench, 1_000, Duration::from_secs(3)).await;
    running.take();
    let took = timed(&bench, 1, running.produce(&bench, 1_000, time / 5)).await;
    let usual = running.take();
    println!("1,000 messages/s: p50 {:.1} ms  p99 {:.1} ms", percentile(&usual, 50), percentile(&usual, 99));
    print_cpu(took, time / 5);
    let mut other = support::client().await.unwrap();
    let holder = other.build_transaction().isolation_level(tokio_postgres::IsolationLevel::RepeatableRead);
    let holder = holder.start().await.unwrap();
    holder.query(&bench.fixture.schema.named("SELECT count(*) FROM {}outbox"), &[]).await.unwrap();
    let took = timed(&bench, 1, running.produce(&bench, 1_000, time)).await;
    let held = running.take();
    holder.rollback().await.unwrap();
    let [p50, p99] = [50, 99].map(|percent| percentile(&held, percent));
    println!("while a snapshot is held for {time:?}: p50 {p50:.1} ms  p99 {p99:.1} ms");
    print_cpu(took, time);
    let parts: Vec<_> = held
        .chunks(held.len().div_ceil(PARTS))
        .map(|part| format!("{:.1}/{:.1}", percentile(part, 50), percentile(part, 99)))
        .collect();
    println!("  p50/p99 of its fifths: {} ms", parts.join("  "));
    running.stop().await;
}

/// The statements that a relay without work sends, its lease included.
pub(crate) async fn statements_of_an_idle_relay() {
    let proxy = Cutter::start().await;
    let Some(bench) = Bench::at(&proxy.url()).await else { return };
    let running = Running::start(&bench);
    let idle = async || bench.fixture.schema.value::<bool>("SELECT idle FROM {}outbox_wake").await;
    support::until("the relay is idle", idle).await;
    let (time, before) = (seconds("SECONDS", 30), proxy.statements());
    let took = timed(&bench, 1, tokio::time::sleep(time)).await;
    let rate = (proxy.statements() - before) as f64 / time.as_secs_f64();
    println!("an idle relay: {rate:.1} statements a second");
    print_cpu(took, time);
    running.stop().await;
}
