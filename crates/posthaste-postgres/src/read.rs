//! Reading records: one statement, one round trip.

use std::collections::HashMap;

use bytes::Bytes;
use posthaste::{
    DueRecords, Error, ErrorKind, Key, Keys, MessageId, Page, Position, Reached, ReadRequest, Record,
};
use tokio::time::Instant;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::{Params, Use};
use crate::firm::Look;
use crate::store::Inner;
use crate::value::{attempts, headers_from_json, lane, limit, sequence};

const DOING: &str = "reading";

/// What a row of fetch.sql is.
const SCAN: i16 = 0;
const DUE: i16 = 1;

impl Inner {
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        if request.scans.is_empty() {
            return Ok(Page::default());
        }
        // A little more than a page is looked at, because some of it may be more of a key than asked for.
        let see = request.max_rows.saturating_add(request.max_rows / 8).saturating_add(64);
        let (page, short) = self.read_seeing(request, see).await?;
        if !short {
            return Ok(page);
        }
        // One key has filled it: read again and look further, in a new snapshot and so from the start.
        let further = request.scans.len().saturating_mul(request.max_scanned.saturating_add(1)).max(see);
        Ok(self.read_seeing(request, further).await?.0)
    }

    /// Reads, looking at no more than so many rows that are wanted. Returns also whether the page is much shorter than
    /// it might be because these were more of one key than asked for.
    async fn read_seeing(&self, request: &ReadRequest, see: usize) -> Result<(Page, bool), Error> {
        let scans = Scans::new(request);
        let in_hand: Vec<_> = request.in_hand.iter().map(|position| sequence(*position)).collect();
        let (only, keys) = match &request.keys {
            Keys::Only(keys) => (true, keys),
            Keys::Except(keys) => (false, keys),
        };
        let types: Vec<_> = keys.iter().map(Key::aggregate_type).collect();
        let ids: Vec<_> = keys.iter().map(Key::aggregate_id).collect();
        let [rows, bytes, scanned, most] =
            [request.max_rows.max(1), request.max_bytes, request.max_scanned, see].map(limit);
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
            (&rows, Type::INT8),
            (&bytes, Type::INT8),
            (&scanned, Type::INT8),
            (&most, Type::INT8),
        ];
        let rows = self.fetch(&params).await?;
        let filling = Filling::new(request, see, self.firm.position());
        let (page, saw_all_it_may) = filling.fill(&rows)?;
        let short = saw_all_it_may && page.records.len() < request.max_rows.div_ceil(2);
        Ok((page, short))
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
        let result = session.run_all(&self.begin.read, &statements).await;
        // Noted while nobody else reads, so that looks are noted in their order.
        let result = result.map(|mut answers| {
            let rows = answers.pop().unwrap_or_default();
            if looks {
                self.firm.note(&Look::of(&answers), &rows, now);
            }
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

/// A page that is being filled, row by row in the order of the scans and positions.
struct Filling<'a> {
    request: &'a ReadRequest,
    most: usize,
    reached: Vec<Reached>,
    records: Vec<Record>,
    due: Vec<Record>,
    bytes: usize,
    per_key: HashMap<Key, usize>,
    /// Where the last row stood.
    at: (usize, Option<i64>),
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
            at: (0, None),
        }
    }

    /// Returns also whether there may be more behind the last row.
    fn fill(mut self, rows: &[Row]) -> Result<(Page, bool), Error> {
        let (mut seen, mut is_full) = (0, false);
        for row in rows {
            match row.get::<_, i16>("kind") {
                SCAN => {
                    let scan = self.scan(row)?;
                    self.reached[scan].revision = row.get::<_, Option<i64>>("revision").unwrap_or_default();
                }
                DUE => self.hold(to_record(row, true)),
                _ => {
                    seen += 1;
                    self.move_to(row)?;
                    is_full = is_full || !self.take(row);
                    if is_full {
                        break;
                    }
                }
            }
        }
        let saw_all_it_may = seen >= self.most;
        if is_full || saw_all_it_may {
            // The scans behind were not begun.
            self.reached.iter_mut().skip(self.at.0 + 1).for_each(|reached| reached.end = false);
        }
        Ok((self.page(), saw_all_it_may && !is_full))
    }

    /// Which scan a row belongs to.
    fn scan(&self, row: &Row) -> Result<usize, Error> {
        let scan = usize::try_from(row.get::<_, i64>("ord")).ok().and_then(|ord| ord.checked_sub(1));
        scan.filter(|scan| *scan < self.reached.len()).ok_or_else(out_of_order)
    }

    /// Rows must come in order: what was looked at is reckoned from it.
    fn move_to(&mut self, row: &Row) -> Result<(), Error> {
        let at = (self.scan(row)?, Some(row.get("seq")));
        if at <= self.at {
            return Err(out_of_order());
        }
        self.at = at;
        Ok(())
    }

    /// Keeps room for a record that is due.
    fn hold(&mut self, record: Record) {
        self.bytes += record.payload.as_ref().map_or(0, Bytes::len);
        self.due.push(record);
    }

    /// Takes a row in or passes over it. `false`: the page is full before it.
    fn take(&mut self, row: &Row) -> bool {
        let scan = self.at.0;
        let reached = &mut self.reached[scan];
        let rows = self.records.len() + self.due.len();
        // Until the scan is known to be through.
        reached.end = false;
        if rows >= self.request.max_rows.max(1) {
            return false;
        }
        if row.get("wanted") {
            let record = to_record(row, false);
            let of_key = record.key().map(|key| self.per_key.entry(key.clone()).or_default());
            if of_key.as_ref().is_none_or(|of_key| **of_key < self.request.max_per_key) {
                let bytes = record.payload.as_ref().map_or(0, Bytes::len);
                if row.get("withheld") || (rows > 0 && self.bytes + bytes > self.request.max_bytes) {
                    return false;
                }
                if let Some(of_key) = of_key {
                    *of_key += 1;
                }
                self.bytes += bytes;
                self.records.push(record);
            }
        }
        reached.position = self.at.1.map(Position::from_sequence);
        reached.end = row.get("last");
        true
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

fn to_record(row: &Row, held_back: bool) -> Record {
    let payload: Option<&[u8]> = row.get("payload");
    Record {
        id: MessageId::from_stored(row.get("id")),
        lane: lane(row.get("lane")),
        position: Position::from_sequence(row.get("seq")),
        event_type: row.get("event_type"),
        aggregate: Key::new(row.get("aggregate_type"), row.get("aggregate_id")),
        payload: payload.map(Bytes::copy_from_slice),
        content_type: row.get("content_type"),
        headers: headers_from_json(row.get("headers")),
        idempotency_key: row.get("idempotency_key"),
        attempts: attempts(row.get("attempts")),
        enqueued_at: row.get("created_at"),
        held_back,
    }
}
