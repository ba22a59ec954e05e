//! A seeded simulation of several relays on one outbox in memory, under faults, on virtual time.
//!
//! Everything is decided by the seed: what producers enqueue, commit and roll back, to how many destinations it goes, which
//! of them each relay knows and serves, what every call to the store and every publish does, when relays join, leave and
//! die. Time is tokio's paused clock, so minutes pass in
//! milliseconds. At the end all faults heal, the rest is drained, and the promises are checked.

mod check;
mod faulty_store;
mod producer;
mod publisher;
mod relays;

use std::sync::Arc;
use std::time::Duration;

use posthaste::{DeadPolicy, MemoryStore, RetryPolicy};

use self::check::Ledger;
use crate::clock::VirtualClock;

/// What a simulation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    /// Nothing fails: every message must be published exactly once.
    Calm,
    /// Destinations fail and are away, but relays live and the store answers: no message may be published again
    /// unless the destination said that it had not been.
    Rough,
    /// Relays die, leases are lost, the store fails and answers too late: at least once, in order.
    Storm,
}

/// The most attempts that a message gets.
pub(crate) const MAX_ATTEMPTS: u32 = 6;

/// One run of the simulation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) weather: Weather,
    pub(crate) lanes: u16,
    pub(crate) on_dead: DeadPolicy,
    pub(crate) lease: Duration,
    pub(crate) in_flight: usize,
    pub(crate) window: usize,
    pub(crate) destinations: usize,
}

impl Plan {
    fn new(weather: Weather, seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        Self {
            seed,
            weather,
            lanes: *random.choice(&[1, 3, 8]).unwrap_or(&1),
            on_dead: if random.bool() { DeadPolicy::Skip } else { DeadPolicy::Park },
            lease: Duration::from_millis(random.u64(600..3_000)),
            in_flight: random.usize(1..12),
            window: random.usize(4..80),
            destinations: random.usize(1..4),
        }
    }

    /// The event type of messages for a destination.
    pub(crate) fn event_type(destination: usize) -> String {
        format!("simulated.{destination}")
    }

    pub(crate) fn retry() -> RetryPolicy {
        let (base, cap) = (Duration::from_millis(20), Duration::from_millis(400));
        RetryPolicy::exponential(base, cap).max_attempts(MAX_ATTEMPTS)
    }
}

/// Runs the simulation of one seed.
///
/// # Errors
/// The broken promise, and what led to it.
///
/// # Panics
/// If no runtime can be made.
pub fn simulate(weather: Weather, seed: u64) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime can be made");
    let plan = Plan::new(weather, seed);
    runtime.block_on(run(plan)).map_err(|broken| format!("{broken}\n  in {plan:?}"))
}

/// Runs the simulation of many seeds, and names the first that breaks a promise.
///
/// # Panics
/// If a promise is broken; the text names the seed, with which [`simulate`] shows it again.
pub fn simulate_seeds(weather: Weather, seeds: std::ops::Range<u64>) {
    for seed in seeds {
        if let Err(broken) = simulate(weather, seed) {
            panic!("seed {seed} ({weather:?}): {broken}");
        }
    }
}

async fn run(plan: Plan) -> Result<(), String> {
    let store = MemoryStore::new(plan.lanes).with_clock(VirtualClock::start());
    let ledger = Arc::new(Ledger::default());
    let crowd = tokio::spawn(relays::come_and_go(plan, store.clone(), ledger.clone()));
    producer::produce(plan, &store, &ledger).await;
    crowd.await.map_err(|error| format!("the simulation itself failed: {error}"))?;
    relays::finish(plan, &store, &ledger).await?;
    check::check(plan, &store, &ledger)
}
