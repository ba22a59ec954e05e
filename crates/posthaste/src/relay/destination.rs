//! Whether the destination takes messages now: open, paused, or being tried with one message.

use std::time::Duration;

use tokio::time::Instant;

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

/// The state of a destination. An outage is not the messages' fault: while it lasts, nothing is counted.
#[derive(Debug)]
pub(super) struct Destination {
    state: State,
    failures: u32,
}

impl Destination {
    pub(super) fn new() -> Self {
        Self { state: State::Open, failures: 0 }
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

    /// A message under way was given up, which says nothing about the destination.
    pub(super) fn gave_up(&mut self) {
        if let State::Trying { under_way } = &mut self.state {
            *under_way = false;
        }
    }

    /// The destination is down or wants to be left alone. Returns for how long, or `None` where that is known.
    pub(super) fn pause(
        &mut self,
        retry_after: Option<Duration>,
        now: Instant,
        random: &mut fastrand::Rng,
    ) -> Option<Duration> {
        let retry_after =
            retry_after.filter(|wish| *wish >= SHORTEST_WISH).map(|wish| wish.min(LONGEST_WISH));
        if let State::Paused { until } = self.state
            && retry_after.is_none_or(|wish| now + wish <= until)
        {
            return None;
        }
        self.failures = self.failures.saturating_add(1);
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

    #[test]
    fn a_pause_is_tried_with_one_message_before_the_rest_follows() {
        let (now, mut random) = (Instant::now(), fastrand::Rng::with_seed(1));
        let mut destination = Destination::new();
        let pause = destination.pause(None, now, &mut random).unwrap();
        assert!(pause >= FIRST_PAUSE / 2 && pause <= FIRST_PAUSE, "{pause:?}");
        assert!(!destination.may_start());
        destination.tick(now + pause - MS);
        assert!(!destination.may_start(), "the pause is not over");
        destination.tick(now + pause);
        assert!(destination.may_start());
        destination.started();
        assert!(!destination.may_start(), "one message is enough to try");
        assert!(destination.answered());
        assert!(destination.may_start() && destination.is_open());
    }

    #[test]
    fn pauses_grow_to_a_limit_and_start_anew_after_an_answer() {
        let (mut now, mut random) = (Instant::now(), fastrand::Rng::with_seed(2));
        let mut destination = Destination::new();
        for _ in 0..40 {
            now += destination.pause(None, now, &mut random).unwrap();
            destination.tick(now);
            destination.started();
        }
        let longest = destination.pause(None, now, &mut random).unwrap();
        assert!(longest >= LONGEST_PAUSE / 2 && longest <= LONGEST_PAUSE, "{longest:?}");
        destination.tick(now + longest);
        destination.answered();
        assert!(destination.pause(None, now, &mut random).unwrap() <= FIRST_PAUSE);
    }

    #[test]
    fn late_failures_of_the_same_outage_do_not_prolong_it_but_a_longer_wish_does() {
        let (now, mut random) = (Instant::now(), fastrand::Rng::with_seed(3));
        let mut destination = Destination::new();
        destination.pause(Some(100 * MS), now, &mut random);
        assert_eq!(destination.pause(None, now, &mut random), None);
        assert_eq!(destination.pause(Some(50 * MS), now, &mut random), None);
        assert_eq!(destination.pause(Some(500 * MS), now, &mut random), Some(500 * MS));
        assert_eq!(destination.paused_until(), Some(now + 500 * MS));
        assert!(!destination.answered(), "an answer to a message from before the pause does not end it");
    }
}
