//! Producers with short and long transactions, some rolled back, some delayed.

use std::sync::Arc;
use std::time::Duration;

use posthaste::{MemoryStore, Message};
use tokio::sync::Mutex;

use super::Plan;
use super::check::{Enqueued, Ledger};

const PRODUCERS: u64 = 6;
const KEYS: usize = 9;

/// Runs the producers to their end.
pub(super) async fn produce(plan: Plan, store: &MemoryStore, ledger: &Arc<Ledger>) {
    // Only transactions that do not overlap have an order between them: whoever uses a key locks it until the end.
    let keys: Arc<Vec<Mutex<()>>> = Arc::new((0..KEYS).map(|_| Mutex::new(())).collect());
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|number| {
            let random = fastrand::Rng::with_seed(plan.seed.wrapping_mul(31).wrapping_add(number));
            tokio::spawn(produce_some(plan.destinations, random, store.clone(), ledger.clone(), keys.clone()))
        })
        .collect();
    for producer in producers {
        producer.await.expect("a producer does not panic");
    }
}

async fn produce_some(
    destinations: usize,
    mut random: fastrand::Rng,
    store: MemoryStore,
    ledger: Arc<Ledger>,
    keys: Arc<Vec<Mutex<()>>>,
) {
    for _ in 0..random.u32(2..10) {
        pause(&mut random, 60).await;
        // Key 0 is hot; `KEYS` stands for no key.
        let key = if random.u32(0..3) == 0 { 0 } else { random.usize(0..=KEYS) };
        let _locked = match keys.get(key) {
            Some(lock) => Some(lock.lock().await),
            None => None,
        };
        let mut transaction = store.begin();
        let mut enqueued = Vec::new();
        for _ in 0..random.u32(1..8) {
            let destination = random.usize(0..destinations);
            let mut message = Message::new(Plan::event_type(destination)).text("payload");
            if key < KEYS {
                message = message.aggregate("key", key);
            }
            if random.u32(0..12) == 0 {
                message = message.delay(Duration::from_millis(random.u64(1..500)));
            }
            transaction.enqueue(&message).expect("the message is valid");
            enqueued.push(Enqueued { id: message.id(), key: (key < KEYS).then_some(key) });
            if random.u32(0..4) == 0 {
                pause(&mut random, 40).await;
            }
        }
        if random.u32(0..10) == 0 {
            pause(&mut random, 700).await;
        }
        if random.u32(0..6) == 0 {
            ledger.rolled_back(enqueued);
            transaction.rollback();
        } else {
            ledger.committed(enqueued);
            transaction.commit();
        }
    }
}

async fn pause(random: &mut fastrand::Rng, most: u64) {
    tokio::time::sleep(Duration::from_millis(random.u64(0..most))).await;
}
