//! No more records in a time than a destination shall get.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::validate::MAX_DELAY;

/// How far records may run ahead of their even spacing, since a relay cannot sleep for less than a millisecond.
const SLACK: Duration = Duration::from_millis(10);

/// How many records may start in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RateLimit {
    pub(super) records: u32,
    pub(super) per: Duration,
}

impl RateLimit {
    pub(super) fn check(&self, destination: &str) -> Result<(), Error> {
        let wrong =
            |what: &str| Err(Error::invalid_input(format!("the rate limit of `{destination}` {what}")));
        match self {
            Self { records: 0, .. } => wrong("allows 0 records; pause the destination instead"),
            Self { per, .. } if per.is_zero() => wrong("is per no time at all"),
            Self { per, .. } if *per > MAX_DELAY => wrong("is per more than ten years"),
            Self { records, per } if per.as_nanos() < u128::from(*records) => {
                wrong("allows more than one record in a nanosecond")
            }
            Self { .. } => Ok(()),
        }
    }

    /// The time from one record to the next.
    fn spacing(&self) -> Duration {
        self.per / self.records
    }
}

/// Spreads records evenly.
#[derive(Debug)]
pub(super) struct Pacer {
    limit: Option<RateLimit>,
    /// When the next record would start if all came evenly.
    next: Option<Instant>,
}

impl Pacer {
    pub(super) fn new(limit: Option<RateLimit>) -> Self {
        Self { limit, next: None }
    }

    /// From when the next record may start, if that is not now.
    pub(super) fn not_before(&self, now: Instant) -> Option<Instant> {
        let (limit, next) = (self.limit?, self.next?);
        // A few may go together where they follow closely.
        let ahead = SLACK.saturating_sub(limit.spacing());
        next.checked_sub(ahead).filter(|at| *at > now)
    }

    /// A record starts.
    pub(super) fn started(&mut self, now: Instant) {
        if let Some(limit) = self.limit {
            let from = self.next.map_or(now, |next| next.max(now));
            self.next = Some(from + limit.spacing());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn never_more_than_the_limit_and_a_few_start_in_a_time(
            records in 1_u32..5_000,
            millis in 1_u64..5_000,
            steps in prop::collection::vec(0_u64..3_000, 1..400),
        ) {
            let per = Duration::from_millis(millis);
            let mut pacer = Pacer::new(Some(RateLimit { records, per }));
            let (mut now, mut starts) = (Instant::now(), Vec::new());
            for step in steps {
                now += Duration::from_micros(step);
                while pacer.not_before(now).is_none() && starts.len() < 4_000 {
                    pacer.started(now);
                    starts.push(now);
                }
            }
            let few = 1 + SLACK.as_nanos() / (per / records).as_nanos().max(1);
            let mut first = 0;
            for (place, start) in starts.iter().enumerate() {
                while *start - starts[first] >= per {
                    first += 1;
                }
                let within = (place - first + 1) as u128;
                prop_assert!(within <= u128::from(records) + few + 1, "{within}");
            }
        }
    }

    #[test]
    fn a_slow_limit_starts_one_at_a_time() {
        let (mut pacer, now) =
            (Pacer::new(Some(RateLimit { records: 2, per: Duration::from_secs(1) })), Instant::now());
        assert_eq!(pacer.not_before(now), None);
        pacer.started(now);
        assert_eq!(pacer.not_before(now), Some(now + Duration::from_millis(500)));
        assert_eq!(pacer.not_before(now + Duration::from_millis(500)), None);
    }

    #[test]
    fn time_without_records_is_not_saved_up() {
        let (mut pacer, now) =
            (Pacer::new(Some(RateLimit { records: 1, per: Duration::from_secs(1) })), Instant::now());
        pacer.started(now);
        let later = now + Duration::from_secs(100);
        pacer.started(later);
        assert_eq!(pacer.not_before(later), Some(later + Duration::from_secs(1)));
    }
}
