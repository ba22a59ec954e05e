//! One attempt to publish one record, and what comes of it.

use super::{At, spend};
use crate::rule::Rule;
use crate::scenario::Sort;
use crate::state::{Deadline, Fault, Hand, HeldBack, Life, Outcome, Queued, Status, has};

impl At<'_> {
    /// Writes down that an attempt begins, before it is made. The call may still be on its way when the process stands
    /// still.
    pub(super) fn begin_attempt(&mut self, relay: usize, row: usize) -> bool {
        let process = &self.state.relays[relay];
        let Hand::Queued(queued) = process.hand[row] else { return false };
        let on_its_way = process.life == Life::Frozen;
        let exhausted = queued.attempts >= self.scenario.max_attempts;
        if !queued.careful || queued.begun || exhausted || !(on_its_way || self.may_start(relay, row, queued))
        {
            return false;
        }
        let lane = self.scenario.lane(row);
        let ours = self.fence(relay, lane, queued.hold, Rule::FenceOnBeginAttempt);
        let written = ours && self.state.rows[row].status == Status::Pending;
        let process = &mut self.state.relays[relay];
        if written {
            self.state.rows[row].attempts = queued.attempts + 1;
            process.hand[row] = Hand::Queued(Queued { begun: true, ..queued });
        } else {
            process.hand[row] = Hand::No;
            process.drop_queued(lane, self.scenario);
            process.restart(lane, self.scenario);
        }
        true
    }

    pub(super) fn publish(&mut self, relay: usize, row: usize) -> bool {
        let Hand::Queued(queued) = self.state.relays[relay].hand[row] else { return false };
        let exhausted = queued.attempts >= self.scenario.max_attempts;
        if exhausted || queued.careful && !queued.begun || !self.may_start(relay, row, queued) {
            return false;
        }
        let process = &mut self.state.relays[relay];
        process.hand[row] = Hand::InFlight { queued, arrived: false };
        if !self.scenario.keeps(Rule::SettleAfterConfirm) {
            process.hand[row] = Hand::Settling { queued, outcome: Outcome::Processed };
        }
        true
    }

    /// The record has no attempts left: a relay died trying it.
    pub(super) fn give_up_untried(&mut self, relay: usize, row: usize) -> bool {
        let Hand::Queued(queued) = self.state.relays[relay].hand[row] else { return false };
        let exhausted = queued.attempts >= self.scenario.max_attempts;
        if !exhausted || queued.begun || !self.may_start(relay, row, queued) {
            return false;
        }
        self.die(relay, row, queued, queued.attempts);
        true
    }

    /// Whether this record may start now: it is the first of its key, nothing of its key is in flight or failed, and
    /// nothing is to be tried alone before it.
    fn may_start(&self, relay: usize, row: usize, queued: Queued) -> bool {
        let process = &self.state.relays[relay];
        if process.life != Life::Running || process.deadline != Deadline::Ahead {
            return false;
        }
        let key = self.scenario.key(row);
        let of_key = |other: &usize| self.scenario.key(*other) == key;
        let rows = 0..self.scenario.rows.len();
        let queued_before = rows.clone().take(row).filter(of_key).any(|other| self.is_queued(relay, other));
        let in_flight = rows.filter(of_key).any(|other| self.is_in_flight(relay, other));
        let failed = process.keys[key].failed.is_some() && self.scenario.keeps(Rule::KeyWaitsForSettle);
        let busy = in_flight && self.scenario.keeps(Rule::OneOfAKey) || failed;
        !queued_before && !busy && self.care_allows(relay, row, queued)
    }

    fn care_allows(&self, relay: usize, row: usize, queued: Queued) -> bool {
        let process = &self.state.relays[relay];
        if !process.care || !self.scenario.keeps(Rule::CareAlone) {
            return true;
        }
        let is_alone = |other: usize| match process.hand[other] {
            Hand::InFlight { queued, .. } | Hand::Settling { queued, .. } => queued.careful,
            Hand::Queued(queued) => queued.begun,
            Hand::No => false,
        };
        let others = (0..self.scenario.rows.len()).filter(|other| *other != row);
        let waiting = others.clone().any(is_alone);
        let careful_left = process.held.iter().flatten().any(|held| held.careful)
            || others
                .clone()
                .any(|other| matches!(process.hand[other], Hand::Queued(queued) if queued.careful));
        !waiting && (queued.careful || !careful_left)
    }

    fn is_queued(&self, relay: usize, row: usize) -> bool {
        matches!(self.state.relays[relay].hand[row], Hand::Queued(_))
    }

    fn is_in_flight(&self, relay: usize, row: usize) -> bool {
        matches!(self.state.relays[relay].hand[row], Hand::InFlight { .. })
    }

    /// The record comes to the destination; its bytes may have been on their way when the process stood still.
    pub(super) fn arrive(&mut self, relay: usize, row: usize) -> bool {
        let Hand::InFlight { queued, arrived: false } = self.state.relays[relay].hand[row] else {
            return false;
        };
        if self.scenario.rows[row].is(Sort::KILLS) {
            return false;
        }
        self.state.relays[relay].hand[row] = Hand::InFlight { queued, arrived: true };
        if !self.state.rows[row].is_committed() {
            self.state.broken(Fault::NotCommitted);
        }
        if self.state.rows[row].delivered == 0 && !self.is_in_order(row) {
            self.state.broken(Fault::OutOfOrder);
        }
        let row = &mut self.state.rows[row];
        row.delivered += 1;
        if row.delivered > row.allowed {
            self.state.broken(Fault::PublishedTwice);
        }
        true
    }

    /// Whether all that it comes after was delivered, or given up without parking its key.
    fn is_in_order(&self, row: usize) -> bool {
        let after = self.state.rows[row].after;
        let is_out_of_the_way = |other: usize| {
            let other = &self.state.rows[other];
            let given_up = other.status == Status::Dead && other.held_back == HeldBack::No;
            other.delivered > 0 || given_up
        };
        (0..row).filter(|other| has(after, *other)).all(is_out_of_the_way)
    }

    pub(super) fn confirm(&mut self, relay: usize, row: usize) -> bool {
        let process = &mut self.state.relays[relay];
        let Hand::InFlight { queued, arrived: true } = process.hand[row] else { return false };
        if process.life == Life::Frozen {
            return false;
        }
        process.hand[row] = Hand::Settling { queued, outcome: Outcome::Processed };
        true
    }

    /// The destination took it, and the relay does not hear of it: it may come once more.
    pub(super) fn lose_confirm(&mut self, relay: usize, row: usize) -> bool {
        let Hand::InFlight { queued, arrived: true } = self.state.relays[relay].hand[row] else {
            return false;
        };
        let frozen = self.state.relays[relay].life == Life::Frozen;
        if frozen || !spend(&mut self.state.trouble.lost_confirms) {
            return false;
        }
        self.state.rows[row].allowed += 1;
        self.message_failed(relay, row, queued);
        true
    }

    pub(super) fn fail(&mut self, relay: usize, row: usize) -> bool {
        let Some(queued) = self.not_arrived(relay, row) else { return false };
        if !spend(&mut self.state.trouble.failures) {
            return false;
        }
        self.message_failed(relay, row, queued);
        true
    }

    fn message_failed(&mut self, relay: usize, row: usize, queued: Queued) {
        self.state.rows[row].failures += 1;
        self.count_attempt(relay, row, queued);
    }

    /// One more attempt is used up: it is tried again later, or given up.
    fn count_attempt(&mut self, relay: usize, row: usize, queued: Queued) {
        let attempts = queued.attempts + 1;
        if attempts >= self.scenario.max_attempts {
            self.die(relay, row, queued, attempts);
        } else {
            self.close_key(relay, row);
            let outcome = Outcome::Retry { attempts };
            self.state.relays[relay].hand[row] = Hand::Settling { queued, outcome };
        }
    }

    fn die(&mut self, relay: usize, row: usize, queued: Queued, attempts: u8) {
        let park = self.scenario.park;
        if park {
            self.close_key(relay, row);
        } else {
            self.state.relays[relay].keys[self.scenario.key(row)].failed = Some(super::lease::to_u8(row));
        }
        let outcome = Outcome::Dead { attempts, park };
        self.state.relays[relay].hand[row] = Hand::Settling { queued, outcome };
    }

    /// The key of a failed record goes no further until the failure is settled.
    fn close_key(&mut self, relay: usize, row: usize) {
        let key = self.scenario.key(row);
        let process = &mut self.state.relays[relay];
        process.keys[key].failed = Some(super::lease::to_u8(row));
        process.keys[key].close(super::lease::to_u8(row));
        process.drop_behind(row, self.scenario);
    }

    /// The destination cannot be reached: the record goes back to its queue.
    pub(super) fn unavailable(&mut self, relay: usize, row: usize) -> bool {
        let Some(queued) = self.not_arrived(relay, row) else { return false };
        if !spend(&mut self.state.trouble.outages) {
            return false;
        }
        if !self.scenario.keeps(Rule::OutageCountsNothing) {
            self.count_attempt(relay, row, queued);
            return true;
        }
        let lane = self.scenario.lane(row);
        let process = &mut self.state.relays[relay];
        if process.may_publish(lane, queued) {
            process.hand[row] = Hand::Queued(queued);
        } else {
            process.hand[row] = Hand::No;
            process.release(row, queued);
            process.drop_queued(lane, self.scenario);
            process.give_back_empty_lanes(self.scenario);
        }
        true
    }

    /// A record in flight that has not come to the destination.
    fn not_arrived(&self, relay: usize, row: usize) -> Option<Queued> {
        let process = &self.state.relays[relay];
        match process.hand[row] {
            Hand::InFlight { queued, arrived: false } if process.life != Life::Frozen => Some(queued),
            _ => None,
        }
    }
}
