//! Records that wait, are due again, or died, and the later records of their key.

use std::time::Duration;

use posthaste::{DueRecords, Outcome, Position, ReadRequest, Record, Scan};

use super::fixture::StoreFixture;
use super::support::{
    LONG, Relay, VERY_LONG, bytes, dead, enqueue, everything, find, find_now, in_lane, key, keyed,
    keys_in_one_lane, label_set, labels, labels_of, loose, read, read_all, retry,
};

const NOTHING: [&str; 0] = [];

/// Everything that is ready, from the start of all lanes, and of what is due again what `due` says.
fn with_due(f: &dyn StoreFixture, due: DueRecords) -> ReadRequest {
    let all = everything(f);
    ReadRequest { scans: all.scans.iter().map(|scan| Scan { due, ..*scan }).collect(), ..all }
}

async fn read_with(f: &dyn StoreFixture, due: DueRecords) -> Vec<Record> {
    read(&f.store(), &with_due(f, due)).await.records
}

pub async fn a_delayed_message_is_not_read_before_its_time(f: &dyn StoreFixture) {
    enqueue(f, &[loose("later").delay(LONG), keyed("a", "a1").delay(LONG), loose("now")]).await;
    assert_eq!(labels(&read_all(f).await), ["now"]);
    f.advance(LONG / 2).await;
    assert_eq!(labels(&read_all(f).await), ["now"], "half of the delay is over");
    f.advance(LONG / 2).await;
    assert_eq!(label_set(&read_all(f).await), ["a1", "later", "now"].into(), "all of the delay is over");
}

pub async fn a_due_record_says_that_it_was_held_back(f: &dyn StoreFixture) {
    enqueue(f, &[loose("later").delay(LONG), loose("now")]).await;
    f.advance(LONG).await;
    let records = read_all(f).await;
    assert!(find(&records, "later").held_back);
    assert!(!find(&records, "now").held_back);
}

pub async fn later_records_of_a_delayed_ones_key_wait_for_it(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2").delay(LONG), keyed("a", "a3")]).await;
    enqueue(f, &[keyed("a", "a4"), keyed("b", "b1")]).await;
    assert_eq!(
        label_set(&read_all(f).await),
        ["a1", "b1"].into(),
        "a2 keeps its place, a3 and a4 wait for it"
    );
    let page = read(&f.store(), &in_lane(f, find_now(f, "a1").await.lane)).await;
    assert!(page.reached[0].end, "blocked records are passed over");
}

pub async fn later_records_wait_until_the_due_one_is_settled(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1").delay(LONG), keyed("a", "a2"), keyed("a", "a3")]).await;
    let relay = Relay::join(f).await;
    f.advance(LONG).await;
    let records = read_all(f).await;
    assert_eq!(labels(&records), ["a1"], "a1 is due, and not settled yet");
    let in_hand = ReadRequest { in_hand: vec![records[0].position], ..everything(f) };
    assert_eq!(
        labels(&read(&f.store(), &in_hand).await.records),
        NOTHING,
        "also while a1 is being published"
    );
    relay.settle(&records[0], Outcome::Processed).await;
    assert_eq!(labels(&read_all(f).await), ["a2", "a3"], "a1 is out of the way");
}

pub async fn later_records_wait_for_a_retry(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("b", "b1"), loose("l1")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a1", retry(LONG)).await;
    assert_eq!(label_set(&read_all(f).await), ["b1", "l1"].into(), "a1 waits, and a2 for it; others go on");
    f.advance(LONG).await;
    let records = read_all(f).await;
    assert_eq!(labels_of(&records, "a"), ["a1"]);
    assert!(find(&records, "a1").held_back);
    relay.settle_now(f, "a1", retry(LONG)).await;
    assert_eq!(labels_of(&read_all(f).await, "a"), NOTHING, "it failed again");
    f.advance(LONG).await;
    relay.settle_now(f, "a1", Outcome::Processed).await;
    assert_eq!(labels_of(&read_all(f).await, "a"), ["a2"]);
}

pub async fn a_second_delayed_record_waits_for_the_first(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1").delay(LONG * 2), keyed("a", "a2").delay(LONG), keyed("a", "a3")]).await;
    let relay = Relay::join(f).await;
    f.advance(LONG + LONG / 2).await;
    assert_eq!(labels(&read_all(f).await), NOTHING, "a2 is due, but a1 comes before it");
    f.advance(LONG).await;
    assert_eq!(labels(&read_all(f).await), ["a1"]);
    relay.settle_now(f, "a1", Outcome::Processed).await;
    assert_eq!(labels(&read_all(f).await), ["a2"]);
    relay.settle_now(f, "a2", Outcome::Processed).await;
    assert_eq!(labels(&read_all(f).await), ["a3"]);
}

pub async fn earlier_records_do_not_wait_for_a_later_delayed_one(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("a", "a3").delay(LONG)]).await;
    assert_eq!(labels(&read_all(f).await), ["a1", "a2"]);
    f.advance(LONG).await;
    let records = read_all(f).await;
    assert_eq!(labels(&records), ["a1", "a2", "a3"], "the due one stands in its place");
    assert!(find(&records, "a3").held_back);
}

pub async fn records_without_a_key_wait_for_nobody(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1").delay(LONG), loose("l2")]).await;
    let type_alone = |label: &str| loose(label).aggregate("thing", "");
    enqueue(f, &[type_alone("t1").delay(LONG), type_alone("t2"), type_alone("t3")]).await;
    let relay = Relay::join(f).await;
    assert_eq!(label_set(&read_all(f).await), ["l2", "t2", "t3"].into());
    relay.settle_now(f, "t2", dead(true)).await;
    assert_eq!(label_set(&read_all(f).await), ["l2", "t3"].into(), "a dead one parks nothing without a key");
}

pub async fn a_dead_record_can_park_its_key(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("b", "b1")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a1", dead(true)).await;
    assert_eq!(labels(&read_all(f).await), ["b1"], "a2 waits for a1 to be redriven or discarded");
    f.advance(VERY_LONG).await;
    assert_eq!(labels(&read_all(f).await), ["b1"], "time does not bring it back");
    enqueue(f, &[keyed("a", "a3")]).await;
    assert_eq!(labels(&read_all(f).await), ["b1"], "nor do later messages of the key come through");
}

pub async fn a_dead_record_can_let_its_key_go_on(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("a", "a3")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a1", dead(false)).await;
    assert_eq!(labels(&read_all(f).await), ["a2", "a3"]);
}

pub async fn a_record_that_was_held_back_can_die_and_let_its_key_go_on(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1").delay(LONG), keyed("a", "a2")]).await;
    let relay = Relay::join(f).await;
    f.advance(LONG).await;
    relay.settle_now(f, "a1", dead(false)).await;
    assert_eq!(labels(&read_all(f).await), ["a2"], "the delay ended with the record");
}

pub async fn a_record_that_was_held_back_can_die_and_park_its_key(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1").delay(LONG), keyed("a", "a2")]).await;
    let relay = Relay::join(f).await;
    f.advance(LONG).await;
    relay.settle_now(f, "a1", dead(true)).await;
    assert_eq!(labels(&read_all(f).await), NOTHING);
}

pub async fn blocked_records_can_fill_no_page(f: &dyn StoreFixture) {
    let keys = keys_in_one_lane(f, 2).await;
    enqueue(f, &[keyed(&keys[0], "head").delay(LONG)]).await;
    let blocked: Vec<_> = (0..50).map(|n| keyed(&keys[0], &format!("blocked{n}"))).collect();
    enqueue(f, &blocked).await;
    enqueue(f, &[keyed(&keys[1], "free")]).await;
    let request = ReadRequest { max_rows: 2, max_bytes: 5, ..everything(f) };
    assert_eq!(labels(&read(&f.store(), &request).await.records), ["free"]);
}

pub async fn due_records_are_read_only_if_asked_for(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1").delay(LONG), keyed("a", "a2"), loose("l1").delay(LONG), loose("l2")]).await;
    f.advance(LONG).await;
    assert_eq!(labels(&read_with(f, DueRecords::Skip).await), ["l2"], "what is due keeps its key waiting");
    assert_eq!(label_set(&read_with(f, DueRecords::All).await), ["a1", "l1", "l2"].into());
}

/// A relay that has read up to some position must not take in a due record behind it: an earlier one of its key
/// may stand between them, still unread.
pub async fn due_records_with_a_key_can_be_asked_for_up_to_a_position(f: &dyn StoreFixture) {
    let keys = keys_in_one_lane(f, 3).await;
    let delayed = |n: usize| keyed(&keys[n], &format!("k{n}")).delay(LONG);
    enqueue(f, &[delayed(0), delayed(1), delayed(2)]).await;
    f.advance(LONG).await;
    let records = read_all(f).await;
    assert_eq!(labels(&records), ["k0", "k1", "k2"]);
    let up_to = |position| read_with(f, DueRecords::UpTo(position));
    assert_eq!(labels(&up_to(Position::START).await), NOTHING);
    assert_eq!(labels(&up_to(records[0].position).await), ["k0"], "up to and including");
    assert_eq!(labels(&up_to(records[1].position).await), ["k0", "k1"]);
    assert_eq!(labels(&up_to(records[2].position).await), ["k0", "k1", "k2"]);
}

pub async fn due_records_without_a_key_are_read_wherever_they_stand(f: &dyn StoreFixture) {
    let type_alone = loose("t1").aggregate("thing", "").delay(LONG);
    enqueue(f, &[loose("l1").delay(LONG), type_alone, keyed("a", "a1").delay(LONG)]).await;
    f.advance(LONG).await;
    let records = read_with(f, DueRecords::UpTo(Position::START)).await;
    assert_eq!(label_set(&records), ["l1", "t1"].into());
}

pub async fn due_records_are_read_outside_of_the_stretch(f: &dyn StoreFixture) {
    let keys = keys_in_one_lane(f, 2).await;
    enqueue(f, &[keyed(&keys[0], "due").delay(LONG), keyed(&keys[1], "x1"), keyed(&keys[1], "x2")]).await;
    f.advance(LONG).await;
    let x1 = find_now(f, "x1").await;
    let scan = |due| Scan { lane: x1.lane, after: Some(x1.position), until: None, due };
    for (due, expected) in
        [(DueRecords::All, vec!["due", "x2"]), (DueRecords::UpTo(x1.position), vec!["due", "x2"])]
    {
        let page = read(&f.store(), &ReadRequest { scans: vec![scan(due)], ..everything(f) }).await;
        assert_eq!(labels(&page.records), expected, "{due:?}");
        assert!(page.reached[0].position > Some(x1.position), "a scan is not set back by what is due");
    }
}

pub async fn due_records_are_read_of_the_scanned_lanes_only(f: &dyn StoreFixture) {
    if f.lanes() == 1 {
        return;
    }
    let delayed: Vec<_> = (0..usize::from(f.lanes()) * 2)
        .map(|n| keyed(&format!("k{n}"), &format!("m{n}")).delay(LONG))
        .collect();
    enqueue(f, &delayed).await;
    f.advance(LONG).await;
    let all = read_all(f).await;
    assert_eq!(all.len(), delayed.len());
    let lane = all[0].lane;
    let expected = all.iter().filter(|record| record.lane == lane).map(|record| record.event_type.as_str());
    assert_eq!(label_set(&read(&f.store(), &in_lane(f, lane)).await.records), expected.collect());
}

pub async fn due_records_in_hand_are_passed_over(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1").delay(LONG), loose("l2").delay(LONG)]).await;
    f.advance(LONG).await;
    let l1 = find_now(f, "l1").await;
    let request = ReadRequest { in_hand: vec![l1.position], ..everything(f) };
    assert_eq!(labels(&read(&f.store(), &request).await.records), ["l2"]);
}

pub async fn the_choice_of_keys_holds_for_due_records(f: &dyn StoreFixture) {
    use posthaste::Keys;
    enqueue(f, &[keyed("a", "a1").delay(LONG), keyed("b", "b1").delay(LONG), loose("l1").delay(LONG)]).await;
    f.advance(LONG).await;
    let except = ReadRequest { keys: Keys::Except(vec![key("a")]), ..everything(f) };
    assert_eq!(label_set(&read(&f.store(), &except).await.records), ["b1", "l1"].into());
    let only = ReadRequest { keys: Keys::Only(vec![key("a")]), ..everything(f) };
    assert_eq!(labels(&read(&f.store(), &only).await.records), ["a1"]);
}

/// So that many retries cannot keep new records out.
pub async fn due_records_take_at_most_half_of_a_page(f: &dyn StoreFixture) {
    for n in 0..6 {
        enqueue(f, &[loose(&format!("due{n}")).delay(LONG), loose(&format!("ready{n}"))]).await;
    }
    f.advance(LONG).await;
    for (max_rows, due) in [(1, 1), (2, 1), (4, 2), (6, 3)] {
        let page = read(&f.store(), &ReadRequest { max_rows, ..everything(f) }).await;
        let held_back = page.records.iter().filter(|record| record.held_back).count();
        assert_eq!((page.records.len(), held_back), (max_rows, due), "of a page of {max_rows}");
    }
}

pub async fn due_records_count_towards_the_bytes_of_a_page(f: &dyn StoreFixture) {
    enqueue(f, &[loose("due").payload(bytes(100)).delay(LONG), loose("ready").payload(bytes(100))]).await;
    f.advance(LONG).await;
    for (max_bytes, expected) in [(1, 1), (199, 1), (200, 2)] {
        let page = read(&f.store(), &ReadRequest { max_bytes, ..everything(f) }).await;
        assert_eq!(page.records.len(), expected, "records of 100 bytes in {max_bytes}");
    }
}

pub async fn what_has_been_due_for_longest_is_read_first(f: &dyn StoreFixture) {
    enqueue(
        f,
        &[loose("third").delay(LONG * 3), loose("first").delay(LONG), loose("second").delay(LONG * 2)],
    )
    .await;
    f.advance(LONG * 4).await;
    let page = read(&f.store(), &ReadRequest { max_rows: 2, ..everything(f) }).await;
    assert_eq!(labels(&page.records), ["first"]);
    let page = read(&f.store(), &ReadRequest { max_rows: 4, ..everything(f) }).await;
    assert_eq!(label_set(&page.records), ["first", "second"].into());
}

pub async fn a_due_record_is_read_once_in_a_page(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2").delay(LONG), keyed("a", "a3")]).await;
    f.advance(LONG).await;
    let all = read_all(f).await;
    assert_eq!(labels(&all), ["a1", "a2"]);
    let lane = all[0].lane;
    let scan = |after, until| Scan { lane, after, until, due: DueRecords::All };
    let scans = vec![scan(None, Some(all[0].position)), scan(Some(all[0].position), None)];
    let page = read(&f.store(), &ReadRequest { scans, ..everything(f) }).await;
    assert_eq!(labels(&page.records), ["a1", "a2"], "although two scans of the lane ask for it");
}

pub async fn available_at_holds_a_message_back(f: &dyn StoreFixture) {
    enqueue(f, &[loose("now")]).await;
    let now = find_now(f, "now").await.enqueued_at;
    enqueue(f, &[keyed("a", "past").available_at(now - LONG)]).await;
    enqueue(f, &[keyed("b", "future").available_at(now + VERY_LONG), keyed("b", "b2")]).await;
    assert_eq!(label_set(&read_all(f).await), ["now", "past"].into(), "a time gone by delays nothing");
    f.advance(VERY_LONG + LONG).await;
    assert_eq!(label_set(&read_all(f).await), ["future", "now", "past"].into());
}

pub async fn a_delay_is_kept_to_the_millisecond(f: &dyn StoreFixture) {
    let delays = [1, 999, 1_500, 86_400_001].map(Duration::from_millis);
    for delay in delays {
        let id = enqueue(f, &[loose("delayed").delay(delay)]).await[0];
        let info = super::support::show(f, id).await.info;
        let until =
            info.next_attempt_at.unwrap_or_else(|| panic!("a delayed message says until when it waits"));
        let kept = until.duration_since(info.enqueued_at).unwrap_or_default();
        assert!(kept >= delay, "{delay:?} became {kept:?}: never shorter");
        assert!(kept < delay + Duration::from_millis(5), "{delay:?} became {kept:?}: not rounded to seconds");
    }
}

pub async fn the_longest_delay_is_no_trouble(f: &dyn StoreFixture) {
    enqueue(f, &[loose("far").delay(posthaste::MAX_DELAY), loose("now")]).await;
    assert_eq!(labels(&read_all(f).await), ["now"]);
}
