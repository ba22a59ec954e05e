//! Reading records: one round trip where there is nothing, and a few in one snapshot where there is something.

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use mysql_async::Row;
use mysql_async::prelude::FromValue;
use posthaste::{DueRecords, Error, Key, Keys, Lane, MessageId, Page, Position, ReadRequest, Record, Scan};
use uuid::Uuid;

use crate::connection::{Session, Use, get, get_uuid, nothing_came_back};
use crate::error::Failure;
use crate::page::{Filling, Need, Read};
use crate::store::Inner;
use crate::value::{
    Literal, attempts, bytes, created_ts, headers_from_json, int, lane, limit, list, position, system_time,
    time, uuid,
};

const DOING: &str = "reading";
/// Larger payloads are read by themselves, when it is clear that they fit into the page.
const LARGE: usize = 16 * 1024;
/// How many rows one statement names.
const CHUNK: usize = 500;
/// Of how many scans heads are read at a time.
const LANES_AT_A_TIME: usize = 16;
/// The fewest heads of a scan that are read at a time.
const LEAST_HEADS: usize = 32;
/// The fewest due rows of a lane that are looked at.
const LEAST_DUE: usize = 1_024;

/// What a lane has, as a probe has found it.
struct Probed {
    ready: bool,
    due: bool,
}

impl Inner {
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        if request.scans.is_empty() {
            return Ok(Page::default());
        }
        let mut session = self.session(Use::Read, DOING).await?;
        match self.read_in(&mut session, request).await {
            Ok((page, is_open)) => {
                // Whoever reads next waits for the end of the snapshot; the relay goes on at once.
                tokio::spawn(async move {
                    let ended = if is_open { session.ask("COMMIT").await.map(|_| ()) } else { Ok(()) };
                    if let Err(failure) = session.done(ended).await {
                        tracing::debug!(?failure, "a read's transaction ended badly");
                    }
                });
                Ok(page)
            }
            Err(failure) => {
                let failed = session.done(Err::<Page, _>(failure)).await;
                failed.map_err(|failure| self.error(DOING, failure))
            }
        }
    }

    /// Returns also whether a transaction was begun.
    async fn read_in(&self, session: &mut Session, request: &ReadRequest) -> Result<(Page, bool), Failure> {
        let mut filling = Filling::new(request);
        let probed = self.probe(session, request, &mut filling).await?;
        let has = |scan: &Scan| probed.get(&scan.lane).is_some_and(|it| it.ready || it.due);
        if !request.scans.iter().any(has) {
            return Ok((filling.page(HashMap::new()), false));
        }
        let lanes: HashSet<_> = request.scans.iter().filter(|scan| has(scan)).map(|scan| scan.lane).collect();
        let revisions = self.sql.revisions.bind(&[("lanes", list(lanes.iter().map(|lane| int(lane.0))))]);
        let rows = session.rows_of(&format!("{};{revisions}", self.sql.begin_read.text()), 2).await?;
        for row in &rows {
            let of_lane = lane(get(row, "lane")?);
            for (scan, _) in of_lane_in(request, of_lane) {
                filling.set_revision(scan, get(row, "revision")?);
                if probed.get(&of_lane).is_some_and(|it| it.ready) {
                    filling.open(scan);
                }
            }
        }
        let asks =
            |scan: &&Scan| scan.due != DueRecords::Skip && probed.get(&scan.lane).is_some_and(|it| it.due);
        let due: HashSet<_> = request.scans.iter().filter(asks).map(|scan| scan.lane).collect();
        if !due.is_empty() {
            self.read_due(session, request, &due, &mut filling).await?;
        }
        loop {
            match filling.walk() {
                Need::Nothing => break,
                Need::Heads(scans) => self.read_heads(session, request, &scans, &mut filling).await?,
                Need::Rows(positions) => {
                    let rows = self.read_rows(session, request, &positions).await?;
                    // What a snapshot has shown in the index is there.
                    if rows.is_empty() {
                        return Err(nothing_came_back());
                    }
                    filling.add_rows(rows);
                }
            }
        }
        let deferred = filling.take_due();
        let payloads = self.read_payloads(session, &deferred).await?;
        Ok((filling.page(payloads), true))
    }

    /// Finds out which lanes have something, by a statement of its own.
    async fn probe(
        &self,
        session: &mut Session,
        request: &ReadRequest,
        filling: &mut Filling<'_>,
    ) -> Result<BTreeMap<Lane, Probed>, Failure> {
        let lanes: HashSet<_> = request.scans.iter().map(|scan| scan.lane.0).collect();
        let probe = self.sql.probe.bind(&[("lanes", list(lanes.into_iter().map(int)))]);
        let (mut probed, mut held) = (BTreeMap::new(), Vec::new());
        for row in session.rows(&probe).await? {
            let of_lane = lane(get(&row, "lane")?);
            for (scan, _) in of_lane_in(request, of_lane) {
                filling.set_revision(scan, get(&row, "revision")?);
            }
            let ready = get::<Option<i64>>(&row, "ready")?.is_some();
            if get::<bool>(&row, "held")? {
                held.push(of_lane);
            }
            probed.insert(of_lane, Probed { ready, due: false });
        }
        held.retain(|lane| of_lane_in(request, *lane).any(|(_, scan)| scan.due != DueRecords::Skip));
        if !held.is_empty() {
            let arm = |lane: &Lane| self.sql.probe_due.bind(&[("lane", int(lane.0))]);
            let arms: Vec<_> = held.iter().map(arm).collect();
            for row in session.rows(&arms.join(" UNION ALL ")).await? {
                if let Some(lane) = probed.get_mut(&lane(get(&row, "lane")?)) {
                    lane.due = true;
                }
            }
        }
        Ok(probed)
    }

    /// Reads where the next rows of scans stand.
    async fn read_heads(
        &self,
        session: &mut Session,
        request: &ReadRequest,
        scans: &[usize],
        filling: &mut Filling<'_>,
    ) -> Result<(), Failure> {
        // A few lanes at a time: where there is much to read, they fill the page. Enough for it and for what is in hand.
        let scans = &scans[..scans.len().min(LANES_AT_A_TIME)];
        let in_hand = 2 * request.in_hand.len() / request.scans.len();
        let wanted = (request.max_rows.saturating_mul(2) / scans.len()).saturating_add(in_hand);
        let most = |filling: &Filling<'_>, scan: usize| {
            wanted.clamp(LEAST_HEADS, 4_096).min(filling.heads_left(scan))
        };
        let arm = |scan: &usize| {
            self.sql.heads.bind(&[
                ("scan", int(*scan as u64)),
                ("lane", int(request.scans[*scan].lane.0)),
                ("stretch", stretch(filling.behind(*scan), request.scans[*scan].until)),
                ("most", limit(most(filling, *scan))),
            ])
        };
        let arms: Vec<_> = scans.iter().map(arm).collect();
        let mut heads: HashMap<usize, Vec<Position>> = HashMap::new();
        for row in session.rows(&arms.join(" UNION ALL ")).await? {
            let place = position(get(&row, "created")?, get_uuid(&row, "id")?);
            heads.entry(get(&row, "scan")?).or_default().push(place);
        }
        for scan in scans {
            let mut found = heads.remove(scan).unwrap_or_default();
            // An arm is in order; that the union keeps it is not promised.
            found.sort_unstable();
            filling.add_heads(*scan, &found, most(filling, *scan));
        }
        Ok(())
    }

    /// Chooses the rows that were held back and are due.
    async fn read_due(
        &self,
        session: &mut Session,
        request: &ReadRequest,
        lanes: &HashSet<Lane>,
        filling: &mut Filling<'_>,
    ) -> Result<(), Failure> {
        let most = request.max_scanned.clamp(LEAST_DUE, 16_384);
        let arm = |of_lane: &Lane| {
            let values = [("scan", int(0)), ("lane", int(of_lane.0)), ("most", limit(most))];
            self.sql.due_heads.bind(&values)
        };
        let arms: Vec<_> = lanes.iter().map(arm).collect();
        let mut heads = Vec::new();
        for row in session.rows(&arms.join(" UNION ALL ")).await? {
            let place = position(get(&row, "created")?, get_uuid(&row, "id")?);
            heads.push((get::<i64>(&row, "since")?, place));
        }
        heads.sort_unstable();
        let heads: Vec<_> =
            heads.into_iter().map(|(_, place)| place).filter(|place| !filling.is_in_hand(*place)).collect();
        let mut seen: HashSet<u128> = heads.iter().map(|place| place.minor).collect();
        let mut found = Vec::new();
        for chunk in heads.chunks(filling.most_due().clamp(16, CHUNK)) {
            let rows = self.read_rows(session, request, chunk).await?;
            // However many rows of one key come before the row that holds them back: that row is found.
            let blockers: Vec<_> =
                rows.iter().filter_map(|row| row.blocker).filter(|it| seen.insert(*it)).collect();
            found.extend(rows.into_iter().filter(|row| filling.wants_due(row)));
            let blockers: Vec<_> = blockers.iter().map(|id| Position { major: 0, minor: *id }).collect();
            let rows = self.read_rows(session, request, &blockers).await?;
            let free = rows.into_iter().filter(|row| !filling.is_in_hand(row.record.position));
            found.extend(free.filter(|row| filling.wants_due(row)));
            if found.len() >= filling.most_due() {
                break;
            }
        }
        filling.hold(found);
        Ok(())
    }

    /// Reads rows by their ids.
    async fn read_rows(
        &self,
        session: &mut Session,
        request: &ReadRequest,
        positions: &[Position],
    ) -> Result<Vec<Read>, Failure> {
        let mut found = Vec::with_capacity(positions.len());
        for chunk in positions.chunks(CHUNK) {
            let (ids, from, until) = named(chunk);
            let values = [
                ("ids", ids),
                ("from", from),
                ("until", until),
                ("most", limit(LARGE)),
                ("wanted", wanted(&request.keys)),
            ];
            for row in session.rows(&self.sql.rows.bind(&values)).await? {
                found.push(to_read(row)?);
            }
        }
        Ok(found)
    }

    async fn read_payloads(
        &self,
        session: &mut Session,
        positions: &[Position],
    ) -> Result<HashMap<u128, Bytes>, Failure> {
        let mut payloads = HashMap::new();
        for chunk in positions.chunks(CHUNK) {
            let (ids, from, until) = named(chunk);
            let sql = self.sql.payloads.bind(&[("ids", ids), ("from", from), ("until", until)]);
            for mut row in session.rows(&sql).await? {
                let id = get_uuid(&row, "id")?;
                let payload: Vec<u8> = take(&mut row, 1)?;
                payloads.insert(id.as_u128(), Bytes::from(payload));
            }
        }
        Ok(payloads)
    }
}

/// The scans of a lane, with their places in the request.
fn of_lane_in(request: &ReadRequest, lane: Lane) -> impl Iterator<Item = (usize, &Scan)> {
    request.scans.iter().enumerate().filter(move |(_, scan)| scan.lane == lane)
}

/// Rows by their ids, and the stretch of `created_ts` in which they lie, by which partitions are left out.
fn named(positions: &[Position]) -> (Literal, Literal, Literal) {
    let ids = || positions.iter().map(|position| Uuid::from_u128(position.minor));
    let times = || ids().map(created_ts);
    let (from, until) = (times().min().unwrap_or_default(), times().max().unwrap_or_default());
    (list(ids().map(uuid)), int(from), int(until))
}

/// The condition that a row lies behind one position, and not behind another.
fn stretch(after: Option<Position>, until: Option<Position>) -> Literal {
    let mut conditions = vec!["TRUE".to_owned()];
    if let Some(after) = after.filter(|after| after.major >= 0) {
        let Some(at) = stored(after.major) else { return Literal::made("FALSE".to_owned()) };
        let (at, id) = (at.as_sql(), bytes(&after.minor.to_be_bytes()));
        conditions.push(format!("t.created_at >= {at} AND (t.created_at > {at} OR t.id > {})", id.as_sql()));
    }
    if let Some(until) = until {
        if until.major < 0 {
            return Literal::made("FALSE".to_owned());
        }
        if let Some(at) = stored(until.major) {
            let (at, id) = (at.as_sql(), bytes(&until.minor.to_be_bytes()));
            conditions
                .push(format!("t.created_at <= {at} AND (t.created_at < {at} OR t.id <= {})", id.as_sql()));
        }
    }
    Literal::made(conditions.join(" AND "))
}

/// A time that the column can hold; every stored one is earlier than what it cannot.
fn stored(micros: i64) -> Option<Literal> {
    /// The end of TIMESTAMP on all servers but the newest, which none of them comes near to.
    const LATEST: i64 = 2_147_483_647_999_999;
    (micros <= LATEST).then(|| time(micros))
}

/// The condition that a row's key is asked for, by which payloads are spared. It may say so of too many or too few where a
/// column is in another character set: what counts is decided later.
fn wanted(keys: &Keys) -> Literal {
    let (Keys::Except(listed) | Keys::Only(listed)) = keys;
    if listed.is_empty() {
        return Literal::made("TRUE".to_owned());
    }
    let pair = |key: &Key| {
        let (of_type, id) = (bytes(key.aggregate_type().as_bytes()), bytes(key.aggregate_id().as_bytes()));
        Literal::made(format!("({},{})", of_type.as_sql(), id.as_sql()))
    };
    let not = if matches!(keys, Keys::Except(_)) { "NOT " } else { "" };
    Literal::made(format!(
        "(CAST(t.aggregate_type AS BINARY), CAST(t.aggregate_id AS BINARY)) {not}IN ({})",
        list(listed.iter().map(pair)).as_sql()
    ))
}

/// The columns of rows.sql, by their places.
fn to_read(mut row: Row) -> Result<Read, Failure> {
    let id = get_uuid(&row, "id")?;
    let created: i64 = take(&mut row, 3)?;
    let since: Option<i64> = take(&mut row, 4)?;
    let is_due: bool = take(&mut row, 5)?;
    let (event_type, aggregate_type, aggregate_id): (String, String, String) =
        (take(&mut row, 6)?, take(&mut row, 7)?, take(&mut row, 8)?);
    let headers: Option<Vec<u8>> = take(&mut row, 10)?;
    let tombstone: bool = take(&mut row, 13)?;
    let bytes: Option<usize> = take(&mut row, 14)?;
    let blocker: Option<Vec<u8>> = take(&mut row, 15)?;
    let payload: Option<Vec<u8>> = take(&mut row, 16)?;
    let status: i64 = take(&mut row, 1)?;
    let record = Record {
        id: MessageId::from_stored(id),
        lane: lane(take(&mut row, 2)?),
        position: position(created, id),
        event_type,
        aggregate: Key::new(&aggregate_type, &aggregate_id),
        payload: payload.filter(|_| !tombstone).map(Bytes::from),
        content_type: take(&mut row, 9)?,
        headers: headers_from_json(headers.as_deref()),
        idempotency_key: take(&mut row, 11)?,
        attempts: attempts(take(&mut row, 12)?),
        enqueued_at: system_time(created),
        held_back: false,
    };
    Ok(Read {
        bytes: if tombstone { 0 } else { bytes.unwrap_or_default() },
        deferred: !tombstone && record.payload.is_none(),
        blocker: blocker.and_then(|id| Uuid::from_slice(&id).ok()).map(|id| id.as_u128()),
        due: is_due && status == 0,
        since: since.unwrap_or_default(),
        record,
    })
}

fn take<T: FromValue>(row: &mut Row, place: usize) -> Result<T, Failure> {
    row.take_opt::<T, _>(place).and_then(Result::ok).ok_or_else(|| {
        let text =
            format!("reading: the database answered with a value in place {place} that cannot be read");
        Failure::Ours(Error::new(posthaste::ErrorKind::Database, text))
    })
}
