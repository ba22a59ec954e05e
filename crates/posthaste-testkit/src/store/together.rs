//! Several relays and producers at once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste::{DueRecords, Lane, Outcome, ReadRequest, Scan, SettleReport, Store};
use tokio::task::JoinHandle;

use super::fixture::StoreFixture;
use super::support::{Relay, check_sum, enqueue, enqueue_all, everything, keyed, loose, ok, read, read_all};

async fn joined<T>(task: JoinHandle<T>) -> T {
    task.await.unwrap_or_else(|error| panic!("a task failed: {error}"))
}

/// The answer to a settle may be lost, and the same be sent again while the first is still at work.
pub async fn the_same_outcomes_settled_at_once_are_written_once(f: &dyn StoreFixture) {
    let messages: Vec<_> = (0..200).map(|n| keyed(&format!("k{n}"), "m")).collect();
    enqueue_all(f, &messages).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    let settled: Vec<_> = records.iter().map(|record| (record, Outcome::Processed)).collect();
    let mut backwards = relay.request(&settled);
    backwards.settlements.reverse();
    let requests = [relay.request(&settled), backwards, relay.request(&settled)];
    let stores = [f.store(), f.second().await, f.store()];
    let tasks: Vec<_> = stores
        .into_iter()
        .zip(requests)
        .map(|(store, request)| tokio::spawn(async move { store.settle(&request).await }))
        .collect();
    let mut sum = SettleReport::default();
    for task in tasks {
        let report = ok(joined(task).await, "settle");
        check_sum(&report, 200);
        (sum.applied, sum.gone, sum.stale) =
            (sum.applied + report.applied, sum.gone + report.gone, sum.stale + report.stale);
    }
    assert_eq!(
        (sum.applied, sum.gone, sum.stale),
        (200, 400, 0),
        "each is written once, by one of the three"
    );
}

/// Works on its lanes until all messages are processed, and says how many outcomes of its own were written.
async fn work(store: Arc<dyn Store>, bounds: ReadRequest, left: Arc<AtomicUsize>) -> usize {
    let mut relay = Relay::on(store);
    let mut applied = 0;
    while left.load(Ordering::SeqCst) > 0 {
        let share = relay.renew().await.share;
        let beyond: Vec<_> = relay.held().into_iter().skip(share).collect();
        relay.give_back(&beyond).await;
        let scan = |lane: &Lane| Scan { lane: *lane, after: None, until: None, due: DueRecords::All };
        let request = ReadRequest { scans: relay.lanes.keys().map(scan).collect(), ..bounds.clone() };
        let records = read(&relay.store, &request).await.records;
        if records.is_empty() {
            tokio::task::yield_now().await;
            continue;
        }
        let settled: Vec<_> = records.iter().map(|record| (record, Outcome::Processed)).collect();
        let report = relay.try_settle(&settled).await;
        left.fetch_sub(report.applied, Ordering::SeqCst);
        applied += report.applied;
    }
    relay.leave().await;
    applied
}

pub async fn relays_that_share_the_work_settle_each_message_once(f: &dyn StoreFixture) {
    let count = 600;
    let left = Arc::new(AtomicUsize::new(count));
    let bounds = ReadRequest { max_rows: 15, ..everything(f) };
    let (store, second) = (f.store(), f.second().await);
    let relays: Vec<_> = [&store, &second, &store]
        .into_iter()
        .map(|store| tokio::spawn(work(store.clone(), bounds.clone(), left.clone())))
        .collect();
    for n in 0..count / 10 {
        let of_key = |m: usize| keyed(&format!("k{}", (n + m) % 40), "m");
        let messages: Vec<_> = (0..9).map(of_key).chain([loose("l")]).collect();
        if n % 2 == 0 {
            enqueue(f, &messages).await
        } else {
            enqueue_all(f, &messages).await
        };
    }
    let mut by_relay = BTreeMap::new();
    for (n, task) in relays.into_iter().enumerate() {
        by_relay.insert(n, joined(task).await);
    }
    assert_eq!(by_relay.values().sum::<usize>(), count, "each is settled once, by one of them: {by_relay:?}");
    let stats = ok(f.admin().stats(None).await, "stats");
    assert_eq!((stats.ready.count, stats.waiting.count, stats.dead.count), (0, 0, 0));
    assert!(stats.relays.is_empty(), "all of them have left");
}
