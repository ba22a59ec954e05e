//! What happens to a process.

use super::{At, spend};
use crate::rule::Rule;
use crate::scenario::Sort;
use crate::state::{Deadline, Hand, Lease, Life, Relay};

impl At<'_> {
    pub(super) fn crash(&mut self, relay: usize) -> bool {
        let alive = !matches!(self.state.relays[relay].life, Life::Dead | Life::Left);
        if !alive || !spend(&mut self.state.trouble.crashes) {
            return false;
        }
        self.blame_begun(relay);
        self.end_process(relay);
        true
    }

    /// The process dies of the record that it publishes.
    pub(super) fn die_of(&mut self, relay: usize, row: usize) -> bool {
        let in_flight = matches!(self.state.relays[relay].hand[row], Hand::InFlight { .. });
        let frozen = self.state.relays[relay].life == Life::Frozen;
        if !in_flight || frozen || !self.scenario.rows[row].is(Sort::KILLS) {
            return false;
        }
        self.state.rows[row].failures += 1;
        self.end_process(relay);
        true
    }

    /// Nothing of it is left but outcomes that are on their way to the table.
    fn end_process(&mut self, relay: usize) {
        self.allow_again(relay);
        let hand = self.state.relays[relay].hand;
        let mut dead = Relay { released: self.state.relays[relay].released, ..Relay::new(Life::Dead) };
        for (left, hand) in dead.hand.iter_mut().zip(hand) {
            if matches!(hand, Hand::Settling { .. }) {
                *left = hand;
            }
        }
        self.state.relays[relay] = dead;
    }

    /// Nobody knows what came of an attempt that was written down, so it counts.
    pub(super) fn blame_begun(&mut self, relay: usize) {
        for (row, hand) in self.state.relays[relay].hand.iter().enumerate() {
            let begun = match hand {
                Hand::Queued(queued) | Hand::InFlight { queued, .. } | Hand::Settling { queued, .. } => {
                    queued.begun
                }
                Hand::No => false,
            };
            self.state.rows[row].failures += u8::from(begun);
        }
    }

    pub(super) fn freeze(&mut self, relay: usize) -> bool {
        if self.state.relays[relay].life != Life::Running || !spend(&mut self.state.trouble.freezes) {
            return false;
        }
        self.state.relays[relay].life = Life::Frozen;
        true
    }

    /// It goes on, and looks at its deadline first.
    pub(super) fn thaw(&mut self, relay: usize) -> bool {
        if self.state.relays[relay].life != Life::Frozen {
            return false;
        }
        self.state.relays[relay].life = Life::Running;
        if self.state.relays[relay].deadline == Deadline::Passed {
            if self.scenario.keeps(Rule::LookAtDeadlineAfterFreeze) {
                self.lapse(relay);
            } else {
                self.state.relays[relay].deadline = Deadline::Ahead;
            }
        }
        true
    }

    /// A new process, which has an identity of its own: here once nothing names the old one any more.
    pub(super) fn start(&mut self, relay: usize) -> bool {
        let process = &self.state.relays[relay];
        let owns = self.state.lanes.iter().any(|lane| lane.owner.map(usize::from) == Some(relay));
        let releases = process.released.iter().any(Option::is_some);
        let is_gone = process.hand.iter().all(|hand| *hand == Hand::No) && !releases && !owns;
        if process.life != Life::Dead || !is_gone || self.state.leases[relay] == Lease::Live {
            return false;
        }
        self.state.relays[relay] = Relay::new(Life::Running);
        self.state.leases[relay] = Lease::None;
        true
    }
}
