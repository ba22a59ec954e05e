//! Messages, and what became of them.

use std::collections::HashSet;
use std::time::Duration;

use posthaste::{
    Admin, DueRecords, Keys, Lane, LaneLease, LeaseRequest, MemoryStore, Message, MessageDetails, MessageId,
    Outcome, ReadRequest, Receipt, RecordRef, RelayId, Scan, SettleRequest, Settlement, State, Store,
};
use posthaste_testkit::{End, InvariantChecker, PublishLog, Violations};

use super::{TappedStore, gaps};

/// A message of a key.
pub(crate) fn keyed(key: impl ToString) -> Message {
    Message::new("tested").aggregate("key", key)
}

/// A message without a key.
pub(crate) fn loose() -> Message {
    Message::new("tested")
}

pub(crate) fn many(count: usize, message: impl Fn(usize) -> Message) -> Vec<Message> {
    (0..count).map(message).collect()
}

/// Enqueues messages in one transaction.
pub(crate) fn enqueue(store: &TappedStore, messages: &[Message]) -> Vec<Receipt> {
    let mut transaction = store.memory().begin();
    let receipts = transaction.enqueue_all(messages).expect("the messages are valid");
    transaction.commit();
    receipts
}

pub(crate) fn enqueue_one(store: &TappedStore, message: Message) -> MessageId {
    enqueue(store, &[message])[0].id()
}

/// Enqueues so many messages of a key.
#[expect(clippy::needless_pass_by_value, reason = "so that keys of any type can be given as they are")]
pub(crate) fn enqueue_key(store: &TappedStore, key: impl ToString, count: usize) -> Vec<MessageId> {
    let key = key.to_string();
    enqueue(store, &many(count, |_| keyed(&key))).iter().map(Receipt::id).collect()
}

/// Enqueues so many messages without a key.
pub(crate) fn enqueue_loose(store: &TappedStore, count: usize) -> Vec<MessageId> {
    enqueue(store, &many(count, |_| loose())).iter().map(Receipt::id).collect()
}

/// What is stored of a message.
pub(crate) fn stored(store: &MemoryStore, id: MessageId) -> MessageDetails {
    let all = store.messages();
    all.into_iter().find(|message| message.info.id == id).expect("the message is in the table")
}

pub(crate) fn state(store: &TappedStore, id: MessageId) -> State {
    stored(store.memory(), id).info.state
}

pub(crate) fn attempts(store: &TappedStore, id: MessageId) -> u32 {
    stored(store.memory(), id).info.attempts
}

pub(crate) fn last_error(store: &TappedStore, id: MessageId) -> Option<String> {
    stored(store.memory(), id).info.last_error
}

/// How many messages are in this state.
pub(crate) fn count(store: &TappedStore, state: State) -> usize {
    store.memory().messages().iter().filter(|message| message.info.state == state).count()
}

/// The times between the beginnings of the calls for a record.
pub(crate) fn waits(log: &PublishLog, id: MessageId) -> Vec<Duration> {
    let began: Vec<_> = log.calls_of(id).iter().map(|call| call.began).collect();
    gaps(&began)
}

/// In which order these were published.
pub(crate) fn came_out(log: &PublishLog, ids: &[MessageId]) -> Vec<MessageId> {
    let wanted: HashSet<_> = ids.iter().collect();
    log.published().into_iter().filter(|id| wanted.contains(id)).collect()
}

/// The records in the order in which their calls began, also those of calls that failed.
pub(crate) fn begun(log: &PublishLog) -> Vec<MessageId> {
    log.calls().iter().map(|call| call.id).collect()
}

/// How the calls for a record ended.
pub(crate) fn ends(log: &PublishLog, id: MessageId) -> Vec<Option<End>> {
    log.calls_of(id).iter().map(|call| call.end.map(|(end, _)| end)).collect()
}

/// What is wrong with the order and number of what was published.
pub(crate) fn violations(messages: &[Message], log: &PublishLog) -> Violations {
    let mut checker = InvariantChecker::default();
    messages.iter().for_each(|message| checker.committed(message));
    log.published().into_iter().for_each(|id| checker.published(id));
    checker.check()
}

/// Every message was published once, each key in order.
#[track_caller]
pub(crate) fn assert_exactly_once(messages: &[Message], log: &PublishLog) {
    let found = violations(messages, log);
    assert!(found.is_exactly_once(), "each once, in order: {found}");
}

/// Deletes a pending message of lane 0, as somebody might with SQL: there is no row left to settle.
pub(crate) async fn delete_by_hand(store: &TappedStore, id: MessageId) {
    let memory = store.memory();
    let from_start = Scan { lane: Lane(0), after: None, until: None, due: DueRecords::All };
    let read = ReadRequest {
        scans: vec![from_start],
        keys: Keys::Except(Vec::new()),
        in_hand: Vec::new(),
        max_rows: 1_000,
        max_per_key: 1_000,
        max_bytes: 1_000_000,
        max_scanned: 1_000,
    };
    let page = memory.read(&read).await.expect("the store works");
    let record = page.records.into_iter().find(|record| record.id == id).expect("it can be read");
    // The store lets only the owner of the lane write, so this does it in the owner's name.
    let relays = memory.stats(None).await.expect("the store works").relays;
    let owner = relays.iter().find(|relay| relay.lanes > 0).expect("a relay holds the lane");
    let relay = RelayId(owner.id.parse().expect("it is a UUID"));
    let token = token(memory, relay).await;
    let record = RecordRef { id, position: record.position, lane: record.lane, token };
    let settlements = vec![Settlement { record, outcome: Outcome::Processed }];
    let report = memory.settle(&SettleRequest { relay, delete_processed: true, settlements }).await;
    assert_eq!(report.expect("the store works").applied, 1, "the message is gone");
}

/// The token of lane 0.
async fn token(store: &MemoryStore, relay: RelayId) -> i64 {
    let (name, duration) = ("by hand".to_owned(), Duration::from_secs(10));
    let request = LeaseRequest { relay, name, duration, give_back: Vec::new() };
    let leases = store.lease(&request).await.expect("the store works");
    let is_first = |lease: &&LaneLease| lease.lane == Lane(0);
    leases.lanes.iter().find(is_first).expect("the relay holds the lane").token
}
