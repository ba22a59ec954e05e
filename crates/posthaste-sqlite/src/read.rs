//! Reading records: walk an index, pass over what is not wanted, fetch the rest.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use posthaste::{
    DueRecords, Error, Key, Keys, MessageId, Page, Position, Reached, ReadRequest, Record, Scan,
};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Row, params};
use uuid::Uuid;

use crate::database::{Database, DuePlace, Statement, Step};
use crate::lease::LANE;
use crate::{headers, time};

/// Reads a page in one snapshot.
pub(crate) fn read(database: &mut Database, request: &ReadRequest) -> Result<Page, Error> {
    let from = database.due_from.take();
    let (page, from) = database.read("reading messages", |step| {
        let mut reader = Reader::new(step, request)?;
        let (due, from) = reader.due(from)?;
        let mut page = Page::default();
        for scan in &request.scans {
            page.reached.push(reader.scan(scan)?);
        }
        reader.add_due(due);
        page.records = reader.records;
        page.records.sort_by_key(|record| record.position);
        Ok((page, from))
    })?;
    database.due_from = from;
    Ok(page)
}

/// Tells whether a row waits behind an earlier one of its key.
pub(crate) struct Blocks<'s> {
    /// `None`: nothing holds anything up.
    earlier: Option<Statement<'s>>,
}

impl<'s> Blocks<'s> {
    pub(crate) fn new(step: &Step<'s>) -> rusqlite::Result<Self> {
        let any = step.prepare(&step.sql.held_any)?.query_row([], |row| row.get::<_, bool>(0))?;
        let earlier = if any { Some(step.prepare(&step.sql.held_before)?) } else { None };
        Ok(Self { earlier })
    }

    /// Whether nothing is held back at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.earlier.is_none()
    }

    /// Whether the row, which begins with its position and its key, waits behind another one.
    pub(crate) fn holds_up(&mut self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let Some(earlier) = &mut self.earlier else { return Ok(false) };
        let (seq, aggregate_type, aggregate_id) = (row.get_ref(0)?, row.get_ref(1)?, row.get_ref(2)?);
        if aggregate_id.as_bytes().is_ok_and(<[u8]>::is_empty) {
            return Ok(false);
        }
        let bind = ToSqlOutput::Borrowed;
        earlier.exists(params![bind(aggregate_type), bind(aggregate_id), bind(seq)])
    }
}

/// A page on its way.
struct Reader<'s, 'r> {
    step: &'s Step<'s>,
    request: &'r ReadRequest,
    keys: Choice<'r>,
    blocks: Blocks<'s>,
    row: Statement<'s>,
    revision: i64,
    records: Vec<Record>,
    /// What the page takes up, with the due records it will end with.
    rows: usize,
    bytes: usize,
    per_key: HashMap<Key, usize>,
}

impl<'s, 'r> Reader<'s, 'r> {
    fn new(step: &'s Step<'s>, request: &'r ReadRequest) -> rusqlite::Result<Self> {
        Ok(Self {
            step,
            request,
            keys: Choice::new(&request.keys),
            blocks: Blocks::new(step)?,
            row: step.prepare(&step.sql.fetch_row)?,
            revision: step.first(&step.sql.revision, [], |row| row.get(0))?.unwrap_or(0),
            records: Vec::new(),
            rows: 0,
            bytes: 0,
            per_key: HashMap::new(),
        })
    }

    /// Fetches rows that were held back and are due: at most half a page, so that the others get through too.
    ///
    /// Starts behind `from`, and says where to start the next time: where many due rows are blocked, the rows
    /// behind them are reached within a few reads.
    fn due(&mut self, from: Option<DuePlace>) -> rusqlite::Result<(Vec<Record>, Option<DuePlace>)> {
        let request = self.request;
        let mut records = Vec::new();
        let asked_for: Vec<_> =
            request.scans.iter().filter(|scan| scan.lane == LANE).map(|scan| scan.due).collect();
        if asked_for.iter().all(|due| *due == DueRecords::Skip) {
            return Ok((records, from));
        }
        let from = from.unwrap_or(DuePlace { at: i64::MIN, seq: i64::MIN });
        let mut statement = self.step.prepare(&self.step.sql.fetch_due)?;
        let mut rows = statement.query(params![from.at, from.seq, self.step.now.millis])?;
        let (mut looked_at, mut last) = (0, None);
        while let Some(row) = rows.next()? {
            if records.len() >= (request.max_rows / 2).max(1) {
                return Ok((records, None));
            }
            if looked_at == request.max_scanned {
                return Ok((records, last));
            }
            looked_at += 1;
            last = Some(DuePlace { at: row.get(3)?, seq: row.get(0)? });
            let Some((position, key)) = self.wanted(row)? else { continue };
            if !asked_for.iter().any(|due| asks_for(*due, position, &key)) {
                continue;
            }
            let Some(record) = self.load(position, key, true)? else { continue };
            if !self.make_room(&record) {
                return Ok((records, None));
            }
            records.push(record);
        }
        Ok((records, None))
    }

    /// Adds the due records. Each is the last of its key in the page: later ones are blocked by it. It is left out
    /// where the page has as many of its key as it may, since earlier ones may have been passed over for that.
    fn add_due(&mut self, due: Vec<Record>) {
        for record in due {
            if self.is_within_key(&record.aggregate) {
                self.records.push(record);
            }
        }
    }

    /// Walks a stretch of the lane.
    fn scan(&mut self, scan: &Scan) -> rusqlite::Result<Reached> {
        let mut reached = Reached { position: None, end: true, revision: self.revision, firm: None };
        if scan.lane != LANE {
            return Ok(reached);
        }
        let after = scan.after.map_or(i64::MIN, |position| position.major);
        let until = scan.until.map_or(i64::MAX, |position| position.major);
        let mut statement = self.step.prepare(&self.step.sql.fetch)?;
        let mut rows = statement.query([after, until])?;
        let mut looked_at = 0;
        while let Some(row) = rows.next()? {
            let is_over = self.rows >= self.request.max_rows || looked_at == self.request.max_scanned;
            if is_over || !self.look_at(row)? {
                reached.end = false;
                break;
            }
            looked_at += 1;
            reached.position = Some(Position::from_sequence(row.get(0)?));
        }
        // SQLite has one writer at a time, so nothing can come before what this snapshot shows.
        reached.firm = reached.position;
        Ok(reached)
    }

    /// Takes a ready row, or passes it over. `false`: the page has no room for it.
    fn look_at(&mut self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let Some((position, key)) = self.wanted(row)? else { return Ok(true) };
        if !self.is_within_key(&key) {
            return Ok(true);
        }
        let Some(record) = self.load(position, key, false)? else { return Ok(true) };
        if !self.make_room(&record) {
            return Ok(false);
        }
        if let Some(key) = record.key() {
            *self.per_key.entry(key.clone()).or_default() += 1;
        }
        self.records.push(record);
        Ok(true)
    }

    /// The position and key of a row that is neither in hand nor blocked, and whose key was asked for.
    fn wanted(&mut self, row: &Row<'_>) -> rusqlite::Result<Option<(Position, Key)>> {
        let position = Position::from_sequence(row.get(0)?);
        let key = (text(row.get_ref(1)?), text(row.get_ref(2)?));
        let is_wanted = self.request.in_hand.binary_search(&position).is_err()
            && self.keys.has((&key.0, &key.1))
            && !self.blocks.holds_up(row)?;
        Ok(is_wanted.then(|| (position, Key::new(&key.0, &key.1))))
    }

    fn is_within_key(&self, key: &Key) -> bool {
        self.per_key.get(key).is_none_or(|taken| *taken < self.request.max_per_key)
    }

    /// Loads the rest of a row.
    fn load(&mut self, position: Position, key: Key, held_back: bool) -> rusqlite::Result<Option<Record>> {
        let mut rows = self.row.query([position.major])?;
        let record = rows.next()?.map(|row| record(row, position, key, held_back)).transpose()?.flatten();
        if record.is_none() {
            tracing::error!(position = position.major, "a message has no valid id, and is passed over");
        }
        Ok(record)
    }

    /// Whether the page has room for the record, which it then takes.
    fn make_room(&mut self, record: &Record) -> bool {
        let bytes = self.bytes + record.payload.as_ref().map_or(0, Bytes::len);
        let fits = self.rows == 0 || bytes <= self.request.max_bytes;
        if fits {
            self.rows += 1;
            self.bytes = bytes;
        }
        fits
    }
}

fn asks_for(due: DueRecords, position: Position, key: &Key) -> bool {
    match due {
        DueRecords::Skip => false,
        DueRecords::UpTo(last) => position <= last || key.aggregate_id().is_empty(),
        DueRecords::All => true,
    }
}

fn record(
    row: &Row<'_>,
    position: Position,
    aggregate: Key,
    held_back: bool,
) -> rusqlite::Result<Option<Record>> {
    let Some(id) = message_id(row.get_ref(0)?) else { return Ok(None) };
    Ok(Some(Record {
        id,
        lane: LANE,
        position,
        event_type: text(row.get_ref(1)?).into_owned(),
        aggregate,
        payload: bytes(row.get_ref(7)?).map(Bytes::copy_from_slice),
        content_type: optional_text(row.get_ref(4)?),
        headers: headers::parse(row.get_ref(5)?),
        idempotency_key: optional_text(row.get_ref(6)?),
        attempts: attempts(row.get(2)?),
        enqueued_at: time::from_millis(row.get(3)?),
        held_back,
    }))
}

/// A choice of keys, made to be asked often.
enum Choice<'r> {
    Except(HashSet<(&'r str, &'r str)>),
    Only(HashSet<(&'r str, &'r str)>),
}

impl<'r> Choice<'r> {
    fn new(keys: &'r Keys) -> Self {
        let set = |keys: &'r [Key]| {
            keys.iter()
                .filter(|key| !key.aggregate_id().is_empty())
                .map(|key| (key.aggregate_type(), key.aggregate_id()))
                .collect()
        };
        match keys {
            Keys::Except(keys) => Self::Except(set(keys)),
            Keys::Only(keys) => Self::Only(set(keys)),
        }
    }

    fn has(&self, key: (&str, &str)) -> bool {
        match self {
            Self::Except(keys) => keys.is_empty() || !keys.contains(&key),
            Self::Only(keys) => keys.contains(&key),
        }
    }
}

pub(crate) fn message_id(value: ValueRef<'_>) -> Option<MessageId> {
    Uuid::try_parse_ascii(value.as_bytes().ok()?).ok().map(MessageId::from_stored)
}

/// A text; SQLite does not promise that it is UTF-8.
pub(crate) fn text(value: ValueRef<'_>) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default())
}

pub(crate) fn optional_text(value: ValueRef<'_>) -> Option<String> {
    (value != ValueRef::Null).then(|| text(value).into_owned())
}

/// A payload, as text or blob: its bytes as they are stored.
pub(crate) fn bytes(value: ValueRef<'_>) -> Option<&[u8]> {
    value.as_bytes().ok()
}

pub(crate) fn attempts(stored: i64) -> u32 {
    u32::try_from(stored).unwrap_or(if stored < 0 { 0 } else { u32::MAX })
}
