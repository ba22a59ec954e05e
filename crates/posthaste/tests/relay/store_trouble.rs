//! The store fails, panics, is slow, or is away for minutes.

use posthaste::{ErrorKind, FailureClass, RetryPolicy, State};
use posthaste_testkit::{ScriptedPublisher, Step};

use crate::support::*;

const DOWN: Fault = Fault::Error(ErrorKind::Unavailable);

/// Lets one call fail, before work comes and once more while there is work, and checks that everything goes on.
async fn survives(op: Op, fault: Fault) {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let messages = many(60, |n| if n % 5 == 0 { loose() } else { keyed(n % 7) });
    publisher.on(messages[7].id(), [Step::Fail(FailureClass::Failed)]);
    store.fail_once(op, fault);
    enqueue(&store, &messages[..30]);
    let running = start(
        relay(&store, &publisher).retry(RetryPolicy::fixed(secs(1))).upkeep_every(secs(1)).window_rows(10),
    );
    within(secs(20), store.until_settled()).await;
    within(secs(20), store.until(TappedStore::has_failed)).await;
    store.fail_once(op, fault);
    enqueue(&store, &messages[30..]);
    within(secs(20), store.until_settled()).await;
    within(secs(20), store.until(TappedStore::has_failed)).await;
    assert_exactly_once(&messages, publisher.log());
    assert!(running.handle.is_ready(), "after {fault:?} in {op:?} the relay is well again");
    let summary = within(secs(10), running.stop()).await;
    assert_eq!((summary.published, summary.retried, summary.stale), (60, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_once_is_made_again() {
    for fault in [DOWN, Fault::ErrorAfter, Fault::Panic] {
        survives(Op::Lease, fault).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_once_is_made_again() {
    for fault in [DOWN, Fault::ErrorAfter, Fault::Panic] {
        survives(Op::Read, fault).await;
    }
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_were_not_written_once_are_written_again() {
    for fault in [DOWN, Fault::ErrorAfter, Fault::Panic] {
        survives(Op::Settle, fault).await;
    }
}

#[tokio::test(start_paused = true)]
async fn upkeep_that_fails_once_is_done_again() {
    for fault in [DOWN, Fault::ErrorAfter, Fault::Panic] {
        survives(Op::Upkeep, fault).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_could_not_say_that_it_is_idle_says_it_again() {
    for fault in [DOWN, Fault::ErrorAfter, Fault::Panic] {
        let (store, publisher) = (outbox(4), ScriptedPublisher::default());
        store.break_down(&[Op::SetIdle], fault);
        let running = start(relay(&store, &publisher));
        pass(secs(60)).await;
        let calls = store.calls(Op::SetIdle);
        assert!((2..=70).contains(&calls), "it is tried again now and then: {calls} calls in a minute");
        store.heal();
        within(secs(10), store.until_calls(Op::SetIdle, calls + 1)).await;
        pass(secs(10)).await;
        assert_eq!(store.calls(Op::SetIdle), calls + 1, "once it is said, it is left at that");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_ends_although_its_lanes_cannot_be_given_back() {
    for fault in [DOWN, Fault::Panic, Fault::Hang] {
        let (store, publisher) = (outbox(4), ScriptedPublisher::default());
        enqueue_loose(&store, 5);
        store.fail_once(Op::Leave, fault);
        let running = start(relay(&store, &publisher));
        within(secs(1), store.until_settled()).await;
        let summary = within(secs(6), running.stop()).await;
        assert_eq!(summary.published, 5, "after {fault:?}");
        let next = store.other_view();
        let _next = start(relay(&next, &publisher));
        within(secs(12), next.until(|store| store.held().len() == 4)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_dies_is_started_again() {
    let (store, publisher, events) = (outbox(4), ScriptedPublisher::default(), Events::new());
    let running = start(relay(&store, &publisher).observer(events.clone()));
    for _ in 0..3 {
        pass(secs(3)).await;
        store.fail_once(Op::Rung, Fault::Panic);
        within(secs(3), store.until(TappedStore::has_failed)).await;
        let ids = enqueue_loose(&store, 10);
        within(secs(3), store.until(|store| state(store, ids[9]) == State::Processed)).await;
        assert!(running.handle.is_ready());
    }
    within(secs(1), events.until_count("loop restarted", 3)).await;
    assert_eq!(publisher.log().calls().len(), 30, "nothing was under way, so nothing is published twice");
    assert_eq!(running.stop().await.published, 30);
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_dies_does_not_forget_that_it_was_told_to_stop() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let running = start(relay(&store, &publisher));
    pass(secs(3)).await;
    store.fail_once(Op::Rung, Fault::Panic);
    within(secs(3), store.until(TappedStore::has_failed)).await;
    within(secs(1), running.stop()).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_twice_while_outcomes_cannot_be_written() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let messages = many(300, |n| if n % 5 == 0 { loose() } else { keyed(n % 23) });
    enqueue(&store, &messages);
    store.break_down(&[Op::Settle], DOWN);
    let running = start(relay(&store, &publisher).window_rows(100).settle_batch(20));
    pass(secs(300)).await;
    let calls = publisher.log().calls().len();
    assert!((75..=100).contains(&calls), "about a window is published, and no more: {calls}");
    let calls = store.calls(Op::Settle);
    assert!(calls < 900, "the store is left alone: {calls} calls in 5 minutes");
    store.heal();
    within(secs(10), store.until_settled()).await;
    assert_exactly_once(&messages, publisher.log());
    assert_eq!(running.stop().await.published, 300);
}

#[tokio::test(start_paused = true)]
async fn failures_that_cannot_be_written_down_hold_their_keys_up_until_they_are() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let ids = enqueue_key(&store, 1, 4);
    publisher.on(ids[1], [Step::Fail(FailureClass::Failed)]);
    store.break_down(&[Op::Settle], DOWN);
    let _relay = start(relay(&store, &publisher).retry(RetryPolicy::fixed(secs(5))));
    pass(secs(60)).await;
    assert_eq!(begun(publisher.log()), ids[..2], "no later message overtakes the failed one");
    store.heal();
    within(secs(20), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids);
}

#[tokio::test(start_paused = true)]
async fn the_relay_does_not_spin_while_failures_cannot_be_written_down() {
    for (window, in_flight) in [(4, 1), (40, 4), (40, 16), (1_000, 10)] {
        let (store, publisher) = (outbox(2), ScriptedPublisher::default());
        // Nothing becomes firm behind an open transaction, so the relay looks at everything again and again.
        let mut open = store.memory().begin();
        open.enqueue(&loose()).expect("the message is valid");
        let keys: Vec<_> = (0..50).map(|key| enqueue_key(&store, key, 10)).collect();
        keys.iter().for_each(|ids| publisher.on(ids[0], [Step::Fail(FailureClass::Failed)]));
        store.break_down(&[Op::Settle], DOWN);
        let builder = relay(&store, &publisher).window_rows(window).max_in_flight(in_flight);
        let running = start(builder.retry(RetryPolicy::fixed(secs(1))));
        let others = enqueue_loose(&store, 3);
        pass(secs(60)).await;
        assert!(store.all_calls() < 3_000, "{} calls in a minute, window {window}", store.all_calls());
        store.heal();
        within(secs(60), store.until_settled()).await;
        assert!(others.iter().all(|id| state(&store, *id) == State::Processed));
        for ids in keys {
            assert_eq!(came_out(publisher.log(), &ids), ids);
        }
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_minutes_is_left_alone_and_found_again() {
    for fault in [DOWN, Fault::Panic] {
        let (store, publisher) = (outbox(4), ScriptedPublisher::default());
        let messages = many(200, |n| keyed(n % 23));
        enqueue(&store, &messages[..100]);
        let running = start(relay(&store, &publisher).lease(secs(6)));
        within(secs(1), store.until_settled()).await;
        store.break_down(&Op::ALL, fault);
        enqueue(&store, &messages[100..]);
        let before = store.all_calls();
        pass(secs(300)).await;
        let calls = store.all_calls() - before;
        assert!(calls < 1_200, "{calls} calls in 5 minutes after {fault:?}");
        assert!(!running.handle.is_ready());
        store.heal();
        within(secs(10), store.until_settled()).await;
        assert_exactly_once(&messages, publisher.log());
        assert!(running.handle.is_ready());
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_goes_away_in_the_middle_of_the_work_loses_nothing() {
    let (store, publisher) = (outbox(4), Crowd::new(millis(30)));
    enqueue(&store, &many(2_000, |n| keyed(n % 40)));
    let running = start(relay(&store, &publisher).window_rows(200).max_in_flight(20));
    for _ in 0..4 {
        pass(millis(330)).await;
        store.break_down(&Op::ALL, DOWN);
        pass(secs(4)).await;
        store.heal();
    }
    within(secs(60), store.until_settled()).await;
    assert_eq!(publisher.published("tested"), 2_000, "the lease held, so each was published once");
    assert_eq!(publisher.counts().disorders, []);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_slow_read_holds_up_neither_renewals_nor_publishing() {
    let (store, publisher) = (outbox(4), Crowd::new(millis(100)));
    enqueue(&store, &many(600, |n| keyed(n % 10)));
    let running = start(relay(&store, &publisher).max_in_flight(10).window_rows(300).lease(secs(3)));
    within(secs(1), publisher.until_published("tested", 50)).await;
    store.slow_down(Op::Read, secs(20));
    within(secs(2), publisher.until_published("tested", 100)).await;
    pass(secs(10)).await;
    assert!(running.handle.is_ready(), "the lease is renewed");
    within(secs(300), store.until_settled()).await;
    assert_eq!(publisher.published("tested"), 600);
}

#[tokio::test(start_paused = true)]
async fn a_slow_settle_holds_up_neither_renewals_nor_publishing() {
    let (store, publisher) = (outbox(4), Crowd::new(millis(100)));
    enqueue(&store, &many(300, |n| keyed(n % 10)));
    store.slow_down(Op::Settle, secs(20));
    let running = start(relay(&store, &publisher).max_in_flight(10).lease(secs(3)));
    within(secs(4), publisher.until_published("tested", 300)).await;
    pass(secs(10)).await;
    assert!(running.handle.is_ready(), "the lease is renewed");
    within(secs(60), store.until_settled()).await;
    assert_eq!(publisher.published("tested"), 300);
}
