//! A store that is slow, fails before or after it did what it was asked, and panics.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{
    BeginAttempt, Error, ErrorKind, LeaseRequest, Leases, MemoryStore, Page, ReadRequest, RelayId,
    SettleReport, SettleRequest, Store, UpkeepReport, UpkeepRequest,
};

use super::{Plan, Weather};

/// The view that one relay has of the store.
pub(super) struct FaultyStore {
    store: MemoryStore,
    plan: Plan,
    random: Mutex<fastrand::Rng>,
    healed: Arc<AtomicBool>,
}

enum Fate {
    Works,
    FailsBefore,
    FailsAfter,
}

impl FaultyStore {
    pub(super) fn new(store: MemoryStore, plan: Plan, seed: u64, healed: Arc<AtomicBool>) -> Self {
        Self { store, plan, random: Mutex::new(fastrand::Rng::with_seed(seed)), healed }
    }

    /// Takes its time, and says what becomes of a call.
    async fn fate(&self) -> Fate {
        let (delay, dice) = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            let slow = self.plan.weather == Weather::Storm && random.u32(0..100) == 0;
            let lease = u64::try_from(self.plan.lease.as_millis()).unwrap_or(1_000);
            (if slow { random.u64(0..2 * lease) } else { random.u64(0..8) }, random.u32(0..1_000))
        };
        tokio::time::sleep(Duration::from_millis(delay)).await;
        if self.plan.weather != Weather::Storm || self.healed.load(Ordering::SeqCst) {
            return Fate::Works;
        }
        match dice {
            0..25 => Fate::FailsBefore,
            25..45 => Fate::FailsAfter,
            45..48 => panic!("the store adapter panics"),
            _ => Fate::Works,
        }
    }

    async fn call<T>(&self, call: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        match self.fate().await {
            Fate::Works => call.await,
            Fate::FailsBefore => Err(Error::new(ErrorKind::Unavailable, "failed before")),
            Fate::FailsAfter => {
                let _ = call.await;
                Err(Error::new(ErrorKind::Unavailable, "failed after"))
            }
        }
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
        self.call(self.store.lease(request)).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), Error> {
        self.call(self.store.leave(relay)).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        // What was read may be old when it arrives.
        let page = self.call(self.store.read(request)).await;
        let delay = self.random.lock().unwrap_or_else(PoisonError::into_inner).u64(0..6);
        tokio::time::sleep(Duration::from_millis(delay)).await;
        page
    }

    async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error> {
        self.call(self.store.begin_attempt(attempt)).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error> {
        self.call(self.store.settle(request)).await
    }

    async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
        self.call(self.store.upkeep(request)).await
    }

    async fn set_idle(&self, relay: RelayId, idle: bool) -> Result<(), Error> {
        self.call(self.store.set_idle(relay, idle)).await
    }

    async fn rung(&self) {
        self.store.rung().await;
    }
}
