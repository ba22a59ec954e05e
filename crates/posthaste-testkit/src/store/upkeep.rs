//! Tidying up, by one relay at a time.

use std::time::Duration;

use posthaste::{ErrorKind, MessageId, Outcome, RelayId, UpkeepReport, UpkeepRequest};

use super::fixture::StoreFixture;
use super::support::{
    LONG, Relay, VERY_LONG, dead, enqueue, enqueue_all, exists, find, keyed, loose, ok, read_all, refused,
    retry,
};

const DAY: Duration = Duration::from_hours(24);

fn request(relay: RelayId) -> UpkeepRequest {
    UpkeepRequest {
        relay,
        lease: LONG,
        keep_processed: Some(DAY),
        keep_keys: Some(DAY),
        keep_inbox: Some(DAY),
        limit: 1_000,
    }
}

async fn tidy_up(f: &dyn StoreFixture, request: &UpkeepRequest) -> UpkeepReport {
    ok(f.store().upkeep(request).await, "upkeep")
}

/// Enqueues messages and settles them all as processed.
async fn processed(f: &dyn StoreFixture, count: usize) -> Vec<MessageId> {
    let messages: Vec<_> = (0..count).map(|n| keyed(&format!("k{n}"), "done")).collect();
    let ids = enqueue_all(f, &messages).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    let settled: Vec<_> = records
        .iter()
        .filter(|record| record.event_type == "done")
        .map(|record| (record, Outcome::Processed))
        .collect();
    assert_eq!(relay.try_settle(&settled).await.applied, count);
    relay.leave().await;
    ids
}

async fn count_of(f: &dyn StoreFixture, ids: &[MessageId]) -> usize {
    let mut count = 0;
    for id in ids {
        count += usize::from(exists(f, *id).await);
    }
    count
}

pub async fn old_processed_records_are_purged(f: &dyn StoreFixture) {
    let old = processed(f, 5).await;
    f.advance(DAY + LONG).await;
    let young = processed(f, 3).await;
    f.advance(LONG).await;
    let report = tidy_up(f, &request(RelayId::random())).await;
    assert_eq!((report.ours, report.purged, report.more), (true, 5, false), "{report:?}");
    assert_eq!((count_of(f, &old).await, count_of(f, &young).await), (0, 3));
}

/// Age counts from when a message was processed, not from when it was enqueued.
pub async fn a_record_processed_late_is_kept_as_long_as_any(f: &dyn StoreFixture) {
    let id = enqueue(f, &[loose("l1")]).await[0];
    f.advance(DAY * 3).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "l1", Outcome::Processed).await;
    f.advance(DAY / 2).await;
    assert_eq!(tidy_up(f, &request(relay.id)).await.purged, 0);
    assert!(exists(f, id).await, "it was processed half a day ago");
    f.advance(DAY).await;
    assert_eq!(tidy_up(f, &request(relay.id)).await.purged, 1);
}

pub async fn what_is_not_processed_is_never_purged_by_upkeep(f: &dyn StoreFixture) {
    let messages = [
        loose("ready"),
        loose("delayed").delay(DAY * 1_000),
        keyed("a", "retry"),
        keyed("a", "blocked"),
        keyed("b", "parked"),
        keyed("b", "behind"),
        loose("dead"),
    ];
    let ids = enqueue(f, &messages).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    relay.settle(find(&records, "retry"), retry(DAY * 500)).await;
    relay.settle(find(&records, "parked"), dead(true)).await;
    relay.settle(find(&records, "dead"), dead(false)).await;
    f.advance(DAY * 100).await;
    let request = UpkeepRequest { keep_processed: Some(Duration::ZERO), ..request(relay.id) };
    assert_eq!(tidy_up(f, &request).await.purged, 0);
    assert_eq!(count_of(f, &ids).await, ids.len(), "all of them are still there");
}

pub async fn processed_records_can_be_kept_for_ever(f: &dyn StoreFixture) {
    let ids = processed(f, 3).await;
    f.advance(DAY * 1_000).await;
    let keep = UpkeepRequest {
        keep_processed: None,
        keep_keys: None,
        keep_inbox: None,
        ..request(RelayId::random())
    };
    let report = tidy_up(f, &keep).await;
    assert_eq!(report, UpkeepReport { ours: true, ..UpkeepReport::default() });
    assert_eq!(count_of(f, &ids).await, 3);
    let most = Some(Duration::MAX);
    let longer =
        UpkeepRequest { keep_processed: most, keep_keys: most, keep_inbox: most, limit: usize::MAX, ..keep };
    assert_eq!(tidy_up(f, &longer).await.purged, 0, "the longest time and the largest limit are no trouble");
}

pub async fn a_purge_is_bounded_and_says_that_there_is_more(f: &dyn StoreFixture) {
    let ids = processed(f, 25).await;
    f.advance(DAY + LONG).await;
    let request = UpkeepRequest { limit: 10, ..request(RelayId::random()) };
    let mut purged = Vec::new();
    for _ in 0..3 {
        let report = tidy_up(f, &request).await;
        purged.push((report.purged, report.more));
    }
    assert_eq!(purged, [(10, true), (10, true), (5, false)]);
    assert_eq!(count_of(f, &ids).await, 0);
    assert!(!tidy_up(f, &request).await.more);
}

pub async fn one_relay_at_a_time_does_the_upkeep(f: &dyn StoreFixture) {
    let (first, second) = (RelayId::random(), RelayId::random());
    assert!(tidy_up(f, &request(first)).await.ours);
    let ids = processed(f, 2).await;
    f.advance(DAY * 2).await;
    assert!(tidy_up(f, &request(first)).await.ours, "the same one may go on");
    processed(f, 1).await;
    let report = tidy_up(f, &request(second)).await;
    assert_eq!(report, UpkeepReport::default(), "another one does nothing meanwhile");
    assert_eq!(count_of(f, &ids).await, 0);
}

pub async fn the_upkeep_passes_on_when_its_lease_is_over(f: &dyn StoreFixture) {
    let (first, second) = (RelayId::random(), RelayId::random());
    assert!(tidy_up(f, &request(first)).await.ours);
    f.advance(LONG * 3 / 4).await;
    assert!(tidy_up(f, &request(first)).await.ours, "each call renews the lease");
    f.advance(LONG * 3 / 4).await;
    assert!(!tidy_up(f, &request(second)).await.ours, "it was renewed");
    f.advance(LONG / 2).await;
    assert!(tidy_up(f, &request(second)).await.ours, "now it is over");
    assert!(!tidy_up(f, &request(first)).await.ours, "and the first one has to wait in turn");
}

pub async fn the_upkeep_is_free_at_once_when_its_relay_leaves(f: &dyn StoreFixture) {
    let first = Relay::join(f).await;
    assert!(tidy_up(f, &request(first.id)).await.ours);
    first.leave().await;
    assert!(tidy_up(f, &request(RelayId::random())).await.ours);
}

pub async fn the_upkeep_of_two_relays_at_once_is_one_relays(f: &dyn StoreFixture) {
    for _ in 0..5 {
        let tasks: Vec<_> = [f.store(), f.second().await]
            .into_iter()
            .map(|store| tokio::spawn(async move { store.upkeep(&request(RelayId::random())).await }))
            .collect();
        let mut ours = 0;
        for task in tasks {
            let report = task.await.unwrap_or_else(|error| panic!("the task failed: {error}"));
            ours += usize::from(ok(report, "upkeep").ours);
        }
        assert_eq!(ours, 1, "exactly one of two does it");
        f.advance(LONG * 2).await;
    }
}

pub async fn the_upkeep_holds_no_lane(f: &dyn StoreFixture) {
    assert!(tidy_up(f, &request(RelayId::random())).await.ours);
    let relay = Relay::join(f).await;
    assert_eq!(relay.held().len(), usize::from(f.lanes()), "all lanes are free");
    let stats = ok(f.admin().stats(None).await, "stats");
    assert_eq!((stats.lanes_total, stats.lanes_leased), (usize::from(f.lanes()), usize::from(f.lanes())));
}

pub async fn old_idempotency_keys_are_purged(f: &dyn StoreFixture) {
    let with_key = |label: &str| loose(label).idempotency_key(label);
    enqueue(f, &[with_key("old1"), with_key("old2")]).await;
    f.advance(DAY + LONG).await;
    enqueue(f, &[with_key("young")]).await;
    let report = tidy_up(f, &request(RelayId::random())).await;
    assert_eq!((report.keys_purged, report.purged, report.more), (2, 0, false), "{report:?}");
    enqueue(f, &[with_key("old1")]).await;
    let mut transaction = f.begin().await;
    let again = transaction.enqueue(&with_key("young")).await;
    refused(again, ErrorKind::DuplicateKey, "a key that is remembered");
    transaction.rollback().await;
    assert_eq!(read_all(f).await.len(), 4, "the messages of the purged keys stay");
}

pub async fn the_purge_of_keys_is_bounded(f: &dyn StoreFixture) {
    let messages: Vec<_> = (0..25).map(|n| loose("l").idempotency_key(format!("key {n}"))).collect();
    enqueue_all(f, &messages).await;
    f.advance(DAY + LONG).await;
    let request = UpkeepRequest { limit: 10, ..request(RelayId::random()) };
    let mut purged = Vec::new();
    for _ in 0..3 {
        let report = tidy_up(f, &request).await;
        purged.push((report.keys_purged, report.more));
    }
    assert_eq!(purged, [(10, true), (10, true), (5, false)]);
}

pub async fn idempotency_keys_can_be_kept_for_ever(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1").idempotency_key("key")]).await;
    f.advance(DAY * 1_000).await;
    let request = UpkeepRequest { keep_keys: None, ..request(RelayId::random()) };
    assert_eq!(tidy_up(f, &request).await.keys_purged, 0);
    let mut transaction = f.begin().await;
    let again = transaction.enqueue(&loose("l2").idempotency_key("key")).await;
    refused(again, ErrorKind::DuplicateKey, "a key that is kept for ever");
}

/// What they held is free whether or not the table still knows them.
pub async fn relays_that_died_long_ago_are_forgotten_and_their_lanes_free(f: &dyn StoreFixture) {
    let dead = Relay::join(f).await;
    f.advance(DAY * 30).await;
    assert!(tidy_up(f, &request(RelayId::random())).await.ours);
    let stats = ok(f.admin().stats(None).await, "stats");
    let dead_id = dead.id.to_string();
    assert!(stats.relays.iter().all(|relay| relay.id != dead_id), "the dead one is forgotten: {stats:?}");
    let next = Relay::join(f).await;
    assert_eq!(next.held().len(), usize::from(f.lanes()));
    for lease in next.lanes.values() {
        assert!(lease.from_expired, "{:?} was lost by its owner, however long ago", lease.lane);
        assert!(lease.token > dead.lanes[&lease.lane].token);
    }
}

pub async fn a_relay_that_died_just_now_is_still_shown(f: &dyn StoreFixture) {
    let relay = Relay::join(f).await;
    f.advance(LONG * 2).await;
    assert!(tidy_up(f, &request(RelayId::random())).await.ours);
    let stats = ok(f.admin().stats(None).await, "stats");
    let id = relay.id.to_string();
    let shown = stats.relays.iter().find(|relay| relay.id == id);
    assert_eq!(shown.map(|relay| relay.lease_left), Some(None), "an operator wants to see that it died");
}

pub async fn live_relays_are_not_forgotten(f: &dyn StoreFixture) {
    let mut relay = Relay::on(f.store());
    relay.duration = DAY * 60;
    relay.renew().await;
    f.advance(DAY * 30).await;
    assert!(tidy_up(f, &request(RelayId::random())).await.ours);
    let other = Relay::join(f).await;
    assert!(other.held().is_empty(), "its lease goes on");
    f.advance(VERY_LONG).await;
}
