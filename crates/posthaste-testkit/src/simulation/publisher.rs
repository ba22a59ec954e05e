//! A destination that takes messages, refuses them, is away, hangs, and lies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{PublishError, Publisher, Record};

use super::check::Ledger;
use super::{Plan, Weather};

pub(super) struct FaultyPublisher {
    plan: Plan,
    random: Mutex<fastrand::Rng>,
    ledger: Arc<Ledger>,
    healed: Arc<AtomicBool>,
}

impl FaultyPublisher {
    pub(super) fn new(plan: Plan, seed: u64, ledger: Arc<Ledger>, healed: Arc<AtomicBool>) -> Self {
        Self { plan, random: Mutex::new(fastrand::Rng::with_seed(seed)), ledger, healed }
    }

    fn dice(&self, most: u64) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).u64(0..most)
    }

    fn fails(&self) -> Option<Failure> {
        if self.plan.weather == Weather::Calm || self.healed.load(Ordering::SeqCst) {
            return None;
        }
        match self.dice(100) {
            0..8 => Some(Failure::Failed),
            8..10 => Some(Failure::Rejected),
            10..12 => Some(Failure::Unavailable),
            12..14 => Some(Failure::Throttled),
            14..16 => Some(Failure::Panics),
            16..18 => Some(Failure::Hangs),
            18..20 => Some(Failure::TakesAndFails),
            20 => Some(Failure::TakesAndIsUnavailable),
            _ => None,
        }
    }
}

enum Failure {
    Failed,
    Rejected,
    Unavailable,
    Throttled,
    Panics,
    Hangs,
    TakesAndFails,
    TakesAndIsUnavailable,
}

#[async_trait]
impl Publisher for FaultyPublisher {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        self.ledger.tried(&record);
        tokio::time::sleep(Duration::from_millis(self.dice(15))).await;
        let failure = self.fails();
        match failure {
            None => {
                self.ledger.published(&record, true);
                // The answer takes its time, too.
                tokio::time::sleep(Duration::from_millis(self.dice(5))).await;
                Ok(())
            }
            Some(Failure::Failed) => {
                self.ledger.failed(&record);
                Err(PublishError::failed("failed"))
            }
            Some(Failure::Rejected) => {
                self.ledger.rejected(&record);
                Err(PublishError::rejected("rejected"))
            }
            Some(Failure::Unavailable) => Err(PublishError::unavailable("away")),
            Some(Failure::Throttled) => {
                let after = Duration::from_millis(self.dice(100));
                Err(PublishError::throttled(Some(after), "slow down"))
            }
            Some(Failure::Panics) => {
                self.ledger.failed(&record);
                panic!("the handler panics");
            }
            Some(Failure::Hangs) => {
                self.ledger.failed(&record);
                std::future::pending().await
            }
            Some(Failure::TakesAndFails) => {
                self.ledger.published(&record, false);
                self.ledger.failed(&record);
                Err(PublishError::failed("took it, but said no"))
            }
            Some(Failure::TakesAndIsUnavailable) => {
                self.ledger.published(&record, false);
                Err(PublishError::unavailable("took it, but went away"))
            }
        }
    }
}
