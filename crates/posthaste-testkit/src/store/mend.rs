//! Redriving, discarding and purging.

use std::time::Duration;

use posthaste::{DeadSelection, ErrorKind, Glob, Lane, MessageId, Mode, Outcome, Purge, Purged, State};

use super::fixture::StoreFixture;
use super::support::{
    LONG, Relay, dead, enqueue, everything, exists, find, find_now, keyed, kill, label_set, labels,
    labels_of, loose, ok, read, read_all, refused, retry, show,
};

const ALL: Mode = Mode::UpTo(1_000);
/// The shortest age that a purge is given; everything settled before the last advance is older.
const MOMENT: Duration = Duration::from_millis(1);

async fn redrive(f: &dyn StoreFixture, selection: &DeadSelection, mode: Mode) -> u64 {
    ok(f.admin().redrive(selection, mode).await, "redrive")
}

async fn discard(f: &dyn StoreFixture, selection: &DeadSelection, mode: Mode) -> u64 {
    ok(f.admin().discard(selection, mode).await, "discard")
}

/// Enqueues messages without a key and makes them dead.
async fn dead_messages(f: &dyn StoreFixture, labels: &[&str]) -> Vec<MessageId> {
    let mut ids = Vec::new();
    for label in labels {
        ids.extend(enqueue(f, &[loose(label)]).await);
        kill(f, label, false).await;
    }
    ids
}

async fn states(f: &dyn StoreFixture, ids: &[MessageId]) -> Vec<State> {
    let mut states = Vec::new();
    for id in ids {
        states.push(show(f, *id).await.info.state);
    }
    states
}

pub async fn a_redriven_message_starts_anew(f: &dyn StoreFixture) {
    let id = dead_messages(f, &["l1"]).await[0];
    assert_eq!(redrive(f, &DeadSelection::Ids(vec![id]), ALL).await, 1);
    let info = show(f, id).await.info;
    assert_eq!((info.state, info.attempts), (State::Ready, 0));
    assert_eq!((info.settled_at, info.next_attempt_at), (None, None));
    let record = find_now(f, "l1").await;
    assert_eq!((record.id, record.attempts, record.held_back), (id, 0, false), "the same message, at once");
    let relay = Relay::join(f).await;
    relay.settle(&record, Outcome::Processed).await;
}

pub async fn dead_messages_are_selected_by_id(f: &dyn StoreFixture) {
    let ids = dead_messages(f, &["l1", "l2", "l3", "l4"]).await;
    let some = DeadSelection::Ids(vec![ids[0], ids[2], MessageId::generate()]);
    assert_eq!(redrive(f, &some, ALL).await, 2);
    assert_eq!(states(f, &ids).await, [State::Ready, State::Dead, State::Ready, State::Dead]);
    assert_eq!(discard(f, &DeadSelection::Ids(vec![ids[1], ids[0]]), ALL).await, 1, "l1 is dead no more");
    assert!(exists(f, ids[0]).await && !exists(f, ids[1]).await);
    for nobody in [DeadSelection::Ids(Vec::new()), DeadSelection::Ids(vec![MessageId::generate()])] {
        assert_eq!(redrive(f, &nobody, ALL).await, 0);
        assert_eq!(discard(f, &nobody, ALL).await, 0);
    }
    assert_eq!(show(f, ids[3]).await.info.state, State::Dead);
}

pub async fn dead_messages_are_selected_by_event_type(f: &dyn StoreFixture) {
    let labels = ["order.created", "order.paid", "user.created", "order_paid"];
    let ids = dead_messages(f, &labels).await;
    assert_eq!(redrive(f, &DeadSelection::EventType(Glob::new("order.*")), ALL).await, 2);
    assert_eq!(states(f, &ids).await, [State::Ready, State::Ready, State::Dead, State::Dead]);
    assert_eq!(discard(f, &DeadSelection::EventType(Glob::new("*.created")), ALL).await, 1);
    assert!(!exists(f, ids[2]).await);
    assert!(exists(f, ids[0]).await, "it is dead no more");
}

pub async fn all_dead_messages_can_be_selected(f: &dyn StoreFixture) {
    let ids = dead_messages(f, &["l1", "l2", "l3"]).await;
    assert_eq!(redrive(f, &DeadSelection::All, ALL).await, 3);
    assert_eq!(states(f, &ids).await, [State::Ready; 3]);
    let ids = dead_messages(f, &["l4", "l5"]).await;
    assert_eq!(discard(f, &DeadSelection::All, ALL).await, 2);
    assert!(!exists(f, ids[0]).await && !exists(f, ids[1]).await);
}

/// One message in each state but dead.
async fn the_living(f: &dyn StoreFixture) -> Vec<MessageId> {
    let messages =
        [loose("ready"), loose("delayed").delay(LONG), loose("failed"), loose("begun"), loose("processed")];
    let ids = enqueue(f, &messages).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    relay.settle(find(&records, "failed"), retry(LONG)).await;
    relay.settle(find(&records, "processed"), Outcome::Processed).await;
    assert!(relay.begin_attempt(find(&records, "begun"), 1).await);
    relay.leave().await;
    ids
}

/// Messages that a relay has in hand are pending: mending the dead must not touch them.
pub async fn only_the_dead_are_redriven_or_discarded(f: &dyn StoreFixture) {
    let ids = the_living(f).await;
    let mut before = Vec::new();
    for id in &ids {
        before.push(show(f, *id).await);
    }
    for selection in
        [DeadSelection::All, DeadSelection::Ids(ids.clone()), DeadSelection::EventType(Glob::new("*"))]
    {
        assert_eq!(redrive(f, &selection, ALL).await, 0, "redrive {selection:?}");
        assert_eq!(discard(f, &selection, ALL).await, 0, "discard {selection:?}");
    }
    for (id, before) in ids.iter().zip(before) {
        assert_eq!(show(f, *id).await, before, "it is as it was");
    }
}

pub async fn a_dry_run_counts_and_touches_nothing(f: &dyn StoreFixture) {
    let ids = dead_messages(f, &["order.a", "order.b", "user.a"]).await;
    for (selection, count) in [
        (DeadSelection::All, 3),
        (DeadSelection::EventType(Glob::new("order.*")), 2),
        (DeadSelection::Ids(vec![ids[1], MessageId::generate()]), 1),
    ] {
        assert_eq!(redrive(f, &selection, Mode::DryRun).await, count, "redrive {selection:?}");
        assert_eq!(discard(f, &selection, Mode::DryRun).await, count, "discard {selection:?}");
    }
    assert_eq!(states(f, &ids).await, [State::Dead; 3]);
}

pub async fn a_limit_takes_the_oldest_first(f: &dyn StoreFixture) {
    let ids = dead_messages(f, &["l1", "l2", "l3", "l4", "l5"]).await;
    assert_eq!(redrive(f, &DeadSelection::All, Mode::UpTo(2)).await, 2);
    assert_eq!(states(f, &ids[..3]).await, [State::Ready, State::Ready, State::Dead]);
    assert_eq!(discard(f, &DeadSelection::All, Mode::UpTo(1)).await, 1);
    assert!(!exists(f, ids[2]).await && exists(f, ids[3]).await);
    assert_eq!(redrive(f, &DeadSelection::Ids(ids.clone()), Mode::UpTo(1)).await, 1);
    assert_eq!(states(f, &ids[3..]).await, [State::Ready, State::Dead]);
    assert_eq!(redrive(f, &DeadSelection::All, Mode::UpTo(0)).await, 0);
}

pub async fn the_largest_bounds_of_mending_are_no_trouble(f: &dyn StoreFixture) {
    let ids = dead_messages(f, &["l1", "l2", "l3"]).await;
    let most = Mode::UpTo(u64::MAX);
    let strangers = (0..20_000).map(|_| MessageId::generate());
    let among_many = DeadSelection::Ids(strangers.chain([ids[0]]).collect());
    assert_eq!(redrive(f, &among_many, most).await, 1);
    assert_eq!(
        discard(f, &DeadSelection::Ids(vec![ids[1], ids[1]]), most).await,
        1,
        "named twice, counted once"
    );
    let purge = |older_than| Purge { older_than, include_dead: true, limit: usize::MAX };
    let purged = ok(f.admin().purge(&purge(Duration::MAX)).await, "purge");
    assert_eq!(purged, Purged::default(), "nothing is that old");
    f.advance(LONG).await;
    assert_eq!(ok(f.admin().purge(&purge(MOMENT)).await, "purge").dead, 1);
}

pub async fn two_redrives_at_once_redrive_each_message_once(f: &dyn StoreFixture) {
    let many: Vec<_> = (0..60).map(|n| keyed(&format!("k{n}"), "m")).collect();
    enqueue(f, &many).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    let settled: Vec<_> = records.iter().map(|record| (record, dead(false))).collect();
    relay.try_settle(&settled).await;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let admin = f.admin();
            tokio::spawn(async move { admin.redrive(&DeadSelection::All, Mode::UpTo(40)).await })
        })
        .collect();
    let mut sum = 0;
    for task in tasks {
        let count = task.await.unwrap_or_else(|error| panic!("the task failed: {error}"));
        sum += ok(count, "redrive");
    }
    sum += redrive(f, &DeadSelection::All, ALL).await;
    assert_eq!(sum, 60, "each is counted by the one redrive that redrove it");
    assert_eq!(read_all(f).await.len(), 60);
}

pub async fn a_redrive_under_park_keeps_the_order(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("b", "b1")]).await;
    kill(f, "a1", true).await;
    enqueue(f, &[keyed("a", "a3")]).await;
    assert_eq!(labels(&read_all(f).await), ["b1"]);
    assert_eq!(redrive(f, &DeadSelection::All, ALL).await, 1);
    let records = read_all(f).await;
    assert_eq!(labels_of(&records, "a"), ["a1", "a2", "a3"], "a1 holds back nothing any more");
    assert!(records.iter().all(|record| !record.held_back), "nor is it held back itself");
    let relay = Relay::join(f).await;
    let mut published = Vec::new();
    // A relay publishes the first of a key, settles it, and looks again.
    while let Some(record) = read_all(f).await.iter().find(|it| it.aggregate.aggregate_id() == "a") {
        published.push(record.event_type.clone());
        relay.settle(record, Outcome::Processed).await;
    }
    assert_eq!(published, ["a1", "a2", "a3"]);
}

pub async fn a_discard_under_park_lets_the_key_go_on(f: &dyn StoreFixture) {
    let ids = enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("a", "a3")]).await;
    kill(f, "a1", true).await;
    assert_eq!(discard(f, &DeadSelection::Ids(vec![ids[0]]), ALL).await, 1);
    assert_eq!(labels(&read_all(f).await), ["a2", "a3"]);
    assert!(!exists(f, ids[0]).await);
}

pub async fn a_redrive_after_a_skip_touches_no_other_message(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2")]).await;
    kill(f, "a1", false).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a2", Outcome::Processed).await;
    enqueue(f, &[keyed("a", "a3")]).await;
    assert_eq!(redrive(f, &DeadSelection::All, ALL).await, 1);
    assert_eq!(labels_of(&read_all(f).await, "a"), ["a1", "a3"], "it stands in its old place");
}

async fn revisions(f: &dyn StoreFixture) -> Vec<i64> {
    let page = read(&f.store(), &everything(f)).await;
    page.reached.iter().map(|reached| reached.revision).collect()
}

/// Checks that exactly this lane has another revision than before.
#[track_caller]
fn assert_only_changed(before: &[i64], after: &[i64], lane: Lane, by: &str) {
    for (n, (before, after)) in before.iter().zip(after).enumerate() {
        if n == usize::from(lane.0) {
            assert_ne!(
                before, after,
                "{by} frees records of {lane:?} or brings them back: its revision must change"
            );
        } else {
            assert_eq!(before, after, "{by} touched only {lane:?}, not lane {n}");
        }
    }
}

/// A relay that has passed over blocked records and gone on learns by the revision that they are free now, before
/// it reads a later record of their key.
pub async fn mending_a_parked_key_changes_its_lanes_revision(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2")]).await;
    let lane = find_now(f, "a1").await.lane;
    let all = DeadSelection::All;
    kill(f, "a1", true).await;
    let before = revisions(f).await;
    redrive(f, &all, Mode::DryRun).await;
    discard(f, &all, Mode::DryRun).await;
    assert_eq!(revisions(f).await, before, "a dry run changes nothing");
    assert_eq!(redrive(f, &all, ALL).await, 1);
    assert_only_changed(&before, &revisions(f).await, lane, "a redrive");

    kill(f, "a1", true).await;
    let before = revisions(f).await;
    assert_eq!(discard(f, &all, ALL).await, 1);
    assert_only_changed(&before, &revisions(f).await, lane, "a discard");

    kill(f, "a2", true).await;
    f.advance(LONG).await;
    let before = revisions(f).await;
    let purge = Purge { older_than: MOMENT, include_dead: true, limit: 10 };
    assert_eq!(ok(f.admin().purge(&purge).await, "purge").dead, 1);
    assert_only_changed(&before, &revisions(f).await, lane, "a purge");
}

/// A redriven message stands where a relay has read already.
pub async fn any_redrive_changes_its_lanes_revision(f: &dyn StoreFixture) {
    for (message, label) in [(keyed("a", "a1"), "a1"), (loose("l1"), "l1")] {
        enqueue(f, &[message]).await;
        let lane = find_now(f, label).await.lane;
        kill(f, label, false).await;
        let before = revisions(f).await;
        assert_eq!(redrive(f, &DeadSelection::All, ALL).await, 1);
        assert_only_changed(&before, &revisions(f).await, lane, "a redrive");
    }
}

pub async fn nothing_else_changes_a_revision(f: &dyn StoreFixture) {
    let before = revisions(f).await;
    the_living(f).await;
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("a", "a3"), loose("l1")]).await;
    kill(f, "a1", false).await;
    kill(f, "l1", false).await;
    assert_eq!(discard(f, &DeadSelection::All, ALL).await, 2, "a1, whose key went on without it, and l1");
    kill(f, "a2", true).await;
    f.advance(LONG).await;
    let purge = Purge { older_than: MOMENT, include_dead: false, limit: 10 };
    assert_eq!(ok(f.admin().purge(&purge).await, "purge").processed, 1);
    assert_eq!(revisions(f).await, before, "no record has come free or come back");
}

pub async fn a_purge_deletes_what_was_settled_long_ago(f: &dyn StoreFixture) {
    let living = the_living(f).await;
    let processed = living[4];
    let dead = dead_messages(f, &["dead"]).await[0];
    f.advance(LONG).await;
    let purge = Purge { older_than: LONG * 2, include_dead: true, limit: 100 };
    assert_eq!(ok(f.admin().purge(&purge).await, "purge"), Purged::default(), "nothing is old enough");
    f.advance(LONG * 2).await;
    let only_processed = Purge { include_dead: false, ..purge.clone() };
    let purged = ok(f.admin().purge(&only_processed).await, "purge");
    assert_eq!(purged, Purged { processed: 1, dead: 0 });
    assert!(!exists(f, processed).await && exists(f, dead).await, "the dead are kept unless asked for");
    let purged = ok(f.admin().purge(&purge).await, "purge");
    assert_eq!(purged, Purged { processed: 0, dead: 1 });
    assert!(!exists(f, dead).await);
    for id in &living[..4] {
        assert!(exists(f, *id).await, "nothing that is pending is ever purged");
    }
}

pub async fn a_purge_of_no_age_is_refused(f: &dyn StoreFixture) {
    let living = the_living(f).await;
    let dead = dead_messages(f, &["dead"]).await[0];
    f.advance(LONG).await;
    for include_dead in [false, true] {
        let purge = Purge { older_than: Duration::ZERO, include_dead, limit: 10 };
        refused(f.admin().purge(&purge).await, ErrorKind::InvalidInput, "an age of zero");
    }
    for id in living.into_iter().chain([dead]) {
        assert!(exists(f, id).await, "nothing was deleted");
    }
}

pub async fn a_purge_is_bounded(f: &dyn StoreFixture) {
    dead_messages(f, &["d1", "d2", "d3"]).await;
    enqueue(f, &(0..6).map(|n| loose(&format!("p{n}"))).collect::<Vec<_>>()).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    let settled: Vec<_> = records.iter().map(|record| (record, Outcome::Processed)).collect();
    assert_eq!(relay.try_settle(&settled).await.applied, 6);
    f.advance(LONG).await;
    let purge = Purge { older_than: MOMENT, include_dead: true, limit: 4 };
    let mut steps = Vec::new();
    for _ in 0..5 {
        let purged = ok(f.admin().purge(&purge).await, "purge");
        steps.push(purged.processed + purged.dead);
    }
    assert_eq!(steps, [4, 4, 1, 0, 0], "at most four at a time, both kinds together");
}

pub async fn a_purge_of_a_parking_message_lets_its_key_go_on(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), loose("l1")]).await;
    kill(f, "a1", true).await;
    f.advance(LONG).await;
    let purge = Purge { older_than: MOMENT, include_dead: true, limit: 10 };
    assert_eq!(ok(f.admin().purge(&purge).await, "purge").dead, 1);
    assert_eq!(label_set(&read_all(f).await), ["a2", "l1"].into());
}
