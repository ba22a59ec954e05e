//! The promises, and what the checker asks of the model.

use stateright::{Model, Property};

use crate::scenario::Scenario;
use crate::state::{Deadline, Fault, HeldBack, Life, ROWS, State, Status};
use crate::step::Step;

/// So many rounds in which every relay does what it can are enough, from any state, for all to be delivered.
const ROUNDS: usize = 200;

impl Model for Scenario {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        // What comes after a broken promise is of no interest.
        if state.fault.is_none() {
            Step::all(self, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = *state;
        step.take(self, &mut next).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("atomic", |_, state: &State| state.fault != Some(Fault::NotCommitted)),
            Property::always("in order per key", |_, state: &State| state.fault != Some(Fault::OutOfOrder)),
            Property::always("one publisher while leases are kept", |_, state: &State| {
                state.fault != Some(Fault::PublishedTwice)
            }),
            Property::always("no stale settle", |_, state: &State| state.fault != Some(Fault::StaleSettle)),
            Property::always("no loss", |_, state: &State| state.fault != Some(Fault::Lost)),
            Property::always("no blame for what others did", |_, state: &State| {
                state.fault != Some(Fault::Blamed)
            }),
            Property::always("delivered in the end", State::is_delivered_in_the_end),
        ]
    }
}

impl State {
    /// Whether all is delivered, or given up, once nothing goes wrong any more: transactions end, frozen processes go on,
    /// dead ones are started again, and every relay goes on doing what it can.
    fn is_delivered_in_the_end(scenario: &Scenario, state: &Self) -> bool {
        if state.fault.is_some() {
            return true;
        }
        let mut state = *state;
        state.trouble = crate::scenario::Trouble::default();
        for _ in 0..ROUNDS {
            if !state.go_on(scenario) {
                break;
            }
        }
        state.is_delivered(scenario)
    }

    /// One round. `false`: there is nothing left to do.
    fn go_on(&mut self, scenario: &Scenario) -> bool {
        let mut any = false;
        for row in 0..scenario.rows.len() {
            for step in [Step::Insert, Step::Commit, Step::Due] {
                any |= step(row).take(scenario, self);
            }
        }
        for relay in 0..scenario.relays {
            any |= self.take_turn(scenario, relay);
        }
        any
    }

    /// A relay does the first thing that it can.
    fn take_turn(&mut self, scenario: &Scenario, relay: usize) -> bool {
        let now = [Step::Thaw, Step::Settle, Step::Grant, Step::TakeIn, Step::Start];
        let later = [Step::Leave, Step::Lease, Step::Refill, Step::Read];
        let keeps_lease = self.relays[relay].deadline == Deadline::Ahead;
        !keeps_lease && Step::LeaseOver(relay).take(scenario, self)
            || now.iter().any(|step| step(relay).take(scenario, self))
            || (0..scenario.rows.len()).any(|row| self.take_record_on(scenario, relay, row))
            || later.iter().any(|step| step(relay).take(scenario, self))
    }

    fn take_record_on(&mut self, scenario: &Scenario, relay: usize, row: usize) -> bool {
        Step::OF_RECORD.iter().any(|step| step(relay, row).take(scenario, self))
    }

    fn is_delivered(&self, scenario: &Scenario) -> bool {
        let nobody_left = self.relays[..scenario.relays].iter().all(|relay| relay.life == Life::Left);
        nobody_left || (0..scenario.rows.len()).all(|row| self.is_done(scenario, row))
    }

    /// Whether a row is at its end, or waits by its key's dead one.
    fn is_done(&self, scenario: &Scenario, row: usize) -> bool {
        let parks = |other: usize| {
            let parked = &self.rows[other];
            let same_key = scenario.key(other) == scenario.key(row);
            same_key && parked.status == Status::Dead && parked.held_back != HeldBack::No
        };
        debug_assert!(row < ROWS);
        match self.rows[row].status {
            Status::Processed => self.rows[row].delivered > 0,
            Status::Purged | Status::RolledBack | Status::Dead => true,
            Status::NotBegun | Status::Open => false,
            Status::Pending => (0..row).any(parks),
        }
    }
}
