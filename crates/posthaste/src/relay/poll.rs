//! When to look for work that nobody announced.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

const SHORTEST: Duration = Duration::from_millis(1);
const BUSY: Duration = Duration::from_millis(50);
/// How many polls in a row may be in vain before the relay counts as idle.
const IN_VAIN: u32 = 24;
/// How many times are remembered at which records become due. Later ones are left to the idle interval.
const MOST_DUE: usize = 4_096;

/// The poll: 1 ms after work, backing off to 50 ms, and after about a second to the idle interval.
#[derive(Debug)]
pub(super) struct Poll {
    idle_interval: Duration,
    in_vain: u32,
    at: Instant,
    /// When records are known to become due.
    due: BTreeSet<Instant>,
}

impl Poll {
    pub(super) fn new(idle_interval: Duration, now: Instant) -> Self {
        Self { idle_interval, in_vain: 0, at: now, due: BTreeSet::new() }
    }

    pub(super) fn at(&self) -> Instant {
        self.due.first().map_or(self.at, |due| self.at.min(*due))
    }

    /// Whether it is time; if so, the next poll is the one that is noted next.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let later = self.due.split_off(&(now + Duration::from_nanos(1)));
        let has_come = !std::mem::replace(&mut self.due, later).is_empty();
        has_come || self.at <= now
    }

    /// There was work.
    pub(super) fn worked(&mut self, now: Instant) {
        self.in_vain = 0;
        self.at = now + SHORTEST;
    }

    /// There was none.
    pub(super) fn found_nothing(&mut self, now: Instant) {
        self.in_vain = self.in_vain.saturating_add(1);
        let backoff = SHORTEST.saturating_mul(1 << self.in_vain.min(6)).min(BUSY);
        self.at = now + if self.is_idle() { self.idle_interval } else { backoff.min(self.idle_interval) };
    }

    /// There may be work now.
    pub(super) fn hint(&mut self, now: Instant) {
        self.in_vain = self.in_vain.min(IN_VAIN - 4);
        self.at = now;
    }

    /// A record becomes due at this time.
    pub(super) fn due(&mut self, at: Instant) {
        self.due.insert(at);
        if self.due.len() > MOST_DUE {
            self.due.pop_last();
        }
    }

    /// How many times are known at which records become due.
    pub(super) fn due_known(&self) -> usize {
        self.due.len()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_vain >= IN_VAIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_back_off_and_start_anew_after_work() {
        let now = Instant::now();
        let idle = Duration::from_millis(250);
        let mut poll = Poll::new(idle, now);
        let mut waits = Vec::new();
        for _ in 0..40 {
            poll.found_nothing(now);
            waits.push(poll.at() - now);
        }
        assert_eq!(waits[0], SHORTEST * 2);
        assert!(waits.windows(2).all(|pair| pair[0] <= pair[1]), "{waits:?}");
        assert!(waits.contains(&BUSY));
        assert_eq!(waits[39], idle);
        assert!(poll.is_idle());
        poll.worked(now);
        assert_eq!(poll.at() - now, SHORTEST);
        assert!(!poll.is_idle());
    }

    #[test]
    fn a_known_due_time_is_not_slept_through() {
        let now = Instant::now();
        let mut poll = Poll::new(Duration::from_secs(1), now);
        (0..40).for_each(|_| poll.found_nothing(now));
        poll.due(now + SHORTEST * 7);
        poll.due(now + SHORTEST * 9);
        assert_eq!(poll.at(), now + SHORTEST * 7);
        assert!(poll.is_due(now + SHORTEST * 7));
        assert!(!poll.is_due(now + SHORTEST * 8), "it is asked for once");
        assert_eq!(poll.at(), now + SHORTEST * 9, "the next one is remembered");
    }
}
