//! How a run ends: drained, after one round, told to stop, or in a hurry.

use posthaste::{Admin, ErrorKind, FailureClass, RetryPolicy, State};
use posthaste_testkit::{End, Gate, ScriptedPublisher, Step};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::support::*;

async fn assert_left(store: &TappedStore) {
    let stats = store.memory().stats(None).await.expect("the store works");
    assert_eq!((stats.lanes_leased, stats.relays.len()), (0, 0), "the lanes are given back");
}

/// A relay whose publishes wait at a gate, with so many under way.
async fn at_the_gate(store: &TappedStore, in_flight: usize) -> (Running, ScriptedPublisher, Gate) {
    let (publisher, gate) = (ScriptedPublisher::default(), Gate::closed());
    publisher.otherwise(Step::publish_after(&gate));
    let builder = relay(store, &publisher).max_in_flight(in_flight).publish_timeout(secs(600));
    let running = start(builder.lease(secs(600)));
    within(secs(5), gate.until_waiting(in_flight)).await;
    (running, publisher, gate)
}

#[tokio::test(start_paused = true)]
async fn drain_publishes_everything_and_ends() {
    let (store, publisher) = (outbox(8), ScriptedPublisher::default());
    let messages = many(700, |n| if n % 5 == 0 { loose() } else { keyed(n % 23) });
    enqueue(&store, &messages);
    let summary = within(secs(10), drain(relay(&store, &publisher).window_rows(100))).await;
    assert_eq!(summary.published, 700);
    assert_exactly_once(&messages, publisher.log());
    assert_eq!(count(&store, State::Processed), 700);
    assert_left(&store).await;
}

#[tokio::test(start_paused = true)]
async fn drain_of_an_empty_outbox_ends_at_once() {
    let (store, publisher) = (outbox(8), ScriptedPublisher::default());
    within(millis(100), drain(relay(&store, &publisher).idle_poll(secs(60)))).await;
}

#[tokio::test(start_paused = true)]
async fn drain_leaves_what_waits_and_what_stands_behind_it() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let failing = enqueue_key(&store, "failing", 3);
    enqueue(&store, &[keyed("delayed").delay(secs(60)), keyed("delayed"), keyed("free")]);
    publisher.always(failing[0], Step::Fail(FailureClass::Failed));
    let policy = RetryPolicy::fixed(secs(60));
    let summary = within(secs(2), drain(relay(&store, &publisher).retry(policy))).await;
    assert_eq!((summary.published, summary.retried), (1, 1));
    assert_eq!(count(&store, State::Waiting), 5);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_what_another_relay_has_in_hand() {
    let store = outbox(1);
    enqueue_key(&store, 1, 3);
    let (other, _, gate) = at_the_gate(&store, 1).await;
    let (view, publisher) = (store.other_view(), ScriptedPublisher::default());
    let draining = tokio::spawn(drain(relay(&view, &publisher)));
    pass(secs(30)).await;
    assert!(!draining.is_finished(), "the other relay has not published them yet");
    assert!(view.calls(Op::Read) < 150, "it asks now and then: {} reads in 30 s", view.calls(Op::Read));
    gate.open();
    let summary = within(secs(2), draining).await.expect("it does not panic");
    assert_eq!(summary.published, 0, "the other relay did the work");
    assert_eq!(other.stop().await.published, 3);
}

#[tokio::test(start_paused = true)]
async fn drain_shares_the_work_with_other_relays() {
    let store = outbox(8);
    let publisher = Crowd::new(millis(10));
    let running = start(relay(&store, &publisher).max_in_flight(4));
    within(secs(5), store.until(|store| store.held().len() == 8)).await;
    enqueue(&store, &many(4_000, keyed));
    let view = store.other_view();
    let summary = within(secs(60), drain(relay(&view, &publisher).max_in_flight(4))).await;
    assert!(summary.published > 500, "{summary:?}");
    assert_eq!(publisher.published("tested"), 4_000);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn drain_takes_over_what_a_relay_that_died_left() {
    let store = outbox(4);
    enqueue_loose(&store, 50);
    let (publisher, hanging) = (ScriptedPublisher::default(), ScriptedPublisher::default());
    hanging.otherwise(Step::Hang);
    let view = store.other_view();
    let dying = start(relay(&view, &hanging).max_in_flight(5));
    within(secs(1), hanging.log().until_begun(5)).await;
    dying.task.abort();
    let summary = within(secs(13), drain(relay(&store, &publisher))).await;
    assert_eq!(summary.published, 50);
}

#[tokio::test(start_paused = true)]
async fn drain_waits_for_a_destination_that_is_down() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    enqueue_loose(&store, 50);
    publisher.otherwise(Step::Fail(FailureClass::Unavailable));
    let draining = tokio::spawn(drain(relay(&store, &publisher)));
    pass(secs(120)).await;
    assert!(!draining.is_finished());
    publisher.otherwise(Step::Publish);
    assert_eq!(within(secs(15), draining).await.expect("it does not panic").published, 50);
}

#[tokio::test(start_paused = true)]
async fn drain_rides_out_a_store_that_is_down() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    enqueue_loose(&store, 50);
    store.break_down(&Op::ALL, Fault::Error(ErrorKind::Unavailable));
    let draining = tokio::spawn(drain(relay(&store, &publisher)));
    pass(secs(120)).await;
    assert!(!draining.is_finished());
    store.heal();
    assert_eq!(within(secs(10), draining).await.expect("it does not panic").published, 50);
}

#[tokio::test(start_paused = true)]
async fn drain_sees_what_is_enqueued_while_it_runs() {
    let (store, publisher) = (outbox(4), Crowd::new(millis(50)));
    enqueue(&store, &many(100, |n| keyed(n % 5)));
    let draining = tokio::spawn(drain(relay(&store, &publisher)));
    pass(millis(500)).await;
    enqueue(&store, &many(100, |n| keyed(n % 5)));
    let summary = within(secs(10), draining).await.expect("it does not panic");
    assert_eq!(summary.published, 200);
}

#[tokio::test(start_paused = true)]
async fn drain_can_be_stopped() {
    let (store, publisher) = (outbox(1), Crowd::new(millis(100)));
    enqueue_key(&store, 1, 100);
    let relay = relay(&store, &publisher).build().expect("the settings are valid");
    let handle = relay.handle();
    let draining = tokio::spawn(relay.drain());
    within(secs(5), publisher.until_published("tested", 5)).await;
    handle.stop();
    let summary = within(millis(200), draining).await.unwrap().expect("the relay started");
    assert!((5..=6).contains(&summary.published), "{summary:?}");
    assert_left(&store).await;
}

#[tokio::test(start_paused = true)]
async fn run_once_takes_one_page() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let ids = enqueue_loose(&store, 25);
    for (round, expected) in [10, 10, 5, 0].into_iter().enumerate() {
        let summary = within(secs(1), run_once(relay(&store, &publisher).window_rows(10))).await;
        assert_eq!(summary.published, expected, "in round {round}");
        assert_left(&store).await;
    }
    assert_eq!(publisher.log().calls().len(), ids.len());
    assert_eq!(count(&store, State::Processed), ids.len());
}

#[tokio::test(start_paused = true)]
async fn run_once_settles_failures_too() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let (failing, rejected) = (enqueue_one(&store, keyed(1)), enqueue_one(&store, keyed(2)));
    publisher.always(failing, Step::Fail(FailureClass::Failed));
    publisher.always(rejected, Step::Fail(FailureClass::Rejected));
    let summary = within(secs(1), run_once(relay(&store, &publisher))).await;
    assert_eq!((summary.published, summary.retried, summary.dead), (0, 1, 1));
    assert_eq!((state(&store, failing), state(&store, rejected)), (State::Waiting, State::Dead));
}

#[tokio::test(start_paused = true)]
async fn run_once_without_a_free_lane_ends_at_once() {
    let store = outbox(1);
    enqueue_key(&store, 1, 3);
    let (other, _, gate) = at_the_gate(&store, 1).await;
    let (view, publisher) = (store.other_view(), ScriptedPublisher::default());
    let summary = within(millis(100), run_once(relay(&view, &publisher))).await;
    assert_eq!(summary.published, 0);
    gate.open();
    other.stop().await;
}

#[tokio::test(start_paused = true)]
async fn run_once_ends_when_the_destination_is_down() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let ids = enqueue_key(&store, 1, 3);
    publisher.otherwise(Step::Fail(FailureClass::Unavailable));
    let summary = within(secs(1), run_once(relay(&store, &publisher))).await;
    assert_eq!((summary.published, summary.retried), (0, 0));
    assert!(ids.iter().all(|id| state(&store, *id) == State::Ready && attempts(&store, *id) == 0));
    assert_left(&store).await;
}

#[tokio::test(start_paused = true)]
async fn run_once_waits_for_a_store_that_is_down() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    enqueue_key(&store, 1, 3);
    store.break_down(&Op::ALL, Fault::Error(ErrorKind::Unavailable));
    let once = tokio::spawn(run_once(relay(&store, &publisher)));
    pass(secs(60)).await;
    store.heal();
    assert_eq!(within(secs(10), once).await.expect("it does not panic").published, 3);
}

#[tokio::test(start_paused = true)]
async fn a_stop_waits_for_what_is_under_way_and_settles_it() {
    let store = outbox(2);
    let ids = enqueue_loose(&store, 30);
    let (running, publisher, gate) = at_the_gate(&store, 5).await;
    running.handle.stop();
    pass(secs(20)).await;
    assert!(!running.task.is_finished(), "it waits for what is under way");
    assert_eq!(publisher.log().calls().len(), 5, "and starts nothing new");
    gate.open();
    let summary = within(millis(100), running.ended()).await;
    assert_eq!((summary.published, summary.abandoned), (5, 0));
    assert_eq!(count(&store, State::Processed), 5, "it is settled");
    let left = ids.iter().filter(|id| state(&store, **id) == State::Ready && attempts(&store, **id) == 0);
    assert_eq!(left.count(), 25, "what had not started is left as it was");
    assert_left(&store).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_after_the_stop_is_settled_as_well() {
    let (store, gate) = (outbox(1), Gate::closed());
    let (failing, away) = (enqueue_one(&store, keyed(1)), enqueue_one(&store, keyed(2)));
    let publisher = ScriptedPublisher::default();
    let after = |class| Step::Await(gate.clone(), Box::new(Step::Fail(class)));
    publisher.on(failing, [after(FailureClass::Failed)]);
    publisher.on(away, [after(FailureClass::Unavailable)]);
    let running = start(relay(&store, &publisher));
    gate.until_waiting(2).await;
    running.handle.stop();
    gate.open();
    within(millis(100), running.ended()).await;
    assert_eq!((state(&store, failing), attempts(&store, failing)), (State::Waiting, 1));
    assert_eq!((state(&store, away), attempts(&store, away)), (State::Ready, 0), "an outage counts nothing");
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_an_idle_relay_ends_at_once() {
    let (store, publisher) = (outbox(8), ScriptedPublisher::default());
    let running = start(relay(&store, &publisher).idle_poll(secs(600)));
    pass(secs(60)).await;
    within(millis(50), running.stop()).await;
    assert_left(&store).await;
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_was_stopped_before_it_ran_publishes_nothing() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    enqueue_loose(&store, 3);
    let relay = relay(&store, &publisher).build().expect("the settings are valid");
    relay.handle().stop();
    let summary = within(secs(1), relay.run_until(std::future::pending())).await;
    assert_eq!(summary.expect("it started").published, 0);
    assert!(publisher.log().calls().is_empty());
    assert_left(&store).await;
}

#[tokio::test(start_paused = true)]
async fn the_shutdown_future_stops_as_the_handle_does() {
    let (store, publisher, gate) = (outbox(1), ScriptedPublisher::default(), Gate::closed());
    enqueue_key(&store, 1, 3);
    publisher.otherwise(Step::publish_after(&gate));
    let (signal, shutdown) = oneshot::channel::<()>();
    let relay = relay(&store, &publisher).build().expect("the settings are valid");
    let task = tokio::spawn(relay.run_until(async move {
        let _ = shutdown.await;
    }));
    gate.until_waiting(1).await;
    drop(signal);
    pass(secs(5)).await;
    assert!(!task.is_finished(), "it waits for what is under way");
    gate.open();
    let summary = within(millis(100), task).await.unwrap().expect("the relay started");
    assert_eq!(summary.published, 1);
    assert_left(&store).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_longer_than_the_drain_timeout_is_abandoned() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let ids = enqueue_loose(&store, 4);
    publisher.always(ids[0], Step::Hang);
    let builder = relay(&store, &publisher).publish_timeout(secs(600)).drain_timeout(secs(7));
    let running = start(builder);
    within(secs(1), publisher.log().until_published(3)).await;
    let stopped = Instant::now();
    let summary = within(secs(8), running.stop()).await;
    assert_eq!(stopped.elapsed(), secs(7));
    assert_eq!((summary.published, summary.abandoned), (3, 1));
    assert_eq!((state(&store, ids[0]), attempts(&store, ids[0])), (State::Ready, 0));
    pass(millis(10)).await;
    assert_eq!(ends(publisher.log(), ids[0]), [Some(End::Dropped)], "the publish is dropped");
    assert_left(&store).await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_relay_ends_at_once() {
    let store = outbox(2);
    enqueue_loose(&store, 20);
    let (running, publisher, _gate) = at_the_gate(&store, 5).await;
    running.handle.abandon();
    let summary = within(millis(10), running.ended()).await;
    assert_eq!((summary.published, summary.abandoned), (0, 5));
    publisher.log().until_ended(5).await;
    assert_eq!(count(&store, State::Ready), 20, "nothing is lost");
    assert_left(&store).await;
}

#[tokio::test(start_paused = true)]
async fn a_stopping_relay_can_be_abandoned() {
    let store = outbox(2);
    enqueue_loose(&store, 20);
    let (running, _publisher, _gate) = at_the_gate(&store, 5).await;
    running.handle.stop();
    pass(secs(3)).await;
    running.handle.stop();
    pass(secs(3)).await;
    assert!(!running.task.is_finished(), "a second stop changes nothing");
    running.handle.abandon();
    let summary = within(millis(10), running.ended()).await;
    assert_eq!(summary.abandoned, 5);
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_cannot_be_written_hold_up_the_end_for_the_drain_timeout_only() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    enqueue_loose(&store, 5);
    store.break_down(&[Op::Settle], Fault::Error(ErrorKind::Unavailable));
    let running = start(relay(&store, &publisher).drain_timeout(secs(9)));
    within(secs(1), publisher.log().until_published(5)).await;
    running.handle.stop();
    pass(secs(8)).await;
    assert!(!running.task.is_finished(), "it tries to write them down");
    within(secs(2), running.ended()).await;
    assert_eq!(count(&store, State::Ready), 5);
}

#[tokio::test(start_paused = true)]
async fn a_stop_writes_outcomes_down_as_soon_as_the_store_is_back() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    enqueue_loose(&store, 5);
    store.break_down(&[Op::Settle], Fault::Error(ErrorKind::Unavailable));
    let running = start(relay(&store, &publisher));
    within(secs(1), publisher.log().until_published(5)).await;
    running.handle.stop();
    pass(secs(8)).await;
    store.heal();
    within(secs(3), running.ended()).await;
    assert_eq!(count(&store, State::Processed), 5);
}

#[tokio::test(start_paused = true)]
async fn a_relay_ends_at_once_although_the_store_is_down() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let running = start(relay(&store, &publisher));
    pass(secs(2)).await;
    store.break_down(&Op::ALL, Fault::Error(ErrorKind::Unavailable));
    pass(secs(60)).await;
    within(secs(1), running.stop()).await;
}
