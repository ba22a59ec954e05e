//! What the behaviours are written with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use posthaste::{
    BeginAttempt, Error, ErrorKind, Key, Keys, Lane, LaneLease, LeaseRequest, Leases, Message,
    MessageDetails, MessageId, Outcome, Page, Position, ReadRequest, Record, RecordRef, RelayId, Scan,
    SettleReport, SettleRequest, Settlement, Store,
};

use super::fixture::StoreFixture;

/// Long enough that nothing timed by it ends because a test is slow.
pub(super) const LONG: Duration = Duration::from_mins(30);
/// Much longer than [`LONG`].
pub(super) const VERY_LONG: Duration = Duration::from_hours(6);

/// A message without a key. The event type serves as a label by which the behaviours tell messages apart.
pub(super) fn loose(label: &str) -> Message {
    Message::new(label).payload(format!("\"{label}\""))
}

/// A payload of so many bytes that every outbox takes as it is: a JSON text.
pub(super) fn bytes(count: usize) -> String {
    format!("\"{}\"", "x".repeat(count - 2))
}

/// A message with a key.
pub(super) fn keyed(key: &str, label: &str) -> Message {
    loose(label).aggregate("thing", key)
}

/// The key of [`keyed`].
pub(super) fn key(key: &str) -> Key {
    Key::new("thing", key)
}

/// Enqueues messages one by one in one transaction, and commits.
pub(super) async fn enqueue(f: &dyn StoreFixture, messages: &[Message]) -> Vec<MessageId> {
    let mut transaction = f.begin().await;
    let mut ids = Vec::new();
    for message in messages {
        ids.push(ok(transaction.enqueue(message).await, "enqueue"));
    }
    transaction.commit().await;
    ids
}

/// Enqueues messages in one call and one transaction, and commits.
pub(super) async fn enqueue_all(f: &dyn StoreFixture, messages: &[Message]) -> Vec<MessageId> {
    let mut transaction = f.begin().await;
    let ids = ok(transaction.enqueue_all(messages).await, "enqueue_all");
    transaction.commit().await;
    ids
}

/// Takes a result that must be a success.
#[track_caller]
pub(super) fn ok<T>(result: Result<T, Error>, what: &str) -> T {
    result.unwrap_or_else(|error| panic!("{what} failed: {error:?}"))
}

/// Takes a result that must be an error of a kind.
#[track_caller]
pub(super) fn refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind, what: &str) {
    match result {
        Ok(value) => panic!("{what} must be refused with {kind:?}, but gave {value:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{what} was refused with another error: {error:?}"),
    }
}

/// A request for all lanes from their start, with whatever is due, and no bound that matters.
pub(super) fn everything(f: &dyn StoreFixture) -> ReadRequest {
    ReadRequest {
        scans: (0..f.lanes()).map(|lane| scan(Lane(lane))).collect(),
        keys: Keys::Except(Vec::new()),
        in_hand: Vec::new(),
        max_rows: 100_000,
        max_per_key: 100_000,
        max_bytes: 1 << 30,
        max_scanned: 100_000,
    }
}

/// The same for one lane.
pub(super) fn in_lane(f: &dyn StoreFixture, lane: Lane) -> ReadRequest {
    ReadRequest { scans: vec![scan(lane)], ..everything(f) }
}

/// A lane from its start to its end, with whatever is due.
pub(super) fn scan(lane: Lane) -> Scan {
    Scan { lane, after: None, until: None, due: posthaste::DueRecords::All }
}

/// Reads, and checks what holds for every page.
pub(super) async fn read(store: &Arc<dyn Store>, request: &ReadRequest) -> Page {
    let page = ok(store.read(request).await, "read");
    check_page(request, &page);
    page
}

/// Reads everything that can be read.
pub(super) async fn read_all(f: &dyn StoreFixture) -> Vec<Record> {
    read(&f.store(), &everything(f)).await.records
}

#[track_caller]
fn check_page(request: &ReadRequest, page: &Page) {
    assert_eq!(page.reached.len(), request.scans.len(), "every scan must say how far it came");
    assert!(page.records.len() <= request.max_rows.max(1), "a page holds at most max_rows records");
    let mut last: BTreeMap<Lane, Position> = BTreeMap::new();
    for record in &page.records {
        let scans: Vec<_> = request.scans.iter().filter(|scan| scan.lane == record.lane).collect();
        assert!(
            !scans.is_empty(),
            "{} lies in {:?}, which was not asked for",
            record.event_type,
            record.lane
        );
        assert!(!request.in_hand.contains(&record.position), "{} is in hand", record.event_type);
        assert!(
            record.held_back || scans.iter().any(|scan| contains(scan, record.position)),
            "{} lies outside of the stretch that was asked for",
            record.event_type
        );
        let before = last.insert(record.lane, record.position);
        assert!(
            before < Some(record.position),
            "within a lane, records must stand in order of position, each once: {:?}",
            labels(&page.records)
        );
    }
}

fn contains(scan: &Scan, position: Position) -> bool {
    scan.after.is_none_or(|after| position > after) && scan.until.is_none_or(|until| position <= until)
}

/// The labels of records, in their order.
pub(super) fn labels(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.event_type.as_str()).collect()
}

/// The labels of records, sorted.
pub(super) fn label_set(records: &[Record]) -> BTreeSet<&str> {
    labels(records).into_iter().collect()
}

/// The labels of the records of one key, in their order.
pub(super) fn labels_of<'a>(records: &'a [Record], key: &str) -> Vec<&'a str> {
    let of_key = records.iter().filter(|record| record.aggregate.aggregate_id() == key);
    of_key.map(|record| record.event_type.as_str()).collect()
}

/// The record with a label, which must be there.
#[track_caller]
pub(super) fn find<'a>(records: &'a [Record], label: &str) -> &'a Record {
    let found = records.iter().find(|record| record.event_type == label);
    found.unwrap_or_else(|| panic!("{label} must be readable, but read was {:?}", labels(records)))
}

/// Reads everything and takes the record with a label, which must be there.
pub(super) async fn find_now(f: &dyn StoreFixture, label: &str) -> Record {
    find(&read_all(f).await, label).clone()
}

/// Shows a message, which must be there.
pub(super) async fn show(f: &dyn StoreFixture, id: MessageId) -> MessageDetails {
    ok(f.admin().show(id).await, "show").unwrap_or_else(|| panic!("message {id} must be there"))
}

/// Whether a message is there.
pub(super) async fn exists(f: &dyn StoreFixture, id: MessageId) -> bool {
    ok(f.admin().show(id).await, "show").is_some()
}

/// So many keys that fall into the same lane.
pub(super) async fn keys_in_one_lane(f: &dyn StoreFixture, count: usize) -> Vec<String> {
    // With one more than `count - 1` a lane, some lane must have `count`.
    let probes = usize::from(f.lanes()) * (count - 1) + 1;
    let messages: Vec<_> = (0..probes).map(|n| keyed(&format!("k{n}"), "probe")).collect();
    enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    let settlements: Vec<_> = records.iter().map(|record| (record, Outcome::Processed)).collect();
    let request = SettleRequest { delete_processed: true, ..relay.request(&settlements) };
    ok(f.store().settle(&request).await, "settle");
    relay.leave().await;
    let mut by_lane: BTreeMap<Lane, Vec<String>> = BTreeMap::new();
    for record in &records {
        by_lane.entry(record.lane).or_default().push(record.aggregate.aggregate_id().to_owned());
    }
    let mut keys = by_lane.into_values().find(|keys| keys.len() >= count).unwrap_or_default();
    keys.truncate(count);
    keys
}

/// A relay as the store sees it.
pub(super) struct Relay {
    pub(super) id: RelayId,
    pub(super) store: Arc<dyn Store>,
    /// What it holds since its last call of [`renew`](Self::renew).
    pub(super) lanes: BTreeMap<Lane, LaneLease>,
    pub(super) duration: Duration,
}

impl Relay {
    /// A relay that holds nothing yet.
    pub(super) fn on(store: Arc<dyn Store>) -> Self {
        Self { id: RelayId::random(), store, lanes: BTreeMap::new(), duration: LONG }
    }

    /// A relay that has taken what it could get.
    pub(super) async fn join(f: &dyn StoreFixture) -> Self {
        let mut relay = Self::on(f.store());
        relay.renew().await;
        relay
    }

    pub(super) async fn renew(&mut self) -> Leases {
        self.give_back(&[]).await
    }

    /// Renews and gives lanes back.
    pub(super) async fn give_back(&mut self, lanes: &[Lane]) -> Leases {
        let request = LeaseRequest {
            relay: self.id,
            name: "conformance".into(),
            duration: self.duration,
            give_back: lanes.to_vec(),
        };
        let leases = ok(self.store.lease(&request).await, "lease");
        let held: BTreeMap<_, _> = leases.lanes.iter().map(|lease| (lease.lane, *lease)).collect();
        assert_eq!(held.len(), leases.lanes.len(), "a lane is listed once: {:?}", leases.lanes);
        assert!(held.len() <= leases.total, "no more lanes than there are");
        self.lanes = held;
        leases
    }

    pub(super) async fn leave(&self) {
        ok(self.store.leave(self.id).await, "leave");
    }

    pub(super) fn held(&self) -> BTreeSet<Lane> {
        self.lanes.keys().copied().collect()
    }

    /// How this relay names a record. It must hold, or have held, its lane.
    pub(super) fn names(&self, record: &Record) -> RecordRef {
        let lease = self.lanes.get(&record.lane);
        let token = lease.unwrap_or_else(|| panic!("the relay must hold {:?}", record.lane)).token;
        RecordRef { id: record.id, position: record.position, lane: record.lane, token }
    }

    pub(super) fn request(&self, outcomes: &[(&Record, Outcome)]) -> SettleRequest {
        let settlement = |(record, outcome): &(&Record, Outcome)| Settlement {
            record: self.names(record),
            outcome: outcome.clone(),
        };
        let settlements = outcomes.iter().map(settlement).collect();
        SettleRequest { relay: self.id, delete_processed: false, settlements }
    }

    /// Settles, and returns the report, whose counts must add up.
    pub(super) async fn try_settle(&self, outcomes: &[(&Record, Outcome)]) -> SettleReport {
        let report = ok(self.store.settle(&self.request(outcomes)).await, "settle");
        check_sum(&report, outcomes.len());
        report
    }

    /// Settles one record, which must succeed.
    pub(super) async fn settle(&self, record: &Record, outcome: Outcome) {
        let report = self.try_settle(&[(record, outcome.clone())]).await;
        assert_eq!(report.applied, 1, "{outcome:?} of {} must be written: {report:?}", record.event_type);
    }

    /// Settles the record with this label, which must be readable.
    pub(super) async fn settle_now(&self, f: &dyn StoreFixture, label: &str, outcome: Outcome) {
        self.settle(&find_now(f, label).await, outcome).await;
    }

    pub(super) async fn begin_attempt(&self, record: &Record, attempts: u32) -> bool {
        let attempt = BeginAttempt { relay: self.id, record: self.names(record), attempts };
        ok(self.store.begin_attempt(&attempt).await, "begin_attempt")
    }
}

#[track_caller]
pub(super) fn check_sum(report: &SettleReport, settlements: usize) {
    let sum = report.applied + report.stale + report.gone;
    assert_eq!(sum, settlements, "applied, stale and gone must add up to the settlements: {report:?}");
}

pub(super) fn retry(after: Duration) -> Outcome {
    Outcome::Retry { after, attempts: 1, error: "broker said no".into() }
}

pub(super) fn dead(park: bool) -> Outcome {
    Outcome::Dead { attempts: 5, error: "given up".into(), park }
}

/// Makes the message with this label dead, whose key is parked or goes on. It must be readable.
pub(super) async fn kill(f: &dyn StoreFixture, label: &str, park: bool) {
    let relay = Relay::join(f).await;
    relay.settle_now(f, label, dead(park)).await;
    relay.leave().await;
}
