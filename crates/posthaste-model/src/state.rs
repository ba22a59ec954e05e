//! What there is at one moment: the table, the destination, and what each relay has in hand.

use crate::scenario::{Scenario, Sort, Trouble};

/// The most of each that a scenario has. Small: every one more multiplies the states.
pub(crate) const ROWS: usize = 4;
pub(crate) const LANES: usize = 2;
pub(crate) const RELAYS: usize = 3;
pub(crate) const KEYS: usize = 3;

/// One state of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    pub(crate) rows: [Row; ROWS],
    pub(crate) lanes: [Lane; LANES],
    /// The table of relays.
    pub(crate) leases: [Lease; RELAYS],
    pub(crate) relays: [Relay; RELAYS],
    /// What may still go wrong.
    pub(crate) trouble: Trouble,
    /// The first promise that was broken.
    pub(crate) fault: Option<Fault>,
}

/// A promise that was broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A message that never was committed came to the destination.
    NotCommitted,
    /// A message came to the destination before an earlier one of its key.
    OutOfOrder,
    /// A message came to the destination again although every relay that had it kept its lease.
    PublishedTwice,
    /// An outcome was written by a relay that no longer held the lane.
    StaleSettle,
    /// A message was settled as processed, or deleted, that never came to the destination.
    Lost,
    /// A message was given up for failures that were not its own.
    Blamed,
}

/// A row of the outbox. Its position is its place in the array: positions are given at the insert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) status: Status,
    pub(crate) held_back: HeldBack,
    pub(crate) attempts: u8,
    /// The earlier rows of its key that were committed when it was inserted: it comes after these.
    pub(crate) after: u8,
    /// How often it came to the destination.
    pub(crate) delivered: u8,
    /// How often that may be, given who died or lost its lease with it in hand.
    pub(crate) allowed: u8,
    /// How many attempts failed through the message itself.
    pub(crate) failures: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Status {
    NotBegun,
    Open,
    RolledBack,
    Pending,
    Processed,
    Dead,
    Purged,
}

/// What `next_attempt_at` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HeldBack {
    No,
    Waiting,
    Due,
}

/// A row of the table of lanes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Lane {
    pub(crate) owner: Option<u8>,
    pub(crate) token: u8,
    pub(crate) revision: u8,
    /// How often the owner changed. The token follows it, unless that rule is broken.
    pub(crate) hold: u8,
}

/// What the table of relays says of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Lease {
    None,
    Live,
    Over,
}

/// A process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Relay {
    pub(crate) life: Life,
    pub(crate) deadline: Deadline,
    pub(crate) answer: Option<Answer>,
    /// Lanes to give back with the next renewal, as bits.
    pub(crate) give_back: u8,
    pub(crate) held: [Option<Held>; LANES],
    pub(crate) page: Option<Page>,
    pub(crate) hand: [Hand; ROWS],
    /// Attempts to take back: they were written down, and not made.
    pub(crate) released: [Option<Queued>; ROWS],
    pub(crate) keys: [KeyState; KEYS],
    /// Records of lanes whose owner died are tried alone.
    pub(crate) care: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Life {
    Running,
    Stopping,
    Frozen,
    Dead,
    Left,
}

/// The relay's own deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Deadline {
    None,
    Ahead,
    /// Behind, and not noticed: the process is frozen.
    Passed,
}

/// The answer to a renewal, on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Answer {
    pub(crate) lanes: [Option<Hold>; LANES],
    /// Which of them were taken from a relay whose lease was over, as bits.
    pub(crate) from_expired: u8,
    pub(crate) share: u8,
    /// The lease was over again before the answer came.
    pub(crate) late: bool,
}

/// A hold on a lane: its token, and what the token stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(crate) token: u8,
    pub(crate) hold: u8,
}

/// A lane in a relay's hands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) hold: Hold,
    pub(crate) phase: Phase,
    /// Rows before this one have been looked at, and nothing new can appear there.
    pub(crate) floor: u8,
    pub(crate) ended: bool,
    pub(crate) revision: Option<u8>,
    pub(crate) careful: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Active,
    Leaving,
    GivenBack,
}

/// A page, on its way from the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Page {
    /// What was seen of each lane; none where it was not asked for, or has been begun anew since.
    pub(crate) lanes: [Option<Look>; LANES],
    pub(crate) records: [Option<Record>; ROWS],
    /// The keys it is about, as bits, if it is a refill.
    pub(crate) refill: Option<u8>,
    /// The keys that it passed over, as bits.
    pub(crate) passed_over: u8,
    /// The keys of which there may be more than were asked for, as bits.
    pub(crate) full: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Look {
    pub(crate) after: u8,
    pub(crate) reached: u8,
    pub(crate) end: bool,
    pub(crate) revision: u8,
    pub(crate) firm: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Record {
    pub(crate) attempts: u8,
    pub(crate) held_back: bool,
}

/// What a relay knows of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Hand {
    No,
    Queued(Queued),
    InFlight { queued: Queued, arrived: bool },
    Settling { queued: Queued, outcome: Outcome },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Queued {
    pub(crate) hold: Hold,
    pub(crate) attempts: u8,
    /// Until it is settled, the table hides what stands behind it.
    pub(crate) held_back: bool,
    pub(crate) careful: bool,
    /// The attempt was written down.
    pub(crate) begun: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Processed,
    Retry { attempts: u8 },
    Dead { attempts: u8, park: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct KeyState {
    /// A record of it failed, and that is not settled yet.
    pub(crate) failed: Option<u8>,
    /// Nothing of it is taken in until that is settled.
    pub(crate) closed: bool,
    /// It is settled, but the page on its way does not know.
    pub(crate) closed_for_read: bool,
    /// Records of it may stand unread behind this row.
    pub(crate) unread_after: Option<u8>,
    /// The same, from when it is open again: a read passed over it while it was closed.
    pub(crate) passed_over: Option<u8>,
}

impl State {
    /// The beginning.
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let mut state = Self {
            rows: [Row::new(Status::Purged); ROWS],
            lanes: [Lane::default(); LANES],
            leases: [Lease::None; RELAYS],
            relays: [Relay::new(Life::Left); RELAYS],
            trouble: scenario.trouble,
            fault: None,
        };
        state.relays[..scenario.relays].fill(Relay::new(Life::Running));
        state.rows[..scenario.rows.len()].fill(Row::new(Status::NotBegun));
        for (row, sort) in scenario.rows.iter().enumerate() {
            if sort.is(Sort::THERE) {
                state.rows[row].after = state.committed_before(scenario, row);
                state.rows[row].commit(*sort);
            }
        }
        state
    }

    /// Notes that a promise was broken.
    pub(crate) fn broken(&mut self, fault: Fault) {
        self.fault = self.fault.or(Some(fault));
    }

    /// The rows of a key that are committed, and stand before a row.
    pub(crate) fn committed_before(&self, scenario: &Scenario, row: usize) -> u8 {
        let earlier = (0..row).filter(|other| scenario.key(*other) == scenario.key(row));
        let committed = earlier.filter(|other| self.rows[*other].is_committed());
        committed.fold(0, |bits, other| bits | bit(other))
    }
}

impl Row {
    fn new(status: Status) -> Self {
        let held_back = HeldBack::No;
        Self { status, held_back, attempts: 0, after: 0, delivered: 0, allowed: 1, failures: 0 }
    }

    /// It is in the table: ready, or waiting if it was delayed.
    pub(crate) fn commit(&mut self, sort: Sort) {
        self.status = Status::Pending;
        self.held_back = if sort.is(Sort::DELAYED) { HeldBack::Waiting } else { HeldBack::No };
    }

    pub(crate) fn is_committed(self) -> bool {
        !matches!(self.status, Status::NotBegun | Status::Open | Status::RolledBack)
    }

    /// Whether its transaction is over.
    pub(crate) fn is_over(self) -> bool {
        !matches!(self.status, Status::NotBegun | Status::Open)
    }
}

impl Relay {
    pub(crate) fn new(life: Life) -> Self {
        Self {
            life,
            deadline: Deadline::None,
            answer: None,
            give_back: 0,
            held: [None; LANES],
            page: None,
            hand: [Hand::No; ROWS],
            released: [None; ROWS],
            keys: [KeyState::default(); KEYS],
            care: false,
        }
    }
}

pub(crate) fn bit(index: usize) -> u8 {
    1 << index
}

pub(crate) fn has(bits: u8, index: usize) -> bool {
    bits & bit(index) != 0
}
