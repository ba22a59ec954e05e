//! A page on its way: which of the rows that were seen go into it, and how far each scan came. It knows no database.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use posthaste::{DueRecords, Key, Keys, Lane, Page, Position, Reached, ReadRequest, Record, Scan};

/// A row that was read, with what decides about it.
#[derive(Debug)]
pub(crate) struct Read {
    /// The record; its payload is missing where `deferred`.
    pub(crate) record: Record,
    /// How many bytes the payload has.
    pub(crate) bytes: usize,
    /// The payload is to be read by itself.
    pub(crate) deferred: bool,
    /// An earlier row holds back the key.
    pub(crate) is_blocked: bool,
    /// Pending, held back, and its time has come.
    pub(crate) due: bool,
    /// Since when it is due, in microseconds since 1970.
    pub(crate) since: i64,
}

/// A place in a scan, with the row that stands there, or nothing where that is in hand.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) scan: usize,
    pub(crate) position: Position,
    pub(crate) read: Option<Read>,
}

/// A row that was held back, and how many were looked at for it.
#[derive(Debug)]
pub(crate) struct Looked {
    pub(crate) looked_at: usize,
    pub(crate) read: Read,
}

/// How much a look may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sight {
    /// Ready rows of each scan.
    pub(crate) rows: usize,
    /// Due rows of each lane.
    pub(crate) due: usize,
}

/// A page that is being filled.
pub(crate) struct Filling<'a> {
    request: &'a ReadRequest,
    keys: HashSet<&'a Key>,
    sight: Sight,
    reached: Vec<Reached>,
    records: Vec<Record>,
    deferred: Vec<Position>,
    due: Vec<Read>,
    rows: usize,
    bytes: usize,
    per_key: HashMap<Key, usize>,
    /// More may stand behind what was seen, and there was room for it.
    is_short: bool,
}

impl<'a> Filling<'a> {
    pub(crate) fn new(request: &'a ReadRequest, sight: Sight) -> Self {
        let (Keys::Except(keys) | Keys::Only(keys)) = &request.keys;
        let nothing = Reached { position: None, end: true, revision: 0, firm: None };
        Self {
            request,
            keys: keys.iter().collect(),
            sight,
            reached: vec![nothing; request.scans.len()],
            records: Vec::new(),
            deferred: Vec::new(),
            due: Vec::new(),
            rows: 0,
            bytes: 0,
            per_key: HashMap::new(),
            is_short: false,
        }
    }

    pub(crate) fn set_revisions(&mut self, of_lane: impl Fn(Lane) -> Option<i64>) {
        for (scan, reached) in self.request.scans.iter().zip(&mut self.reached) {
            reached.revision = of_lane(scan.lane).unwrap_or(reached.revision);
        }
    }

    /// These scans are left for another page.
    pub(crate) fn leave(&mut self, scans: &[usize]) {
        scans.iter().for_each(|scan| self.reached[*scan].end = false);
    }

    /// Takes in what was held back and is due, of which at most half the page, those first that have been due for longest.
    /// Room is kept for them.
    pub(crate) fn hold(&mut self, seen: Vec<Looked>) {
        let mut looked_at: BTreeMap<Lane, usize> = BTreeMap::new();
        for it in &seen {
            *looked_at.entry(it.read.record.lane).or_default() += it.looked_at;
        }
        let mut rows: Vec<_> = seen.into_iter().map(|it| it.read).filter(|row| self.wants_due(row)).collect();
        let most = (self.request.max_rows / 2).max(1);
        self.is_short |= rows.len() < most && looked_at.values().any(|count| *count >= self.sight.due);
        rows.sort_by_key(|row| (row.since, row.record.position));
        rows.truncate(most);
        for row in rows {
            if !self.has_room(&row) {
                break;
            }
            self.make_room(&row);
            self.due.push(row);
        }
    }

    /// Takes in what is ready, and notes how far each of these scans came.
    pub(crate) fn fill(&mut self, scans: &[usize], mut seen: Vec<Place>) {
        seen.sort_unstable_by_key(|place| (place.scan, place.position));
        let (mut ran_out, mut seen) = (false, seen.into_iter().peekable());
        for scan in scans {
            let mut places = Vec::new();
            while let Some(place) = seen.next_if(|place| place.scan == *scan) {
                places.push(place);
            }
            let count = places.len();
            let came_through = self.walk(*scan, places);
            self.reached[*scan].end = came_through && count < self.sight.rows;
            ran_out |= came_through && count >= self.sight.rows;
        }
        let has_half = self.rows >= self.request.max_rows.div_ceil(2);
        let has_bytes = self.bytes >= self.request.max_bytes / 2;
        self.is_short |= ran_out && !has_half && !has_bytes;
    }

    /// Walks through the places of a scan. Returns whether it came behind the last one.
    fn walk(&mut self, scan: usize, places: Vec<Place>) -> bool {
        for (looked_at, place) in places.into_iter().enumerate() {
            if looked_at >= self.request.max_scanned || self.is_full() {
                return false;
            }
            if let Some(row) = place.read.filter(|row| self.wants(row) && self.is_within_key(&row.record)) {
                if !self.has_room(&row) {
                    return false;
                }
                self.make_room(&row);
                self.take(row);
            }
            self.reached[scan].position = Some(place.position);
        }
        true
    }

    /// Whether so much of what was seen had to be passed over that it is worth looking further.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    pub(crate) fn is_in_hand(&self, position: Position) -> bool {
        self.request.in_hand.binary_search(&position).is_ok()
    }

    /// Whether a due row is one to read.
    fn wants_due(&self, row: &Read) -> bool {
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
        row.due
            && !self.is_in_hand(row.record.position)
            && self.wants(row)
            && self.request.scans.iter().any(is_asked_for)
    }

    /// Whether the record is one to read: its key asked for, and not blocked.
    fn wants(&self, row: &Read) -> bool {
        let is_listed = |key| self.keys.contains(key);
        let is_key_asked_for = match (&self.request.keys, row.record.key()) {
            (Keys::Except(_), key) => !key.is_some_and(is_listed),
            (Keys::Only(_), key) => key.is_some_and(is_listed),
        };
        is_key_asked_for && !row.is_blocked
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
        self.deferred.clone()
    }

    /// The page, with the payloads that were read by themselves. A record whose payload is not there any more was settled by
    /// somebody else meanwhile.
    pub(crate) fn page(mut self, mut payloads: HashMap<u128, Bytes>) -> Page {
        let deferred: HashSet<_> = self.deferred.iter().copied().collect();
        self.records.retain_mut(|record| {
            if !deferred.contains(&record.position) {
                return true;
            }
            record.payload = payloads.remove(&record.position.minor);
            record.payload.is_some()
        });
        self.records.sort_unstable_by_key(|record| (record.lane, record.position));
        Page { records: self.records, reached: self.reached }
    }
}
