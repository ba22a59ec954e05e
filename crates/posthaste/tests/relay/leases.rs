//! Several relays on one outbox: who holds which lane, and what happens when a lease is lost.

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste::{Clock, ErrorKind, FailureClass, MessageId, RetryPolicy, State, Store};
use posthaste_testkit::{End, Gate, ScriptedPublisher, Step, VirtualClock};
use tokio::time::Instant;

use crate::support::*;

const DOWN: Fault = Fault::Error(ErrorKind::Unavailable);

/// Waits until each of these relays holds so many lanes.
async fn until_held(views: &[(&TappedStore, usize)], limit: Duration) {
    for (view, count) in views {
        within(limit, view.until(|view| view.held().len() == *count)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn relays_share_the_lanes_fairly_as_they_join_and_leave() {
    let publisher = ScriptedPublisher::default();
    let first = outbox(8);
    let (second, third) = (first.other_view(), first.other_view());
    let one = start(relay(&first, &publisher));
    until_held(&[(&first, 8)], secs(1)).await;
    let two = start(relay(&second, &publisher));
    until_held(&[(&first, 4), (&second, 4)], secs(8)).await;
    let three = start(relay(&third, &publisher));
    until_held(&[(&first, 3), (&second, 3), (&third, 2)], secs(12)).await;
    let held = [first.held(), second.held(), third.held()];
    let all: BTreeSet<_> = held.iter().flatten().collect();
    assert_eq!(all.len(), 8, "each lane has one owner: {held:?}");
    one.stop().await;
    until_held(&[(&second, 4), (&third, 4)], secs(8)).await;
    two.stop().await;
    until_held(&[(&third, 8)], secs(8)).await;
    three.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_relay_without_a_lane_stands_by_and_takes_over() {
    let (first, publisher, standby) = (outbox(1), ScriptedPublisher::default(), ScriptedPublisher::default());
    let second = first.other_view();
    let one = start(relay(&first, &publisher));
    until_held(&[(&first, 1)], secs(1)).await;
    let two = start(relay(&second, &standby));
    second.until_calls(Op::Lease, 3).await;
    enqueue_loose(&first, 5);
    within(secs(1), publisher.log().until_published(5)).await;
    assert!(two.handle.is_ready(), "a relay that stands by is ready");
    one.stop().await;
    enqueue_loose(&first, 5);
    within(secs(2), standby.log().until_published(5)).await;
    two.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_message_is_published_once_while_relays_come_and_go() {
    let (store, publisher) = (outbox(8), Crowd::new(millis(20)));
    let mut relays = Vec::new();
    for round in 0..40_u64 {
        enqueue(&store, &many(50, |n| if n % 5 == 0 { loose() } else { keyed(n) }));
        if round % 3 < 2 {
            let relay = relay(&store.other_view(), &publisher).seed(round).window_rows(64).max_in_flight(8);
            relays.push(start(relay));
        } else {
            relays.remove(usize::try_from(round).unwrap() % relays.len()).stop().await;
        }
        pass(millis(700)).await;
    }
    within(secs(120), publisher.until_published("tested", 2_000)).await;
    pass(secs(5)).await;
    assert_eq!(publisher.published("tested"), 2_000, "each once");
    assert_eq!(publisher.counts().disorders, [], "each key in order");
    assert_eq!(publisher.counts().most_of_a_key, 1, "no two relays publish one key at a time");
    for relay in relays {
        let summary = relay.stop().await;
        assert_eq!((summary.stale, summary.abandoned), (0, 0));
    }
    assert_eq!(count(&store, State::Processed), 2_000);
}

#[tokio::test(start_paused = true)]
async fn retries_keep_their_backoff_however_many_relays_there_are() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let id = enqueue_one(&store, keyed(1));
    publisher.always(id, Step::Fail(FailureClass::Failed));
    let policy = RetryPolicy::fixed(secs(60)).unlimited_attempts();
    let start_one = || start(relay(&store.other_view(), &publisher).retry(policy).idle_poll(secs(1)));
    let _relays: Vec<_> = (0..6).map(|_| start_one()).collect();
    within(secs(700), publisher.log().until_ended(10)).await;
    let began: Vec<_> = publisher.log().calls().iter().map(|call| call.began).collect();
    assert!(gaps(&began).iter().all(|gap| *gap >= secs(60)), "{:?}", gaps(&began));
}

#[tokio::test(start_paused = true)]
async fn a_confirm_that_takes_longer_than_three_leases_is_waited_for() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let gate = Gate::closed();
    publisher.otherwise(Step::publish_after(&gate));
    let id = enqueue_one(&store, keyed(1));
    let build = |view: &TappedStore| relay(view, &publisher).lease(secs(2)).publish_timeout(secs(60));
    let other = store.other_view();
    let (one, two) = (start(build(&store)), start(build(&other)));
    gate.until_waiting(1).await;
    pass(secs(7)).await;
    gate.open();
    within(secs(1), store.until(|store| state(store, id) == State::Processed)).await;
    assert_eq!(publisher.log().calls().len(), 1, "the lease was renewed all the time");
    let (one, two) = (one.stop().await, two.stop().await);
    assert_eq!((one.published + two.published, one.stale + two.stale), (1, 0));
}

/// When this relay's last renewal that worked was sent.
fn last_renewal(store: &TappedStore, worked: usize) -> Instant {
    store.times(Op::Lease)[worked - 1]
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_cannot_renew_stops_publishing_before_its_lease_is_over() {
    let (store, publisher, events) = (outbox(4), ScriptedPublisher::default(), Events::new());
    // A renewal takes a second; the database counts the lease from its end, the relay from its beginning.
    store.slow_down(Op::Lease, secs(1));
    enqueue_loose(&store, 40);
    let gate = Gate::closed();
    publisher.otherwise(Step::publish_after(&gate));
    let relay = start(
        relay(&store, &publisher)
            .max_in_flight(4)
            .observer(events.clone())
            .lease(secs(6))
            .publish_timeout(secs(60)),
    );
    gate.until_waiting(4).await;
    let worked = store.calls(Op::Lease);
    store.break_down(&[Op::Lease], DOWN);
    within(secs(10), events.until("lapsed")).await;
    let lapsed = Instant::now();
    assert!(lapsed <= last_renewal(&store, worked) + secs(6), "a second before the database thinks so");
    within(millis(1), publisher.log().until_ended(4)).await;
    let ends: Vec<_> = publisher.log().calls().iter().map(|call| call.end.map(|(end, _)| end)).collect();
    assert_eq!(ends, [Some(End::Dropped); 4], "what was under way is dropped");
    pass(secs(60)).await;
    assert_eq!(publisher.log().calls().len(), 4, "nothing is published without a lease");
    assert!(!relay.handle.is_ready());
    store.heal();
    gate.open();
    within(secs(10), store.until_settled()).await;
    assert_eq!(relay.stop().await.abandoned, 4);
}

/// Lets the first message of a key fail once and brings its second attempt to a gate.
async fn retried_at_the_gate(ids: &[MessageId], publisher: &ScriptedPublisher, gate: &Gate, then: Step) {
    let second = Step::Await(gate.clone(), Box::new(then));
    publisher.on(ids[0], [Step::Fail(FailureClass::Failed), second]);
    within(secs(5), gate.until_waiting(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_after_its_retried_message_was_under_way_when_the_lease_was_lost() {
    let (store, publisher, gate) = (outbox(1), ScriptedPublisher::default(), Gate::closed());
    let events = Events::new();
    let ids = enqueue_key(&store, 1, 5);
    let builder = relay(&store, &publisher).publish_timeout(secs(60)).observer(events.clone());
    let _relay = start(builder.retry(RetryPolicy::fixed(secs(1))));
    retried_at_the_gate(&ids, &publisher, &gate, Step::Publish).await;
    store.break_down(&[Op::Lease], DOWN);
    within(secs(12), events.until("lapsed")).await;
    store.heal();
    within(secs(10), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids);
}

/// Lets a retried message come to this end while its lane is to be given back, and cannot be because of another
/// message of it, and then stays after all.
async fn a_lane_that_stayed(then: Step) {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let (gate, other_gate) = (Gate::closed(), Gate::closed());
    let is_of_lane_1 = |key: &String| {
        let id = enqueue_one(&store, keyed(key));
        stored(store.memory(), id).lane.0 == 1
    };
    let keys: Vec<_> = (0..).map(|n| format!("key {n}")).filter(is_of_lane_1).take(2).collect();
    let builder = relay(&store, &publisher).publish_timeout(secs(600));
    let _relay = start(builder.retry(RetryPolicy::fixed(secs(1))));
    within(secs(2), store.until_settled()).await;
    let busy = enqueue_one(&store, keyed(&keys[0]));
    publisher.on(busy, [Step::publish_after(&other_gate)]);
    let ids = enqueue_key(&store, &keys[1], 4);
    retried_at_the_gate(&ids, &publisher, &gate, then).await;
    let second = store.other_view();
    let guest = start(relay(&second, &publisher));
    pass(secs(10)).await;
    assert!(second.held().is_empty(), "the lane cannot be given back yet");
    gate.open();
    pass(secs(5)).await;
    guest.stop().await;
    let are_over = |store: &TappedStore| ids.iter().all(|id| state(store, *id) == State::Processed);
    within(secs(10), store.until(are_over)).await;
    assert_eq!(came_out(publisher.log(), &ids), ids);
    other_gate.open();
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_after_its_retried_message_was_published_from_a_lane_that_stayed() {
    a_lane_that_stayed(Step::Publish).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_after_its_retried_message_failed_in_a_lane_that_stayed() {
    a_lane_that_stayed(Step::Fail(FailureClass::Failed)).await;
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_after_its_retried_message_was_given_up_with_a_lane_that_stayed() {
    a_lane_that_stayed(Step::Fail(FailureClass::Unavailable)).await;
}

#[tokio::test(start_paused = true)]
async fn renewals_that_take_too_long_cost_no_attempt_and_kill_no_message() {
    let (first, publisher, events) = (outbox(2), Crowd::new(millis(20)), Events::new());
    let second = first.other_view();
    let build = |view: &TappedStore| relay(view, &publisher).lease(secs(3)).observer(events.clone());
    let relays = [start(build(&first)), start(build(&second))];
    enqueue(&first, &many(3_000, |n| keyed(n % 6)));
    for _ in 0..3 {
        pass(millis(700)).await;
        first.slow_down(Op::Lease, secs(6));
        pass(secs(7)).await;
        first.slow_down(Op::Lease, millis(0));
    }
    within(secs(60), first.until_settled()).await;
    assert!(events.count("lapsed") > 0, "{:?}", events.all());
    assert_eq!(events.count("died") + events.count("retried"), 0, "it is not the messages' fault");
    assert_eq!(count(&first, State::Processed), 3_000);
    for relay in relays {
        relay.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn thousands_of_messages_due_at_once_are_published_once_by_several_relays() {
    let (store, publisher) = (outbox(6), Crowd::new(millis(30)));
    let at = VirtualClock::start().now() + secs(60);
    enqueue(&store, &many(2_000, |n| if n % 2 == 0 { loose() } else { keyed(n) }.available_at(at)));
    let start_one = |seed| start(relay(&store.other_view(), &publisher).max_in_flight(10).seed(seed));
    let relays: Vec<_> = (0..3).map(start_one).collect();
    within(secs(90), publisher.until_published("tested", 2_000)).await;
    pass(secs(5)).await;
    assert_eq!(publisher.published("tested"), 2_000);
    for relay in relays {
        assert_eq!(relay.stop().await.retried, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_lost_its_lease_cannot_overwrite_what_the_next_one_did() {
    let (zombie, publisher) = (outbox(1), ScriptedPublisher::default());
    let id = enqueue_one(&zombie, keyed(1));
    publisher.on(id, [Step::Publish, Step::Fail(FailureClass::Failed)]);
    let one = start(relay(&zombie, &publisher).lease(secs(3)));
    zombie.break_down(&[Op::Settle], DOWN);
    within(secs(1), publisher.log().until_published(1)).await;
    zombie.break_down(&[Op::Lease], DOWN);
    // The next relay takes the lane over, and its attempt fails.
    let successor = zombie.other_view();
    let policy = RetryPolicy::fixed(secs(100));
    let two = start(relay(&successor, &publisher).lease(secs(3)).retry(policy));
    within(secs(10), successor.until(|store| attempts(store, id) == 1)).await;
    zombie.heal();
    within(secs(10), zombie.until(|store| !store.settles().is_empty())).await;
    assert_eq!(zombie.settles()[0].1.stale, 1, "the late outcome is refused");
    assert_eq!((state(&zombie, id), attempts(&zombie, id)), (State::Waiting, 1), "and changed nothing");
    assert_eq!(one.stop().await.stale, 1, "it is counted");
    assert_eq!(two.stop().await.stale, 0);
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_lost_a_lane_and_has_it_again_publishes_its_messages() {
    let (first, publisher, events) = (outbox(1), ScriptedPublisher::default(), Events::new());
    let ids = enqueue_key(&first, 1, 2);
    publisher.on(ids[0], [Step::Publish, Step::Fail(FailureClass::Rejected)]);
    let one = start(relay(&first, &publisher).lease(secs(3)).observer(events.clone()));
    first.break_down(&[Op::Settle], DOWN);
    within(secs(1), publisher.log().until_published(2)).await;
    first.break_down(&[Op::Lease], DOWN);
    // Another relay takes the lane, gives the first message up, and leaves.
    let second = first.other_view();
    let two = start(relay(&second, &publisher).lease(secs(3)));
    within(secs(10), second.until_settled()).await;
    two.stop().await;
    first.heal();
    within(secs(10), first.until(|store| !store.settles().is_empty())).await;
    within(secs(10), first.until(|store| store.held().len() == 1)).await;
    // Redriven, it is as good as new for the relay that once had it in hand.
    posthaste::Admin::redrive(first.memory(), &only(ids[0]), posthaste::Mode::UpTo(1)).await.unwrap();
    within(secs(5), first.until(|store| state(store, ids[0]) == State::Processed)).await;
    let third = first.other_view();
    let three = start(relay(&third, &publisher).lease(secs(3)));
    pass(secs(5)).await;
    one.stop().await;
    within(secs(5), third.until(|store| store.held().len() == 1)).await;
    three.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lane_of_which_outcomes_were_refused_can_still_be_shared() {
    let (first, publisher) = (outbox(2), ScriptedPublisher::default());
    for key in 0..10 {
        enqueue_one(&first, keyed(key));
    }
    let one = start(relay(&first, &publisher).lease(secs(3)));
    first.break_down(&[Op::Settle], DOWN);
    within(secs(1), publisher.log().until_published(10)).await;
    first.break_down(&[Op::Lease], DOWN);
    let second = first.other_view();
    let two = start(relay(&second, &publisher).lease(secs(3)));
    within(secs(10), second.until_settled()).await;
    two.stop().await;
    first.heal();
    within(secs(10), first.until(|store| store.held().len() == 2)).await;
    let third = first.other_view();
    let three = start(relay(&third, &publisher).lease(secs(3)));
    within(secs(5), third.until(|store| store.held().len() == 1)).await;
    three.stop().await;
    one.stop().await;
}

/// Lets this relay's lease lapse, and another one take its lanes and leave again, while no outcome of the first one
/// can be written down.
async fn lapses_and_has_its_lane_again(first: &TappedStore, other_publisher: &ScriptedPublisher) {
    first.break_down(&[Op::Lease, Op::Settle], DOWN);
    let second = first.other_view();
    let guest = start(relay(&second, other_publisher).lease(secs(3)));
    within(secs(10), second.until(|store| !store.held().is_empty())).await;
    pass(millis(100)).await;
    guest.handle.abandon();
    guest.ended().await;
    first.mend(Op::Lease);
    within(secs(5), first.until(|store| !store.held().is_empty())).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_from_before_the_lane_was_lost_does_not_let_its_key_overtake_it() {
    let (store, publisher, hanging) = (outbox(1), ScriptedPublisher::default(), ScriptedPublisher::default());
    hanging.otherwise(Step::Hang);
    let mut ids = enqueue_key(&store, 1, 3);
    publisher.on(ids[0], [Step::Fail(FailureClass::Failed)]);
    store.break_down(&[Op::Settle], DOWN);
    let _relay = start(relay(&store, &publisher).lease(secs(3)));
    within(secs(1), publisher.log().until_ended(1)).await;
    lapses_and_has_its_lane_again(&store, &hanging).await;
    enqueue_loose(&store, 20);
    pass(secs(1)).await;
    store.heal();
    within(secs(5), store.until(|store| !store.settles().is_empty())).await;
    ids.extend(enqueue_key(&store, 1, 3));
    within(secs(10), store.until_settled()).await;
    assert_eq!(came_out(publisher.log(), &ids), ids);
}

#[tokio::test(start_paused = true)]
async fn outcomes_from_before_a_lane_was_lost_do_not_cost_the_lane_again() {
    let (store, publisher, gate) = (outbox(1), ScriptedPublisher::default(), Gate::closed());
    store.break_down(&[Op::Settle], DOWN);
    let running = start(relay(&store, &publisher).lease(secs(3)).publish_timeout(secs(60)));
    for key in ["a", "b"] {
        enqueue_one(&store, keyed(key));
        pass(millis(500)).await;
    }
    lapses_and_has_its_lane_again(&store, &publisher).await;
    let (slow, quick) = (enqueue_one(&store, keyed("slow")), enqueue_one(&store, keyed("quick")));
    publisher.on(slow, [Step::publish_after(&gate)]);
    within(secs(5), publisher.log().until(|calls| calls.iter().any(|call| call.id == quick))).await;
    store.heal();
    within(secs(5), store.until(|store| state(store, quick) == State::Processed)).await;
    pass(secs(5)).await;
    gate.open();
    within(secs(5), store.until_settled()).await;
    assert_eq!(ends(publisher.log(), slow), [Some(End::Published)], "it was not dropped");
    let summary = running.stop().await;
    assert_eq!((summary.stale, summary.abandoned), (2, 0), "only the two from before are refused");
}

#[tokio::test(start_paused = true)]
async fn the_lanes_of_a_relay_that_died_are_taken_over_when_its_lease_is_over() {
    let (first, publisher) = (outbox(4), ScriptedPublisher::default());
    let messages = many(500, |n| keyed(n % 20));
    enqueue(&first, &messages);
    publisher.otherwise(Step::Hang);
    let dying = start(relay(&first, &publisher).max_in_flight(8));
    publisher.log().until_begun(8).await;
    dying.task.abort();
    publisher.log().until_ended(8).await;
    publisher.otherwise(Step::Publish);
    let second = first.other_view();
    let began = Instant::now();
    let _next = start(relay(&second, &publisher));
    pass(secs(9)).await;
    assert_eq!(publisher.log().calls().len(), 8, "until then nobody else publishes");
    within(secs(3), second.until_settled()).await;
    assert!(began.elapsed() < secs(12), "a lease and a moment later: {:?}", began.elapsed());
    assert_exactly_once(&messages, publisher.log());
}

#[tokio::test(start_paused = true)]
async fn lanes_are_given_back_at_once_when_a_relay_stops() {
    let (first, publisher) = (outbox(4), ScriptedPublisher::default());
    let gate = Gate::closed();
    publisher.otherwise(Step::publish_after(&gate));
    let ids = enqueue_loose(&first, 50);
    let stopping = start(relay(&first, &publisher).max_in_flight(5).lease(secs(600)));
    gate.until_waiting(5).await;
    stopping.handle.stop();
    gate.open();
    within(secs(1), stopping.ended()).await;
    assert_eq!(first.memory().messages().len(), ids.len());
    let second = first.other_view();
    let _next = start(relay(&second, &publisher).lease(secs(600)));
    within(millis(100), second.until_settled()).await;
    assert_eq!(publisher.log().calls().len(), ids.len(), "what had not started was left to the next relay");
}

/// Lets a relay publish under a gate, and another one take its lanes meanwhile because the database's clock jumped.
async fn jumped_over(
    lanes: u16,
    keys: usize,
) -> (TappedStore, TappedStore, ScriptedPublisher, Gate, [Running; 2]) {
    let (first, clock) = outbox_on_jumping_clock(lanes);
    let (publisher, gate) = (ScriptedPublisher::default(), Gate::closed());
    publisher.otherwise(Step::publish_after(&gate));
    for key in 0..keys {
        enqueue_key(&first, key, 3);
    }
    let build = |view: &TappedStore| {
        relay(view, &publisher).publish_timeout(secs(100)).max_in_flight(4).window_rows(20)
    };
    let one = start(build(&first));
    gate.until_waiting(4).await;
    let second = first.other_view();
    clock.jump(secs(60));
    let two = start(build(&second));
    until_held(&[(&second, usize::from(lanes))], secs(10)).await;
    (first, second, publisher, gate, [one, two])
}

#[tokio::test(start_paused = true)]
async fn publishes_of_lanes_that_were_taken_away_are_dropped() {
    let (first, second, publisher, gate, [one, two]) = jumped_over(2, 8).await;
    within(secs(10), first.until(|store| store.held().is_empty() || store.held().len() == 1)).await;
    pass(secs(1)).await;
    let calls = publisher.log().calls();
    let dropped = calls.iter().filter(|call| matches!(call.end, Some((End::Dropped, _))));
    assert_eq!(dropped.count(), 4, "the first relay learned that its lanes are gone");
    assert!(gate.waiting() <= 8, "no relay has more under way than it may: {}", gate.waiting());
    gate.open();
    within(secs(10), second.until_settled()).await;
    let (one, two) = (one.stop().await, two.stop().await);
    assert_eq!((one.abandoned, one.stale, two.stale), (4, 0, 0));
    assert_eq!(one.published + two.published, 24, "in all, everything was published once by the table");
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_comes_after_the_lane_was_taken_away_is_refused_and_counted() {
    let (first, second, publisher, gate, [one, two]) = jumped_over(1, 4).await;
    gate.open();
    within(secs(10), second.until_settled()).await;
    within(secs(10), first.until(|store| !store.settles().is_empty())).await;
    let (one, two) = (one.stop().await, two.stop().await);
    assert!(one.stale >= 4, "{one:?}");
    assert_eq!(two.stale, 0, "{two:?}");
    let found = violations(&[], publisher.log());
    assert!(found.disorders.is_empty(), "each key in order: {found}");
}

#[tokio::test(start_paused = true)]
async fn a_relay_whose_row_was_deleted_by_hand_takes_its_lanes_again() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let before: Vec<MessageId> = enqueue_key(&store, 1, 3);
    let running = start(relay(&store, &publisher));
    within(secs(1), store.until_settled()).await;
    let relays = posthaste::Admin::stats(store.memory(), None).await.unwrap().relays;
    store.memory().leave(posthaste::RelayId(relays[0].id.parse().unwrap())).await.unwrap();
    let after = enqueue_key(&store, 1, 3);
    within(secs(10), store.until_settled()).await;
    let all: BTreeSet<_> = publisher.log().published().into_iter().collect();
    assert_eq!(all, before.into_iter().chain(after).collect(), "everything is published");
    running.stop().await;
}
