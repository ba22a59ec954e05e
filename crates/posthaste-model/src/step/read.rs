//! Reading a page, and taking it in.

use super::At;
use super::lease::to_u8;
use crate::relay::rows_of;
use crate::rule::Rule;
use crate::scenario::Scenario;
use crate::state::{
    Deadline, Hand, Held, HeldBack, KEYS, KeyState, LANES, Life, Look, Page, Phase, Queued, ROWS, Record,
    Relay, Status, bit, has,
};

impl At<'_> {
    /// Reads the lanes held in one snapshot. A page that would change nothing is not looked at.
    pub(super) fn read(&mut self, relay: usize, kind: Kind) -> bool {
        let process = &self.state.relays[relay];
        let may_read = process.life == Life::Running && process.deadline == Deadline::Ahead;
        if !may_read || process.page.is_some() {
            return false;
        }
        if kind == Kind::Sweep && self.scenario.keeps(Rule::FirmPositionBesidesSweeps) {
            return false;
        }
        let page = self.page(process, kind);
        let mut taken = Relay { page: Some(page), ..*process };
        take_in(&mut taken, self.scenario);
        let changes = taken != *process;
        if changes {
            self.state.relays[relay].page = Some(page);
        }
        changes
    }

    fn page(&self, process: &Relay, kind: Kind) -> Page {
        let may_refill = |key: &usize| process.may_refill(*key, self.scenario);
        let refill = (kind == Kind::Refill).then(|| (0..KEYS).filter(may_refill).map(bit).sum());
        let passed_over = (0..KEYS).filter(|key| may_refill(key) || process.keys[*key].closed).map(bit).sum();
        let records = [None; ROWS];
        let mut page = Page { lanes: [None; LANES], records, refill, passed_over, full: 0 };
        for lane in 0..self.scenario.lanes {
            let Some(held) = process.held[lane].filter(|held| held.phase == Phase::Active) else { continue };
            let held = match kind {
                Kind::Tail => held,
                Kind::Refill => Held { floor: self.refill_from(process, lane).min(held.floor), ..held },
                Kind::Sweep => Held { floor: 0, ended: false, ..held },
            };
            self.read_lane(lane, held, process, &mut page);
        }
        page
    }

    /// Behind which row keys of a lane may stand unread.
    fn refill_from(&self, process: &Relay, lane: usize) -> u8 {
        let keys = rows_of(self.scenario, lane).map(|row| self.scenario.key(row));
        let unread = keys.filter(|key| process.may_refill(*key, self.scenario));
        unread.filter_map(|key| process.keys[key].unread_after).min().unwrap_or(u8::MAX)
    }

    fn read_lane(&self, lane: usize, held: Held, process: &Relay, page: &mut Page) {
        let mut look = Look {
            after: held.floor,
            reached: held.floor,
            end: true,
            revision: self.state.lanes[lane].revision,
            firm: self.firm(),
        };
        let mut looked_at = 0;
        for row in rows_of(self.scenario, lane).filter(|row| *row >= usize::from(held.floor)) {
            if self.state.rows[row].held_back != HeldBack::No || !self.is_visible(row) {
                continue;
            }
            if looked_at == self.scenario.page {
                look.end = false;
                break;
            }
            looked_at += 1;
            look.reached = to_u8(row + 1);
            self.take(row, process, page);
        }
        for row in rows_of(self.scenario, lane) {
            let is_due = page.refill.is_none()
                && self.state.rows[row].held_back == HeldBack::Due
                && self.is_visible(row);
            let is_asked_for =
                held.ended || row < usize::from(held.floor) || !self.scenario.keeps(Rule::DueAfterLook);
            if is_due && is_asked_for {
                self.take(row, process, page);
            }
        }
        page.lanes[lane] = Some(look);
    }

    /// Takes a record that is not in hand, not blocked, and of a key that is asked for.
    fn take(&self, row: usize, process: &Relay, page: &mut Page) {
        let key = self.scenario.key(row);
        let asked_for = page.refill.map_or(!has(page.passed_over, key), |keys| has(keys, key));
        let owes = process.released[row].is_some() && self.scenario.keeps(Rule::ReleasedIsInHand);
        if asked_for && process.hand[row] == Hand::No && !owes && !self.is_blocked(row) {
            let of_key = |other: &usize| self.scenario.key(*other) == key && page.records[*other].is_some();
            let taken = (0..self.scenario.rows.len()).filter(of_key).count();
            if taken + 1 >= usize::from(self.scenario.per_key) {
                page.full |= bit(key);
            }
            if taken >= usize::from(self.scenario.per_key) {
                return;
            }
            let seen = &self.state.rows[row];
            let held_back = seen.held_back != HeldBack::No;
            page.records[row] = Some(Record { attempts: seen.attempts, held_back });
        }
    }

    fn is_visible(&self, row: usize) -> bool {
        let status = self.state.rows[row].status;
        status == Status::Pending || status == Status::Open && !self.scenario.keeps(Rule::ReadCommitted)
    }

    /// Whether an earlier record of its key is held back.
    fn is_blocked(&self, row: usize) -> bool {
        let holds_back = |other: usize| {
            let row = &self.state.rows[other];
            row.held_back != HeldBack::No && matches!(row.status, Status::Pending | Status::Dead)
        };
        let key = self.scenario.key(row);
        self.scenario.keeps(Rule::HeldBackHidesLater)
            && (0..row).any(|other| self.scenario.key(other) == key && holds_back(other))
    }

    /// Before this row nothing new can appear: every transaction that has a position there is over.
    fn firm(&self) -> u8 {
        let rows = &self.state.rows[..self.scenario.rows.len()];
        to_u8(rows.iter().position(|row| !row.is_over()).unwrap_or(rows.len()))
    }

    pub(super) fn take_in(&mut self, relay: usize) -> bool {
        let process = &mut self.state.relays[relay];
        let has_page = process.page.is_some();
        let runs = matches!(process.life, Life::Running | Life::Stopping);
        if has_page && runs {
            take_in(process, self.scenario);
        }
        has_page && runs
    }
}

/// What a read is after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// What stands behind the floor.
    Tail,
    /// Keys of which records may stand unread.
    Refill,
    /// Everything.
    Sweep,
}

/// Takes the records of the page into the window and notes how far it came.
fn take_in(process: &mut Relay, scenario: &Scenario) {
    let Some(page) = process.page else { return };
    let stopping = process.life == Life::Stopping;
    for lane in (0..scenario.lanes).filter(|_| !stopping) {
        let is_active = process.held[lane].is_some_and(|held| held.phase == Phase::Active);
        if let Some(look) = page.lanes[lane].filter(|_| is_active) {
            take_in_lane(process, scenario, lane, &page, look);
        }
    }
    process.page = None;
    for key in process.keys.iter_mut().filter(|key| key.closed_for_read) {
        key.closed_for_read = false;
        key.opens();
    }
}

fn take_in_lane(process: &mut Relay, scenario: &Scenario, lane: usize, page: &Page, look: Look) {
    let Some(held) = &mut process.held[lane] else { return };
    let known = *held.revision.get_or_insert(look.revision);
    if known != look.revision && scenario.keeps(Rule::RevisionStartsAnew) {
        held.revision = Some(look.revision);
        process.restart(lane, scenario);
        process.drop_queued(lane, scenario);
        return;
    }
    let keys = rows_of(scenario, lane).map(|row| scenario.key(row));
    if page.refill.is_none() && scenario.keeps(Rule::PassedOverIsUnread) {
        keys.clone().for_each(|key| process.keys[key].passed(has(page.passed_over, key), look.after));
    }
    let refilled = keys.clone().filter(|key| page.refill.is_some_and(|keys| has(keys, *key)));
    refilled.clone().for_each(|key| process.keys[key].unread_after = None);
    take_records(process, scenario, lane, page, look);
    if page.refill.is_some() {
        let again = refilled.filter(|_| !look.end);
        again.for_each(|key| process.keys[key].mark_unread(look.reached));
        return;
    }
    let looked_at = if look.end { look.firm } else { look.reached };
    let firm = if reads_from_firm(scenario) { look.firm } else { u8::MAX };
    let looked_at = if reads_from_firm(scenario) { looked_at } else { look.reached };
    if let Some(held) = &mut process.held[lane] {
        held.floor = held.floor.max(firm.min(looked_at));
        held.ended = look.end;
        held.careful &= !look.end;
    }
}

fn take_records(process: &mut Relay, scenario: &Scenario, lane: usize, page: &Page, look: Look) {
    let Some(held) = process.held[lane] else { return };
    for row in rows_of(scenario, lane) {
        let Some(record) = page.records[row] else { continue };
        let all_before = row <= usize::from(held.floor.max(look.reached)) || look.end;
        if !record.held_back || all_before || !scenario.keeps(Rule::DueAfterLook) {
            admit(process, scenario, row, record, held);
        }
    }
    for key in (0..KEYS).filter(|key| has(page.full, *key)) {
        let of_key =
            |row: &usize| scenario.key(*row) == key && page.records[*row].is_some_and(|seen| !seen.held_back);
        let last = rows_of(scenario, lane).filter(of_key).last();
        if rows_of(scenario, lane).any(|row| scenario.key(row) == key) {
            process.keys[key].mark_unread(last.map_or(look.after, |row| to_u8(row + 1)));
        }
    }
}

fn reads_from_firm(scenario: &Scenario) -> bool {
    scenario.keeps(Rule::ReadFromFirmPosition) && scenario.keeps(Rule::FirmPositionBesidesSweeps)
}

fn admit(process: &mut Relay, scenario: &Scenario, row: usize, record: Record, held: Held) {
    let key_row = scenario.key(row);
    let key = process.keys[key_row];
    let unread = key.unread_after.is_some_and(|after| row >= usize::from(after));
    let refused = key.closed || unread || key.closed_for_read && scenario.keeps(Rule::KeyClosedForRead);
    if process.hand[row] != Hand::No || refused {
        return;
    }
    // Only the first of a key can have been in flight when the last owner died.
    let of_key = |other: &usize| scenario.key(*other) == key_row;
    let is_first = (0..scenario.rows.len()).filter(of_key).all(|other| process.hand[other] == Hand::No);
    let careful = held.careful && is_first;
    let Record { attempts, held_back } = record;
    process.hand[row] = Hand::Queued(Queued { hold: held.hold, attempts, held_back, careful, begun: false });
    if held_back && scenario.keeps(Rule::BehindHeldBackIsUnread) {
        process.keys[key_row].mark_unread(to_u8(row + 1));
    }
}

impl KeyState {
    /// A read passed it over, or what the read brought of it is refused.
    fn passed(&mut self, passed_over: bool, after: u8) {
        if self.closed || self.closed_for_read {
            self.passed_over = Some(self.passed_over.map_or(after, |before| before.min(after)));
        } else if passed_over {
            self.mark_unread(after);
        }
    }

    /// A record of it failed: what stands behind it is not taken in until that is settled, and then is hidden.
    pub(super) fn close(&mut self, failed: u8) {
        self.closed = true;
        if let Some(after) = self.unread_after.take()
            && after <= failed
        {
            self.passed(false, after);
        }
    }

    /// Records of it may be taken in again.
    pub(super) fn opens(&mut self) {
        if !self.closed
            && !self.closed_for_read
            && let Some(after) = self.passed_over.take()
        {
            self.mark_unread(after);
        }
    }

    fn mark_unread(&mut self, after: u8) {
        if !self.closed && !self.closed_for_read {
            self.unread_after = Some(self.unread_after.map_or(after, |before| before.min(after)));
        }
    }
}
