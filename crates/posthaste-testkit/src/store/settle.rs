//! Writing down what became of records.

use std::time::Duration;

use posthaste::{Message, Outcome, Record, SettleRequest, State};

use super::fixture::StoreFixture;
use super::support::{
    LONG, Relay, check_sum, dead, enqueue, enqueue_all, exists, find, find_now, keyed, label_set, labels,
    loose, ok, read_all, retry, show,
};

const NOTHING: [&str; 0] = [];

fn outcomes() -> [(&'static str, Outcome, State); 5] {
    [
        ("processed", Outcome::Processed, State::Processed),
        ("retry", retry(LONG), State::Waiting),
        ("parked", dead(true), State::Dead),
        ("skipped", dead(false), State::Dead),
        ("released", Outcome::Released { attempts: 3 }, State::Ready),
    ]
}

/// Every outcome from every state that a record may be in while a relay has it in hand.
pub async fn every_outcome_leads_to_its_state(f: &dyn StoreFixture) {
    let relay = Relay::join(f).await;
    for was_held_back in [false, true] {
        for (name, outcome, state) in outcomes() {
            let message = Message::new(name).aggregate("thing", format!("{name} {was_held_back}"));
            let message = if was_held_back { message.delay(LONG) } else { message };
            let id = enqueue(f, &[message]).await[0];
            if was_held_back {
                f.advance(LONG).await;
            }
            let records = read_all(f).await;
            let record = records.iter().find(|record| record.id == id);
            let record = record.unwrap_or_else(|| panic!("{name} must be readable"));
            let mut renewed = Relay { id: relay.id, ..Relay::on(f.store()) };
            renewed.renew().await;
            renewed.settle(record, outcome).await;
            let info = show(f, id).await.info;
            assert_eq!(info.state, state, "{name}, held back: {was_held_back}");
            let is_settled = matches!(state, State::Processed | State::Dead);
            assert_eq!(info.settled_at.is_some(), is_settled, "{name}: settled_at");
            if is_settled {
                assert_eq!(info.next_attempt_at, None, "{name}: it waits for nothing");
            }
        }
    }
}

pub async fn a_processed_record_is_not_read_again(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), loose("l1")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a1", Outcome::Processed).await;
    relay.settle_now(f, "l1", Outcome::Processed).await;
    assert_eq!(labels(&read_all(f).await), ["a2"]);
    f.advance(LONG).await;
    assert_eq!(labels(&read_all(f).await), ["a2"]);
}

pub async fn a_retry_keeps_its_attempts_and_its_error(f: &dyn StoreFixture) {
    let id = enqueue(f, &[loose("l1")]).await[0];
    let relay = Relay::join(f).await;
    let outcome = Outcome::Retry { after: LONG, attempts: 3, error: "broker said nö".into() };
    relay.settle_now(f, "l1", outcome).await;
    let info = show(f, id).await.info;
    assert_eq!((info.attempts, info.last_error.as_deref()), (3, Some("broker said nö")));
    assert_eq!(info.state, State::Waiting);
    f.advance(LONG).await;
    let record = find_now(f, "l1").await;
    assert_eq!((record.attempts, record.held_back), (3, true), "the next read sees the attempts");
}

pub async fn a_retry_waits_from_when_it_is_settled(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1")]).await;
    let mut relay = Relay::join(f).await;
    let record = find_now(f, "l1").await;
    f.advance(LONG * 2).await;
    relay.renew().await;
    relay.settle(&record, retry(LONG)).await;
    assert_eq!(labels(&read_all(f).await), NOTHING, "it begins to wait now, not when it was read");
    f.advance(LONG / 2).await;
    assert_eq!(labels(&read_all(f).await), NOTHING, "half of the time is over");
    f.advance(LONG / 2).await;
    assert_eq!(labels(&read_all(f).await), ["l1"]);
}

pub async fn a_retry_without_delay_is_due_at_once(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a1", retry(Duration::ZERO)).await;
    let records = read_all(f).await;
    assert_eq!(labels(&records), ["a1"], "it comes again, and a2 still waits for it");
    assert!(records[0].held_back);
}

/// A deadline may be rounded, but only up: a backoff of less than the clock's resolution is not none at all.
pub async fn a_retry_is_never_too_early_by_rounding(f: &dyn StoreFixture) {
    let delays = [Duration::from_nanos(1), Duration::from_nanos(1_500), Duration::from_micros(1_999)];
    let messages: Vec<_> = (0..=delays.len()).map(|n| loose(&format!("l{n}"))).collect();
    let ids = enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    // What is settled together has the same time for now.
    let at_once = (find(&records, "l0"), retry(Duration::ZERO));
    let later = delays.iter().zip(&messages[1..]);
    let later = later.map(|(delay, message)| (find(&records, message.event_type()), retry(*delay)));
    relay.try_settle(&[at_once].into_iter().chain(later).collect::<Vec<_>>()).await;
    let now = show(f, ids[0]).await.info.next_attempt_at;
    for (delay, id) in delays.iter().zip(&ids[1..]) {
        let until = show(f, *id).await.info.next_attempt_at;
        let (Some(now), Some(until)) = (now, until) else { panic!("a retry says until when it waits") };
        let waits = until.duration_since(now).unwrap_or_default();
        assert!(waits >= *delay, "{delay:?} became {waits:?}");
        assert!(waits < *delay + Duration::from_millis(5), "{delay:?} became {waits:?}");
    }
}

pub async fn the_longest_retry_is_no_trouble(f: &dyn StoreFixture) {
    let ids = enqueue(f, &[loose("l1"), loose("l2")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "l1", retry(Duration::MAX)).await;
    relay.settle_now(f, "l2", retry(posthaste::MAX_DELAY)).await;
    for id in ids {
        assert_eq!(show(f, id).await.info.state, State::Waiting);
    }
}

pub async fn a_dead_record_keeps_its_attempts_and_its_error(f: &dyn StoreFixture) {
    let ids = enqueue(f, &[loose("l1"), keyed("a", "a1")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "l1", Outcome::Dead { attempts: 5, error: "too large".into(), park: false }).await;
    relay.settle_now(f, "a1", Outcome::Dead { attempts: 1, error: "refused".into(), park: true }).await;
    for (id, attempts, error) in [(ids[0], 5, "too large"), (ids[1], 1, "refused")] {
        let info = show(f, id).await.info;
        assert_eq!(
            (info.state, info.attempts, info.last_error.as_deref()),
            (State::Dead, attempts, Some(error))
        );
    }
    f.advance(LONG).await;
    assert_eq!(labels(&read_all(f).await), NOTHING, "it is not tried again by itself");
}

pub async fn an_error_text_is_cut_to_1024_characters(f: &dyn StoreFixture) {
    let ids = enqueue(f, &[loose("l1"), loose("l2"), loose("l3")]).await;
    let relay = Relay::join(f).await;
    let with = |error: String| Outcome::Retry { after: LONG, attempts: 1, error };
    relay.settle_now(f, "l1", with("語".repeat(5_000))).await;
    relay.settle_now(f, "l2", Outcome::Dead { attempts: 1, error: "🦀".repeat(1_025), park: false }).await;
    relay.settle_now(f, "l3", with("x".repeat(1_024))).await;
    for (id, expected) in ids.iter().zip(["語", "🦀", "x"]) {
        let error = show(f, *id).await.info.last_error.unwrap_or_default();
        assert_eq!(error.chars().count(), 1_024, "of {expected}");
        assert_eq!(error, expected.repeat(1_024));
    }
}

/// One text that a database refuses must not keep a whole batch from being settled.
pub async fn any_error_text_can_be_settled(f: &dyn StoreFixture) {
    let texts = ["", "with a \0 in it", "'quoted' \\ $1 ? %s", "\u{FFFD}\u{202E}", "line\r\nbreak"];
    let messages: Vec<_> = (0..texts.len()).map(|n| loose(&format!("l{n}"))).collect();
    let ids = enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    let settled: Vec<_> = texts
        .iter()
        .zip(&messages)
        .map(|(text, message)| {
            let outcome = Outcome::Retry { after: LONG, attempts: 1, error: (*text).to_owned() };
            (find(&records, message.event_type()), outcome)
        })
        .collect();
    assert_eq!(relay.try_settle(&settled).await.applied, texts.len());
    for (text, id) in texts.iter().zip(ids) {
        let error = show(f, id).await.info.last_error.unwrap_or_default();
        if !text.contains('\0') {
            assert_eq!(&error, text);
        }
    }
}

pub async fn a_released_record_is_ready_as_before(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2")]).await;
    let relay = Relay::join(f).await;
    let record = find_now(f, "a1").await;
    assert!(relay.begin_attempt(&record, 1).await);
    relay.settle(&record, Outcome::Released { attempts: 0 }).await;
    let records = read_all(f).await;
    assert_eq!(labels(&records), ["a1", "a2"]);
    assert_eq!((records[0].attempts, records[0].held_back), (0, false), "its attempt was taken back");
}

pub async fn a_released_record_that_was_held_back_stays_so(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1").delay(LONG), keyed("a", "a2")]).await;
    let relay = Relay::join(f).await;
    f.advance(LONG).await;
    relay.settle_now(f, "a1", Outcome::Released { attempts: 0 }).await;
    let records = read_all(f).await;
    assert_eq!(labels(&records), ["a1"], "a2 goes on waiting for it");
    assert!(records[0].held_back);
}

pub async fn processed_records_can_be_deleted_at_once(f: &dyn StoreFixture) {
    let messages = ["processed", "retry", "dead", "released", "untouched"].map(loose);
    let ids = enqueue(f, &messages).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    let settled = [
        (find(&records, "processed"), Outcome::Processed),
        (find(&records, "retry"), retry(LONG)),
        (find(&records, "dead"), dead(false)),
        (find(&records, "released"), Outcome::Released { attempts: 1 }),
    ];
    let request = SettleRequest { delete_processed: true, ..relay.request(&settled) };
    let report = ok(f.store().settle(&request).await, "settle");
    assert_eq!(report.applied, 4, "{report:?}");
    assert!(!exists(f, ids[0]).await, "the processed one is deleted");
    for id in &ids[1..] {
        assert!(exists(f, *id).await, "nothing else is");
    }
    let report = ok(f.store().settle(&request).await, "settle again");
    assert!(report.gone >= 1, "the deleted one is gone: {report:?}");
    assert_eq!(report.stale, 0, "{report:?}");
    check_sum(&report, 4);
}

pub async fn deleting_a_processed_record_lets_its_key_go_on(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1").delay(LONG), keyed("a", "a2")]).await;
    let relay = Relay::join(f).await;
    f.advance(LONG).await;
    let record = find_now(f, "a1").await;
    let request = SettleRequest { delete_processed: true, ..relay.request(&[(&record, Outcome::Processed)]) };
    assert_eq!(ok(f.store().settle(&request).await, "settle").applied, 1);
    assert_eq!(labels(&read_all(f).await), ["a2"]);
}

pub async fn settling_nothing_is_no_trouble(f: &dyn StoreFixture) {
    let id = enqueue(f, &[loose("l1")]).await[0];
    let relay = Relay::join(f).await;
    let report = relay.try_settle(&[]).await;
    assert_eq!(report, posthaste::SettleReport::default());
    assert_eq!(show(f, id).await.info.state, State::Ready, "and touches nothing");
}

pub async fn settling_touches_no_other_record(f: &dyn StoreFixture) {
    let messages: Vec<_> = (0..30).map(|n| keyed(&format!("k{}", n % 5), &format!("m{n:02}"))).collect();
    enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    let settled: Vec<_> = records.iter().step_by(3).map(|record| (record, Outcome::Processed)).collect();
    assert_eq!(relay.try_settle(&settled).await.applied, settled.len());
    let gone: Vec<_> = settled.iter().map(|(record, _)| record.id).collect();
    let expected = records.iter().filter(|record| !gone.contains(&record.id));
    assert_eq!(label_set(&read_all(f).await), expected.map(|record| record.event_type.as_str()).collect());
}

pub async fn each_record_of_a_batch_has_its_own_outcome(f: &dyn StoreFixture) {
    let cases: Vec<_> = outcomes().into_iter().cycle().take(50).collect();
    let messages: Vec<_> = (0..cases.len()).map(|n| loose(&format!("m{n}"))).collect();
    let ids = enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    let relay = Relay::join(f).await;
    let settled: Vec<_> = cases
        .iter()
        .zip(&messages)
        .map(|((_, outcome, _), message)| (find(&records, message.event_type()), outcome.clone()))
        .collect();
    assert_eq!(relay.try_settle(&settled).await.applied, cases.len());
    for ((name, _, state), id) in cases.iter().zip(ids) {
        assert_eq!(show(f, id).await.info.state, *state, "{name}");
    }
}

pub async fn a_batch_of_5000_is_settled(f: &dyn StoreFixture) {
    let messages: Vec<_> = (0..5_000).map(|n| keyed(&format!("k{}", n % 100), "m")).collect();
    enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    assert_eq!(records.len(), 5_000);
    let relay = Relay::join(f).await;
    let outcome = |n: usize| match n % 4 {
        0 => retry(LONG),
        1 => dead(false),
        _ => Outcome::Processed,
    };
    let settled: Vec<(&Record, Outcome)> =
        records.iter().enumerate().map(|(n, record)| (record, outcome(n))).collect();
    let report = relay.try_settle(&settled).await;
    assert_eq!((report.applied, report.stale, report.gone), (5_000, 0, 0));
    let stats = ok(f.admin().stats(None).await, "stats");
    assert_eq!((stats.ready.count, stats.waiting.count, stats.dead.count), (0, 1_250, 1_250));
}
