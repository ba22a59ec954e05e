//! What a relay can no longer do once its lane belongs to somebody else, and what it must not do twice.

use std::collections::BTreeSet;

use posthaste::{
    BeginAttempt, DeadSelection, Lane, MessageId, Mode, Outcome, Position, Record, RecordRef, RelayId,
    SettleReport, SettleRequest, Settlement, State,
};

use super::fixture::StoreFixture;
use super::support::{
    LONG, Relay, check_sum, dead, enqueue, find_now, keyed, labels, loose, ok, read_all, retry, show,
};

#[track_caller]
fn assert_stale(report: &SettleReport, lanes: &[Lane]) {
    let stale: BTreeSet<_> = report.stale_lanes.iter().copied().collect();
    assert_eq!((report.applied, report.gone), (0, 0), "nothing may be written: {report:?}");
    assert_eq!(stale, lanes.iter().copied().collect(), "the lanes that are lost: {report:?}");
    assert_eq!(stale.len(), report.stale_lanes.len(), "each is named once: {report:?}");
}

fn every_outcome() -> [Outcome; 5] {
    [Outcome::Processed, retry(LONG), dead(true), dead(false), Outcome::Released { attempts: 7 }]
}

/// Checks that no outcome of this relay is written any more.
async fn check_powerless(f: &dyn StoreFixture, relay: &Relay, record: &Record) {
    let before = show(f, record.id).await;
    for outcome in every_outcome() {
        let report = relay.try_settle(&[(record, outcome)]).await;
        assert_stale(&report, &[record.lane]);
    }
    assert!(!relay.begin_attempt(record, 9).await, "nor does an attempt begin");
    let deleting = SettleRequest { delete_processed: true, ..relay.request(&[(record, Outcome::Processed)]) };
    assert_stale(&ok(f.store().settle(&deleting).await, "settle"), &[record.lane]);
    assert_eq!(show(f, record.id).await, before, "the record is as it was");
}

pub async fn who_lost_its_lane_to_another_relay_writes_nothing(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2")]).await;
    let record = find_now(f, "a1").await;
    let first = Relay::join(f).await;
    f.advance(LONG * 2).await;
    let second = Relay::join(f).await;
    check_powerless(f, &first, &record).await;
    second.settle(&record, Outcome::Processed).await;
}

pub async fn who_left_writes_nothing(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1")]).await;
    let record = find_now(f, "l1").await;
    let relay = Relay::join(f).await;
    relay.leave().await;
    check_powerless(f, &relay, &record).await;
}

pub async fn who_gave_its_lane_back_writes_nothing(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1")]).await;
    let record = find_now(f, "l1").await;
    let mut relay = Relay::join(f).await;
    let before = relay.lanes.clone();
    relay.give_back(&[record.lane]).await;
    relay.lanes = before;
    check_powerless(f, &relay, &record).await;
}

/// It had a lane, lost it, and got it back: what it published before that may have been published by others.
pub async fn who_got_its_lane_back_writes_nothing_by_the_old_token(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1")]).await;
    let record = find_now(f, "l1").await;
    let mut relay = Relay::join(f).await;
    let before = relay.lanes.clone();
    relay.give_back(&[record.lane]).await;
    relay.renew().await;
    assert!(relay.held().contains(&record.lane));
    let old = Relay { id: relay.id, lanes: before, ..Relay::on(f.store()) };
    check_powerless(f, &old, &record).await;
    relay.settle(&record, Outcome::Processed).await;
}

pub async fn the_right_token_in_the_wrong_hands_writes_nothing(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1")]).await;
    let record = find_now(f, "l1").await;
    let owner = Relay::join(f).await;
    let thief = Relay { id: RelayId::random(), lanes: owner.lanes.clone(), ..Relay::on(f.store()) };
    check_powerless(f, &thief, &record).await;
}

pub async fn a_lane_that_nobody_holds_is_settled_by_nobody(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1")]).await;
    let record = find_now(f, "l1").await;
    for token in [0, 1, -1, i64::MAX] {
        let record = RecordRef { id: record.id, position: record.position, lane: record.lane, token };
        let settlements = vec![Settlement { record, outcome: Outcome::Processed }];
        let request = SettleRequest { relay: RelayId::random(), delete_processed: false, settlements };
        assert_stale(&ok(f.store().settle(&request).await, "settle"), &[record.lane]);
    }
    assert_eq!(show(f, record.id).await.info.state, State::Ready);
}

/// As long as nobody else took the lane, nobody else published its records.
pub async fn a_lease_that_ran_out_still_settles_while_nobody_took_the_lane(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1"), loose("l2")]).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    f.advance(LONG * 2).await;
    assert!(relay.begin_attempt(&records[0], 1).await);
    for record in &records {
        relay.settle(record, Outcome::Processed).await;
    }
}

pub async fn one_batch_can_be_stale_in_some_lanes_and_fresh_in_others(f: &dyn StoreFixture) {
    let many = usize::from(f.lanes()) * 6;
    let messages: Vec<_> = (0..many).map(|n| keyed(&format!("k{n}"), &format!("m{n}"))).collect();
    enqueue(f, &messages).await;
    let records = read_all(f).await;
    let mut relay = Relay::join(f).await;
    let held = relay.lanes.clone();
    let lost: Vec<_> = (0..f.lanes()).filter(|lane| lane % 2 == 0).map(Lane).collect();
    relay.give_back(&lost).await;
    relay.lanes = held;
    let settled: Vec<_> = records.iter().map(|record| (record, Outcome::Processed)).collect();
    let report = relay.try_settle(&settled).await;
    let stale: Vec<_> = records.iter().filter(|record| lost.contains(&record.lane)).collect();
    assert_eq!((report.stale, report.applied, report.gone), (stale.len(), many - stale.len(), 0));
    let lanes: BTreeSet<_> = stale.iter().map(|record| record.lane).collect();
    assert_eq!(report.stale_lanes.iter().copied().collect::<BTreeSet<_>>(), lanes);
    let left: BTreeSet<_> = read_all(f).await.into_iter().map(|record| record.id).collect();
    assert_eq!(
        left,
        stale.iter().map(|record| record.id).collect(),
        "those of the lost lanes are as they were"
    );
}

pub async fn settling_twice_does_no_harm(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1"), loose("l2"), loose("l3")]).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    let settled = [(&records[0], Outcome::Processed), (&records[1], retry(LONG)), (&records[2], dead(false))];
    assert_eq!(relay.try_settle(&settled).await.applied, 3);
    let before = details(f, &records).await;
    let report = relay.try_settle(&settled).await;
    assert_eq!((report.stale, report.gone), (0, 2), "the processed and the dead one are gone: {report:?}");
    for (record, before) in records.iter().zip(before) {
        let after = show(f, record.id).await.info;
        assert_eq!((after.state, after.attempts), (before.state, before.attempts), "{}", record.event_type);
        assert_eq!(after.settled_at, before.settled_at, "{}", record.event_type);
    }
}

async fn details(f: &dyn StoreFixture, records: &[Record]) -> Vec<posthaste::MessageInfo> {
    let mut all = Vec::new();
    for record in records {
        all.push(show(f, record.id).await.info);
    }
    all
}

/// A late outcome must not wake the dead, nor kill what was delivered.
pub async fn no_outcome_changes_a_settled_record(f: &dyn StoreFixture) {
    let relay = Relay::join(f).await;
    for settled_as in [Outcome::Processed, dead(true), dead(false)] {
        enqueue(f, &[loose("l1")]).await;
        let record = find_now(f, "l1").await;
        relay.settle(&record, settled_as).await;
        let before = show(f, record.id).await;
        for outcome in every_outcome() {
            let report = relay.try_settle(&[(&record, outcome)]).await;
            assert_eq!((report.applied, report.stale, report.gone), (0, 0, 1), "{report:?}");
        }
        assert!(!relay.begin_attempt(&record, 9).await, "no attempt of a settled record begins");
        assert_eq!(show(f, record.id).await, before);
    }
}

pub async fn a_discarded_record_is_gone(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1"), loose("l2")]).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    let l1 = find_now(f, "l1").await;
    relay.settle(&l1, dead(false)).await;
    ok(f.admin().discard(&DeadSelection::All, Mode::UpTo(10)).await, "discard");
    let settled: Vec<_> = records.iter().map(|record| (record, Outcome::Processed)).collect();
    let report = relay.try_settle(&settled).await;
    assert_eq!((report.applied, report.gone), (1, 1), "the other one is settled all the same: {report:?}");
    assert!(!relay.begin_attempt(&l1, 1).await);
}

/// A record is named by its position and its id: neither alone will do.
pub async fn a_record_at_that_position_with_another_id_is_gone(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2")]).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    let names = relay.names(&records[0]);
    let wrong = [
        RecordRef { id: MessageId::generate(), ..names },
        RecordRef { id: records[1].id, ..names },
        RecordRef { position: Position { major: i64::MAX - 1, minor: 0 }, ..names },
    ];
    for record in wrong {
        let settlements = vec![Settlement { record, outcome: Outcome::Processed }];
        let request = SettleRequest { relay: relay.id, delete_processed: false, settlements };
        let report = ok(f.store().settle(&request).await, "settle");
        check_sum(&report, 1);
        assert_eq!(report.gone, 1, "{report:?}");
        let attempt = BeginAttempt { relay: relay.id, record, attempts: 1 };
        assert!(!ok(f.store().begin_attempt(&attempt).await, "begin_attempt"));
    }
    assert_eq!(labels(&read_all(f).await), ["a1", "a2"], "nothing was touched");
}

pub async fn an_attempt_is_written_before_it_is_made(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2").delay(LONG)]).await;
    let relay = Relay::join(f).await;
    let record = find_now(f, "a1").await;
    assert!(relay.begin_attempt(&record, 2).await);
    let again = find_now(f, "a1").await;
    assert_eq!(again.attempts, 2, "whoever reads it next knows of the attempt");
    assert_eq!(again, Record { attempts: 2, ..record }, "nothing else has changed");
    relay.settle(&again, Outcome::Processed).await;
    f.advance(LONG).await;
    let record = find_now(f, "a2").await;
    assert!(relay.begin_attempt(&record, 1).await);
    assert_eq!(find_now(f, "a2").await, Record { attempts: 1, ..record }, "also of one that was held back");
}

pub async fn the_next_owner_sees_the_attempts_of_the_last(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1")]).await;
    let record = find_now(f, "l1").await;
    for attempt in 1..=3 {
        let relay = Relay::join(f).await;
        assert_eq!(find_now(f, "l1").await.attempts, attempt - 1);
        assert!(relay.begin_attempt(&record, attempt).await);
        f.advance(LONG * 2).await;
    }
    assert_eq!(show(f, record.id).await.info.attempts, 3, "three relays died over it");
}

pub async fn another_store_on_the_database_is_fenced_the_same(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1")]).await;
    let record = find_now(f, "l1").await;
    let first = Relay::join(f).await;
    f.advance(LONG * 2).await;
    let mut second = Relay::on(f.second().await);
    second.renew().await;
    assert!(second.begin_attempt(&record, 1).await);
    check_powerless(f, &first, &record).await;
    second.settle(&record, Outcome::Processed).await;
    assert_eq!(labels(&read_all(f).await), Vec::<&str>::new());
}
