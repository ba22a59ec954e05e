//! What the relay has in hand: a bounded window of records, as one queue per key.
//!
//! Pure state, no I/O. The rules it keeps:
//! - of each key at most one record is being published, and always the earliest in hand;
//! - keys take turns, so a key with a long queue takes one place like any other;
//! - a record that was read is not taken in again until it is settled and no read from before that is under way;
//! - where records of a key may stand unread behind some position (`unread_after`), no other read takes in a
//!   record behind it: it would overtake.

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use super::accounts::Accounts;
use super::key_queue::KeyQueue;
use super::line::{Head, Line};
use crate::record::{Key, Lane, Position, Record};

/// A record in the window, on its way to being published.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) record: Arc<Record>,
    /// The number of its destination.
    pub(super) to: usize,
    pub(super) token: i64,
    /// It may have been in flight when another relay died: its attempt is written down before it is made, one
    /// record at a time.
    pub(super) careful: bool,
    /// Its attempt is written down already.
    pub(super) begun: bool,
}

/// How much may be in hand.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) rows: usize,
    pub(super) bytes: usize,
    /// For each destination.
    pub(super) in_flight: Vec<usize>,
}

/// What becomes of the later records of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyGoes {
    /// They follow.
    On,
    /// They wait, hidden in the table, until this record is out of the way.
    NoFurther,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Queued,
    InFlight,
    Settling,
    /// Settled, but a read that began before may still bring it.
    Settled,
}

#[derive(Debug)]
struct InHand {
    lane: Lane,
    token: i64,
    stage: Stage,
    bytes: usize,
    /// The destination on whose account it is, until its attempt is over.
    account: usize,
    held_back: bool,
}

/// What the relay has in hand.
#[derive(Debug)]
pub(super) struct Window {
    limits: Limits,
    in_hand: HashMap<Position, InHand>,
    keys: HashMap<Key, KeyQueue>,
    /// Whose turn it is, for each destination.
    lines: Vec<Line>,
    accounts: Accounts,
    /// The destination whose turn it is.
    turn: usize,
    care: bool,
    /// Keys that may have unread records and have room for them.
    refill: VecDeque<Key>,
    bytes: usize,
    /// The bytes of the largest record since there was none in hand.
    largest: usize,
    in_flight: usize,
    reading: bool,
    /// How many records in hand are settled, but may still be brought by a read under way.
    settled: usize,
    settled_while_reading: Vec<Position>,
    closed_while_reading: Vec<Key>,
}

impl Window {
    pub(super) fn new(limits: Limits) -> Self {
        let accounts = Accounts::new(limits.rows, limits.bytes, &limits.in_flight);
        Self {
            lines: limits.in_flight.iter().map(|_| Line::default()).collect(),
            accounts,
            turn: 0,
            limits,
            in_hand: HashMap::new(),
            keys: HashMap::new(),
            care: false,
            refill: VecDeque::new(),
            bytes: 0,
            largest: 0,
            in_flight: 0,
            reading: false,
            settled: 0,
            settled_while_reading: Vec::new(),
            closed_while_reading: Vec::new(),
        }
    }

    /// Whether nothing is in hand, not even an outcome to settle.
    pub(super) fn is_empty(&self) -> bool {
        self.in_hand() == 0
    }

    /// How many records are in hand, those whose outcome is not settled included.
    pub(super) fn in_hand(&self) -> usize {
        self.in_hand.len() - self.settled
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn in_flight_to(&self, to: usize) -> usize {
        self.accounts.in_flight(to)
    }

    /// Whether a record waits for its turn.
    pub(super) fn has_next(&self) -> bool {
        self.lines.iter().any(|line| !line.is_empty())
    }

    /// Whether a record for this destination waits for its turn.
    pub(super) fn has_next_to(&self, to: usize) -> bool {
        !self.lines[to].is_empty()
    }

    /// Whether one more record may be in flight to this destination.
    pub(super) fn has_free_place(&self, to: usize) -> bool {
        self.accounts.has_free_place(to)
    }

    /// Whether a destination could take a record, and all that is in hand for it stands behind others of its key.
    pub(super) fn is_starving(&self) -> bool {
        (0..self.lines.len()).any(|to| {
            self.lines[to].is_empty() && self.accounts.has_free_place(to) && self.accounts.rows(to) > 0
        })
    }

    /// How many destinations there are.
    pub(super) fn destinations(&self) -> usize {
        self.accounts.len()
    }

    /// Whether there is so much room for a destination that reading for it is worth it.
    pub(super) fn has_room_for(&self, to: usize) -> bool {
        self.accounts.has_room(to)
    }

    /// Whether a record for a destination fits. If not: the destination that it would wait for, which has its share.
    pub(super) fn fits(&mut self, record: &Record, to: usize) -> Result<(), usize> {
        let queue = record.key().and_then(|key| self.keys.get(key)).filter(|queue| queue.has_first());
        let account = queue.map_or(to, |queue| queue.charged);
        if self.accounts.fits(account, record.size()) { Ok(()) } else { Err(account) }
    }

    /// Whether a record is in hand already, or must not be taken in now; then it is read again later.
    pub(super) fn refuses(&self, record: &Record) -> bool {
        let queue = record.key().and_then(|key| self.keys.get(key));
        self.in_hand.contains_key(&record.position)
            || queue.is_some_and(|queue| queue.refuses(record.position))
    }

    /// The most records that may be in hand.
    pub(super) fn rows(&self) -> usize {
        self.limits.rows
    }

    pub(super) fn free_rows(&self) -> usize {
        self.limits.rows.saturating_sub(self.in_hand.len())
    }

    pub(super) fn free_bytes(&self) -> usize {
        self.limits.bytes.saturating_sub(self.bytes)
    }

    /// Whether there are bytes for another record: for one like the largest lately, unless none is in hand. Of several
    /// destinations each may have a record that is larger than its share.
    pub(super) fn has_room_in_bytes(&self) -> bool {
        match self.accounts.len() {
            1 => {
                self.free_bytes() > 0
                    && (self.is_empty() || self.free_bytes() >= self.largest.min(self.limits.bytes))
            }
            all => (0..all).any(|to| self.accounts.has_room(to)),
        }
    }

    /// Whether anything of this lane is in hand, not even an outcome to settle.
    pub(super) fn holds(&self, lane: Lane) -> bool {
        self.in_hand.values().any(|entry| entry.lane == lane && entry.stage != Stage::Settled)
    }

    /// Whether anything of this lane is in hand from under another token.
    pub(super) fn holds_earlier(&self, lane: Lane, token: i64) -> bool {
        self.in_hand.values().any(|entry| entry.lane == lane && entry.token != token)
    }

    /// The most records of one key to have in hand: less the more keys there are, but always so many that as many
    /// keys as may be in flight to a destination take half of its share of the window.
    pub(super) fn most_per_key(&self) -> usize {
        let (rows, keys) = (self.accounts.rows_each(), self.keys.len().max(1));
        (rows / (2 * keys)).max(rows / self.accounts.most_in_flight().saturating_mul(2).max(1)).max(1)
    }

    /// The positions in hand that stand behind the floor of their lane, and those of records that were held back
    /// wherever they stand; rising.
    pub(super) fn positions(&self, floor: impl Fn(Lane) -> Option<Position>) -> Vec<Position> {
        let wanted = self
            .in_hand
            .iter()
            .filter(|(position, entry)| entry.held_back || Some(**position) > floor(entry.lane));
        let mut positions: Vec<_> = wanted.map(|(position, _)| *position).collect();
        positions.sort_unstable();
        positions
    }

    /// The keys that other reads must pass over: those with unread records, unless the table hides them itself, and
    /// those of which nothing is taken in.
    pub(super) fn keys_to_pass_over(&self) -> Vec<Key> {
        let visible = |queue: &KeyQueue| queue.unread_after.is_some() && queue.held_back.is_empty();
        let passed_over = self.keys.iter().filter(|(_, queue)| queue.closed || visible(queue));
        passed_over.map(|(key, _)| key.clone()).collect()
    }

    /// A read begins.
    pub(super) fn read_begins(&mut self) {
        self.reading = true;
    }

    /// The read is over and its page taken in.
    pub(super) fn read_over(&mut self) {
        self.reading = false;
        for position in std::mem::take(&mut self.settled_while_reading) {
            if self.in_hand.get(&position).is_some_and(|entry| entry.stage == Stage::Settled) {
                self.forget(position);
            }
        }
        for key in std::mem::take(&mut self.closed_while_reading) {
            self.with_key(&key, |queue| {
                queue.closed_for_read = false;
                queue.open();
            });
            self.offer_refill(&key);
        }
    }

    /// Takes in a record that was read. `false`: it is in hand already, or must not be taken in now.
    pub(super) fn admit(&mut self, record: Record, to: usize, token: i64, careful: &mut usize) -> bool {
        if self.refuses(&record) {
            return false;
        }
        let Some(key) = record.key().cloned() else {
            let queued = self.take_in(record, (to, to), token, careful);
            self.push_head(Head::Loose(queued));
            return true;
        };
        let behind = self.keys.get(&key).filter(|queue| queue.has_first()).map(|queue| queue.charged);
        let mut none = 0;
        let careful = if behind.is_none() { careful } else { &mut none };
        let account = behind.unwrap_or(to);
        let queued = self.take_in(record, (to, account), token, careful);
        let most = self.most_per_key();
        let queue = self.keys.entry(key.clone()).or_insert_with(|| KeyQueue::new(queued.record.lane));
        queue.charged = account;
        queue.insert(queued, most);
        if queue.in_line && queue.queue.front().is_some_and(|first| first.to != queue.charged) {
            // The key stands in the line of another destination than that of its first record now.
            queue.in_line = false;
        }
        self.line_up(&key);
        true
    }

    fn take_in(
        &mut self,
        record: Record,
        (to, account): (usize, usize),
        token: i64,
        careful: &mut usize,
    ) -> Queued {
        let bytes = record.size();
        let (lane, held_back) = (record.lane, record.held_back);
        let entry = InHand { lane, token, stage: Stage::Queued, bytes, account, held_back };
        self.in_hand.insert(record.position, entry);
        self.accounts.take(account, bytes);
        self.largest = if self.bytes == 0 { bytes } else { self.largest.max(bytes) };
        self.bytes += bytes;
        let is_careful = self.care && *careful > 0;
        *careful = careful.saturating_sub(1);
        Queued { record: Arc::new(record), to, token, careful: is_careful, begun: false }
    }

    /// A read passed over these keys, and over those that are closed, from where it began in each lane: what it passed
    /// over may be a record that was committed late, with a position before others that are in hand.
    pub(super) fn passed_over(&mut self, keys: &[Key], after: impl Fn(Lane) -> Option<Position>) {
        let closed = self.keys.iter().filter(|(_, queue)| queue.closed || queue.closed_for_read);
        let closed: Vec<_> = closed.map(|(key, _)| key.clone()).collect();
        for key in keys.iter().chain(&closed) {
            if let Some(queue) = self.keys.get_mut(key)
                && let Some(after) = after(queue.lane)
            {
                queue.passed_over(after);
                self.offer_refill(key);
            }
        }
    }

    /// Says that records of this key may stand unread behind a position.
    pub(super) fn mark_unread(&mut self, key: &Key, lane: Lane, after: Position) {
        let queue = self.keys.entry(key.clone()).or_insert_with(|| KeyQueue::new(lane));
        queue.mark_unread(after);
        self.offer_refill(key);
    }

    /// Records of this key that stand unread are passed over by other reads from now on, and found again by them.
    pub(super) fn leave_unread(&mut self, key: &Key) {
        self.with_key(key, |queue| {
            // Behind a record that was held back the table hides them: other reads would not find them.
            if queue.held_back.is_empty() {
                queue.unread_after = None;
            }
        });
    }

    /// The next record to publish, if one may start, to one of the destinations that may take one. Destinations take
    /// turns; records that need care go first.
    pub(super) fn start(&mut self, may: impl Fn(usize) -> bool) -> Option<Queued> {
        let all = self.lines.len();
        let ready = |window: &Self, to: usize| window.accounts.has_free_place(to) && may(to);
        for careful in [true, false] {
            for step in 0..all {
                let to = (self.turn + step) % all;
                let line = &self.lines[to];
                if line.is_empty() || (careful && !line.needs_care()) || !ready(self, to) {
                    continue;
                }
                if let Some(queued) = self.next_in_line(to) {
                    self.turn = (to + 1) % all;
                    return Some(self.begin(queued));
                }
            }
        }
        None
    }

    fn begin(&mut self, queued: Queued) -> Queued {
        if let Some(entry) = self.in_hand.get_mut(&queued.record.position) {
            entry.stage = Stage::InFlight;
            self.accounts.begin(entry.account);
        }
        self.in_flight += 1;
        queued
    }

    fn next_in_line(&mut self, to: usize) -> Option<Queued> {
        loop {
            let key = match self.lines[to].pop()? {
                Head::Loose(queued) => return Some(queued),
                Head::Key(key) => key,
            };
            let Some(queue) = self.keys.get_mut(&key) else { continue };
            queue.in_line = false;
            if queue.is_busy() {
                continue;
            }
            if queue.queue.front().is_some_and(|first| first.to != to) {
                // A record for another destination came in before the one for which the key stood here.
                self.line_up(&key);
                continue;
            }
            let Some(queued) = queue.queue.pop_front() else { continue };
            queue.in_flight = true;
            self.offer_refill(&key);
            return Some(queued);
        }
    }

    /// Whether the next record to start, to one of the destinations that may take one, is one to be careful with.
    pub(super) fn next_needs_care(&self, may: impl Fn(usize) -> bool) -> bool {
        (0..self.lines.len()).any(|to| self.lines[to].needs_care() && may(to))
    }

    /// From now on records may be taken in as ones to be careful with.
    pub(super) fn begin_care(&mut self) {
        self.care = true;
    }

    /// No record needs care any more.
    pub(super) fn end_care(&mut self) {
        self.care = false;
        self.lines.iter_mut().for_each(Line::end_care);
    }

    /// The record was published: its key goes on at once, and its outcome is to be settled.
    pub(super) fn published(&mut self, record: &Record, token: i64) {
        if self.land(record.position, token, Stage::Settling)
            && let Some(key) = record.key()
        {
            self.with_key(key, |queue| queue.in_flight = false);
            self.line_up(key);
        }
    }

    /// The record failed: its key waits until that is settled. Returns what was dropped of the records behind it.
    pub(super) fn failed(&mut self, record: &Record, token: i64, key_goes: KeyGoes) -> Vec<Queued> {
        if !self.land(record.position, token, Stage::Settling) {
            return Vec::new();
        }
        let Some(queue) = record.key().and_then(|key| self.keys.get_mut(key)) else { return Vec::new() };
        queue.in_flight = false;
        queue.failed = Some(record.position);
        if key_goes == KeyGoes::On {
            return Vec::new();
        }
        queue.close(record.position);
        let dropped = queue.take_behind(record.position);
        dropped.iter().for_each(|queued| self.forget(queued.record.position));
        dropped.into()
    }

    /// The record was not published through no fault of its own: it is the first of its key again, behind the
    /// other keys.
    pub(super) fn put_back(&mut self, queued: Queued) {
        if !self.land(queued.record.position, queued.token, Stage::Queued) {
            return;
        }
        let Some(key) = queued.record.key().cloned() else {
            self.push_head(Head::Loose(queued));
            return;
        };
        self.with_key(&key, |queue| {
            queue.in_flight = false;
            queue.queue.push_front(queued);
        });
        self.line_up(&key);
    }

    /// The record was not published, and is left to whoever reads it next.
    pub(super) fn give_up(&mut self, record: &Record, token: i64) {
        if self.land(record.position, token, Stage::Queued) {
            self.forget(record.position);
            if let Some(key) = record.key() {
                self.with_key(key, |queue| {
                    queue.in_flight = false;
                    queue.held_back.retain(|position| *position != record.position);
                });
            }
        }
    }

    /// A record in flight came back. `false`: it was given up in the meantime.
    fn land(&mut self, position: Position, token: i64, stage: Stage) -> bool {
        let Some(entry) = self.in_hand.get_mut(&position) else { return false };
        if entry.token != token || entry.stage != Stage::InFlight {
            return false;
        }
        self.in_flight -= 1;
        self.accounts.end(entry.account);
        entry.stage = stage;
        if stage == Stage::Settling {
            self.accounts.release(entry.account, entry.bytes);
            self.bytes -= std::mem::take(&mut entry.bytes);
        }
        true
    }

    /// The outcome of a record was settled. Does nothing where the record was given up in the meantime.
    pub(super) fn settled(&mut self, position: Position, key: Option<&Key>, token: i64, key_goes: KeyGoes) {
        match self.in_hand.get_mut(&position) {
            Some(entry) if entry.token == token && entry.stage == Stage::Settling => {
                if self.reading {
                    entry.stage = Stage::Settled;
                    self.settled += 1;
                    self.settled_while_reading.push(position);
                } else {
                    self.in_hand.remove(&position);
                }
            }
            _ => return,
        }
        if let Some(key) = key {
            self.key_settled(key, position, key_goes);
        }
    }

    fn key_settled(&mut self, key: &Key, position: Position, key_goes: KeyGoes) {
        let Some(queue) = self.keys.get_mut(key) else { return };
        queue.held_back.retain(|held_back| *held_back != position);
        if queue.failed == Some(position) {
            queue.failed = None;
            queue.closed = false;
            if key_goes == KeyGoes::NoFurther && self.reading {
                queue.closed_for_read = true;
                self.closed_while_reading.push(key.clone());
            }
            queue.open();
        }
        self.offer_refill(key);
        self.line_up(key);
    }

    /// Keys with unread records and room for them, at most so many, with their lane and the position behind which
    /// their unread records stand.
    pub(super) fn take_refills(&mut self, most: usize) -> Vec<(Key, Lane, Position)> {
        let mut refills = Vec::new();
        while refills.len() < most {
            let Some(key) = self.refill.pop_front() else { break };
            let Some(queue) = self.keys.get_mut(&key) else { continue };
            queue.in_refill = false;
            if let Some(after) = queue.unread_after.filter(|_| queue.may_refill()) {
                refills.push((key, queue.lane, after));
            }
        }
        refills
    }

    pub(super) fn wants_refill(&self) -> bool {
        !self.refill.is_empty()
    }

    /// The unread records of this key are about to be taken in.
    pub(super) fn refill_begins(&mut self, key: &Key) {
        self.with_key(key, |queue| queue.unread_after = None);
    }

    /// The unread records of this key could not be read; they are still to be.
    pub(super) fn refill_failed(&mut self, key: &Key) {
        self.offer_refill(key);
    }

    /// Drops the ends of the longest queues, to make room for other keys. They are read again later.
    pub(super) fn make_room(&mut self) {
        let most = self.most_per_key();
        let long: Vec<_> = self
            .keys
            .iter()
            .filter(|(_, queue)| queue.queue.len() > most)
            .map(|(key, _)| key.clone())
            .collect();
        for key in long {
            let Some(queue) = self.keys.get_mut(&key) else { continue };
            let cut = queue.cut(most);
            cut.iter().for_each(|position| self.forget(*position));
        }
    }

    /// A record that was dropped has an attempt to be taken back: it is in hand until that is settled, so that it is not read
    /// with the attempt that was not made.
    pub(super) fn releasing(&mut self, queued: &Queued) {
        let record = &queued.record;
        let (lane, token, held_back) = (record.lane, queued.token, record.held_back);
        let entry = InHand { lane, token, stage: Stage::Settling, bytes: 0, account: queued.to, held_back };
        self.in_hand.insert(record.position, entry);
    }

    /// Drops what waits for its turn in this lane, and returns it. What is in flight or being settled stays.
    pub(super) fn drop_queued(&mut self, lane: Lane) -> Vec<Queued> {
        let mut dropped = Vec::new();
        for line in &mut self.lines {
            dropped.append(&mut line.take_loose(|queued| queued.record.lane == lane));
        }
        for queue in self.keys.values_mut().filter(|queue| queue.lane == lane) {
            queue
                .held_back
                .retain(|position| !queue.queue.iter().any(|queued| queued.record.position == *position));
            dropped.extend(queue.queue.drain(..));
            if queue.held_back.is_empty() {
                queue.unread_after = None;
            }
        }
        dropped.iter().for_each(|queued| self.forget(queued.record.position));
        self.keys.retain(|_, queue| queue.lane != lane || !queue.is_idle());
        dropped
    }

    /// Gives up this lane: drops what waits and what is in flight, and with `settling` also what is being settled.
    /// Returns where what was in flight stands.
    pub(super) fn drop_lane(&mut self, lane: Lane, settling: bool) -> Vec<Position> {
        let of_lane = self.in_hand.iter().filter(|(_, entry)| entry.lane == lane);
        let of_lane = of_lane.map(|(position, entry)| (*position, entry.stage));
        let (in_flight, others): (Vec<_>, Vec<_>) = of_lane.partition(|(_, stage)| *stage == Stage::InFlight);
        let gone = in_flight.iter().chain(others.iter().filter(|_| settling));
        gone.for_each(|(position, _)| self.forget(*position));
        for queue in self.keys.values_mut().filter(|queue| queue.lane == lane) {
            queue.in_flight = false;
            queue.held_back.retain(|position| self.in_hand.contains_key(position));
            if settling {
                queue.failed = None;
            }
        }
        // Only now is it known of which keys nothing holds the rest back any more.
        self.drop_queued(lane);
        self.keys.retain(|_, queue| queue.lane != lane || !settling);
        in_flight.into_iter().map(|(position, _)| position).collect()
    }

    fn forget(&mut self, position: Position) {
        if let Some(entry) = self.in_hand.remove(&position) {
            self.bytes -= entry.bytes;
            self.settled -= usize::from(entry.stage == Stage::Settled);
            if entry.stage == Stage::InFlight {
                self.in_flight -= 1;
                self.accounts.end(entry.account);
            }
            if matches!(entry.stage, Stage::Queued | Stage::InFlight) {
                self.accounts.release(entry.account, entry.bytes);
            }
        }
    }

    fn push_head(&mut self, head: Head) {
        let first = match &head {
            Head::Loose(queued) => Some(queued),
            Head::Key(key) => self.keys.get(key).and_then(|queue| queue.queue.front()),
        };
        let Some((to, careful)) = first.map(|first| (first.to, first.careful)) else { return };
        self.lines[to].push(head, careful && self.care);
    }

    /// Puts a key in line if it has a record that may start, and forgets it if there is nothing to remember.
    fn line_up(&mut self, key: &Key) {
        let Some(queue) = self.keys.get_mut(key) else { return };
        if queue.is_idle() {
            self.keys.remove(key);
        } else if !queue.in_line && !queue.is_busy() && !queue.queue.is_empty() {
            queue.in_line = true;
            self.charge(key);
            self.push_head(Head::Key(key.clone()));
        }
    }

    /// Puts the records of a key on the account of the destination that they wait for now: that of the first.
    fn charge(&mut self, key: &Key) {
        let Some(queue) = self.keys.get_mut(key) else { return };
        let Some(to) = queue.queue.front().map(|first| first.to).filter(|to| *to != queue.charged) else {
            return;
        };
        queue.charged = to;
        for queued in &queue.queue {
            if let Some(entry) = self.in_hand.get_mut(&queued.record.position) {
                self.accounts.release(entry.account, entry.bytes);
                self.accounts.take(to, entry.bytes);
                entry.account = to;
            }
        }
    }

    fn offer_refill(&mut self, key: &Key) {
        let low = self.most_per_key() / 2;
        let Some(queue) = self.keys.get_mut(key) else { return };
        if queue.may_refill() && !queue.in_refill && queue.queue.len() <= low {
            queue.in_refill = true;
            self.refill.push_back(key.clone());
        }
    }

    /// Changes a key's queue, and forgets it if there is nothing to remember.
    fn with_key(&mut self, key: &Key, change: impl FnOnce(&mut KeyQueue)) {
        if let Some(queue) = self.keys.get_mut(key) {
            change(queue);
            if queue.is_idle() {
                self.keys.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::id::MessageId;

    fn record(sequence: i64) -> Record {
        Record {
            id: MessageId::generate(),
            lane: Lane(0),
            position: Position::from_sequence(sequence),
            event_type: "tested".into(),
            aggregate: Key::new("key", "1"),
            payload: None,
            content_type: None,
            headers: BTreeMap::new(),
            idempotency_key: None,
            attempts: 0,
            enqueued_at: UNIX_EPOCH,
            held_back: false,
        }
    }

    #[test]
    fn a_lane_lost_between_a_settle_and_the_end_of_a_read_leaves_nothing_in_hand() {
        let mut window = Window::new(Limits { rows: 8, bytes: 1 << 20, in_flight: vec![4] });
        assert!(window.admit(record(1), 0, 7, &mut 0));
        let queued = window.start(|_| true).unwrap();
        window.published(&queued.record, queued.token);
        window.read_begins();
        window.settled(queued.record.position, queued.record.key(), queued.token, KeyGoes::On);
        assert!(window.is_empty(), "only a read under way may still bring it");
        window.drop_lane(Lane(0), true);
        assert_eq!((window.in_hand(), window.is_empty()), (0, true));
        assert!(window.admit(record(2), 0, 8, &mut 0), "the lane came back");
        assert_eq!(window.in_hand(), 1);
        window.read_over();
        assert_eq!((window.in_hand(), window.is_empty()), (1, false));
    }
}
