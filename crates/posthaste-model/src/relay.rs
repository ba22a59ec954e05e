//! What a relay does with what it has in hand, without the table.

use crate::rule::Rule;
use crate::scenario::Scenario;
use crate::state::{Answer, Hand, Held, KeyState, Life, Phase, Queued, Relay, bit, has};

impl Relay {
    /// Takes in which lanes it holds.
    pub(crate) fn take_leases(&mut self, answer: &Answer, scenario: &Scenario) {
        for lane in 0..scenario.lanes {
            let (held, now) = (self.held[lane].map(|held| held.hold), answer.lanes[lane]);
            if held.is_some() && held != now {
                self.lose_lane(lane, scenario);
            }
            if let Some(hold) = now
                && self.held[lane].is_none()
            {
                self.begin_lane(lane, Held::new(hold, has(answer.from_expired, lane)), scenario);
            }
        }
        self.share_lanes(usize::from(answer.share), scenario);
    }

    fn begin_lane(&mut self, lane: usize, mut held: Held, scenario: &Scenario) {
        self.drop_queued(lane, scenario);
        for row in rows_of(scenario, lane) {
            // What is left from an earlier hold would be refused.
            if matches!(self.hand[row], Hand::Settling { queued, .. } if queued.hold != held.hold) {
                self.hand[row] = Hand::No;
            }
            self.released[row] = self.released[row].filter(|queued| queued.hold == held.hold);
        }
        self.free_keys(lane, scenario);
        held.careful &= scenario.keeps(Rule::CareAfterCrash);
        self.care |= held.careful;
        self.held[lane] = Some(held);
        self.void_page(lane, scenario);
    }

    /// Forgets a lane that went to another relay, with all of it that is in hand.
    pub(crate) fn lose_lane(&mut self, lane: usize, scenario: &Scenario) {
        self.drop_queued(lane, scenario);
        self.drop_in_flight(lane, scenario);
        for row in rows_of(scenario, lane) {
            if matches!(self.hand[row], Hand::Settling { .. }) {
                self.hand[row] = Hand::No;
            }
            self.released[row] = None;
        }
        self.free_keys(lane, scenario);
        self.forget_lane(lane);
    }

    pub(crate) fn forget_lane(&mut self, lane: usize) {
        self.held[lane] = None;
    }

    /// Keys whose failed record is not in hand any more are free.
    fn free_keys(&mut self, lane: usize, scenario: &Scenario) {
        for row in rows_of(scenario, lane) {
            let key = &mut self.keys[scenario.key(row)];
            if key.failed.is_some_and(|failed| self.hand[usize::from(failed)] == Hand::No) {
                *key = KeyState::default();
            }
        }
    }

    /// Gives lanes back if this relay has more than its share.
    fn share_lanes(&mut self, share: usize, scenario: &Scenario) {
        let mut active = 0;
        for lane in 0..scenario.lanes {
            let Some(held) = self.held[lane] else { continue };
            if held.phase == Phase::GivenBack {
                continue;
            }
            active += 1;
            let phase = if active > share { Phase::Leaving } else { Phase::Active };
            if held.phase != phase {
                self.drop_queued(lane, scenario);
                self.restart(lane, scenario);
                self.held[lane] = self.held[lane].map(|held| Held { phase, ..held });
            }
        }
    }

    /// Gives back the leaving lanes of which nothing is in hand any more.
    pub(crate) fn give_back_empty_lanes(&mut self, scenario: &Scenario) {
        for lane in 0..scenario.lanes {
            let is_empty =
                rows_of(scenario, lane).all(|row| self.hand[row] == Hand::No && self.released[row].is_none());
            let may = is_empty || !scenario.keeps(Rule::GiveBackWhenDone);
            if let Some(held) = &mut self.held[lane]
                && held.phase == Phase::Leaving
                && may
            {
                held.phase = Phase::GivenBack;
                self.give_back |= bit(lane);
            }
        }
    }

    /// Reads a lane from its start again.
    pub(crate) fn restart(&mut self, lane: usize, scenario: &Scenario) {
        if let Some(held) = &mut self.held[lane] {
            (held.floor, held.ended) = (0, false);
        }
        self.void_page(lane, scenario);
    }

    /// A page that was planned before its lane was begun is of no use.
    fn void_page(&mut self, lane: usize, scenario: &Scenario) {
        if let Some(page) = &mut self.page
            && scenario.keeps(Rule::PageOfThisHold)
        {
            page.lanes[lane] = None;
        }
    }

    /// Leaves what has not started of a lane to whoever reads it next.
    pub(crate) fn drop_queued(&mut self, lane: usize, scenario: &Scenario) {
        for row in rows_of(scenario, lane) {
            self.drop_one(row);
        }
        for key in rows_of(scenario, lane).map(|row| scenario.key(row)) {
            if !self.has_held_back(key, scenario) {
                self.keys[key].unread_after = None;
            }
        }
    }

    /// The same of one key, behind a record that failed: the table hides them. One that stands before it, committed
    /// late, is not hidden, and stays.
    pub(crate) fn drop_behind(&mut self, failed: usize, scenario: &Scenario) {
        let first = if scenario.keeps(Rule::DropOnlyBehindFailed) { failed } else { 0 };
        let key = scenario.key(failed);
        for row in (first..scenario.rows.len()).filter(|row| scenario.key(*row) == key) {
            self.drop_one(row);
        }
    }

    fn drop_one(&mut self, row: usize) {
        if let Hand::Queued(queued) = self.hand[row] {
            self.hand[row] = Hand::No;
            self.release(row, queued);
        }
    }

    pub(crate) fn drop_in_flight(&mut self, lane: usize, scenario: &Scenario) {
        for row in rows_of(scenario, lane) {
            if matches!(self.hand[row], Hand::InFlight { .. }) {
                self.hand[row] = Hand::No;
            }
        }
    }

    /// The attempt is taken back, if it was written down.
    pub(crate) fn release(&mut self, row: usize, queued: Queued) {
        if queued.begun {
            self.released[row] = Some(queued);
        }
    }

    /// Whether a record of this key is in hand that was held back.
    pub(crate) fn has_held_back(&self, key: usize, scenario: &Scenario) -> bool {
        let is_held_back = |hand: &Hand| match hand {
            Hand::Queued(queued) | Hand::InFlight { queued, .. } | Hand::Settling { queued, .. } => {
                queued.held_back
            }
            Hand::No => false,
        };
        (0..scenario.rows.len()).any(|row| scenario.key(row) == key && is_held_back(&self.hand[row]))
    }

    /// Whether records of a key that may stand unread can be read and taken in now.
    pub(crate) fn may_refill(&self, key: usize, scenario: &Scenario) -> bool {
        let state = &self.keys[key];
        state.unread_after.is_some() && !state.closed && !self.has_held_back(key, scenario)
    }

    /// Whether a record of this lane may be published under this hold.
    pub(crate) fn may_publish(&self, lane: usize, queued: Queued) -> bool {
        self.life == Life::Running
            && self.held[lane].is_some_and(|held| held.phase == Phase::Active && held.hold == queued.hold)
    }
}

pub(crate) fn rows_of(scenario: &Scenario, lane: usize) -> impl Iterator<Item = usize> + Clone + '_ {
    (0..scenario.rows.len()).filter(move |row| scenario.lane(*row) == lane)
}
