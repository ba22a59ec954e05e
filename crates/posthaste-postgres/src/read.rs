//! Reading records: one statement, one round trip.

use std::collections::{HashMap, HashSet};
use std::mem::take;

use bytes::Bytes;
use posthaste::{
    DueRecords, Error, ErrorKind, Key, Keys, Lane, MessageId, Page, Position, Reached, ReadRequest, Record,
};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Params, Use};
use crate::firm::Look;
use crate::places::Place;
use crate::store::Inner;
use crate::value::{attempts, headers_from_json, lane, limit, sequence};

const DOING: &str = "reading";

/// What a row of fetch.sql is.
mod kind {
    /// A scan, with its lane's revision.
    pub(super) const SCAN: i16 = 0;
    /// A record that was held back and is due.
    pub(super) const DUE: i16 = 1;
    /// A record. All else is the place of one that is passed over.
    pub(super) const WANTED: i16 = 2;
}

/// The columns of fetch.sql.
mod column {
    pub(super) const KIND: usize = 0;
    pub(super) const SCAN: usize = 1;
    pub(super) const SEQ: usize = 2;
    pub(super) const ID: usize = 3;
    pub(super) const LANE: usize = 4;
    pub(super) const EVENT_TYPE: usize = 5;
    pub(super) const AGGREGATE_TYPE: usize = 6;
    pub(super) const AGGREGATE_ID: usize = 7;
    pub(super) const PAYLOAD: usize = 8;
    pub(super) const SIZE: usize = 9;
    pub(super) const CONTENT_TYPE: usize = 10;
    pub(super) const HEADERS: usize = 11;
    pub(super) const IDEMPOTENCY_KEY: usize = 12;
    pub(super) const ATTEMPTS: usize = 13;
    pub(super) const CREATED_AT: usize = 14;
    pub(super) const REVISION: usize = 15;
    pub(super) const PLACE: usize = 16;
}

impl Inner {
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        if request.scans.is_empty() {
            return Ok(Page::default());
        }
        // A little more than a page is looked at, because some of it may be in hand, or more of a key than asked for.
        let see = request.max_rows.saturating_add(request.max_rows / 8).saturating_add(64);
        let (page, short) = self.read_seeing(request, see.saturating_add(request.in_hand.len())).await?;
        if !short {
            return Ok(page);
        }
        // What is passed over has filled it: read again and look further, in a new snapshot and so from the start.
        let further = request.scans.len().saturating_mul(request.max_scanned.saturating_add(1)).max(see);
        Ok(self.read_seeing(request, further).await?.0)
    }

    /// Reads, looking at no more than so many rows. Returns also whether the page is much shorter than it might be
    /// because most of these were passed over.
    async fn read_seeing(&self, request: &ReadRequest, see: usize) -> Result<(Page, bool), Error> {
        let scans = Scans::new(request);
        let in_hand: Vec<_> = request.in_hand.iter().map(|position| sequence(*position)).collect();
        let (only, keys) = match &request.keys {
            Keys::Only(keys) => (true, keys),
            Keys::Except(keys) => (false, keys),
        };
        let types: Vec<_> = keys.iter().map(Key::aggregate_type).collect();
        let ids: Vec<_> = keys.iter().map(Key::aggregate_id).collect();
        let largest = i32::try_from(request.max_bytes / see).unwrap_or(i32::MAX);
        let [due, scanned, most] = [most_due(request), request.max_scanned.saturating_add(1), see].map(limit);
        let params: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 13] = [
            (&scans.lanes, Type::INT2_ARRAY),
            (&scans.after, Type::INT8_ARRAY),
            (&scans.until, Type::INT8_ARRAY),
            (&scans.due, Type::INT2_ARRAY),
            (&scans.up_to, Type::INT8_ARRAY),
            (&in_hand, Type::INT8_ARRAY),
            (&only, Type::BOOL),
            (&types, Type::TEXT_ARRAY),
            (&ids, Type::TEXT_ARRAY),
            (&due, Type::INT8),
            (&largest, Type::INT4),
            (&scanned, Type::INT8),
            (&most, Type::INT8),
        ];
        let rows = self.fetch(&params).await?;
        let filling = Filling::new(request, see, self.firm.position());
        let Filled { mut page, left_out, places, saw_all_it_may } = filling.fill(&rows)?;
        let short = saw_all_it_may && page.records.len() < request.max_rows.div_ceil(2);
        if !short && !left_out.is_empty() {
            self.load_payloads(&mut page, &left_out).await?;
        }
        self.places.note(places);
        Ok((page, short))
    }

    /// Loads the payloads that were left out because of their size. A record that is not there any more was settled by
    /// somebody else meanwhile.
    async fn load_payloads(&self, page: &mut Page, left_out: &[MessageId]) -> Result<(), Error> {
        let ids: Vec<_> = left_out.iter().map(|id| *id.as_uuid()).collect();
        let rows = self.run(Use::Read, DOING, &self.sql.payloads, &[(&ids, Type::UUID_ARRAY)]).await?;
        let mut payloads: HashMap<_, _> =
            rows.iter().map(|row| (MessageId::from_stored(row.get(0)), payload_of(row, 1))).collect();
        let left_out: HashSet<_> = left_out.iter().collect();
        page.records.retain_mut(|record| {
            if !left_out.contains(&record.id) {
                return true;
            }
            let Some(payload) = payloads.remove(&record.id) else { return false };
            record.payload = payload;
            true
        });
        Ok(())
    }

    /// Reads, and now and then looks before it, in the same round trip, at what is firm.
    async fn fetch(&self, params: Params<'_>) -> Result<Vec<Row>, Error> {
        let session = self.session(Use::Read, DOING).await?;
        let now = Instant::now();
        if session.is_new() {
            self.firm.reset();
        }
        let table = self.table.qualified("");
        let look: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] = [(&table, Type::TEXT)];
        let mut statements: Vec<(&str, Params<'_>)> = Vec::new();
        let looks = self.firm.is_due(now);
        if looks {
            statements.push((&self.sql.given_out, &look));
            statements.push((&self.sql.holders, &look));
        }
        statements.push((&self.sql.fetch, params));
        let result = session.run_all(&self.begin_read, &statements).await;
        // Noted while nobody else reads, so that looks are noted in their order.
        let result = result.map(|mut answers| {
            let rows = answers.pop().unwrap_or_default();
            if looks {
                self.firm.note(&Look::of(&answers), &rows, now);
            }
            self.firm.note_found(rows.iter().any(|row| row.get::<_, i16>(column::KIND) != kind::SCAN));
            rows
        });
        session.done(result).map_err(|failure| self.error(DOING, failure))
    }
}

/// The scans as arrays.
struct Scans {
    lanes: Vec<i16>,
    after: Vec<i64>,
    until: Vec<i64>,
    due: Vec<i16>,
    up_to: Vec<i64>,
}

impl Scans {
    fn new(request: &ReadRequest) -> Self {
        let scans = || request.scans.iter();
        let due = |due: DueRecords| match due {
            DueRecords::Skip => (0, i64::MIN),
            DueRecords::UpTo(position) => (1, sequence(position)),
            DueRecords::All => (2, i64::MAX),
        };
        Self {
            lanes: scans().map(|scan| i16::try_from(scan.lane.0).unwrap_or(i16::MAX)).collect(),
            after: scans().map(|scan| scan.after.map_or(i64::MIN, sequence)).collect(),
            until: scans().map(|scan| scan.until.map_or(i64::MAX, sequence)).collect(),
            due: scans().map(|scan| due(scan.due).0).collect(),
            up_to: scans().map(|scan| due(scan.due).1).collect(),
        }
    }
}

/// The most records that were held back to return.
fn most_due(request: &ReadRequest) -> usize {
    (request.max_rows / 2).max(1)
}

/// A page, and what goes with it.
struct Filled {
    page: Page,
    /// Records whose payload is to be loaded.
    left_out: Vec<MessageId>,
    /// Where its rows lie, by position.
    places: Vec<(i64, Place)>,
    /// Whether the page ended only because no more rows were looked at.
    saw_all_it_may: bool,
}

/// A page that is being filled, row by row in the order of the scans and positions.
struct Filling<'a> {
    request: &'a ReadRequest,
    most: usize,
    reached: Vec<Reached>,
    records: Vec<Record>,
    due: Vec<Record>,
    bytes: usize,
    per_key: HashMap<Key, usize>,
    /// Records whose payload is to be loaded.
    left_out: Vec<MessageId>,
    places: Vec<(i64, Place)>,
    /// Where the last row stood: its scan, and its position.
    at: (usize, Option<i64>),
    /// How many rows of that scan there were.
    of_scan: usize,
}

impl<'a> Filling<'a> {
    fn new(request: &'a ReadRequest, most: usize, firm: Option<i64>) -> Self {
        let nothing =
            Reached { position: None, end: true, revision: 0, firm: firm.map(Position::from_sequence) };
        Self {
            request,
            most,
            reached: vec![nothing; request.scans.len()],
            records: Vec::new(),
            due: Vec::new(),
            bytes: 0,
            per_key: HashMap::new(),
            left_out: Vec::new(),
            places: Vec::new(),
            at: (0, None),
            of_scan: 0,
        }
    }

    fn fill(mut self, rows: &[Row]) -> Result<Filled, Error> {
        let (mut seen, mut is_full) = (0, false);
        for row in rows {
            match row.get(column::KIND) {
                kind::SCAN => {
                    let scan = self.scan(row)?;
                    self.reached[scan].revision =
                        row.get::<_, Option<i64>>(column::REVISION).unwrap_or_default();
                }
                kind::DUE => self.hold(row),
                kind => {
                    seen += 1;
                    self.move_to(row)?;
                    is_full = !self.take(row, kind == kind::WANTED);
                }
            }
            if is_full {
                break;
            }
        }
        let saw_all_it_may = seen >= self.most;
        if is_full || saw_all_it_may {
            // This scan is not known to be through, and those behind were not begun.
            self.reached.iter_mut().skip(self.at.0).for_each(|reached| reached.end = false);
        }
        let (left_out, places) = (take(&mut self.left_out), take(&mut self.places));
        Ok(Filled { page: self.page(), left_out, places, saw_all_it_may: saw_all_it_may && !is_full })
    }

    /// Which scan a row belongs to.
    fn scan(&self, row: &Row) -> Result<usize, Error> {
        let scan = usize::try_from(row.get::<_, i64>(column::SCAN)).ok().and_then(|ord| ord.checked_sub(1));
        scan.filter(|scan| *scan < self.reached.len()).ok_or_else(out_of_order)
    }

    /// Rows must come in order: what was looked at is reckoned from it.
    fn move_to(&mut self, row: &Row) -> Result<(), Error> {
        let at = (self.scan(row)?, Some(row.get(column::SEQ)));
        if at <= self.at {
            return Err(out_of_order());
        }
        self.of_scan = if at.0 == self.at.0 { self.of_scan + 1 } else { 1 };
        self.at = at;
        Ok(())
    }

    /// Keeps room for a record that is due, as long as there is some.
    fn hold(&mut self, row: &Row) {
        if self.due.len() < most_due(self.request) && self.has_room_for(row) {
            let record = to_record(row, lane(row.get(column::LANE)), true);
            self.note(row, &record);
            self.due.push(record);
        }
    }

    /// Takes a row in or passes over it. `false`: the page is full before it.
    fn take(&mut self, row: &Row, wanted: bool) -> bool {
        let scan = self.at.0;
        if self.of_scan > self.request.max_scanned {
            // The one row further, which says that there is more.
            self.reached[scan].end = false;
            return true;
        }
        if self.count() >= self.request.max_rows.max(1) {
            return false;
        }
        if wanted && !self.take_in(row) {
            return false;
        }
        self.reached[scan].position = self.at.1.map(Position::from_sequence);
        true
    }

    fn count(&self) -> usize {
        self.records.len() + self.due.len()
    }

    /// Takes a record in, unless it is more of its key than asked for. `false`: the page is full before it.
    fn take_in(&mut self, row: &Row) -> bool {
        if !self.has_room_for(row) {
            return false;
        }
        let record = to_record(row, self.request.scans[self.at.0].lane, false);
        if let Some(key) = record.key() {
            let of_key = self.per_key.entry(key.clone()).or_default();
            if *of_key >= self.request.max_per_key {
                return true;
            }
            *of_key += 1;
        }
        self.note(row, &record);
        self.records.push(record);
        true
    }

    fn has_room_for(&self, row: &Row) -> bool {
        self.count() == 0 || self.bytes + size_of(row) <= self.request.max_bytes
    }

    fn note(&mut self, row: &Row, record: &Record) {
        self.bytes += size_of(row);
        if record.payload.is_none() && row.get::<_, Option<i32>>(column::SIZE).is_some() {
            self.left_out.push(record.id);
        }
        let place = row.get::<_, Option<Place>>(column::PLACE);
        self.places.extend(place.map(|place| (sequence(record.position), place)));
    }

    fn page(mut self) -> Page {
        // A due record is the last of its key that can be read: those before it must not be left out in its favour.
        let (per_key, most) = (&self.per_key, self.request.max_per_key);
        self.due.retain(|record| {
            let before = record.key().and_then(|key| per_key.get(key));
            before.is_none_or(|before| *before < most)
        });
        self.records.append(&mut self.due);
        self.records.sort_unstable_by_key(|record| (record.lane, record.position));
        Page { records: self.records, reached: self.reached }
    }
}

fn out_of_order() -> Error {
    Error::new(ErrorKind::Database, "reading: the database answered out of order")
}

/// The size of the payload, also of one that was left out.
fn size_of(row: &Row) -> usize {
    let left_out = row.get::<_, Option<i32>>(column::SIZE).and_then(|size| usize::try_from(size).ok());
    left_out.unwrap_or_else(|| row.get::<_, Option<&[u8]>>(column::PAYLOAD).map_or(0, <[u8]>::len))
}

fn payload_of(row: &Row, column: usize) -> Option<Bytes> {
    row.get::<_, Option<&[u8]>>(column).map(Bytes::copy_from_slice)
}

/// A record of a lane. Columns that are not sent have their usual values.
fn to_record(row: &Row, lane: Lane, held_back: bool) -> Record {
    Record {
        id: MessageId::from_stored(row.get(column::ID)),
        lane,
        position: Position::from_sequence(row.get(column::SEQ)),
        event_type: row.get(column::EVENT_TYPE),
        aggregate: Key::new(row.get(column::AGGREGATE_TYPE), row.get(column::AGGREGATE_ID)),
        payload: payload_of(row, column::PAYLOAD),
        content_type: row.get(column::CONTENT_TYPE),
        headers: row.get::<_, Option<_>>(column::HEADERS).map(headers_from_json).unwrap_or_default(),
        idempotency_key: row.get(column::IDEMPOTENCY_KEY),
        attempts: attempts(row.get::<_, Option<_>>(column::ATTEMPTS).unwrap_or_default()),
        enqueued_at: row.get(column::CREATED_AT),
        held_back,
    }
}
