//! How far each lane has been read, and what to read next.
//!
//! A lane is read on from its *floor*: everything up to there has been looked at, and the store says that nothing
//! new can appear there. What stands behind it is looked at anew with every read, in one snapshot, so that a slow
//! transaction is neither skipped nor overtaken by a later message of its key.
//!
//! Three kinds of read: the *tail* behind the floor; the *refill* of keys of which records were passed over; and
//! now and then a *sweep* of everything up to the floor, for what no rule foresees, such as a row mended by hand.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::window::Window;
use crate::record::{Key, Lane, Position, Record};
use crate::store::{DueRecords, Keys, LaneLease, Page, Reached, ReadRequest, Scan};

const PAGE_ROWS: usize = 1_024;
const SCANNED_ROWS: usize = 16_384;
const LEAST_SCANNED: usize = 16;
const REFILL_KEYS: usize = 256;
/// The shortest time between two sweeps, and the share of the time they may take (one part in so many).
const SWEEP_EVERY: Duration = Duration::from_secs(2);
const SWEEP_SHARE: u32 = 20;

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
    begun: u64,
    revision: Option<i64>,
    /// Up to here everything has been looked at, and nothing new can appear.
    floor: Option<Position>,
    /// Nothing more was behind the floor than was looked at.
    ended: bool,
    /// It is to be looked behind the floor.
    look: bool,
    sweep: Sweep,
    /// Records of it may have been in flight when its last owner died, and are still to be taken in.
    careful: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    Done,
    From(Option<Position>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Tail,
    Sweep,
    Refill,
}

/// A read under way.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    pub(super) request: ReadRequest,
    /// The keys to refill, with their lanes.
    refills: Vec<(Key, Lane)>,
    number: u64,
    pub(super) began: Instant,
}

/// What a page brought.
#[derive(Debug, Default)]
pub(super) struct TakenIn {
    pub(super) records: usize,
    /// Lanes that were read again from their start because somebody mended something in them.
    pub(super) restarted: Vec<Lane>,
}

/// The lanes held.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "the lanes are what it is about")]
pub(super) struct Lanes {
    lanes: BTreeMap<Lane, LaneState>,
    turn: usize,
    /// How many reads were planned.
    planned: u64,
    /// How often the number of records to look at was doubled, because most of them had to be passed over.
    doubled: u32,
    /// How many records are still to be taken in as ones to be careful with.
    care_left: usize,
    sweep_at: Instant,
    refill_at: Instant,
}

impl Lanes {
    pub(super) fn new(now: Instant) -> Self {
        let lanes = BTreeMap::new();
        Self { lanes, turn: 0, planned: 0, doubled: 0, care_left: 0, sweep_at: now, refill_at: now }
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
            careful: lease.from_expired,
        };
        self.lanes.insert(lease.lane, state);
    }

    pub(super) fn remove(&mut self, lane: Lane) -> Option<LaneState> {
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

    /// When the next sweep or refill may begin, if one waits only for the time.
    pub(super) fn next_at(&self, window: &Window) -> Option<Instant> {
        let refill = window.wants_refill().then_some(self.refill_at);
        let sweep = self.active().any(|(_, state)| state.sweep != Sweep::Done).then_some(self.sweep_at);
        refill.into_iter().chain(sweep).min()
    }

    fn active(&self) -> impl Iterator<Item = (Lane, &LaneState)> {
        self.iter().filter(|(_, state)| state.phase == Phase::Active)
    }

    /// Whether there is room for a page that is worth a read.
    pub(super) fn has_room(window: &Window) -> bool {
        let is_worth_it = || {
            window.free_rows() >= PAGE_ROWS.min(window.rows()) / 4 && window.free_bytes() >= window.largest()
        };
        window.free_bytes() > 0 && window.free_rows() > 0 && (window.is_empty() || is_worth_it())
    }

    /// What to read next, if anything.
    pub(super) fn plan(&mut self, window: &mut Window, now: Instant) -> Option<Plan> {
        if !Self::has_room(window) {
            let starving = !window.has_next() && window.has_free_place();
            if !starving || (self.at_end() && !window.wants_refill()) {
                return None;
            }
            window.make_room();
            if !Self::has_room(window) {
                return None;
            }
        }
        let refill = if now >= self.refill_at { self.plan_refill(window, now) } else { None };
        let sweep =
            |lanes: &mut Self| if now >= lanes.sweep_at { lanes.plan_sweep(window, now) } else { None };
        let plan = refill.or_else(|| sweep(self)).or_else(|| self.plan_tail(window, now))?;
        self.planned += 1;
        Some(Plan { number: self.planned, ..plan })
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
        let in_hand = window.positions(|_| None);
        Some(Plan { refills, ..to_plan(Kind::Refill, scans, Keys::Only(keys), in_hand, window, now) })
    }

    fn plan_sweep(&mut self, window: &Window, now: Instant) -> Option<Plan> {
        if self.active().all(|(_, state)| state.sweep == Sweep::Done) && !self.at_end() {
            for state in self.lanes.values_mut().filter(|state| state.floor.is_some()) {
                state.sweep = Sweep::From(None);
            }
        }
        let scans: Vec<_> = self
            .active()
            .filter_map(|(lane, state)| match state.sweep {
                Sweep::From(after) => Some(Scan { lane, after, until: state.floor, due: DueRecords::Skip }),
                Sweep::Done => None,
            })
            .collect();
        let (keys, in_hand) = (Keys::Except(window.keys_to_pass_over()), window.positions(|_| None));
        (!scans.is_empty()).then(|| to_plan(Kind::Sweep, scans, keys, in_hand, window, now))
    }

    fn plan_tail(&mut self, window: &Window, now: Instant) -> Option<Plan> {
        let mut scans: Vec<_> = self
            .active()
            .filter(|(_, state)| state.look)
            .map(|(lane, state)| Scan { lane, after: state.floor, until: None, due: state.due() })
            .collect();
        if scans.is_empty() {
            return None;
        }
        // Lanes take turns at being read first, so that the first ones do not fill every page.
        self.turn = self.turn.wrapping_add(1);
        let first = self.turn % scans.len();
        scans.rotate_left(first);
        let in_hand = window.positions(|lane| self.get(lane).and_then(|state| state.floor));
        let keys = Keys::Except(window.keys_to_pass_over());
        let mut plan = to_plan(Kind::Tail, scans, keys, in_hand, window, now);
        // A little of each lane: their records stand side by side in the table, as they were enqueued.
        let look_at = plan.request.max_rows + plan.request.in_hand.len();
        plan.request.max_scanned = look_at.div_ceil(plan.request.scans.len()).max(LEAST_SCANNED);
        if self.wants_care() {
            // A few of each lane: any of them may have been what its owner died of.
            let records = plan.request.max_rows.min(self.care_left);
            plan.request.max_scanned = (records / plan.request.scans.len()).max(1);
        }
        plan.request.max_scanned = plan.request.max_scanned.saturating_mul(1 << self.doubled);
        Some(plan)
    }

    /// Takes the records of a page into the window and notes how far the scans came.
    pub(super) fn take_in(&mut self, plan: &Plan, page: Page, window: &mut Window, now: Instant) -> TakenIn {
        let (looks, restarted) = self.looks(plan, &page.reached);
        for (key, lane) in &plan.refills {
            if looks.contains_key(lane) {
                window.refill_begins(key);
            } else {
                window.refill_failed(key);
            }
        }
        if let (Kind::Tail, Keys::Except(keys)) = (plan.kind, &plan.request.keys) {
            let began = |lane| looks.get(&lane).map(|look| look.scan.after.unwrap_or(Position::START));
            window.passed_over(keys, began);
        }
        let of_use = page.records.into_iter().filter(|record| looks.contains_key(&record.lane));
        let (held_back, fresh): (Vec<_>, Vec<_>) = of_use.partition(|record| record.held_back);
        let full_keys = full_keys(&held_back, &fresh, plan.request.max_per_key);
        let mut records = 0;
        for record in fresh {
            records += usize::from(self.admit(record, window));
        }
        for (key, lane, last) in full_keys {
            let begin = looks.get(&lane).and_then(|look| look.scan.after);
            window.mark_unread(&key, lane, last.or(begin).unwrap_or(Position::START));
        }
        for record in held_back {
            let floor = self.get(record.lane).and_then(|state| state.floor);
            let all_before = looks.get(&record.lane).is_some_and(|look| look.covers(record.position, floor));
            if all_before || record.key().is_none() {
                records += usize::from(self.admit(record, window));
            }
        }
        self.note_reached(plan, &looks, window);
        self.pace(plan, records, now);
        TakenIn { records, restarted }
    }

    fn admit(&mut self, record: Record, window: &mut Window) -> bool {
        let Some(state) = self.lanes.get(&record.lane) else { return false };
        let mut none = 0;
        let careful = if state.careful { &mut self.care_left } else { &mut none };
        window.admit(record, state.token, careful)
    }

    /// The scans that are of use, by lane, and the lanes to be read from their start because somebody mended
    /// something in them. Of no use are scans of lanes that were begun anew since the read was planned.
    fn looks(&mut self, plan: &Plan, reached: &[Reached]) -> (HashMap<Lane, Look>, Vec<Lane>) {
        let (mut looks, mut restarted) = (HashMap::new(), Vec::new());
        for (scan, reached) in plan.request.scans.iter().zip(reached) {
            let Some(state) = self.lanes.get_mut(&scan.lane) else { continue };
            if state.phase != Phase::Active || state.begun >= plan.number {
                continue;
            }
            if *state.revision.get_or_insert(reached.revision) == reached.revision {
                looks.insert(scan.lane, Look { scan: *scan, reached: *reached });
            } else {
                state.revision = Some(reached.revision);
                state.restart(self.planned);
                restarted.push(scan.lane);
            }
        }
        (looks, restarted)
    }

    fn note_reached(&mut self, plan: &Plan, looks: &HashMap<Lane, Look>, window: &mut Window) {
        if plan.kind == Kind::Refill {
            for (key, lane) in &plan.refills {
                if let Some(look) = looks.get(lane).filter(|look| !look.reached.end) {
                    let at = look.reached.position.or(look.scan.after);
                    window.mark_unread(key, *lane, at.unwrap_or(Position::START));
                }
            }
            return;
        }
        for (lane, Look { scan, reached }) in looks {
            let Some(state) = self.lanes.get_mut(lane) else { continue };
            if plan.kind == Kind::Sweep {
                let next = Sweep::From(reached.position.or(scan.after));
                state.sweep = if reached.end { Sweep::Done } else { next };
                continue;
            }
            let looked_at = if reached.end { reached.firm } else { reached.position };
            state.floor = state.floor.max(reached.firm.min(looked_at));
            (state.ended, state.look) = (reached.end, !reached.end);
            state.careful &= !reached.end;
        }
    }

    fn pace(&mut self, plan: &Plan, records: usize, now: Instant) {
        let took = now - plan.began;
        match plan.kind {
            Kind::Sweep if self.active().all(|(_, state)| state.sweep == Sweep::Done) => {
                self.sweep_at = now + SWEEP_EVERY.max(took * SWEEP_SHARE);
            }
            Kind::Sweep => self.sweep_at = now + took * SWEEP_SHARE / 4,
            Kind::Refill if records == 0 => self.refill_at = now + took * 2,
            Kind::Refill => {}
            Kind::Tail if records * 2 >= plan.request.max_rows || self.at_end() => self.doubled = 0,
            // Most of it had to be passed over, and more stands behind.
            Kind::Tail => self.doubled = (self.doubled + 1).min(16),
        }
    }

    /// A read failed: what it was to read is still to be read.
    pub(super) fn read_failed(plan: &Plan, window: &mut Window) {
        plan.refills.iter().for_each(|(key, _)| window.refill_failed(key));
    }
}

impl LaneState {
    fn restart(&mut self, planned: u64) {
        self.begun = planned;
        (self.floor, self.ended, self.look, self.sweep) = (None, false, true, Sweep::Done);
    }

    /// Records of a key that were held back are taken in once everything before them has been looked at.
    fn due(&self) -> DueRecords {
        match self.floor {
            _ if self.ended => DueRecords::All,
            Some(floor) => DueRecords::UpTo(floor),
            None => DueRecords::UpTo(Position::START),
        }
    }
}

/// What a read saw of a lane.
#[derive(Debug, Clone, Copy)]
struct Look {
    scan: Scan,
    reached: Reached,
}

impl Look {
    /// Whether everything of the lane before this position has been looked at.
    fn covers(&self, position: Position, floor: Option<Position>) -> bool {
        let to_the_end = self.reached.end && self.scan.until.is_none();
        Some(position) <= floor.max(self.reached.position) || to_the_end
    }
}

/// The keys of which a page has as many records as it may, so that more may have been passed over: with their
/// lane and the last position that was not held back.
fn full_keys(held_back: &[Record], fresh: &[Record], most: usize) -> Vec<(Key, Lane, Option<Position>)> {
    let mut keys: HashMap<&Key, (usize, Lane, Option<Position>)> = HashMap::new();
    for record in held_back.iter().chain(fresh) {
        if let Some(key) = record.key() {
            let (count, _, last) = keys.entry(key).or_insert((0, record.lane, None));
            *count += 1;
            *last = if record.held_back { *last } else { Some(record.position).max(*last) };
        }
    }
    let full = keys.into_iter().filter(|(_, (count, ..))| *count >= most);
    full.map(|(key, (_, lane, last))| (key.clone(), lane, last)).collect()
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
