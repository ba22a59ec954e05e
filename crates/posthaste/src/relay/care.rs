//! Being careful after a crash.
//!
//! When a relay dies, one of the records it had in flight may be the reason. The relay that takes its lanes over
//! publishes the first records of these lanes one at a time, each with its attempt written down before it is made:
//! a record that kills the process runs out of attempts, and no other record pays for it.

use std::time::Duration;

use tokio::time::Instant;

use crate::record::Position;

/// The longest time to be careful after lanes were taken over.
const CARE_FOR: Duration = Duration::from_secs(10);
/// A record that takes longer than this no longer holds up the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether the relay is being careful, and with what.
#[derive(Debug, Default)]
pub(super) struct Care {
    until: Option<Instant>,
    /// The record that is being tried alone, and since when.
    alone: Option<(Position, Instant)>,
}

impl Care {
    /// Lanes were taken over from a relay that died.
    pub(super) fn begin(&mut self, now: Instant) {
        self.until = Some(now + CARE_FOR);
    }

    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// Whether nothing else may start now because a record is being tried alone.
    pub(super) fn is_waiting(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
            && self.alone.is_some_and(|(_, since)| now < since + PATIENCE)
    }

    pub(super) fn started(&mut self, position: Position, now: Instant) {
        self.alone = Some((position, now));
    }

    pub(super) fn landed(&mut self, position: Position) {
        self.alone = self.alone.filter(|(alone, _)| *alone != position);
    }

    /// Ends the care if nothing is left to be careful with, or it has lasted long enough. `true`: it ended now.
    pub(super) fn end(&mut self, nothing_left: bool, now: Instant) -> bool {
        let over = self.until.is_some_and(|until| now >= until || (nothing_left && self.alone.is_none()));
        if over {
            *self = Self::default();
        }
        over
    }

    /// When to look again, if a record is being tried alone.
    pub(super) fn next_at(&self) -> Option<Instant> {
        let (_, since) = self.alone?;
        Some(self.until?.min(since + PATIENCE))
    }
}
