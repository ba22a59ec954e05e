//! A destination that takes messages, refuses them, is away, hangs, and lies.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{PublishError, Publisher, Record};
use tokio::time::Instant;

use super::check::Ledger;
use super::{Plan, Weather};

pub(super) struct FaultyPublisher {
    plan: Plan,
    /// The number of the destination; `None`: it takes everything.
    number: Option<usize>,
    away_until: Mutex<Option<Instant>>,
    random: Mutex<fastrand::Rng>,
    ledger: Arc<Ledger>,
    healed: Arc<AtomicBool>,
}

impl FaultyPublisher {
    pub(super) fn new(
        plan: Plan,
        number: Option<usize>,
        seed: u64,
        ledger: Arc<Ledger>,
        healed: Arc<AtomicBool>,
    ) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Self { plan, number, away_until: Mutex::default(), random, ledger, healed }
    }

    fn dice(&self, most: u64) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).u64(0..most)
    }

    fn is_away(&self) -> bool {
        let until = *self.away_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    fn go_away(&self) {
        let until = Instant::now() + Duration::from_millis(self.dice(1_500));
        *self.away_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    fn fails(&self) -> Option<Failure> {
        if self.plan.weather == Weather::Calm || self.healed.load(Ordering::SeqCst) {
            return None;
        }
        if self.is_away() {
            return Some(Failure::Unavailable);
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
            21 if self.number.is_some() => {
                self.go_away();
                Some(Failure::Unavailable)
            }
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
        if self.number.is_some_and(|number| record.event_type != Plan::event_type(number)) {
            self.ledger.misrouted(&record);
        }
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
