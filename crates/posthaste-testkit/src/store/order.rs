//! In what order records come, and when they become visible.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::{Lane, Message, Position};

use super::fixture::StoreFixture;
use super::support::{
    enqueue, enqueue_all, in_lane, keyed, label_set, labels, labels_of, loose, ok, read, read_all,
};

const MANY: usize = 100;

fn numbered(key: &str, count: usize) -> (Vec<String>, Vec<Message>) {
    let labels: Vec<_> = (0..count).map(|n| format!("{key}{n}")).collect();
    let messages = labels.iter().map(|label| keyed(key, label)).collect();
    (labels, messages)
}

pub async fn single_enqueues_of_one_transaction_keep_their_order(f: &dyn StoreFixture) {
    let (expected, messages) = numbered("a", MANY);
    enqueue(f, &messages).await;
    assert_eq!(labels(&read_all(f).await), expected);
}

pub async fn a_batch_keeps_its_order(f: &dyn StoreFixture) {
    let (expected, messages) = numbered("a", MANY);
    enqueue_all(f, &messages).await;
    assert_eq!(labels(&read_all(f).await), expected);
}

pub async fn batches_and_single_enqueues_keep_their_order_together(f: &dyn StoreFixture) {
    let (expected, messages) = numbered("a", 7);
    let mut transaction = f.begin().await;
    ok(transaction.enqueue(&messages[0]).await, "enqueue");
    ok(transaction.enqueue_all(&messages[1..4]).await, "enqueue_all");
    ok(transaction.enqueue(&messages[4]).await, "enqueue");
    ok(transaction.enqueue_all(&messages[5..]).await, "enqueue_all");
    transaction.commit().await;
    assert_eq!(labels(&read_all(f).await), expected);
}

pub async fn transactions_one_after_another_keep_their_order(f: &dyn StoreFixture) {
    let (expected, messages) = numbered("a", 20);
    for message in &messages {
        enqueue(f, std::slice::from_ref(message)).await;
    }
    assert_eq!(labels(&read_all(f).await), expected);
}

pub async fn interleaved_keys_keep_their_order_each(f: &dyn StoreFixture) {
    let keys: Vec<_> = (0..10).map(|n| format!("k{n}-")).collect();
    let sequences: Vec<_> = keys.iter().map(|key| numbered(key, 10)).collect();
    let interleaved: Vec<_> =
        (0..10).flat_map(|n| sequences.iter().map(move |(_, messages)| messages[n].clone())).collect();
    enqueue_all(f, &interleaved).await;
    let records = read_all(f).await;
    for (key, (expected, _)) in keys.iter().zip(&sequences) {
        assert_eq!(&labels_of(&records, key), expected, "the order of key {key}");
    }
}

/// Ids are made when a message is, which may be in another order than that in which they are enqueued.
pub async fn order_is_that_of_enqueueing_not_of_ids(f: &dyn StoreFixture) {
    let (mut expected, mut messages) = numbered("a", 20);
    expected.reverse();
    messages.reverse();
    assert!(messages[0].id() > messages[1].id(), "the ids fall");
    enqueue_all(f, &messages[..10]).await;
    enqueue(f, &messages[10..]).await;
    assert_eq!(labels(&read_all(f).await), expected);
}

pub async fn positions_are_unique_and_rise_within_a_key(f: &dyn StoreFixture) {
    for n in 0..10 {
        enqueue(f, &[loose("loose"), keyed("a", "a"), keyed("b", "b")]).await;
        let records = read_all(f).await;
        let positions: BTreeSet<_> = records.iter().map(|record| record.position).collect();
        assert_eq!(positions.len(), 3 * (n + 1), "every position is unique in the table");
        assert!(positions.first() > Some(&Position::START), "every record stands behind Position::START");
    }
    for key in ["a", "b"] {
        let records = read_all(f).await;
        let of_key: Vec<_> = records.iter().filter(|record| record.event_type == key).collect();
        assert!(of_key.is_sorted_by(|a, b| a.position < b.position));
        assert!(of_key.is_sorted_by(|a, b| a.enqueued_at <= b.enqueued_at));
    }
}

pub async fn each_key_lies_in_one_lane(f: &dyn StoreFixture) {
    let round = |round: usize| -> Vec<_> {
        (0..200).map(|n| keyed(&format!("k{n}"), &format!("k{n}-{round}"))).collect()
    };
    enqueue_all(f, &round(0)).await;
    enqueue(f, &round(1)).await;
    enqueue_all(f, &round(2)).await;
    let mut lanes: BTreeMap<String, BTreeSet<Lane>> = BTreeMap::new();
    for record in read_all(f).await {
        lanes.entry(record.aggregate.aggregate_id().to_owned()).or_default().insert(record.lane);
    }
    assert_eq!(lanes.len(), 200);
    for (key, lanes) in lanes {
        assert_eq!(lanes.len(), 1, "key {key} lies in {lanes:?}");
    }
}

/// A relay must find every message by scanning the lanes that there are.
pub async fn every_message_lies_in_a_lane_that_there_is(f: &dyn StoreFixture) {
    let messages: Vec<_> =
        (0..150).flat_map(|n| [loose(&format!("l{n}")), keyed(&format!("k{n}"), &format!("m{n}"))]).collect();
    let ids = enqueue_all(f, &messages).await;
    let mut read_by_lane = 0;
    for lane in 0..f.lanes() {
        read_by_lane += read(&f.store(), &in_lane(f, Lane(lane))).await.records.len();
    }
    assert_eq!(read_by_lane, messages.len(), "the lanes together hold everything");
    for id in ids {
        let details = super::support::show(f, id).await;
        assert!(details.lane.0 < f.lanes(), "{:?} is out of range", details.lane);
    }
}

pub async fn keys_and_keyless_messages_spread_over_the_lanes(f: &dyn StoreFixture) {
    let many = usize::from(f.lanes()) * 8;
    let messages: Vec<_> =
        (0..many).flat_map(|n| [loose("loose"), keyed(&format!("key {n}"), "keyed")]).collect();
    enqueue_all(f, &messages).await;
    for label in ["loose", "keyed"] {
        let records = read_all(f).await;
        let lanes: BTreeSet<_> =
            records.iter().filter(|record| record.event_type == label).map(|record| record.lane).collect();
        assert!(
            lanes.len() * 2 >= usize::from(f.lanes()),
            "{many} {label} messages lie in only {} of {} lanes",
            lanes.len(),
            f.lanes()
        );
    }
}

pub async fn the_type_of_an_aggregate_is_part_of_its_key(f: &dyn StoreFixture) {
    let delayed = loose("order").aggregate("order", 7).delay(super::support::LONG);
    enqueue(f, &[delayed, loose("user").aggregate("user", 7)]).await;
    assert_eq!(labels(&read_all(f).await), ["user"], "order 7 waits, user 7 does not");
}

/// Collations of some databases make these equal.
pub async fn keys_that_look_alike_are_different_keys(f: &dyn StoreFixture) {
    let alike = ["a", "A", "a ", "ä", "A\u{308}", "á", "ａ", "а"];
    for (n, aggregate_id) in alike.iter().enumerate() {
        let delayed = keyed(aggregate_id, &format!("first {n}"));
        enqueue(f, &[if n == 0 { delayed.delay(super::support::LONG) } else { delayed }]).await;
    }
    let second: Vec<_> = alike
        .iter()
        .enumerate()
        .map(|(n, aggregate_id)| keyed(aggregate_id, &format!("second {n}")))
        .collect();
    enqueue_all(f, &second).await;
    let records = read_all(f).await;
    for (n, aggregate_id) in alike.iter().enumerate().skip(1) {
        let expected = [format!("first {n}"), format!("second {n}")];
        assert_eq!(labels_of(&records, aggregate_id), expected, "key {aggregate_id:?} is not key \"a\"");
    }
    assert_eq!(labels_of(&records, "a"), Vec::<&str>::new(), "key \"a\" waits for its first message");
}

pub async fn nothing_of_an_open_transaction_is_read(f: &dyn StoreFixture) {
    let mut transaction = f.begin().await;
    ok(transaction.enqueue(&keyed("a", "a1")).await, "enqueue");
    ok(transaction.enqueue_all(&[loose("l1"), loose("l2")]).await, "enqueue_all");
    assert_eq!(labels(&read_all(f).await), Vec::<&str>::new(), "not committed yet");
    transaction.commit().await;
    assert_eq!(label_set(&read_all(f).await), ["a1", "l1", "l2"].into(), "committed, all at once");
}

pub async fn a_rollback_leaves_nothing(f: &dyn StoreFixture) {
    let mut transaction = f.begin().await;
    let id = ok(transaction.enqueue(&keyed("a", "a1")).await, "enqueue");
    ok(transaction.enqueue_all(&[loose("l1"), loose("l2")]).await, "enqueue_all");
    transaction.rollback().await;
    assert_eq!(labels(&read_all(f).await), Vec::<&str>::new());
    assert!(!super::support::exists(f, id).await, "a rolled back message is nowhere");
}

pub async fn a_dropped_transaction_is_rolled_back(f: &dyn StoreFixture) {
    let mut transaction = f.begin().await;
    ok(transaction.enqueue(&keyed("a", "a1")).await, "enqueue");
    drop(transaction);
    enqueue(f, &[loose("l1")]).await;
    assert_eq!(labels(&read_all(f).await), ["l1"]);
}

/// A transaction that enqueued first and commits last stands before what was read already: the lane's start is
/// where it must be found.
pub async fn a_late_commit_with_a_lower_position_is_read(f: &dyn StoreFixture) {
    if !f.concurrent_transactions() {
        return;
    }
    let (mut slow, mut fast) = (f.begin().await, f.begin().await);
    ok(slow.enqueue(&keyed("a", "slow")).await, "enqueue");
    ok(fast.enqueue(&keyed("a", "fast")).await, "enqueue");
    fast.commit().await;
    assert_eq!(labels(&read_all(f).await), ["fast"], "the slow one must not hold up the fast one");
    slow.commit().await;
    assert_eq!(label_set(&read_all(f).await), ["fast", "slow"].into(), "the slow one must not be skipped");
}

pub async fn many_transactions_that_commit_in_any_order_are_all_read(f: &dyn StoreFixture) {
    if !f.concurrent_transactions() {
        return;
    }
    let mut open = Vec::new();
    for n in 0..12 {
        let mut transaction = f.begin().await;
        let label = format!("m{n:02}");
        ok(transaction.enqueue(&keyed(&format!("k{}", n % 3), &label)).await, "enqueue");
        open.push((label, transaction));
    }
    let mut committed = BTreeSet::new();
    let mut random = fastrand::Rng::with_seed(7);
    while !open.is_empty() {
        let (label, transaction) = open.swap_remove(random.usize(0..open.len()));
        if random.u32(0..4) == 0 {
            transaction.rollback().await;
        } else {
            transaction.commit().await;
            committed.insert(label);
        }
        let read: BTreeSet<_> = read_all(f).await.into_iter().map(|record| record.event_type).collect();
        assert_eq!(read, committed, "exactly what is committed can be read");
    }
}

pub async fn an_open_transaction_holds_up_nobody(f: &dyn StoreFixture) {
    if !f.concurrent_transactions() {
        return;
    }
    let mut open = f.begin().await;
    ok(open.enqueue(&keyed("a", "open")).await, "enqueue");
    let (expected, messages) = numbered("a", 10);
    enqueue(f, &messages).await;
    let relay = super::support::Relay::join(f).await;
    let records = read_all(f).await;
    assert_eq!(labels(&records), expected);
    for record in &records {
        relay.settle(record, posthaste::Outcome::Processed).await;
    }
    assert_eq!(labels(&read_all(f).await), Vec::<&str>::new());
    open.commit().await;
    assert_eq!(labels(&read_all(f).await), ["open"]);
}
