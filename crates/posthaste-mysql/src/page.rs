//! A page on its way: which rows go into it, and how far each scan came. It asks for what it needs and knows no database.

use std::collections::{HashMap, HashSet, VecDeque};

use bytes::Bytes;
use posthaste::{DueRecords, Key, Keys, Page, Position, Reached, ReadRequest, Record, Scan};

/// A row that was read, with what decides about it.
#[derive(Debug, Clone)]
pub(crate) struct Read {
    /// The record; its payload is missing where `deferred`.
    pub(crate) record: Record,
    /// How many bytes the payload has.
    pub(crate) bytes: usize,
    /// The payload is to be read by itself.
    pub(crate) deferred: bool,
    /// The earliest row that holds back the key and stands before it.
    pub(crate) blocker: Option<u128>,
    /// Pending, held back, and its time has come.
    pub(crate) due: bool,
    /// Since when it is due, in microseconds since 1970.
    pub(crate) since: i64,
}

/// What a walk needs to go on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Nothing: the page is done.
    Nothing,
    /// Where the next rows of these scans stand.
    Heads(Vec<usize>),
    /// The rows at these positions.
    Rows(Vec<Position>),
}

/// How far one scan came.
#[derive(Debug, Default)]
struct Walk {
    /// Where its next rows stand, as far as that was read.
    heads: VecDeque<Position>,
    /// Behind which position to read on.
    behind: Option<Position>,
    /// Whether there is nothing behind `heads`.
    exhausted: bool,
    looked_at: usize,
}

/// The most rows that are read at a time.
const MOST_ROWS: usize = 500;

/// A page that is being filled.
pub(crate) struct Filling<'a> {
    request: &'a ReadRequest,
    keys: HashSet<&'a Key>,
    walks: Vec<Walk>,
    /// The scan that is being walked.
    at: usize,
    rows_read: HashMap<Position, Read>,
    reached: Vec<Reached>,
    records: Vec<Record>,
    deferred: Vec<Position>,
    due: Vec<Read>,
    rows: usize,
    bytes: usize,
    per_key: HashMap<Key, usize>,
}

impl<'a> Filling<'a> {
    pub(crate) fn new(request: &'a ReadRequest) -> Self {
        let (Keys::Except(keys) | Keys::Only(keys)) = &request.keys;
        let nothing = Reached { position: None, end: true, revision: 0, firm: None };
        let walk = |scan: &Scan| Walk { behind: scan.after, exhausted: true, ..Walk::default() };
        Self {
            request,
            keys: keys.iter().collect(),
            walks: request.scans.iter().map(walk).collect(),
            at: 0,
            rows_read: HashMap::new(),
            reached: vec![nothing; request.scans.len()],
            records: Vec::new(),
            deferred: Vec::new(),
            due: Vec::new(),
            rows: 0,
            bytes: 0,
            per_key: HashMap::new(),
        }
    }

    /// There may be something to read for a scan.
    pub(crate) fn open(&mut self, scan: usize) {
        self.walks[scan].exhausted = false;
    }

    pub(crate) fn set_revision(&mut self, scan: usize, revision: i64) {
        self.reached[scan].revision = revision;
    }

    /// Behind which position a scan goes on.
    pub(crate) fn behind(&self, scan: usize) -> Option<Position> {
        self.walks[scan].behind
    }

    /// How many more heads a scan may need: one more than it may look at says whether there is more.
    pub(crate) fn heads_left(&self, scan: usize) -> usize {
        let walk = &self.walks[scan];
        self.request.max_scanned.saturating_sub(walk.looked_at + walk.heads.len()).saturating_add(1)
    }

    /// Takes in where the next rows of a scan stand; fewer than asked for means that there are no more.
    pub(crate) fn add_heads(&mut self, scan: usize, heads: &[Position], asked_for: usize) {
        let walk = &mut self.walks[scan];
        walk.exhausted = heads.len() < asked_for;
        walk.behind = heads.last().copied().or(walk.behind);
        walk.heads.extend(heads);
    }

    pub(crate) fn add_rows(&mut self, rows: impl IntoIterator<Item = Read>) {
        self.rows_read.extend(rows.into_iter().map(|row| (row.record.position, row)));
    }

    /// The most due records that the page takes.
    pub(crate) fn most_due(&self) -> usize {
        (self.request.max_rows / 2).max(1)
    }

    pub(crate) fn is_in_hand(&self, position: Position) -> bool {
        self.request.in_hand.binary_search(&position).is_ok()
    }

    /// Whether a due row is one to read.
    pub(crate) fn wants_due(&self, row: &Read) -> bool {
        let is_asked_for = |scan: &Scan| {
            scan.lane == row.record.lane
                && match scan.due {
                    DueRecords::Skip => false,
                    DueRecords::UpTo(position) => {
                        row.record.position <= position || row.record.key().is_none()
                    }
                    DueRecords::All => true,
                }
        };
        row.due && self.wants(row) && self.request.scans.iter().any(is_asked_for)
    }

    /// Keeps room for due records, those first that have been due for longest.
    pub(crate) fn hold(&mut self, mut rows: Vec<Read>) {
        rows.sort_by_key(|row| (row.since, row.record.position));
        rows.dedup_by_key(|row| row.record.position);
        rows.truncate(self.most_due());
        for row in rows {
            if !self.has_room(&row) {
                break;
            }
            self.make_room(&row);
            self.due.push(row);
        }
    }

    /// Walks on until something is missing or the page is done.
    pub(crate) fn walk(&mut self) -> Need {
        while self.at < self.walks.len() {
            if let Some(need) = self.walk_scan() {
                return need;
            }
            self.at += 1;
        }
        Need::Nothing
    }

    fn walk_scan(&mut self) -> Option<Need> {
        loop {
            let walk = &self.walks[self.at];
            let Some(position) = walk.heads.front().copied() else {
                if walk.exhausted {
                    self.reached[self.at].end = true;
                    return None;
                }
                if self.is_full() {
                    self.reached[self.at].end = false;
                    return None;
                }
                return Some(Need::Heads(self.without_heads()));
            };
            if walk.looked_at == self.request.max_scanned || self.is_full() {
                self.reached[self.at].end = false;
                return None;
            }
            if !self.is_in_hand(position) {
                let Some(row) = self.rows_read.get(&position) else {
                    return Some(Need::Rows(self.next_rows()));
                };
                if self.wants(row) && self.is_within_key(&row.record) {
                    if !self.has_room(row) {
                        self.reached[self.at].end = false;
                        return None;
                    }
                    if let Some(row) = self.rows_read.remove(&position) {
                        self.make_room(&row);
                        self.take(row);
                    }
                }
            }
            let walk = &mut self.walks[self.at];
            walk.heads.pop_front();
            walk.looked_at += 1;
            self.reached[self.at].position = Some(position);
        }
    }

    /// This scan and those behind it of which nothing is known to be next.
    fn without_heads(&self) -> Vec<usize> {
        (self.at..self.walks.len())
            .filter(|scan| self.walks[*scan].heads.is_empty() && !self.walks[*scan].exhausted)
            .collect()
    }

    /// The next rows that the walk will come to, as far as the page may take them.
    fn next_rows(&self) -> Vec<Position> {
        let most = (self.request.max_rows.saturating_sub(self.rows)).clamp(16, MOST_ROWS);
        let of_walk = |walk: &'_ Walk| {
            let left = self.request.max_scanned - walk.looked_at;
            walk.heads.iter().copied().take(left).collect::<Vec<_>>()
        };
        let heads = self.walks[self.at..].iter().flat_map(of_walk);
        let unread = heads.filter(|head| !self.is_in_hand(*head) && !self.rows_read.contains_key(head));
        unread.take(most).collect()
    }

    /// Whether the record is one to read: its key asked for, and not blocked.
    fn wants(&self, row: &Read) -> bool {
        let is_listed = |key| self.keys.contains(key);
        let is_key_asked_for = match (&self.request.keys, row.record.key()) {
            (Keys::Except(_), key) => !key.is_some_and(is_listed),
            (Keys::Only(_), key) => key.is_some_and(is_listed),
        };
        is_key_asked_for && row.blocker.is_none()
    }

    fn is_within_key(&self, record: &Record) -> bool {
        let taken = record.key().and_then(|key| self.per_key.get(key));
        taken.is_none_or(|taken| *taken < self.request.max_per_key)
    }

    fn is_full(&self) -> bool {
        self.rows >= self.request.max_rows.max(1)
    }

    fn has_room(&self, row: &Read) -> bool {
        !self.is_full() && (self.rows == 0 || self.bytes + row.bytes <= self.request.max_bytes)
    }

    fn make_room(&mut self, row: &Read) {
        self.rows += 1;
        self.bytes += row.bytes;
    }

    fn take(&mut self, row: Read) {
        if let Some(key) = row.record.key() {
            *self.per_key.entry(key.clone()).or_default() += 1;
        }
        if row.deferred {
            self.deferred.push(row.record.position);
        }
        self.records.push(row.record);
    }

    /// Adds the due records, each the last of its key in the page: later ones are blocked by it. It is left out where the
    /// key has as many as it may before it. Returns the positions whose payloads are still to be read.
    pub(crate) fn take_due(&mut self) -> Vec<Position> {
        for row in std::mem::take(&mut self.due) {
            if self.is_within_key(&row.record) {
                self.take(Read { record: Record { held_back: true, ..row.record }, ..row });
            }
        }
        std::mem::take(&mut self.deferred)
    }

    /// The page, with the payloads that were read by themselves.
    pub(crate) fn page(mut self, mut payloads: HashMap<u128, Bytes>) -> Page {
        for record in &mut self.records {
            if let Some(payload) = payloads.remove(&record.position.minor) {
                record.payload = Some(payload);
            }
        }
        self.records.sort_unstable_by_key(|record| (record.lane, record.position));
        Page { records: self.records, reached: self.reached }
    }
}
