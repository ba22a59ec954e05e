//! Whether the destination takes messages now: open, paused, or being tried with one message.

use std::time::Duration;

use tokio::time::Instant;

use super::snapshot::Outage;
use crate::publisher::FailureClass;
use crate::retry::full_jitter;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// The pauses that a destination gets if it asks for them. A shorter one says nothing, a longer one is cut.
const SHORTEST_WISH: Duration = Duration::from_millis(10);
const LONGEST_WISH: Duration = Duration::from_hours(24);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Paused {
        until: Instant,
    },
    /// The pause is over; one message tries whether the destination is back.
    Trying {
        under_way: bool,
    },
}

/// The state of a breaker. An outage is not the messages' fault: while it lasts, nothing is counted.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
    failures: u32,
    /// The destination asked to be left alone, rather than being down.
    throttled: bool,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self { state: State::Open, failures: 0, throttled: false }
    }

    /// Whether a message may start now.
    pub(super) fn may_start(&self) -> bool {
        match self.state {
            State::Open => true,
            State::Paused { .. } => false,
            State::Trying { under_way } => !under_way,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    pub(super) fn paused_until(&self) -> Option<Instant> {
        match self.state {
            State::Paused { until } => Some(until),
            State::Open | State::Trying { .. } => None,
        }
    }

    /// Whether it is known to be away, and when it is tried again.
    pub(super) fn outage(&self, now: Instant) -> Outage {
        let until = match self.state {
            State::Open => return Outage::None,
            State::Paused { until } => until,
            State::Trying { .. } => now,
        };
        if self.throttled { Outage::Throttled(until) } else { Outage::Unavailable(until) }
    }

    pub(super) fn started(&mut self) {
        if let State::Trying { under_way } = &mut self.state {
            *under_way = true;
        }
    }

    /// Ends a pause whose time is over.
    pub(super) fn tick(&mut self, now: Instant) {
        if self.paused_until().is_some_and(|until| until <= now) {
            self.state = State::Trying { under_way: false };
        }
    }

    /// The destination answered for a message, if only to refuse it. `true`: it was away and is back.
    pub(super) fn answered(&mut self) -> bool {
        if matches!(self.state, State::Paused { .. }) {
            return false;
        }
        let was_away = !self.is_open();
        (self.state, self.failures) = (State::Open, 0);
        was_away
    }

    /// A message under way was given up, which says nothing about the breaker.
    pub(super) fn gave_up(&mut self) {
        if let State::Trying { under_way } = &mut self.state {
            *under_way = false;
        }
    }

    /// The destination is down or wants to be left alone. Returns for how long, or `None` where that is known.
    pub(super) fn pause(
        &mut self,
        class: FailureClass,
        now: Instant,
        random: &mut fastrand::Rng,
    ) -> Option<Duration> {
        let (throttled, retry_after) = match class {
            FailureClass::Throttled { retry_after } => (true, retry_after),
            _ => (false, None),
        };
        let retry_after =
            retry_after.filter(|wish| *wish >= SHORTEST_WISH).map(|wish| wish.min(LONGEST_WISH));
        if let State::Paused { until } = self.state
            && retry_after.is_none_or(|wish| now + wish <= until)
        {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
        self.throttled = throttled;
        let pause = retry_after.unwrap_or_else(|| {
            let half = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE * 2) / 4;
            half + full_jitter(half.max(Duration::from_micros(1)), half, 1, random)
        });
        self.state = State::Paused { until: now + pause };
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn throttled(millis: u32) -> FailureClass {
        FailureClass::Throttled { retry_after: Some(millis * MS) }
    }

    #[test]
    fn a_pause_is_tried_with_one_message_before_the_rest_follows() {
        let (now, mut random) = (Instant::now(), fastrand::Rng::with_seed(1));
        let mut breaker = Breaker::new();
        let pause = breaker.pause(FailureClass::Unavailable, now, &mut random).unwrap();
        assert!(pause >= FIRST_PAUSE / 2 && pause <= FIRST_PAUSE, "{pause:?}");
        assert!(!breaker.may_start());
        breaker.tick(now + pause - MS);
        assert!(!breaker.may_start(), "the pause is not over");
        breaker.tick(now + pause);
        assert!(breaker.may_start());
        breaker.started();
        assert!(!breaker.may_start(), "one message is enough to try");
        assert!(breaker.answered());
        assert!(breaker.may_start() && breaker.is_open());
    }

    #[test]
    fn pauses_grow_to_a_limit_and_start_anew_after_an_answer() {
        let (mut now, mut random) = (Instant::now(), fastrand::Rng::with_seed(2));
        let mut breaker = Breaker::new();
        for _ in 0..40 {
            now += breaker.pause(FailureClass::Unavailable, now, &mut random).unwrap();
            breaker.tick(now);
            breaker.started();
        }
        let longest = breaker.pause(FailureClass::Unavailable, now, &mut random).unwrap();
        assert!(longest >= LONGEST_PAUSE / 2 && longest <= LONGEST_PAUSE, "{longest:?}");
        breaker.tick(now + longest);
        breaker.answered();
        assert!(breaker.pause(FailureClass::Unavailable, now, &mut random).unwrap() <= FIRST_PAUSE);
    }

    #[test]
    fn late_failures_of_the_same_outage_do_not_prolong_it_but_a_longer_wish_does() {
        let (now, mut random) = (Instant::now(), fastrand::Rng::with_seed(3));
        let mut breaker = Breaker::new();
        breaker.pause(throttled(100), now, &mut random);
        assert_eq!(breaker.pause(FailureClass::Unavailable, now, &mut random), None);
        assert_eq!(breaker.pause(throttled(50), now, &mut random), None);
        assert_eq!(breaker.pause(throttled(500), now, &mut random), Some(500 * MS));
        assert_eq!(breaker.paused_until(), Some(now + 500 * MS));
        assert!(!breaker.answered(), "an answer to a message from before the pause does not end it");
    }
}
