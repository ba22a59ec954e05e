//! When a failed record is tried again, and when it is given up.

use std::time::Duration;

use crate::admin::Glob;
use crate::error::Error;

/// How often and after what time a failed record is tried again.
///
/// The default doubles from 1 s up to 5 min with full jitter (each wait is a random time between zero and the
/// doubled one), and gives up after 5 attempts.
///
/// ```
/// use std::time::Duration;
/// use posthaste::RetryPolicy;
///
/// let policy = RetryPolicy::fixed(Duration::from_secs(10)).max_attempts(3);
/// assert!(policy.check().is_ok());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    backoff: Backoff,
    max_attempts: Option<u32>,
}

/// How long to wait between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backoff {
    /// Not at all.
    Immediate,
    /// Always as long.
    Fixed(Duration),
    /// A random time up to `base` doubled with every attempt, at most `cap`.
    Exponential {
        /// The longest wait after the first attempt.
        base: Duration,
        /// The longest wait at all.
        cap: Duration,
    },
}

impl RetryPolicy {
    /// Waits a random time up to `base` doubled with every failed attempt, but never longer than `cap`.
    pub fn exponential(base: Duration, cap: Duration) -> Self {
        Self { backoff: Backoff::Exponential { base, cap }, ..Self::default() }
    }

    /// Waits the same time after every failed attempt.
    pub fn fixed(delay: Duration) -> Self {
        Self { backoff: Backoff::Fixed(delay), ..Self::default() }
    }

    /// Does not wait.
    pub fn immediate() -> Self {
        Self { backoff: Backoff::Immediate, ..Self::default() }
    }

    /// Gives up after so many attempts.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Never gives up.
    pub fn unlimited_attempts(mut self) -> Self {
        self.max_attempts = None;
        self
    }

    /// Whether a record with so many failed attempts is given up.
    pub fn is_exhausted(&self, attempts: u32) -> bool {
        self.max_attempts.is_some_and(|most| attempts >= most)
    }

    /// How long to wait after so many failed attempts (at least 1).
    pub fn delay(&self, attempts: u32, random: &mut fastrand::Rng) -> Duration {
        match self.backoff {
            Backoff::Immediate => Duration::ZERO,
            Backoff::Fixed(delay) => delay,
            Backoff::Exponential { base, cap } => full_jitter(base, cap, attempts, random),
        }
    }

    /// Checks that the policy makes sense.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput): zero attempts, a zero wait (say
    /// [`immediate`](Self::immediate) for that), or a cap below the base.
    pub fn check(&self) -> Result<(), Error> {
        if self.max_attempts == Some(0) {
            return Err(Error::invalid_input("max attempts is 0; it must be at least 1"));
        }
        match self.backoff {
            Backoff::Fixed(delay) if delay.is_zero() => Err(Error::invalid_input(
                "the retry delay is 0; use an immediate retry to retry without waiting",
            )),
            Backoff::Exponential { base, .. } if base.is_zero() => {
                Err(Error::invalid_input("the backoff starts at 0; it must start above"))
            }
            Backoff::Exponential { base, cap } if cap < base => {
                Err(Error::invalid_input("the backoff's cap is below its start"))
            }
            Backoff::Immediate | Backoff::Fixed(_) | Backoff::Exponential { .. } => Ok(()),
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let backoff = Backoff::Exponential { base: Duration::from_secs(1), cap: Duration::from_mins(5) };
        Self { backoff, max_attempts: Some(5) }
    }
}

/// A random time between zero and `base` doubled `attempts - 1` times, at most `cap`.
pub(crate) fn full_jitter(
    base: Duration,
    cap: Duration,
    attempts: u32,
    random: &mut fastrand::Rng,
) -> Duration {
    let doubled = 2_u32.checked_pow(attempts.saturating_sub(1)).and_then(|factor| base.checked_mul(factor));
    let ceiling = doubled.map_or(cap, |doubled| doubled.min(cap));
    let micros = u64::try_from(ceiling.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random.u64(0..=micros))
}

/// The retry policies of a relay: one for all, and others for some event types.
#[derive(Debug, Clone, Default)]
pub(crate) struct RetryPolicies {
    pub(crate) default: RetryPolicy,
    pub(crate) by_event_type: Vec<(Glob, RetryPolicy)>,
}

impl RetryPolicies {
    /// The first policy whose pattern matches, or the default.
    pub(crate) fn of(&self, event_type: &str) -> &RetryPolicy {
        self.by_event_type
            .iter()
            .find_map(|(glob, policy)| glob.matches(event_type).then_some(policy))
            .unwrap_or(&self.default)
    }

    /// The policies of a destination that has some of its own.
    pub(crate) fn with(&self, default: Option<RetryPolicy>, by_event_type: Vec<(Glob, RetryPolicy)>) -> Self {
        let mut policies = Self { default: default.unwrap_or(self.default), by_event_type };
        if default.is_none() {
            policies.by_event_type.extend_from_slice(&self.by_event_type);
        }
        policies
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        self.by_event_type
            .iter()
            .map(|(_, policy)| policy)
            .chain([&self.default])
            .try_for_each(RetryPolicy::check)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_wait_never_passes_its_ceiling(attempts in 1_u32.., base in 1_u64..100_000, cap in 1_u64..1_000_000, seed: u64) {
            let (base, cap) = (Duration::from_millis(base), Duration::from_millis(cap.max(base)));
            let policy = RetryPolicy::exponential(base, cap);
            let mut random = fastrand::Rng::with_seed(seed);
            let wait = policy.delay(attempts, &mut random);
            prop_assert!(wait <= cap);
            if attempts < 16 {
                prop_assert!(wait <= base * 2_u32.pow(attempts - 1));
            }
        }
    }

    #[test]
    fn jitter_uses_its_whole_range() {
        let policy = RetryPolicy::default();
        let mut random = fastrand::Rng::with_seed(1);
        let waits: Vec<_> = (0..1_000).map(|_| policy.delay(3, &mut random)).collect();
        assert!(waits.iter().any(|wait| *wait < Duration::from_millis(400)));
        assert!(waits.iter().any(|wait| *wait > Duration::from_millis(3_600)));
    }

    #[test]
    fn attempts_are_given_up_at_the_limit() {
        let policy = RetryPolicy::fixed(Duration::from_secs(1)).max_attempts(3);
        assert!(!policy.is_exhausted(2));
        assert!(policy.is_exhausted(3));
        assert!(!policy.unlimited_attempts().is_exhausted(u32::MAX));
    }

    #[test]
    fn policies_that_make_no_sense_are_refused() {
        let second = Duration::from_secs(1);
        assert!(RetryPolicy::fixed(Duration::ZERO).check().is_err());
        assert!(RetryPolicy::exponential(Duration::ZERO, second).check().is_err());
        assert!(RetryPolicy::exponential(second * 2, second).check().is_err());
        assert!(RetryPolicy::default().max_attempts(0).check().is_err());
        assert!(RetryPolicy::immediate().check().is_ok());
    }

    #[test]
    fn the_first_matching_policy_counts() {
        let policies = RetryPolicies {
            default: RetryPolicy::default(),
            by_event_type: vec![
                (Glob::new("order.*"), RetryPolicy::immediate()),
                (Glob::new("*"), RetryPolicy::fixed(Duration::from_secs(9))),
            ],
        };
        assert_eq!(policies.of("order.created"), &RetryPolicy::immediate());
        assert_eq!(policies.of("user.created"), &RetryPolicy::fixed(Duration::from_secs(9)));
    }
}
