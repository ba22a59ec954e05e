//! What becomes of what was read.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::gaps::{KeyHash, MOST_KEYS, NOWHERE, Walker};
use super::lanes::{Lanes, PassedDue, Sweep};
use super::plan::{Kind, Plan};
use super::route::{Course, Routing};
use super::window::Window;
use crate::record::{Key, Lane, Position, Record};
use crate::store::{Keys, Page, Reached, Scan};

/// The shortest time between two sweeps, and the share of the time they may take (one part in so many).
const SWEEP_EVERY: Duration = Duration::from_secs(2);
const SWEEP_SHARE: u32 = 20;
/// The shortest time from a walk that found no work to the next.
const WALK_EVERY: Duration = Duration::from_millis(1);

/// What a page brought.
#[derive(Debug, Default)]
pub(super) struct TakenIn {
    pub(super) records: usize,
    /// Lanes that were read again from their start because somebody mended something in them.
    pub(super) restarted: Vec<Lane>,
}

/// A page on its way into the window.
struct Taking<'a> {
    walker: Walker,
    routing: &'a Routing,
    looks: HashMap<Lane, Look>,
    /// How many keys may still be remembered as passed over.
    budget: usize,
    records: usize,
    passed_over: usize,
}

/// What became of a record of a page.
enum Taken {
    In,
    /// It is in hand already, or must not be taken in now.
    NotNow,
    PassedOver,
    /// The walk ends before it: there is no room for it.
    NoRoom,
}

impl Lanes {
    /// Takes the records of a page into the window and notes how far the scans came.
    pub(super) fn take_in(
        &mut self,
        plan: &Plan,
        page: Page,
        window: &mut Window,
        routing: &Routing,
        now: Instant,
    ) -> TakenIn {
        let (looks, restarted) = self.looks(plan, &page.reached);
        for (key, lane) in &plan.refills {
            if looks.contains_key(lane) {
                window.refill_begins(key);
            } else {
                window.refill_failed(key);
            }
        }
        if let (Kind::Tail | Kind::Walk(_), Keys::Except(keys)) = (plan.kind, &plan.request.keys) {
            let began = |lane| looks.get(&lane).map(|look| look.scan.after.unwrap_or(Position::START));
            window.passed_over(keys, began);
        }
        let of_use = page.records.into_iter().filter(|record| looks.contains_key(&record.lane));
        let (held_back, fresh): (Vec<_>, Vec<_>) = of_use.partition(|record| record.held_back);
        let full_keys = full_keys(&held_back, &fresh, plan.request.max_per_key);
        let mut taking = self.begin(plan, looks, routing);
        self.take_fresh(fresh, window, &mut taking);
        for (key, lane, last) in full_keys {
            self.mark_unread(&key, lane, last, window, &taking);
        }
        for record in held_back {
            self.take_due(record, window, &mut taking);
        }
        self.note_reached(plan, &taking, window);
        self.pace(plan, &taking, now);
        TakenIn { records: taking.records, restarted }
    }

    fn begin<'a>(&self, plan: &Plan, looks: HashMap<Lane, Look>, routing: &'a Routing) -> Taking<'a> {
        let walker = match plan.kind {
            Kind::Walk(to) => Walker::Gap(to),
            Kind::Sweep => Walker::Sweep,
            Kind::Tail | Kind::Refill => Walker::Nobody,
        };
        let remembered: usize = self.lanes.values().map(|state| state.gaps.keys()).sum();
        let budget = MOST_KEYS.saturating_sub(remembered);
        Taking { walker, routing, looks, budget, records: 0, passed_over: 0 }
    }

    fn take_fresh(&mut self, records: Vec<Record>, window: &mut Window, taking: &mut Taking<'_>) {
        let mut last: Option<(Lane, Position)> = None;
        for record in records {
            let (lane, position) = (record.lane, record.position);
            let Some(look) = taking.looks.get(&lane).filter(|look| look.stopped.is_none()) else { continue };
            let start = look.scan.after.unwrap_or(Position::START);
            let before = last.filter(|(of, _)| *of == lane).map_or(start, |(_, position)| position);
            last = Some((lane, position));
            match self.take_one(record, before, window, taking) {
                Taken::In => taking.records += 1,
                Taken::NotNow => {}
                Taken::PassedOver => {
                    taking.passed_over += 1;
                    if let Some(look) = taking.looks.get_mut(&lane) {
                        look.passed_over = true;
                    }
                }
                Taken::NoRoom => {
                    if let Some(look) = taking.looks.get_mut(&lane) {
                        look.stopped = Some(before);
                    }
                }
            }
        }
    }

    /// Takes a record in, or passes it over. Everything of its lane up to `before` was looked at.
    fn take_one(
        &mut self,
        record: Record,
        before: Position,
        window: &mut Window,
        taking: &mut Taking<'_>,
    ) -> Taken {
        let course = taking.routing.of(&record);
        let Some(state) = self.lanes.get_mut(&record.lane) else { return Taken::NotNow };
        let (gaps, at, walker) = (&mut state.gaps, record.position, taking.walker);
        let (key, budget) = (record.key(), &mut taking.budget);
        let hash = key.filter(|_| !gaps.is_empty()).map(KeyHash::of);
        if let Some(key) = hash
            && let Some(holder) = gaps.holder(key, at, walker)
        {
            gaps.note(holder, at, key, walker, budget);
            return Taken::PassedOver;
        }
        if window.refuses(&record) {
            return Taken::NotNow;
        }
        let hash_of = |hash: Option<KeyHash>| hash.or_else(|| key.map(KeyHash::of));
        let passed_to = match course {
            Course::Elsewhere | Course::Unrouted => {
                gaps.pass_nowhere(at, hash_of(hash), course == Course::Unrouted, walker, budget);
                None
            }
            Course::To(to) if gaps.has(to, at, walker) => {
                if let Some(key) = hash {
                    gaps.note(to, at, key, walker, budget);
                }
                None
            }
            Course::To(to) => match window.fits(&record, to) {
                Ok(()) => Some(to),
                Err(full) if walker == Walker::Gap(full) => return Taken::NoRoom,
                Err(full) => {
                    gaps.pass(full, before, at, hash_of(hash), budget);
                    None
                }
            },
        };
        let Some(to) = passed_to else {
            if let Some(key) = key {
                window.leave_unread(key);
            }
            return Taken::PassedOver;
        };
        if self.admit(record, to, window) { Taken::In } else { Taken::NotNow }
    }

    fn admit(&mut self, record: Record, to: usize, window: &mut Window) -> bool {
        let Some(state) = self.lanes.get(&record.lane) else { return false };
        let mut none = 0;
        let careful = if state.careful { &mut self.care_left } else { &mut none };
        window.admit(record, to, state.token, careful)
    }

    /// More of a key than was read may stand behind the last position, unless that was passed over.
    fn mark_unread(
        &self,
        key: &Key,
        lane: Lane,
        last: Option<Position>,
        window: &mut Window,
        taking: &Taking<'_>,
    ) {
        let Some(look) = taking.looks.get(&lane).filter(|look| look.stopped.is_none()) else { return };
        let at = last.or(look.scan.after).unwrap_or(Position::START);
        if !self.is_passed_over(key, lane, at, taking.walker) {
            window.mark_unread(key, lane, at);
        }
    }

    fn is_passed_over(&self, key: &Key, lane: Lane, at: Position, walker: Walker) -> bool {
        let state = self.lanes.get(&lane).filter(|state| !state.gaps.is_empty());
        state.is_some_and(|state| state.gaps.holder(KeyHash::of(key), at, walker).is_some())
    }

    /// Takes in a record that was held back and is due, if nothing that stands before it was missed.
    fn take_due(&mut self, record: Record, window: &mut Window, taking: &mut Taking<'_>) {
        let (lane, at) = (record.lane, record.position);
        let Some(state) = self.lanes.get(&lane) else { return };
        let holder = record.key().filter(|_| !state.gaps.is_empty());
        let holder = holder.and_then(|key| state.gaps.holder(KeyHash::of(key), at, taking.walker));
        let course = taking.routing.of(&record);
        let gap = match (holder, course) {
            (Some(holder), _) => holder,
            (None, Course::Elsewhere | Course::Unrouted) => NOWHERE,
            (None, Course::To(_)) if window.refuses(&record) => return,
            (None, Course::To(to)) => {
                let Err(full) = window.fits(&record, to) else {
                    let covered = taking.looks.get(&lane).is_some_and(|look| look.covers(at, state.floor));
                    if covered || record.key().is_none() {
                        taking.records += usize::from(self.admit(record, to, window));
                    }
                    return;
                };
                full
            }
        };
        taking.passed_over += 1;
        if self.passed_due.len() < window.rows() {
            let is_unrouted = course == Course::Unrouted;
            self.passed_due.insert(at, PassedDue { lane, gap, is_unrouted });
        }
    }

    /// The scans that are of use, by lane, and the lanes to be read from their start because somebody mended
    /// something in them. Of no use are scans of lanes that were begun anew since the read was planned.
    fn looks(&mut self, plan: &Plan, reached: &[Reached]) -> (HashMap<Lane, Look>, Vec<Lane>) {
        let (mut looks, mut restarted) = (HashMap::new(), Vec::new());
        for (scan, reached) in plan.request.scans.iter().zip(reached) {
            let Some(state) = self.lanes.get_mut(&scan.lane) else { continue };
            if !state.is_active() || state.begun >= plan.number {
                continue;
            }
            if *state.revision.get_or_insert(reached.revision) == reached.revision {
                let look = Look { scan: *scan, reached: *reached, stopped: None, passed_over: false };
                looks.insert(scan.lane, look);
            } else {
                state.revision = Some(reached.revision);
                state.restart(self.planned);
                restarted.push(scan.lane);
            }
        }
        (looks, restarted)
    }

    fn note_reached(&mut self, plan: &Plan, taking: &Taking<'_>, window: &mut Window) {
        if plan.kind == Kind::Refill {
            for (key, lane) in &plan.refills {
                if let Some(look) = taking.looks.get(lane).filter(|look| !look.reached.end) {
                    let at = look.reached.position.or(look.scan.after).unwrap_or(Position::START);
                    if !self.is_passed_over(key, *lane, at, taking.walker) {
                        window.mark_unread(key, *lane, at);
                    }
                }
            }
            return;
        }
        for (lane, look) in &taking.looks {
            let Look { scan, reached, stopped, .. } = look;
            let Some(state) = self.lanes.get_mut(lane) else { continue };
            match plan.kind {
                Kind::Refill => {}
                Kind::Sweep => {
                    let at = reached.position.or(scan.after);
                    state.sweep = if reached.end { Sweep::Done } else { Sweep::From(at) };
                    state.gaps.swept(at.unwrap_or(Position::START), reached.end);
                }
                Kind::Walk(to) => match (stopped, reached.position) {
                    (Some(before), _) => state.gaps.walked(to, *before),
                    (None, _) if reached.end => {
                        state.gaps.close(to);
                        // What stands behind the floor is for the tail to read.
                        state.look = true;
                    }
                    (None, Some(position)) => state.gaps.walked(to, position),
                    (None, None) => {}
                },
                Kind::Tail => {
                    let looked_at = if reached.end { reached.firm } else { reached.position };
                    let floor = state.floor.max(reached.firm.min(looked_at));
                    // All that was read was passed over, and is read again until it is known that nothing new can
                    // appear there: there is no hurry.
                    let in_vain = look.passed_over && taking.records == 0 && floor == state.floor;
                    state.floor = floor;
                    (state.ended, state.look) = (reached.end, !reached.end && !in_vain);
                    state.careful &= !reached.end;
                }
            }
        }
    }

    fn pace(&mut self, plan: &Plan, taking: &Taking<'_>, now: Instant) {
        let (took, records) = (now - plan.began, taking.records);
        match plan.kind {
            Kind::Sweep if self.active().all(|(_, state)| state.sweep == Sweep::Done) => {
                self.sweep_at = now + SWEEP_EVERY.max(took * SWEEP_SHARE);
                self.forget_passed_due();
            }
            Kind::Sweep => self.sweep_at = now + took * SWEEP_SHARE / 4,
            Kind::Refill if records == 0 => self.refill_at = now + took * 2,
            Kind::Walk(to) if records == 0 => self.walk_at[to] = now + WALK_EVERY.max(took),
            Kind::Refill | Kind::Walk(_) => {}
            Kind::Tail if records * 2 >= plan.request.max_rows || self.at_end() => self.doubled = 0,
            // Records were passed over, but not by the store: it would find no more if it looked at more.
            Kind::Tail if taking.passed_over > 0 => {}
            // Most of it had to be passed over, and more stands behind.
            Kind::Tail => self.doubled = (self.doubled + 1).min(16),
        }
    }

    /// Looks once more at the due records that nobody served here.
    fn forget_passed_due(&mut self) {
        let before = self.passed_due.len();
        self.passed_due.retain(|_, passed| passed.gap != NOWHERE);
        if self.passed_due.len() < before {
            self.poll();
        }
    }

    /// A read failed: what it was to read is still to be read.
    pub(super) fn read_failed(plan: &Plan, window: &mut Window) {
        plan.refills.iter().for_each(|(key, _)| window.refill_failed(key));
    }
}

/// What a read saw of a lane.
#[derive(Debug, Clone, Copy)]
struct Look {
    scan: Scan,
    reached: Reached,
    /// Where a walk ended, because there was no room for what follows.
    stopped: Option<Position>,
    passed_over: bool,
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
