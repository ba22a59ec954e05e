//! Reading records, in order and within bounds.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::SystemTime;

use bytes::Bytes;

use super::table::{HeldBackKeys, Place, Row, Table};
use crate::record::{Key, Lane, Position, Record};
use crate::store::{DueRecords, Keys, Page, Reached, ReadRequest, Scan};

impl Table {
    pub(super) fn read(&self, request: &ReadRequest, now: SystemTime) -> Page {
        let mut reader = Reader::new(self, request);
        let due = reader.due_rows(now);
        let reached = request.scans.iter().map(|scan| reader.scan(scan)).collect();
        reader.take_due(&due);
        reader.records.sort_unstable_by_key(|record| (record.lane, record.position));
        Page { records: reader.records, reached }
    }

    fn revision(&self, lane: Lane) -> i64 {
        self.lanes.get(usize::from(lane.0)).map_or(0, |lane| lane.revision)
    }
}

/// A page on its way.
struct Reader<'a> {
    table: &'a Table,
    request: &'a ReadRequest,
    held_back: HeldBackKeys,
    records: Vec<Record>,
    /// What the page takes up, with the due records it will end with.
    rows: usize,
    bytes: usize,
    per_key: BTreeMap<&'a Key, usize>,
}

impl<'a> Reader<'a> {
    fn new(table: &'a Table, request: &'a ReadRequest) -> Self {
        let held_back = table.held_back_keys();
        Self { table, request, held_back, records: Vec::new(), rows: 0, bytes: 0, per_key: BTreeMap::new() }
    }

    /// Chooses the records that were held back and are due, those first that have been due for longest, and keeps
    /// room for them.
    fn due_rows(&mut self, now: SystemTime) -> Vec<&'a Row> {
        let is_asked_for = |row: &Row| self.request.scans.iter().any(|scan| asks_for_due(scan, row));
        let mut rows: Vec<_> = self.table.rows.values().filter(|row| row.is_due(now)).collect();
        rows.retain(|row| is_asked_for(row) && self.wants(row));
        rows.sort_by_key(|row| (row.next_attempt_at, row.record.position));
        rows.truncate((self.request.max_rows / 2).max(1));
        let fitting = rows
            .iter()
            .take_while(|row| {
                self.has_room(row) && {
                    self.make_room(row);
                    true
                }
            })
            .count();
        rows.truncate(fitting);
        rows
    }

    /// Reads the ready records of a stretch.
    fn scan(&mut self, scan: &Scan) -> Reached {
        let revision = self.table.revision(scan.lane);
        let mut reached = Reached { position: None, end: false, revision, firm: Some(self.table.firm()) };
        let ready = self.table.rows.range(behind(scan)).filter(|(_, row)| row.is_ready());
        for (looked_at, (place, row)) in ready.enumerate() {
            if scan.until.is_some_and(|until| place.1 > until) {
                break;
            }
            let taken = self.wants(row) && self.is_within_key(row);
            if looked_at == self.request.max_scanned || self.is_full() || taken && !self.has_room(row) {
                return reached;
            }
            reached.position = Some(place.1);
            if taken {
                self.make_room(row);
                self.take(row, false);
            }
        }
        reached.end = true;
        reached
    }

    /// Adds the due records. Each is the last of its key in the page: later ones are blocked by it. It is left
    /// out where the key has as many as it may before it, and perhaps others that were passed over.
    fn take_due(&mut self, rows: &[&'a Row]) {
        for row in rows {
            if self.is_within_key(row) {
                self.take(row, true);
            }
        }
    }

    /// Whether the record is one to read: not in hand, its key asked for, and not blocked.
    fn wants(&self, row: &Row) -> bool {
        let in_hand = self.request.in_hand.binary_search(&row.record.position).is_ok();
        let is_key_asked_for = match (&self.request.keys, row.record.key()) {
            (Keys::Except(keys), Some(key)) => !keys.contains(key),
            (Keys::Only(keys), Some(key)) => keys.contains(key),
            (Keys::Except(_), None) => true,
            (Keys::Only(_), None) => false,
        };
        !in_hand && is_key_asked_for && row.blocked_at(&self.held_back).is_none()
    }

    fn is_within_key(&self, row: &Row) -> bool {
        let taken = row.record.key().and_then(|key| self.per_key.get(key));
        taken.is_none_or(|taken| *taken < self.request.max_per_key)
    }

    fn is_full(&self) -> bool {
        self.rows >= self.request.max_rows
    }

    fn has_room(&self, row: &Row) -> bool {
        !self.is_full() && (self.rows == 0 || self.bytes + payload_bytes(row) <= self.request.max_bytes)
    }

    fn make_room(&mut self, row: &Row) {
        self.rows += 1;
        self.bytes += payload_bytes(row);
    }

    fn take(&mut self, row: &'a Row, held_back: bool) {
        if let Some(key) = row.record.key() {
            *self.per_key.entry(key).or_default() += 1;
        }
        self.records.push(Record { held_back, ..row.record.clone() });
    }
}

fn asks_for_due(scan: &Scan, row: &Row) -> bool {
    let is_passed = match scan.due {
        DueRecords::Skip => false,
        DueRecords::UpTo(position) => row.record.position <= position || row.record.key().is_none(),
        DueRecords::All => true,
    };
    scan.lane == row.record.lane && is_passed
}

/// The rest of a lane behind a scan's start.
fn behind(scan: &Scan) -> (Bound<Place>, Bound<Place>) {
    const LAST: Position = Position { major: i64::MAX, minor: u128::MAX };
    let start = scan.after.unwrap_or(Position::START);
    (Bound::Excluded((scan.lane, start)), Bound::Included((scan.lane, LAST)))
}

fn payload_bytes(row: &Row) -> usize {
    row.record.payload.as_ref().map_or(0, Bytes::len)
}
