//! Reading records: one round trip, with all that a page holds seen in one snapshot.
//!
//! Where the last read found little, a probe goes before it: that costs less than a page in which most lanes are empty.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;

use bytes::Bytes;
use posthaste::{DueRecords, Error, Key, Keys, Lane, Page, Position, ReadRequest, Scan};
use uuid::Uuid;

use crate::connection::{Session, Use, get, get_uuid, nothing_came_back};
use crate::error::Failure;
use crate::page::{Filling, Looked, Place, Sight};
use crate::row::{take, to_due, to_place};
use crate::store::Inner;
use crate::value::{Literal, bytes, created_ts, int, lane, limit, list, time, uuid};

const DOING: &str = "reading";
/// Larger payloads are read by themselves, when it is clear that they fit into the page.
const LARGE: usize = 16 * 1024;
/// How many rows one statement names.
const CHUNK: usize = 500;
/// The most scans that one statement reads.
const SCANS: usize = 128;
/// The fewest due rows of a lane that are looked at, at first and before a page is left without.
const LEAST_DUE: usize = 32;
const ENOUGH_DUE: usize = 1_024;
const MOST_DUE: usize = 16_384;

/// What a lane has, as a probe has found it.
struct Probed {
    revision: i64,
    ready: bool,
    due: bool,
}

impl Inner {
    pub(crate) async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        if request.scans.is_empty() {
            return Ok(Page::default());
        }
        let mut session = self.session(Use::Read, DOING).await?;
        let read = self.read_in(&mut session, request).await;
        let page = session.done(read).await.map_err(|failure| self.error(DOING, failure))?;
        self.reads_find_much.store(page.records.len() >= request.scans.len(), Ordering::Relaxed);
        Ok(page)
    }

    async fn read_in(&self, session: &mut Session, request: &ReadRequest) -> Result<Page, Failure> {
        let mut scope = Scope { scans: (0..request.scans.len()).collect(), due: BTreeSet::new() };
        if request.scans.len() > SCANS || !self.reads_find_much.load(Ordering::Relaxed) {
            let probed = self.probe(session, request).await?;
            scope.narrow(request, &probed);
            if scope.is_empty() {
                let mut filling = Filling::new(request, Sight { rows: 0, due: 0 });
                filling.set_revisions(|lane| probed.get(&lane).map(|it| it.revision));
                return Ok(filling.page(HashMap::new()));
            }
        }
        let left = scope.scans.split_off(scope.scans.len().min(SCANS));
        // What is passed over may fill the page: then look further, in a new snapshot and so from the start.
        let (near, far) = sights(request);
        let mut filling = self.see(session, request, &mut scope, near).await?;
        if filling.is_short() && near != far {
            filling = self.see(session, request, &mut scope, far).await?;
        }
        filling.leave(&left);
        let deferred = filling.take_due();
        let payloads = self.read_payloads(session, &deferred).await?;
        Ok(filling.page(payloads))
    }

    /// Finds out which lanes have something, by a statement of its own.
    async fn probe(
        &self,
        session: &mut Session,
        request: &ReadRequest,
    ) -> Result<BTreeMap<Lane, Probed>, Failure> {
        let lanes: BTreeSet<_> = request.scans.iter().map(|scan| scan.lane).collect();
        let probe = self.sql.probe.bind(&[("lanes", lanes_of(lanes))]);
        let (mut probed, mut held) = (BTreeMap::new(), Vec::new());
        for row in session.rows(&probe).await? {
            let of_lane = lane(get(&row, "lane")?);
            let ready = get::<Option<i64>>(&row, "ready")?.is_some();
            if get::<bool>(&row, "held")? {
                held.push(of_lane);
            }
            probed.insert(of_lane, Probed { revision: get(&row, "revision")?, ready, due: false });
        }
        held.retain(|lane| asks_for_due(request, *lane));
        if !held.is_empty() {
            for of_lane in self.probe_due(session, &held).await? {
                if let Some(lane) = probed.get_mut(&of_lane) {
                    lane.due = true;
                }
            }
        }
        Ok(probed)
    }

    /// Which of these lanes hold back something that is due.
    async fn probe_due(&self, session: &mut Session, lanes: &[Lane]) -> Result<Vec<Lane>, Failure> {
        let arms = lanes.iter().map(|lane| self.sql.probe_due.bind(&[("lane", int(lane.0))]));
        let rows = session.rows(&arms.collect::<Vec<_>>().join(" UNION ALL ")).await?;
        rows.iter().map(|row| Ok(lane(get(row, "lane")?))).collect()
    }

    /// Looks at the table in one snapshot, and in another one if that shows that more is due than was known.
    async fn see<'a>(
        &self,
        session: &mut Session,
        request: &'a ReadRequest,
        scope: &mut Scope,
        sight: Sight,
    ) -> Result<Filling<'a>, Failure> {
        let seen = self.see_once(session, request, scope, sight).await?;
        let asks = |lane: &Lane| asks_for_due(request, *lane) && !scope.due.contains(lane);
        let held: Vec<_> = seen.held.iter().copied().filter(asks).collect();
        let due = if held.is_empty() { Vec::new() } else { self.probe_due(session, &held).await? };
        let seen = if due.is_empty() {
            seen
        } else {
            scope.due.extend(due);
            self.see_once(session, request, scope, sight).await?
        };
        let mut filling = Filling::new(request, sight);
        filling.set_revisions(|lane| seen.revisions.get(&lane).copied());
        filling.hold(seen.due);
        filling.fill(&scope.scans, seen.ready);
        Ok(filling)
    }

    async fn see_once(
        &self,
        session: &mut Session,
        request: &ReadRequest,
        scope: &Scope,
        sight: Sight,
    ) -> Result<Seen, Failure> {
        let statements = self.page_statements(request, scope, sight).join(";");
        let sql = format!("{};{statements};COMMIT", self.sql.begin_read.text());
        // Before them answer the two that begin the transaction.
        let mut answers = session.ask(&sql).await?.into_iter().skip(2);
        let mut next = || Ok::<_, Failure>(answers.next().ok_or_else(nothing_came_back)?.rows);
        let mut seen = Seen::default();
        for row in next()? {
            let of_lane = lane(get(&row, "lane")?);
            seen.revisions.insert(of_lane, get(&row, "revision")?);
            if get::<bool>(&row, "held")? {
                seen.held.push(of_lane);
            }
        }
        if !scope.scans.is_empty() {
            seen.ready = next()?.into_iter().map(to_place).collect::<Result<_, _>>()?;
        }
        if !scope.due.is_empty() {
            seen.due = next()?.into_iter().map(to_due).collect::<Result<_, _>>()?;
        }
        Ok(seen)
    }

    /// The statements that look: at the lanes, at what is ready, and at what is due, the last two where that is asked for.
    fn page_statements(&self, request: &ReadRequest, scope: &Scope, sight: Sight) -> Vec<String> {
        let lanes: BTreeSet<_> = request.scans.iter().map(|scan| scan.lane).collect();
        let mut statements = vec![self.sql.read_lanes.bind(&[("lanes", lanes_of(lanes))])];
        let of_ready = scope.scans.len().saturating_mul(sight.rows);
        let seen = of_ready.saturating_add(scope.due.len().saturating_mul(sight.due)).max(1);
        let largest = ("largest", limit((request.max_bytes / seen).min(LARGE)));
        let wanted = ("wanted", wanted(&request.keys));
        if !scope.scans.is_empty() {
            let arms = scope.scans.iter().map(|scan| {
                let Scan { lane, after, until, .. } = request.scans[*scan];
                self.sql.page_arm.bind(&[
                    ("scan", int(*scan as u64)),
                    ("lane", int(lane.0)),
                    ("stretch", stretch(after, until)),
                    ("most", limit(sight.rows)),
                ])
            });
            // A list must not be empty; no id is.
            let in_hand = request.in_hand.iter().map(|position| bytes(&position.minor.to_be_bytes()));
            let in_hand = list(in_hand.chain([bytes(b"")]));
            let values = [("arms", union(arms)), ("in_hand", in_hand), largest.clone(), wanted.clone()];
            statements.push(self.sql.page.bind(&values));
        }
        if !scope.due.is_empty() {
            let most = ("most", limit(sight.due));
            let arm = |lane: &Lane| self.sql.due_arm.bind(&[("lane", int(lane.0)), most.clone()]);
            let values = [("arms", union(scope.due.iter().map(arm))), largest, wanted];
            statements.push(self.sql.due.bind(&values));
        }
        statements
    }

    /// Reads payloads that were left out. Of a record that is not there any more there is none: somebody settled it.
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

/// What a read looks at.
struct Scope {
    /// The scans whose lanes may have something ready, by their places in the request.
    scans: Vec<usize>,
    /// The lanes of which due rows are read.
    due: BTreeSet<Lane>,
}

impl Scope {
    fn narrow(&mut self, request: &ReadRequest, probed: &BTreeMap<Lane, Probed>) {
        self.scans.retain(|scan| probed.get(&request.scans[*scan].lane).is_some_and(|it| it.ready));
        self.due = probed.iter().filter(|(_, it)| it.due).map(|(lane, _)| *lane).collect();
    }

    fn is_empty(&self) -> bool {
        self.scans.is_empty() && self.due.is_empty()
    }
}

/// What a look has seen.
#[derive(Default)]
struct Seen {
    revisions: BTreeMap<Lane, i64>,
    /// Lanes that hold something back.
    held: Vec<Lane>,
    ready: Vec<Place>,
    due: Vec<Looked>,
}

/// How much to look at, at first and where that brings too little.
fn sights(request: &ReadRequest) -> (Sight, Sight) {
    let enough = request.max_rows.saturating_add(request.max_rows / 8).saturating_add(64);
    let scanned = request.max_scanned.saturating_add(1);
    let near = Sight { rows: enough.saturating_add(request.in_hand.len()).min(scanned), due: LEAST_DUE };
    (near, Sight { rows: scanned, due: request.max_scanned.clamp(ENOUGH_DUE, MOST_DUE) })
}

/// Whether due rows of a lane are asked for.
fn asks_for_due(request: &ReadRequest, lane: Lane) -> bool {
    request.scans.iter().any(|scan| scan.lane == lane && scan.due != DueRecords::Skip)
}

fn lanes_of(lanes: impl IntoIterator<Item = Lane>) -> Literal {
    list(lanes.into_iter().map(|lane| int(lane.0)))
}

fn union(arms: impl Iterator<Item = String>) -> Literal {
    Literal::made(arms.collect::<Vec<_>>().join(" UNION ALL "))
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
