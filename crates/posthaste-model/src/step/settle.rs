//! Writing down what became of records, in one transaction.

use super::{At, spend};
use crate::rule::Rule;
use crate::state::{Fault, Hand, HeldBack, Life, Outcome, Queued, ROWS, Status, bit, has};

impl At<'_> {
    /// Writes the outcomes. The call may still be on its way when the process stands still or is dead. `answered`: the
    /// relay hears what was written.
    pub(super) fn settle(&mut self, relay: usize, answered: bool) -> bool {
        let settling = |hand: &Hand| matches!(hand, Hand::Settling { .. });
        let process = &self.state.relays[relay];
        if !process.hand.iter().any(settling) && process.released.iter().all(Option::is_none) {
            return false;
        }
        if !answered && !spend(&mut self.state.trouble.lost_answers) {
            return false;
        }
        if !answered && !self.scenario.keeps(Rule::SettleAgain) {
            // It was not written, and is forgotten all the same.
            self.settled(relay, 0);
            return true;
        }
        let mut stale = 0;
        for row in 0..ROWS {
            let process = &self.state.relays[relay];
            let written = match (process.hand[row], process.released[row]) {
                (Hand::Settling { queued, outcome }, _) => self.write(relay, row, queued, Some(outcome)),
                (_, Some(queued)) => self.write(relay, row, queued, None),
                _ => continue,
            };
            if !written {
                stale |= bit(self.scenario.lane(row));
            }
        }
        if answered {
            self.settled(relay, stale);
        }
        true
    }

    /// Writes one outcome, or takes an attempt back. `false`: it is stale.
    fn write(&mut self, relay: usize, row: usize, queued: Queued, outcome: Option<Outcome>) -> bool {
        if !self.fence(relay, self.scenario.lane(row), queued.hold, Rule::FenceOnSettle) {
            return false;
        }
        if self.state.rows[row].status != Status::Pending {
            return true;
        }
        let max_attempts = self.scenario.max_attempts;
        let row = &mut self.state.rows[row];
        let mut fault = None;
        match outcome {
            Some(Outcome::Processed) => {
                (row.status, row.held_back) = (Status::Processed, HeldBack::No);
                fault = (row.delivered == 0).then_some(Fault::Lost);
            }
            Some(Outcome::Retry { attempts }) => {
                (row.held_back, row.attempts) = (HeldBack::Waiting, attempts);
                fault = (attempts > row.failures).then_some(Fault::Blamed);
            }
            Some(Outcome::Dead { attempts, park }) => {
                row.status = Status::Dead;
                row.attempts = attempts;
                row.held_back = if park { HeldBack::Waiting } else { HeldBack::No };
                fault = (row.failures < max_attempts).then_some(Fault::Blamed);
            }
            None => row.attempts = queued.attempts,
        }
        fault.into_iter().for_each(|fault| self.state.broken(fault));
        true
    }

    /// What the relay makes of the answer.
    fn settled(&mut self, relay: usize, stale: u8) {
        let process = &mut self.state.relays[relay];
        let reading = process.page.is_some();
        for row in 0..self.scenario.rows.len() {
            if process.released[row].take().is_some() {
                // It was passed over meanwhile.
                process.restart(self.scenario.lane(row), self.scenario);
            }
            let Hand::Settling { outcome, .. } = process.hand[row] else { continue };
            process.hand[row] = Hand::No;
            let key = &mut process.keys[self.scenario.key(row)];
            if key.failed.map(usize::from) == Some(row) {
                let goes_on = !matches!(outcome, Outcome::Retry { .. } | Outcome::Dead { park: true, .. });
                (key.failed, key.closed) = (None, false);
                key.closed_for_read |= reading && !goes_on;
                key.opens();
            }
        }
        if process.life == Life::Dead {
            return;
        }
        for lane in (0..self.scenario.lanes).filter(|lane| has(stale, *lane)) {
            process.lose_lane(lane, self.scenario);
        }
        process.give_back_empty_lanes(self.scenario);
    }
}
