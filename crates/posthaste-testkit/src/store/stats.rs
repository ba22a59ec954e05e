//! The figures.

use std::time::Duration;

use posthaste::{Count, Outcome, Stats};

use super::fixture::StoreFixture;
use super::support::{LONG, Relay, dead, enqueue, enqueue_all, find, keyed, loose, ok, read_all, retry};

async fn stats(f: &dyn StoreFixture) -> Stats {
    ok(f.admin().stats(None).await, "stats")
}

fn exactly(count: u64) -> Count {
    Count { count, capped: false }
}

/// Ready, waiting, blocked, dead.
fn counts(stats: &Stats) -> [u64; 4] {
    [stats.ready, stats.waiting, stats.blocked, stats.dead].map(|count| count.count)
}

pub async fn an_empty_outbox_has_nothing_to_count(f: &dyn StoreFixture) {
    let stats = stats(f).await;
    let nothing = exactly(0);
    assert_eq!([stats.ready, stats.waiting, stats.blocked, stats.dead], [nothing; 4]);
    assert_eq!(stats.oldest_ready_age, None);
    assert_eq!((stats.lanes_total, stats.lanes_leased), (usize::from(f.lanes()), 0));
    assert!(stats.relays.is_empty());
}

pub async fn each_state_is_counted(f: &dyn StoreFixture) {
    let messages = [
        loose("ready"),
        keyed("a", "ready too"),
        loose("delayed").delay(LONG),
        loose("failing"),
        keyed("b", "delayed head").delay(LONG),
        keyed("b", "blocked"),
        keyed("b", "blocked too"),
        loose("dead"),
        loose("processed"),
    ];
    enqueue(f, &messages).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    relay.settle(find(&records, "failing"), retry(LONG)).await;
    relay.settle(find(&records, "dead"), dead(false)).await;
    relay.settle(find(&records, "processed"), Outcome::Processed).await;
    let stats = stats(f).await;
    assert_eq!(stats.ready, exactly(2));
    assert_eq!(stats.waiting, exactly(5), "delayed, failing, the delayed head, and two behind it");
    assert_eq!(stats.blocked, exactly(2), "those behind the delayed head");
    assert_eq!(stats.dead, exactly(1));
}

pub async fn what_is_due_counts_as_ready(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1").delay(LONG), keyed("a", "a1").delay(LONG), keyed("a", "a2")]).await;
    assert_eq!(counts(&stats(f).await), [0, 3, 1, 0]);
    f.advance(LONG).await;
    assert_eq!(counts(&stats(f).await), [2, 1, 1, 0], "a2 still waits until a1 is settled");
}

pub async fn what_waits_behind_a_parked_key_counts_as_blocked(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("a", "a3").delay(LONG), keyed("b", "b1")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a1", dead(true)).await;
    assert_eq!(counts(&stats(f).await), [1, 2, 2, 1]);
    relay.settle_now(f, "b1", dead(false)).await;
    enqueue(f, &[keyed("b", "b2")]).await;
    assert_eq!(counts(&stats(f).await), [1, 2, 2, 2], "nothing waits behind a dead one that was skipped");
}

pub async fn counts_stop_at_the_cap(f: &dyn StoreFixture) {
    let ready = (0..8).map(|n| loose(&format!("ready{n}")));
    let delayed = (0..7).map(|n| loose(&format!("delayed{n}")).delay(LONG));
    let dying = (0..6).map(|n| loose(&format!("dying{n}")));
    enqueue_all(f, &ready.chain(delayed).chain(dying).collect::<Vec<_>>()).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    let dying: Vec<_> = records
        .iter()
        .filter(|record| record.event_type.starts_with("dying"))
        .map(|record| (record, dead(false)))
        .collect();
    relay.try_settle(&dying).await;
    let capped = ok(f.admin().stats(Some(5)).await, "stats");
    let five = Count { count: 5, capped: true };
    assert_eq!([capped.ready, capped.waiting, capped.dead], [five; 3]);
    for enough in [100, u64::MAX] {
        let enough = ok(f.admin().stats(Some(enough)).await, "stats");
        assert_eq!([enough.ready, enough.waiting, enough.dead], [exactly(8), exactly(7), exactly(6)]);
    }
}

#[track_caller]
fn assert_age(stats: &Stats, age: Duration) {
    let found = stats.oldest_ready_age.unwrap_or_else(|| panic!("something is ready: {stats:?}"));
    let slack = Duration::from_mins(1);
    assert!(
        found + slack >= age && found <= age + slack,
        "the oldest has been ready for {age:?}, not {found:?}"
    );
}

pub async fn the_age_is_that_of_the_oldest_ready_message(f: &dyn StoreFixture) {
    enqueue(f, &[loose("old")]).await;
    f.advance(LONG).await;
    enqueue(f, &[loose("young")]).await;
    f.advance(LONG).await;
    assert_age(&stats(f).await, LONG * 2);
    let relay = Relay::join(f).await;
    relay.settle_now(f, "old", Outcome::Processed).await;
    assert_age(&stats(f).await, LONG);
    relay.settle_now(f, "young", Outcome::Processed).await;
    assert_eq!(stats(f).await.oldest_ready_age, None, "nothing is ready");
}

/// A message that is meant to come tomorrow is not late today.
pub async fn what_waits_has_no_age(f: &dyn StoreFixture) {
    enqueue(f, &[loose("delayed").delay(LONG * 4), keyed("a", "a1"), keyed("a", "a2")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a1", dead(true)).await;
    f.advance(LONG * 3).await;
    assert_eq!(stats(f).await.oldest_ready_age, None, "delayed, dead, and blocked");
    f.advance(LONG * 2).await;
    assert_age(&stats(f).await, LONG);
}

pub async fn lanes_and_relays_are_shown(f: &dyn StoreFixture) {
    let mut first = Relay::join(f).await;
    let second = Relay::join(f).await;
    let share = first.renew().await.share;
    let beyond: Vec<_> = first.held().into_iter().skip(share).collect();
    first.give_back(&beyond).await;
    let stats = stats(f).await;
    assert_eq!(stats.lanes_leased, share, "what was given back is held by nobody");
    assert_eq!(stats.relays.len(), 2);
    for (relay, lanes) in [(&first, share), (&second, 0)] {
        let id = relay.id.to_string();
        let info = stats.relays.iter().find(|info| info.id == id);
        let info = info.unwrap_or_else(|| panic!("relay {id} must be shown: {stats:?}"));
        assert_eq!((info.name.as_str(), info.lanes), ("conformance", lanes));
        let left = info.lease_left.unwrap_or_default();
        assert!(left <= LONG && left > LONG / 2, "about {LONG:?} of its lease are left, not {left:?}");
    }
}

pub async fn lanes_of_an_expired_relay_are_not_leased(f: &dyn StoreFixture) {
    Relay::join(f).await;
    assert_eq!(stats(f).await.lanes_leased, usize::from(f.lanes()));
    f.advance(LONG * 2).await;
    let stats = stats(f).await;
    assert_eq!(stats.lanes_leased, 0, "no live relay holds them");
    assert_eq!(stats.relays.iter().map(|relay| relay.lease_left).collect::<Vec<_>>(), [None]);
}

pub async fn a_relay_that_left_is_not_shown(f: &dyn StoreFixture) {
    let relay = Relay::join(f).await;
    relay.leave().await;
    assert!(stats(f).await.relays.is_empty());
}
