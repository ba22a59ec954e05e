//! What happens in the table without a relay: producers, the operator, upkeep, time.

use super::{At, spend};
use crate::rule::Rule;
use crate::scenario::Sort;
use crate::state::{Deadline, Fault, HeldBack, Lease, Status, bit};

impl At<'_> {
    pub(super) fn insert(&mut self, row: usize) -> bool {
        let rows = &self.state.rows;
        let before = rows[..row].iter().all(|other| other.status != Status::NotBegun);
        if rows[row].status != Status::NotBegun || !before {
            return false;
        }
        self.state.rows[row].after = self.state.committed_before(self.scenario, row);
        let sort = self.scenario.rows[row];
        if sort.is(Sort::SLOW) {
            self.state.rows[row].status = Status::Open;
        } else {
            self.state.rows[row].commit(sort);
        }
        true
    }

    pub(super) fn commit(&mut self, row: usize) -> bool {
        let is_open = self.state.rows[row].status == Status::Open;
        if is_open {
            self.state.rows[row].commit(self.scenario.rows[row]);
        }
        is_open
    }

    pub(super) fn roll_back(&mut self, row: usize) -> bool {
        let is_open = self.state.rows[row].status == Status::Open;
        if is_open {
            self.state.rows[row].status = Status::RolledBack;
        }
        is_open
    }

    pub(super) fn due(&mut self, row: usize) -> bool {
        let row = &mut self.state.rows[row];
        if row.status != Status::Pending || row.held_back != HeldBack::Waiting {
            return false;
        }
        row.held_back = HeldBack::Due;
        true
    }

    pub(super) fn redrive(&mut self, row: usize) -> bool {
        if self.state.rows[row].status != Status::Dead || !spend(&mut self.state.trouble.redrives) {
            return false;
        }
        let (lane, parked) = (self.scenario.lane(row), self.state.rows[row].held_back != HeldBack::No);
        if !parked {
            // Its successors did not wait for it: it comes after them.
            self.state.rows.iter_mut().for_each(|other| other.after &= !bit(row));
        }
        self.state.lanes[lane].revision += 1;
        let row = &mut self.state.rows[row];
        (row.status, row.held_back, row.attempts, row.failures) = (Status::Pending, HeldBack::No, 0, 0);
        true
    }

    pub(super) fn upkeep(&mut self, row: usize) -> bool {
        let status = self.state.rows[row].status;
        let wrong = status == Status::Pending && !self.scenario.keeps(Rule::PurgeProcessedOnly);
        if !(status == Status::Processed || wrong) || !spend(&mut self.state.trouble.purges) {
            return false;
        }
        self.state.rows[row].status = Status::Purged;
        if self.state.rows[row].delivered == 0 {
            self.state.broken(Fault::Lost);
        }
        true
    }

    /// The database's clock comes to the end of a lease. A relay that goes on by a clock of its own need not know.
    pub(super) fn lease_over(&mut self, relay: usize) -> bool {
        let knows = self.state.relays[relay].deadline != Deadline::Ahead;
        let skewed = !self.scenario.keeps(Rule::DeadlineByMonotonicClock);
        let alive = self.state.relays[relay].answer.is_some();
        if self.state.leases[relay] != Lease::Live || !(knows || skewed) {
            return false;
        }
        if alive && !spend(&mut self.state.trouble.lapses) {
            return false;
        }
        self.state.leases[relay] = Lease::Over;
        if let Some(answer) = &mut self.state.relays[relay].answer {
            answer.late = true;
        }
        true
    }
}
