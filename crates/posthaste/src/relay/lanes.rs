//! How far each lane has been read, and what to read next.
//!
//! A lane is read on from its *floor*: everything up to there has been looked at, and the store says that nothing
//! new can appear there. What stands behind it is looked at anew with every read, in one snapshot, so that a slow
//! transaction is neither skipped nor overtaken by a later message of its key.
//!
//! Four kinds of read: the *tail* behind the floor; the *refill* of keys of which records were passed over; the *walk*
//! through the gap of a destination that has room again (`gaps.rs`); and now and then a *sweep* of everything up to the
//! floor, for what no rule foresees, such as a row mended by hand.
//!
//! What to read next stands in `plan.rs`, what becomes of what was read in `take_in.rs`.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::gaps::Gaps;
use super::window::Window;
use crate::record::{Lane, Position};
use crate::store::{DueRecords, LaneLease};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Active,
    /// To be given back as soon as nothing of it is in hand.
    Leaving,
    GivenBack,
}

#[derive(Debug)]
pub(super) struct LaneState {
    pub(super) token: i64,
    pub(super) phase: Phase,
    /// When it was last begun from its start, in reads. A page planned before that is of no use.
    pub(super) begun: u64,
    pub(super) revision: Option<i64>,
    /// Up to here everything has been looked at, and nothing new can appear.
    pub(super) floor: Option<Position>,
    /// Nothing more was behind the floor than was looked at.
    pub(super) ended: bool,
    /// It is to be looked behind the floor.
    pub(super) look: bool,
    pub(super) sweep: Sweep,
    /// What was passed over up to the floor, and behind it.
    pub(super) gaps: Gaps,
    /// Records of it may have been in flight when its last owner died, and are still to be taken in.
    pub(super) careful: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sweep {
    Done,
    From(Option<Position>),
}

/// A record that was held back and is due, and was passed over.
#[derive(Debug, Clone, Copy)]
pub(super) struct PassedDue {
    pub(super) lane: Lane,
    /// The gap that it waits for.
    pub(super) gap: usize,
    pub(super) is_unrouted: bool,
}

/// The lanes held.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "the lanes are what it is about")]
pub(super) struct Lanes {
    pub(super) lanes: BTreeMap<Lane, LaneState>,
    pub(super) turn: usize,
    /// How many reads were planned.
    pub(super) planned: u64,
    /// How often the number of records to look at was doubled, because most of them had to be passed over.
    pub(super) doubled: u32,
    /// How many records are still to be taken in as ones to be careful with.
    pub(super) care_left: usize,
    pub(super) sweep_at: Instant,
    pub(super) refill_at: Instant,
    /// For each destination: from when its gaps may be walked.
    pub(super) walk_at: Vec<Instant>,
    /// The destination whose turn it is to have its gaps walked.
    pub(super) walk_turn: usize,
    /// It is the tail's turn, before any gap's.
    pub(super) tail_first: bool,
    /// Records that were held back, are due and were passed over; not many.
    pub(super) passed_due: BTreeMap<Position, PassedDue>,
}

impl Lanes {
    pub(super) fn new(destinations: usize, now: Instant) -> Self {
        Self {
            lanes: BTreeMap::new(),
            turn: 0,
            planned: 0,
            doubled: 0,
            care_left: 0,
            sweep_at: now,
            refill_at: now,
            walk_at: vec![now; destinations],
            walk_turn: 0,
            tail_first: false,
            passed_due: BTreeMap::new(),
        }
    }

    pub(super) fn insert(&mut self, lease: &LaneLease) {
        let state = LaneState {
            token: lease.token,
            phase: Phase::Active,
            begun: self.planned,
            revision: None,
            floor: None,
            ended: false,
            look: true,
            sweep: Sweep::Done,
            gaps: Gaps::default(),
            careful: lease.from_expired,
        };
        self.lanes.insert(lease.lane, state);
    }

    pub(super) fn remove(&mut self, lane: Lane) -> Option<LaneState> {
        self.passed_due.retain(|_, passed| passed.lane != lane);
        self.lanes.remove(&lane)
    }

    pub(super) fn get(&self, lane: Lane) -> Option<&LaneState> {
        self.lanes.get(&lane)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Lane, &LaneState)> {
        self.lanes.iter().map(|(lane, state)| (*lane, state))
    }

    pub(super) fn set_phase(&mut self, lane: Lane, phase: Phase) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            if state.phase == Phase::Leaving && phase == Phase::Active {
                state.restart(self.planned);
            }
            state.phase = phase;
        }
    }

    pub(super) fn in_phase(&self, phase: Phase) -> Vec<Lane> {
        self.iter().filter(|(_, state)| state.phase == phase).map(|(lane, _)| lane).collect()
    }

    /// Whether a record of this lane may be published under this token.
    pub(super) fn may_publish(&self, lane: Lane, token: i64) -> bool {
        self.lanes.get(&lane).is_some_and(|state| state.token == token && state.phase == Phase::Active)
    }

    /// How many lanes are held, those to be given back included.
    pub(super) fn count(&self) -> usize {
        self.lanes.len()
    }

    /// Whether there is any lane to read.
    pub(super) fn any_active(&self) -> bool {
        self.active().next().is_some()
    }

    /// Whether no lane is to be looked at before the next poll.
    pub(super) fn at_end(&self) -> bool {
        self.active().all(|(_, state)| !state.look)
    }

    /// Looks behind every floor again.
    pub(super) fn poll(&mut self) {
        self.lanes.values_mut().for_each(|state| state.look = true);
    }

    /// Reads a lane from its start again.
    pub(super) fn restart(&mut self, lane: Lane) {
        if let Some(state) = self.lanes.get_mut(&lane) {
            state.restart(self.planned);
        }
    }

    /// So many records of lanes whose owner died are to be taken in as ones to be careful with.
    pub(super) fn begin_care(&mut self, records: usize) {
        self.care_left = records;
    }

    /// No more records are to be taken in as ones to be careful with.
    pub(super) fn end_care(&mut self) {
        self.care_left = 0;
        self.lanes.values_mut().for_each(|state| state.careful = false);
    }

    pub(super) fn wants_care(&self) -> bool {
        self.care_left > 0 && self.lanes.values().any(|state| state.careful)
    }

    /// When the next sweep, refill or walk may begin, if one waits only for the time.
    pub(super) fn next_at(&self, window: &Window) -> Option<Instant> {
        let refill = window.wants_refill().then_some(self.refill_at);
        let sweep = self.active().any(|(_, state)| state.sweep != Sweep::Done).then_some(self.sweep_at);
        let walks = self.walk_at.iter().enumerate().filter(|(to, _)| self.wants_walk(*to, window));
        refill.into_iter().chain(sweep).chain(walks.map(|(_, at)| *at)).min()
    }

    /// Whether records for a destination were passed over, and there is room for them.
    fn wants_walk(&self, to: usize, window: &Window) -> bool {
        let was_passed_over = || {
            self.active().any(|(_, state)| state.gaps.start(to).is_some())
                || self.passed_due.values().any(|passed| passed.gap == to)
        };
        window.has_room_for(to) && was_passed_over()
    }

    /// How many records without a route are known.
    pub(super) fn unrouted(&self) -> u64 {
        let due = self.passed_due.values().filter(|passed| passed.is_unrouted).count() as u64;
        due + self.lanes.values().map(|state| state.gaps.unrouted()).sum::<u64>()
    }

    pub(super) fn active(&self) -> impl Iterator<Item = (Lane, &LaneState)> {
        self.iter().filter(|(_, state)| state.is_active())
    }
}

impl LaneState {
    pub(super) fn is_active(&self) -> bool {
        self.phase == Phase::Active
    }

    pub(super) fn restart(&mut self, planned: u64) {
        self.begun = planned;
        self.gaps = Gaps::default();
        (self.floor, self.ended, self.look, self.sweep) = (None, false, true, Sweep::Done);
    }

    /// Records of a key that were held back are taken in once everything before them has been looked at.
    pub(super) fn due(&self) -> DueRecords {
        match self.floor {
            _ if self.ended => DueRecords::All,
            Some(floor) => DueRecords::UpTo(floor),
            None => DueRecords::UpTo(Position::START),
        }
    }
}
