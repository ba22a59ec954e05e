//! The steps, each of which happens at once; between any two of them everything else may happen.

mod lease;
mod process;
mod publish;
mod read;
mod settle;
mod table;

use self::read::Kind;
use crate::scenario::Scenario;
use crate::state::{RELAYS, ROWS, State};

/// A step. Relays and rows go by their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// A producer inserts a message, which takes its position.
    Insert(usize),
    /// It commits.
    Commit(usize),
    /// It rolls back.
    RollBack(usize),
    /// A message that waits is due.
    Due(usize),
    /// An operator redrives a dead message.
    Redrive(usize),
    /// Upkeep purges a message.
    Upkeep(usize),
    /// In the table, the lease of a relay is over.
    LeaseOver(usize),
    /// A relay renews its lease: the table's side of it.
    Lease(usize),
    /// It takes the answer in.
    Grant(usize),
    /// Its own deadline passes.
    Deadline(usize),
    /// It is told to stop.
    Stop(usize),
    /// It gives everything back.
    Leave(usize),
    /// It reads a page: the table's side of it.
    Read(usize),
    /// It reads keys of which records may stand unread.
    Refill(usize),
    /// It reads what it has read before, in case something was left out.
    Sweep(usize),
    /// It takes the page in.
    TakeIn(usize),
    /// It writes down that an attempt begins.
    BeginAttempt(usize, usize),
    /// It starts publishing a record.
    Publish(usize, usize),
    /// The record comes to the destination.
    Arrive(usize, usize),
    /// The destination's confirmation comes to the relay.
    Confirm(usize, usize),
    /// The confirmation gets lost, which counts as a failure.
    LoseConfirm(usize, usize),
    /// The destination refuses the record.
    Fail(usize, usize),
    /// The destination cannot be reached.
    Unavailable(usize, usize),
    /// It gives up a record that has no attempts left.
    GiveUpUntried(usize, usize),
    /// It has its outcomes written down.
    Settle(usize),
    /// The same, but the answer gets lost.
    LoseAnswer(usize),
    /// It is killed.
    Crash(usize),
    /// It dies of the record that it publishes.
    DieOf(usize, usize),
    /// It stands still.
    Freeze(usize),
    /// It goes on.
    Thaw(usize),
    /// A process is started in its place.
    Start(usize),
}

/// A scenario at one moment.
pub(crate) struct At<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) state: &'a mut State,
}

impl Step {
    /// Takes the step. `false`: it is not possible now, or changes nothing; then nothing was changed.
    pub(crate) fn take(self, scenario: &Scenario, state: &mut State) -> bool {
        let at = &mut At { scenario, state };
        match self {
            Self::Insert(row) => at.insert(row),
            Self::Commit(row) => at.commit(row),
            Self::RollBack(row) => at.roll_back(row),
            Self::Due(row) => at.due(row),
            Self::Redrive(row) => at.redrive(row),
            Self::Upkeep(row) => at.upkeep(row),
            Self::LeaseOver(relay) => at.lease_over(relay),
            Self::Lease(relay) => at.lease(relay),
            Self::Grant(relay) => at.grant(relay),
            Self::Deadline(relay) => at.deadline(relay),
            Self::Stop(relay) => at.stop(relay),
            Self::Leave(relay) => at.leave(relay),
            Self::Read(relay) => at.read(relay, Kind::Tail),
            Self::Refill(relay) => at.read(relay, Kind::Refill),
            Self::Sweep(relay) => at.read(relay, Kind::Sweep),
            Self::TakeIn(relay) => at.take_in(relay),
            Self::BeginAttempt(relay, row) => at.begin_attempt(relay, row),
            Self::Publish(relay, row) => at.publish(relay, row),
            Self::Arrive(relay, row) => at.arrive(relay, row),
            Self::Confirm(relay, row) => at.confirm(relay, row),
            Self::LoseConfirm(relay, row) => at.lose_confirm(relay, row),
            Self::Fail(relay, row) => at.fail(relay, row),
            Self::Unavailable(relay, row) => at.unavailable(relay, row),
            Self::GiveUpUntried(relay, row) => at.give_up_untried(relay, row),
            Self::Settle(relay) => at.settle(relay, true),
            Self::LoseAnswer(relay) => at.settle(relay, false),
            Self::Crash(relay) => at.crash(relay),
            Self::DieOf(relay, row) => at.die_of(relay, row),
            Self::Freeze(relay) => at.freeze(relay),
            Self::Thaw(relay) => at.thaw(relay),
            Self::Start(relay) => at.start(relay),
        }
    }

    /// What producers, the operator, upkeep and time do to a row.
    pub(crate) const OF_ROW: [fn(usize) -> Self; 6] =
        [Self::Insert, Self::Commit, Self::RollBack, Self::Due, Self::Redrive, Self::Upkeep];

    /// What a relay does to a record, the last things first.
    pub(crate) const OF_RECORD: [fn(usize, usize) -> Self; 9] = [
        Self::Confirm,
        Self::Arrive,
        Self::DieOf,
        Self::GiveUpUntried,
        Self::BeginAttempt,
        Self::Publish,
        Self::LoseConfirm,
        Self::Fail,
        Self::Unavailable,
    ];

    /// What a relay does of itself, and what happens to it.
    pub(crate) const OF_RELAY: [fn(usize) -> Self; 16] = [
        Self::Settle,
        Self::Grant,
        Self::TakeIn,
        Self::Lease,
        Self::Read,
        Self::Refill,
        Self::Sweep,
        Self::Leave,
        Self::LeaseOver,
        Self::Start,
        Self::Thaw,
        Self::Deadline,
        Self::Stop,
        Self::LoseAnswer,
        Self::Crash,
        Self::Freeze,
    ];

    /// Every step that there is for a scenario.
    pub(crate) fn all(scenario: &Scenario, steps: &mut Vec<Self>) {
        let (relays, rows) = (scenario.relays.min(RELAYS), scenario.rows.len().min(ROWS));
        for row in 0..rows {
            steps.extend(Self::OF_ROW.iter().map(|step| step(row)));
        }
        for relay in 0..relays {
            steps.extend(Self::OF_RELAY.iter().map(|step| step(relay)));
            for row in 0..rows {
                steps.extend(Self::OF_RECORD.iter().map(|step| step(relay, row)));
            }
        }
    }
}

/// Takes one off a count of what may go wrong. `false`: there is none left.
pub(crate) fn spend(left: &mut u8) -> bool {
    let any = *left > 0;
    *left = left.saturating_sub(1);
    any
}
