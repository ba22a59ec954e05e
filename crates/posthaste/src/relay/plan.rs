//! What to read next.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::lanes::{Lanes, Sweep};
use super::window::Window;
use crate::record::{Key, Lane, Position};
use crate::store::{DueRecords, Keys, ReadRequest, Scan};

const PAGE_ROWS: usize = 1_024;
const SCANNED_ROWS: usize = 16_384;
const LEAST_SCANNED: usize = 16;
const REFILL_KEYS: usize = 256;
/// The shortest time between two looks at a gap that the tail is to read.
const LOOK_EVERY: Duration = Duration::from_millis(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Tail,
    Sweep,
    Refill,
    /// The gap of this destination.
    Walk(usize),
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) request: ReadRequest,
    /// The keys to refill, with their lanes.
    pub(super) refills: Vec<(Key, Lane)>,
    pub(super) number: u64,
    pub(super) began: Instant,
}

impl Lanes {
    /// Whether there is room for a page that is worth a read.
    pub(super) fn has_room(window: &Window) -> bool {
        let is_worth_it = || window.free_rows() >= PAGE_ROWS.min(window.rows()) / 4;
        window.has_room_in_bytes() && window.free_rows() > 0 && (window.is_empty() || is_worth_it())
    }

    /// What to read next, if anything.
    pub(super) fn plan(&mut self, window: &mut Window, now: Instant) -> Option<Plan> {
        if !Self::has_room(window) {
            if !window.is_starving() || (self.at_end() && !window.wants_refill()) {
                return None;
            }
            window.make_room();
            if !Self::has_room(window) {
                return None;
            }
        }
        let plan = self.choose(window, now)?;
        self.planned += 1;
        Some(Plan { number: self.planned, ..plan })
    }

    fn choose(&mut self, window: &mut Window, now: Instant) -> Option<Plan> {
        if now >= self.refill_at
            && let Some(refill) = self.plan_refill(window, now)
        {
            return Some(refill);
        }
        // The tail and the gaps take turns, so that none of them waits for the end of the others.
        let tail_first = std::mem::take(&mut self.tail_first);
        let tail = if tail_first { self.plan_tail(window, now) } else { None };
        if let Some(plan) = tail.or_else(|| self.plan_walk(window, now)) {
            return Some(plan);
        }
        let sweep = if now >= self.sweep_at { self.plan_sweep(window, now) } else { None };
        sweep.or_else(|| self.plan_tail(window, now))
    }

    fn plan_refill(&self, window: &mut Window, now: Instant) -> Option<Plan> {
        let mut after: HashMap<Lane, Position> = HashMap::new();
        let (mut keys, mut refills) = (Vec::new(), Vec::new());
        for (key, lane, position) in window.take_refills(REFILL_KEYS) {
            after.entry(lane).and_modify(|least| *least = position.min(*least)).or_insert(position);
            keys.push(key.clone());
            refills.push((key, lane));
        }
        let scans: Vec<_> = self
            .active()
            .filter_map(|(lane, state)| {
                // What an earlier transaction committed since must be read before what stands behind it.
                let after = Some(*after.get(&lane)?).min(state.floor);
                Some(Scan { lane, after, until: None, due: DueRecords::Skip })
            })
            .collect();
        if scans.is_empty() {
            refills.iter().for_each(|(key, _)| window.refill_failed(key));
            return None;
        }
        let in_hand = self.in_hand(window, |_| None);
        Some(Plan { refills, ..to_plan(Kind::Refill, scans, Keys::Only(keys), in_hand, window, now) })
    }

    /// A walk through the gap of a destination that has room again. Destinations take turns.
    fn plan_walk(&mut self, window: &mut Window, now: Instant) -> Option<Plan> {
        if self.passed_due.is_empty() && self.lanes.values().all(|state| state.gaps.is_empty()) {
            return None;
        }
        let all = window.destinations();
        for step in 0..all {
            let to = (self.walk_turn + step) % all;
            if now < self.walk_at[to] || !self.has_room_for(to, window, now) {
                continue;
            }
            let scans = self.gaps_to_walk(to, now);
            if !scans.is_empty() {
                self.walk_turn = to + 1;
                self.tail_first = true;
                return Some(self.plan_little(Kind::Walk(to), scans, window, now));
            }
        }
        None
    }

    /// Whether there is room for a destination, if need be after cutting the queues of keys that take it all.
    fn has_room_for(&mut self, to: usize, window: &mut Window, now: Instant) -> bool {
        if !window.has_room_for(to) && window.is_starving() {
            window.make_room();
            if !window.has_room_for(to) {
                self.walk_at[to] = now + LOOK_EVERY;
            }
        }
        window.has_room_for(to)
    }

    /// The gaps of a destination that are to be walked. What starts at the floor is read by the tail.
    fn gaps_to_walk(&mut self, to: usize, now: Instant) -> Vec<Scan> {
        let (mut scans, mut look) = (Vec::new(), false);
        self.passed_due.retain(|_, passed| {
            let stays = passed.gap != to;
            if let (false, Some(state)) = (stays, self.lanes.get_mut(&passed.lane)) {
                (state.look, look) = (true, true);
            }
            stays
        });
        for (lane, state) in self.lanes.iter_mut().filter(|(_, state)| state.is_active()) {
            let Some(start) = state.gaps.start(to) else { continue };
            if Some(start) < state.floor {
                let (after, until) = (Some(start), state.floor);
                scans.push(Scan { lane: *lane, after, until, due: DueRecords::Skip });
            } else {
                state.gaps.close(to);
                (state.look, look) = (true, true);
            }
        }
        if look {
            self.walk_at[to] = now + LOOK_EVERY;
        }
        scans
    }

    fn plan_sweep(&mut self, window: &Window, now: Instant) -> Option<Plan> {
        if self.active().all(|(_, state)| state.sweep == Sweep::Done) && !self.at_end() {
            for state in self.lanes.values_mut().filter(|state| state.floor.is_some()) {
                state.sweep = Sweep::From(None);
                state.gaps.sweep_begins();
            }
        }
        let scans: Vec<_> = self
            .active()
            .filter_map(|(lane, state)| match state.sweep {
                Sweep::From(after) => Some(Scan { lane, after, until: state.floor, due: DueRecords::Skip }),
                Sweep::Done => None,
            })
            .collect();
        let (keys, in_hand) = (Keys::Except(window.keys_to_pass_over()), self.in_hand(window, |_| None));
        (!scans.is_empty()).then(|| to_plan(Kind::Sweep, scans, keys, in_hand, window, now))
    }

    fn plan_tail(&mut self, window: &Window, now: Instant) -> Option<Plan> {
        let scans: Vec<_> = self
            .active()
            .filter(|(_, state)| state.look)
            .map(|(lane, state)| Scan { lane, after: state.floor, until: None, due: state.due() })
            .collect();
        if scans.is_empty() {
            return None;
        }
        let mut plan = self.plan_little(Kind::Tail, scans, window, now);
        if self.wants_care() {
            // A few of each lane: any of them may have been what its owner died of.
            let records = plan.request.max_rows.min(self.care_left);
            let few = (records / plan.request.scans.len()).max(1);
            plan.request.max_scanned = few.saturating_mul(1 << self.doubled);
        }
        Some(plan)
    }

    /// A little of each lane: their records stand side by side in the table, as they were enqueued.
    fn plan_little(&mut self, kind: Kind, mut scans: Vec<Scan>, window: &Window, now: Instant) -> Plan {
        // Lanes take turns at being read first, so that the first ones do not fill every page.
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn % scans.len();
        scans.rotate_left(first);
        let in_hand = match kind {
            Kind::Tail => self.in_hand(window, |lane| self.get(lane).and_then(|state| state.floor)),
            Kind::Sweep | Kind::Refill | Kind::Walk(_) => self.in_hand(window, |_| None),
        };
        let keys = Keys::Except(window.keys_to_pass_over());
        let mut plan = to_plan(kind, scans, keys, in_hand, window, now);
        let look_at = plan.request.max_rows + plan.request.in_hand.len();
        plan.request.max_scanned = look_at.div_ceil(plan.request.scans.len()).max(LEAST_SCANNED);
        plan.request.max_scanned = plan.request.max_scanned.saturating_mul(1 << self.doubled);
        plan
    }

    /// The positions that are not to be read again, rising.
    fn in_hand(&self, window: &Window, floor: impl Fn(Lane) -> Option<Position>) -> Vec<Position> {
        let mut positions = window.positions(floor);
        if !self.passed_due.is_empty() {
            positions.extend(self.passed_due.keys());
            positions.sort_unstable();
        }
        positions
    }
}

fn to_plan(
    kind: Kind,
    scans: Vec<Scan>,
    keys: Keys,
    in_hand: Vec<Position>,
    window: &Window,
    began: Instant,
) -> Plan {
    let request = ReadRequest {
        max_scanned: (SCANNED_ROWS / scans.len()).max(256),
        scans,
        keys,
        in_hand,
        max_rows: window.free_rows().clamp(1, PAGE_ROWS),
        max_per_key: window.most_per_key(),
        max_bytes: window.free_bytes().max(1),
    };
    Plan { kind, request, refills: Vec::new(), number: 0, began }
}
