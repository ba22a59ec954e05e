//! Lanes under leases: renewing, taking the answer in, the deadline, leaving.

use super::{At, spend};
use crate::rule::Rule;
use crate::state::{Answer, Deadline, Fault, Hand, Held, Hold, LANES, Lane, Lease, Life, Phase, bit, has};

impl At<'_> {
    /// Gives back, counts who lives, takes free lanes up to the share; all in one transaction.
    pub(super) fn lease(&mut self, relay: usize) -> bool {
        let process = &self.state.relays[relay];
        let may_call = matches!(process.life, Life::Running | Life::Stopping) && process.answer.is_none();
        if !may_call {
            return false;
        }
        let before = (self.state.leases, self.state.lanes);
        self.state.leases[relay] = Lease::Live;
        let give_back = self.state.relays[relay].give_back;
        for lane in (0..self.scenario.lanes).filter(|lane| has(give_back, *lane)) {
            if self.owner(lane) == Some(relay) {
                self.change_owner(lane, None);
            }
        }
        let live = self.state.leases.iter().filter(|lease| **lease == Lease::Live).count();
        let share = self.scenario.lanes.div_ceil(live);
        let from_expired = self.take_free_lanes(relay, share, give_back);
        let mut lanes = [None; LANES];
        for (lane, hold) in lanes.iter_mut().enumerate().filter(|(lane, _)| self.owner(*lane) == Some(relay))
        {
            *hold = Some(self.state.lanes[lane].as_hold());
        }
        let answer = Answer { lanes, from_expired, share: to_u8(share), late: false };
        if before == (self.state.leases, self.state.lanes) && !self.tells_anything(relay, &answer) {
            return false;
        }
        let process = &mut self.state.relays[relay];
        process.give_back = 0;
        process.answer = Some(answer);
        true
    }

    fn take_free_lanes(&mut self, relay: usize, share: usize, give_back: u8) -> u8 {
        let mut held = (0..self.scenario.lanes).filter(|lane| self.owner(*lane) == Some(relay)).count();
        let mut from_expired = 0;
        for lane in 0..self.scenario.lanes {
            let owner = self.owner(lane);
            let is_free = owner.is_none_or(|owner| self.state.leases[owner] != Lease::Live);
            let takes = is_free || !self.scenario.keeps(Rule::TakeFreeLanes);
            if held >= share || owner == Some(relay) || has(give_back, lane) || !takes {
                continue;
            }
            self.change_owner(lane, Some(relay));
            held += 1;
            if owner.is_some() {
                from_expired |= bit(lane);
            }
        }
        from_expired
    }

    fn owner(&self, lane: usize) -> Option<usize> {
        self.state.lanes[lane].owner.map(usize::from)
    }

    fn change_owner(&mut self, lane: usize, owner: Option<usize>) {
        let raised = self.scenario.keeps(Rule::TokenIsRaised);
        let lane = &mut self.state.lanes[lane];
        lane.owner = owner.map(to_u8);
        lane.hold += 1;
        lane.token += u8::from(raised);
    }

    /// Whether the answer says something that the relay does not know. Renewals that change nothing are not looked at.
    fn tells_anything(&self, relay: usize, answer: &Answer) -> bool {
        let process = &self.state.relays[relay];
        let mut taken = *process;
        taken.take_leases(answer, self.scenario);
        process.deadline != Deadline::Ahead || taken.held != process.held || process.give_back != 0
    }

    pub(super) fn grant(&mut self, relay: usize) -> bool {
        let process = &mut self.state.relays[relay];
        if !matches!(process.life, Life::Running | Life::Stopping) {
            return false;
        }
        let Some(answer) = process.answer.take() else { return false };
        if answer.late && self.scenario.keeps(Rule::LateAnswerIsNoGrant) {
            return true;
        }
        process.deadline = Deadline::Ahead;
        process.take_leases(&answer, self.scenario);
        process.give_back_empty_lanes(self.scenario);
        true
    }

    /// The relay's own deadline passes. One that runs notices at once; one that is frozen when it goes on.
    pub(super) fn deadline(&mut self, relay: usize) -> bool {
        if self.state.relays[relay].deadline != Deadline::Ahead || !spend(&mut self.state.trouble.lapses) {
            return false;
        }
        self.allow_again(relay);
        let frozen = self.state.relays[relay].life == Life::Frozen;
        if frozen {
            self.state.relays[relay].deadline = Deadline::Passed;
        } else {
            self.lapse(relay);
        }
        true
    }

    /// Publishing stops until the lease is renewed.
    pub(super) fn lapse(&mut self, relay: usize) {
        self.blame_begun(relay);
        let process = &mut self.state.relays[relay];
        process.deadline = Deadline::None;
        for lane in 0..LANES {
            process.drop_queued(lane, self.scenario);
            process.drop_in_flight(lane, self.scenario);
            process.forget_lane(lane);
        }
        process.care = false;
    }

    /// What this relay has in hand may come to the destination once more through another.
    pub(super) fn allow_again(&mut self, relay: usize) {
        for (row, hand) in self.state.relays[relay].hand.iter().enumerate() {
            if matches!(hand, Hand::InFlight { .. } | Hand::Settling { .. }) {
                self.state.rows[row].allowed += 1;
            }
        }
    }

    pub(super) fn stop(&mut self, relay: usize) -> bool {
        if self.state.relays[relay].life != Life::Running || !spend(&mut self.state.trouble.stops) {
            return false;
        }
        let process = &mut self.state.relays[relay];
        process.life = Life::Stopping;
        (0..LANES).for_each(|lane| process.drop_queued(lane, self.scenario));
        true
    }

    pub(super) fn leave(&mut self, relay: usize) -> bool {
        let process = &self.state.relays[relay];
        let owes = process.released.iter().any(Option::is_some);
        let is_done = process.hand.iter().all(|hand| *hand == Hand::No) && !owes;
        let may_leave = is_done || !self.scenario.keeps(Rule::LeaveWhenDone);
        if process.life != Life::Stopping || process.answer.is_some() || !may_leave {
            return false;
        }
        for lane in 0..self.scenario.lanes {
            if self.owner(lane) == Some(relay) {
                self.change_owner(lane, None);
            }
        }
        self.state.leases[relay] = Lease::None;
        let process = &mut self.state.relays[relay];
        process.life = Life::Left;
        process.deadline = Deadline::None;
        process.page = None;
        process.held = [None; LANES];
        true
    }

    /// Whether a settle or an attempt under this hold may be written; notes it if that breaks the promise.
    pub(super) fn fence(&mut self, relay: usize, lane: usize, hold: Hold, rule: Rule) -> bool {
        let row = self.state.lanes[lane];
        let is_owner = row.owner.map(usize::from) == Some(relay);
        if self.scenario.keeps(rule) && !(is_owner && row.token == hold.token) {
            return false;
        }
        if !is_owner || row.hold != hold.hold {
            self.state.broken(Fault::StaleSettle);
        }
        true
    }
}

impl Lane {
    fn as_hold(self) -> Hold {
        Hold { token: self.token, hold: self.hold }
    }
}

impl Held {
    pub(crate) fn new(hold: Hold, careful: bool) -> Self {
        Self { hold, phase: Phase::Active, floor: 0, ended: false, revision: None, careful }
    }
}

pub(crate) fn to_u8(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}
