//! What an idle relay costs, and how it wakes up.

use std::collections::BTreeMap;

use posthaste::{FailureClass, Glob, Message, Receipt, RetryPolicy, Waker};
use posthaste_testkit::{ScriptedPublisher, Step};
use tokio::time::Instant;

use crate::support::*;

const FAILED: Step = Step::Fail(FailureClass::Failed);

/// How many calls a second the store gets from an idle relay.
async fn calls_per_second(store: &TappedStore) -> f64 {
    pass(secs(10)).await;
    let before = store.all_calls();
    pass(secs(60)).await;
    f64::from(u32::try_from(store.all_calls() - before).expect("it is a small number")) / 60.0
}

#[tokio::test(start_paused = true)]
async fn an_idle_relay_costs_less_than_five_calls_a_second() {
    let (store, publisher) = (outbox(16), ScriptedPublisher::default());
    enqueue_loose(&store, 100);
    let _relay = start(relay(&store, &publisher));
    let calls = calls_per_second(&store).await;
    assert!(calls < 5.0, "{calls} calls a second");
}

#[tokio::test(start_paused = true)]
async fn a_longer_idle_interval_costs_less() {
    let (store, publisher) = (outbox(16), ScriptedPublisher::default());
    enqueue_loose(&store, 100);
    let _relay = start(relay(&store, &publisher).idle_poll(secs(5)));
    let calls = calls_per_second(&store).await;
    assert!(calls < 1.0, "{calls} calls a second");
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_stands_by_costs_next_to_nothing() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let _first = start(relay(&store, &publisher));
    within(secs(1), store.until(|store| store.held().len() == 1)).await;
    let standby = store.other_view();
    let _second = start(relay(&standby, &publisher));
    let calls = calls_per_second(&standby).await;
    assert!(calls < 1.2, "{calls} calls a second");
}

#[tokio::test(start_paused = true)]
async fn a_relay_with_only_waiting_and_blocked_messages_is_idle() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    enqueue(&store, &many(50, |n| keyed(n % 10).delay(secs(24 * 3_600))));
    enqueue(&store, &many(500, |n| keyed(n % 10)));
    let _relay = start(relay(&store, &publisher));
    let calls = calls_per_second(&store).await;
    assert!(calls < 5.0, "{calls} calls a second");
}

/// A relay that polls every ten minutes and hears a bell of its own.
fn deaf(lanes: u16) -> (TappedStore, ScriptedPublisher, Waker, Running) {
    let bell = Waker::default();
    let (store, publisher) = (outbox(lanes).with_bell(&bell), ScriptedPublisher::default());
    let policy = RetryPolicy::fixed(secs(40));
    let running = start(relay(&store, &publisher).idle_poll(secs(600)).retry(policy));
    (store, publisher, bell, running)
}

#[tokio::test(start_paused = true)]
async fn a_receipt_wakes_an_idle_relay() {
    let (store, publisher, bell, _relay) = deaf(4);
    pass(secs(60)).await;
    let id = enqueue_one(&store, keyed(1));
    pass(secs(60)).await;
    assert!(publisher.log().calls().is_empty(), "nobody told it");
    Receipt::new(id, bell).wake();
    within(millis(5), publisher.log().until_published(1)).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_wake_up_the_next_poll_finds_the_message() {
    let (store, publisher, _bell, _relay) = deaf(4);
    pass(secs(60)).await;
    enqueue_one(&store, keyed(1));
    within(secs(601), publisher.log().until_published(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wake_up_that_comes_while_the_relay_is_busy_is_not_lost() {
    let (store, publisher, bell, _relay) = deaf(1);
    store.slow_down(Op::Read, secs(2));
    pass(secs(100)).await;
    bell.wake();
    pass(secs(1)).await;
    // The read that the first call caused is under way and does not see this.
    let id = enqueue_one(&store, keyed(1));
    Receipt::new(id, bell).wake();
    within(secs(5), publisher.log().until_published(1)).await;
}

#[tokio::test(start_paused = true)]
async fn wake_ups_without_work_do_not_make_the_relay_spin() {
    let (store, _publisher, bell, _relay) = deaf(1);
    pass(secs(60)).await;
    let before = store.calls(Op::Read);
    for _ in 0..100 {
        bell.wake();
        pass(millis(10)).await;
    }
    let reads = store.calls(Op::Read) - before;
    assert!(reads <= 250, "{reads} reads for 100 wake-ups");
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_not_overslept() {
    let (store, publisher, bell, _relay) = deaf(1);
    let id = enqueue_one(&store, keyed(1));
    publisher.on(id, [FAILED, FAILED]);
    bell.wake();
    within(secs(90), store.until_settled()).await;
    let waits = waits(publisher.log(), id);
    assert!(waits.iter().all(|wait| *wait >= secs(40) && *wait < millis(40_050)), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn none_of_many_retries_is_overslept() {
    let bell = Waker::default();
    let (store, publisher) = (outbox(4).with_bell(&bell), ScriptedPublisher::default());
    let mut builder = relay(&store, &publisher).idle_poll(secs(6_000));
    let waits: BTreeMap<String, u64> = (1..=30).map(|n| (format!("after.{n}"), n * 20)).collect();
    for (event_type, wait) in &waits {
        builder = builder.retry_for(Glob::new(event_type), RetryPolicy::fixed(secs(*wait)));
    }
    let messages: Vec<_> = waits.keys().rev().map(Message::new).collect();
    messages.iter().for_each(|message| publisher.on(message.id(), [FAILED]));
    enqueue(&store, &messages);
    let _relay = start(builder);
    within(secs(700), store.until_settled()).await;
    for message in messages {
        let (asked, waited) =
            (secs(waits[message.event_type()]), crate::support::waits(publisher.log(), message.id())[0]);
        assert!(waited < asked + millis(100), "asked to wait {asked:?}, it waited {waited:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_comes_to_an_idle_relay_is_published_within_the_idle_interval() {
    let bell = Waker::default();
    let (store, publisher) = (outbox(4).with_bell(&bell), ScriptedPublisher::default());
    let _relay = start(relay(&store, &publisher));
    for round in 1..=10 {
        pass(secs(20)).await;
        let began = Instant::now();
        enqueue_one(&store, keyed(round));
        within(millis(450), publisher.log().until_published(round)).await;
        assert!(began.elapsed() <= millis(401), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn messages_that_follow_one_another_are_found_at_once() {
    let bell = Waker::default();
    let (store, publisher) = (outbox(4).with_bell(&bell), ScriptedPublisher::default());
    let _relay = start(relay(&store, &publisher));
    enqueue_one(&store, keyed("first"));
    within(millis(300), publisher.log().until_published(1)).await;
    for round in 2..=20 {
        pass(millis(3)).await;
        enqueue_one(&store, keyed(round));
        within(millis(10), publisher.log().until_published(round)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn producers_are_told_when_the_relay_is_idle_and_when_it_is_busy_for_long() {
    let bell = Waker::default();
    let (store, publisher) = (outbox(4).with_bell(&bell), ScriptedPublisher::default());
    let _relay = start(relay(&store, &publisher));
    within(secs(3), store.until_calls(Op::SetIdle, 1)).await;
    for _ in 0..30 {
        pass(secs(2)).await;
        enqueue_loose(&store, 3);
        bell.wake();
    }
    assert_eq!(store.calls(Op::SetIdle), 1, "a message now and then changes nothing");
    for _ in 0..300 {
        pass(millis(10)).await;
        enqueue_loose(&store, 3);
    }
    assert_eq!(store.calls(Op::SetIdle), 2, "steady work does");
    pass(secs(10)).await;
    assert_eq!(store.calls(Op::SetIdle), 3, "and so does its end");
}

#[tokio::test(start_paused = true)]
async fn a_commit_wakes_every_relay_of_the_process() {
    let (store, publisher) = (outbox(8), ScriptedPublisher::default());
    let start_one = |view: &TappedStore| start(relay(view, &publisher).idle_poll(secs(600)));
    let views = [store.other_view(), store.other_view(), store.other_view()];
    let _relays: Vec<_> = views.iter().map(start_one).collect();
    for view in &views {
        within(secs(20), view.until(|view| (2..=3).contains(&view.held().len()))).await;
    }
    for round in 1..=10 {
        pass(secs(30)).await;
        enqueue_loose(&store, 24);
        within(millis(10), publisher.log().until_published(round * 24)).await;
    }
}
