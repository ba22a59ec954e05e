//! What becomes of messages whose publish fails, in each of the four ways.

use posthaste::{FailureClass, Glob, PublishError, RetryPolicy, State, publish_fn};
use posthaste_testkit::{End, ScriptedPublisher, Step};

use crate::support::*;

const FAILED: Step = Step::Fail(FailureClass::Failed);
const REJECTED: Step = Step::Fail(FailureClass::Rejected);
const UNAVAILABLE: Step = Step::Fail(FailureClass::Unavailable);

fn throttled(retry_after: u64) -> Step {
    Step::Fail(FailureClass::Throttled { retry_after: Some(secs(retry_after)) })
}

#[tokio::test(start_paused = true)]
async fn a_failed_message_is_tried_again_after_the_backoff_and_its_attempts_are_counted() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let id = enqueue_one(&store, keyed(1));
    publisher.on(id, [FAILED, FAILED]);
    let relay = start(relay(&store, &publisher).retry(RetryPolicy::fixed(secs(30))));
    publisher.log().until_ended(1).await;
    store.until(|store| attempts(store, id) == 1).await;
    assert_eq!(state(&store, id), State::Waiting, "a failed message waits for its next attempt");
    within(secs(70), store.until_settled()).await;
    let waits = waits(publisher.log(), id);
    assert!(waits.iter().all(|wait| *wait >= secs(30) && *wait < secs(31)), "the backoff is kept: {waits:?}");
    let numbers: Vec<_> = publisher.log().calls_of(id).iter().map(|call| call.attempt).collect();
    assert_eq!(numbers, [1, 2, 3], "each attempt has the next number");
    let summary = relay.stop().await;
    assert_eq!((summary.published, summary.retried, summary.dead), (1, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_message_is_dead_after_its_last_attempt() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let id = enqueue_one(&store, keyed(1));
    publisher.always(id, FAILED);
    let relay = start(relay(&store, &publisher).retry(RetryPolicy::fixed(secs(1)).max_attempts(3)));
    within(secs(10), store.until_settled()).await;
    assert_eq!((state(&store, id), attempts(&store, id)), (State::Dead, 3));
    pass(secs(60)).await;
    assert_eq!(publisher.log().calls().len(), 3, "a dead message is left alone");
    let summary = relay.stop().await;
    assert_eq!((summary.retried, summary.dead), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn the_default_backoff_grows_and_has_a_ceiling() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let id = enqueue_one(&store, keyed(1));
    publisher.always(id, FAILED);
    let policy = RetryPolicy::exponential(secs(1), secs(8)).max_attempts(40);
    let _relay = start(relay(&store, &publisher).retry(policy));
    within(secs(400), store.until_settled()).await;
    let waits = waits(publisher.log(), id);
    assert!(waits[0] < millis(1_050), "the first wait is at most the base: {waits:?}");
    assert!(waits.iter().all(|wait| *wait < millis(8_050)), "no wait passes the ceiling: {waits:?}");
    assert!(waits.iter().any(|wait| *wait > secs(4)), "the waits grow: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_rejected_message_is_dead_at_once_and_its_neighbours_are_published() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let poison = enqueue_one(&store, keyed("poison"));
    let others = enqueue_key(&store, "other", 3);
    publisher.always(poison, REJECTED);
    let relay = start(relay(&store, &publisher));
    within(secs(1), store.until_settled()).await;
    assert_eq!((state(&store, poison), attempts(&store, poison)), (State::Dead, 1));
    assert!(others.iter().all(|id| state(&store, *id) == State::Processed));
    assert_eq!(relay.stop().await.published, 3);
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_outage_costs_no_attempt_and_kills_no_message() {
    let (store, publisher) = (outbox(8), ScriptedPublisher::default());
    let keys: Vec<_> = (0..20).map(|key| enqueue_key(&store, key, 10)).collect();
    publisher.otherwise(UNAVAILABLE);
    let retry = RetryPolicy::default().max_attempts(5);
    let relay = start(relay(&store, &publisher).retry(retry).idle_poll(secs(5)));
    pass(secs(3_600)).await;
    let calls_while_down = publisher.log().calls().len();
    for info in store.memory().messages().iter().map(|message| &message.info) {
        assert_eq!((info.state, info.attempts), (State::Ready, 0), "an outage is not the message's fault");
    }
    assert!(calls_while_down < 1_500, "the destination is left alone: {calls_while_down} calls in an hour");
    publisher.otherwise(Step::Publish);
    within(secs(15), store.until_settled()).await;
    assert_eq!(count(&store, State::Processed), 200, "everything is published after the outage");
    for key in keys {
        assert_eq!(came_out(publisher.log(), &key), key, "each key in order");
    }
    let summary = relay.stop().await;
    assert_eq!((summary.published, summary.retried, summary.dead), (200, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn after_a_pause_one_message_tries_at_a_time() {
    let (store, publisher, events) = (outbox(8), ScriptedPublisher::default(), Events::new());
    enqueue_loose(&store, 100);
    publisher.otherwise(UNAVAILABLE);
    let _relay = start(relay(&store, &publisher).max_in_flight(10).observer(events.clone()));
    events.until_count("paused", 6).await;
    let calls = publisher.log().calls().len();
    assert_eq!(calls, 10 + 5, "all places at first, then one message for each pause that ended");
}

#[tokio::test(start_paused = true)]
async fn the_rest_follows_when_the_first_message_got_through() {
    let (store, publisher, events) = (outbox(8), ScriptedPublisher::default(), Events::new());
    enqueue_loose(&store, 100);
    publisher.otherwise(UNAVAILABLE);
    let _relay = start(relay(&store, &publisher).observer(events.clone()));
    events.until_count("paused", 3).await;
    publisher.otherwise(Step::Publish);
    events.until("resumed").await;
    within(millis(100), store.until_settled()).await;
    assert_eq!(events.count("resumed"), 1, "the observer is told once");
}

#[tokio::test(start_paused = true)]
async fn a_throttling_destination_is_left_alone_for_as_long_as_it_asks() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let first = enqueue_one(&store, keyed("throttled"));
    let others: Vec<_> = (0..5).map(|key| enqueue_one(&store, keyed(key))).collect();
    publisher.on(first, [throttled(90)]);
    let _relay = start(relay(&store, &publisher).max_in_flight(1));
    publisher.log().until_ended(1).await;
    pass(secs(89)).await;
    assert_eq!(publisher.log().calls().len(), 1, "other keys wait as well: it is one destination");
    within(secs(3), store.until_settled()).await;
    assert_eq!(publisher.log().published().len(), 1 + others.len(), "nothing is lost");
    assert_eq!((attempts(&store, first), state(&store, first)), (0, State::Processed));
}

#[tokio::test(start_paused = true)]
async fn a_longer_wish_of_a_throttling_destination_counts() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let (short, long) = (enqueue_one(&store, loose()), enqueue_one(&store, loose()));
    publisher.on(short, [throttled(5)]);
    publisher.on(long, [throttled(60)]);
    let _relay = start(relay(&store, &publisher));
    within(secs(70), store.until_settled()).await;
    let third = publisher.log().calls()[2].began - publisher.log().calls()[0].began;
    assert!(third >= secs(60), "the next call came after {third:?}");
}

#[tokio::test(start_paused = true)]
async fn throttling_without_a_time_pauses_with_backoff() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let id = enqueue_one(&store, keyed(1));
    let throttled = Step::Fail(FailureClass::Throttled { retry_after: None });
    publisher.on(id, vec![throttled; 12]);
    let _relay = start(relay(&store, &publisher));
    within(secs(120), store.until_settled()).await;
    let began: Vec<_> = publisher.log().calls().iter().map(|call| call.began).collect();
    let waits = gaps(&began);
    assert!(waits[0] >= millis(100) && waits[0] <= millis(250), "it begins with a short pause: {waits:?}");
    assert!(waits[11] >= secs(5) && waits[11] <= secs(11), "and grows to about ten seconds: {waits:?}");
    assert_eq!(attempts(&store, id), 0, "throttling counts no attempt");
}

#[tokio::test(start_paused = true)]
async fn a_destination_that_throttles_without_a_pause_is_left_alone_all_the_same() {
    for wish in [0, 1] {
        let (store, publisher) = (outbox(1), ScriptedPublisher::default());
        enqueue_loose(&store, 10);
        let retry_after = Some(std::time::Duration::from_micros(wish));
        publisher.otherwise(Step::Fail(FailureClass::Throttled { retry_after }));
        let running = start(relay(&store, &publisher));
        pass(secs(60)).await;
        let calls = publisher.log().calls().len();
        assert!(calls < 100, "{calls} calls in a minute");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_absurd_wish_of_a_throttling_destination_does_not_break_the_relay() {
    let (store, publisher, events) = (outbox(1), ScriptedPublisher::default(), Events::new());
    let id = enqueue_one(&store, keyed(1));
    publisher.on(id, [Step::Fail(FailureClass::Throttled { retry_after: Some(std::time::Duration::MAX) })]);
    let relay = start(relay(&store, &publisher).observer(events.clone()));
    within(secs(1), events.until("paused")).await;
    pass(secs(60)).await;
    assert_eq!(events.count("loop restarted"), 0, "{:?}", events.all());
    assert_eq!(publisher.log().calls().len(), 1, "it is left alone");
    assert!(relay.handle.is_ready());
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_the_order_of_a_key_whatever_fails_in_between() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let ids = enqueue_key(&store, 1, 6);
    publisher.on(ids[0], [UNAVAILABLE, FAILED, UNAVAILABLE, Step::Panic]);
    publisher.on(ids[3], [FAILED, UNAVAILABLE, FAILED]);
    let _relay = start(relay(&store, &publisher));
    within(secs(60), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids);
    assert_eq!(attempts(&store, ids[0]), 2, "the failure and the panic count, the outages do not");
}

#[tokio::test(start_paused = true)]
async fn a_publish_that_takes_too_long_is_dropped_and_frees_its_place() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let (hanging, other) = (enqueue_one(&store, keyed(1)), enqueue_one(&store, keyed(2)));
    publisher.on(hanging, [Step::Hang]);
    let _relay = start(
        relay(&store, &publisher)
            .max_in_flight(1)
            .publish_timeout(secs(7))
            .retry(RetryPolicy::fixed(secs(60))),
    );
    within(secs(8), publisher.log().until_published(1)).await;
    assert_eq!(publisher.log().published(), [other], "the place is free again");
    let call = publisher.log().calls_of(hanging).remove(0);
    let (end, at) = call.end.expect("the call is over");
    assert_eq!((end, at - call.began), (End::Dropped, secs(7)), "the future is dropped at the timeout");
    within(secs(61), store.until_settled()).await;
    assert_eq!(attempts(&store, hanging), 1, "a timeout counts as a failed attempt");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_key_does_not_hold_up_the_others() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let hanging = enqueue_key(&store, "hanging", 5);
    let others: Vec<_> = (0..50).flat_map(|key| enqueue_key(&store, key, 4)).collect();
    publisher.on(hanging[0], [Step::Hang]);
    let _relay = start(relay(&store, &publisher).max_in_flight(4).publish_timeout(secs(60)));
    within(secs(1), publisher.log().until_published(others.len())).await;
    assert_eq!(publisher.log().in_flight(), 1);
    within(secs(65), store.until_settled()).await;
    assert_eq!(came_out(publisher.log(), &hanging), hanging, "its own messages follow in order");
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_at_once_after_a_slow_message() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let ids = enqueue_key(&store, 1, 2);
    let gate = posthaste_testkit::Gate::closed();
    publisher.on(ids[0], [Step::publish_after(&gate)]);
    let _relay = start(relay(&store, &publisher).idle_poll(secs(600)).publish_timeout(secs(100)));
    gate.until_waiting(1).await;
    pass(secs(60)).await;
    gate.open();
    within(millis(20), publisher.log().until_published(2)).await;
}

#[tokio::test(start_paused = true)]
async fn panicking_publishes_are_caught_counted_and_given_up_at_last() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let (poison, other) = (enqueue_one(&store, keyed(1)), enqueue_one(&store, keyed(2)));
    publisher.always(poison, Step::Panic);
    let relay = start(relay(&store, &publisher).retry(RetryPolicy::immediate().max_attempts(4)));
    within(secs(2), store.until_settled()).await;
    assert_eq!((state(&store, poison), attempts(&store, poison)), (State::Dead, 4));
    assert_eq!(state(&store, other), State::Processed);
    assert_eq!(relay.stop().await.dead, 1);
}

#[tokio::test(start_paused = true)]
async fn a_future_that_panics_when_it_is_dropped_counts_as_failed() {
    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            panic!("panicked while it was dropped");
        }
    }
    let store = outbox(1);
    let (first, second) = (enqueue_one(&store, keyed(1)), enqueue_one(&store, keyed(1)));
    let publisher = std::sync::Arc::new(move |record: std::sync::Arc<posthaste::Record>| async move {
        if record.id == first && record.attempts == 0 {
            let _guard = PanicsOnDrop;
            std::future::pending::<()>().await;
        }
        Ok::<_, PublishError>(())
    });
    let builder = posthaste::Relay::builder(std::sync::Arc::new(store.clone()))
        .publisher(publish_fn(move |record| publisher(record)))
        .publish_timeout(secs(1))
        .retry(RetryPolicy::fixed(secs(1)));
    let _relay = start(builder);
    within(secs(5), store.until_settled()).await;
    assert_eq!(attempts(&store, first), 1, "the panic was an attempt");
    assert_eq!(state(&store, second), State::Processed);
}

#[tokio::test(start_paused = true)]
async fn a_retry_policy_for_an_event_type_counts_for_that_type_only() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    publisher.otherwise(FAILED);
    let mail = enqueue_one(&store, posthaste::Message::new("mail.sent"));
    let order = enqueue_one(&store, posthaste::Message::new("order.created"));
    let _relay = start(
        relay(&store, &publisher)
            .retry(RetryPolicy::fixed(secs(1)).max_attempts(2))
            .retry_for(Glob::new("mail.*"), RetryPolicy::fixed(secs(10)).max_attempts(4))
            .retry_for(Glob::new("*.sent"), RetryPolicy::immediate().max_attempts(9)),
    );
    within(secs(40), store.until_settled()).await;
    assert_eq!((attempts(&store, mail), attempts(&store, order)), (4, 2), "the first pattern counts");
    let waits = waits(publisher.log(), mail);
    assert!(waits[0] >= secs(10) && waits[0] < secs(11), "and its backoff is kept: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_always_fails_does_not_spin() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let id = enqueue_one(&store, keyed(1));
    publisher.always(id, FAILED);
    let policy = RetryPolicy::fixed(secs(60)).unlimited_attempts();
    let _relay = start(relay(&store, &publisher).retry(policy).idle_poll(secs(1)));
    pass(secs(6_010)).await;
    let calls = publisher.log().calls().len();
    assert!((98..=101).contains(&calls), "once a minute for 100 minutes: {calls}");
    assert!(store.all_calls() < 6 * 6_010, "the store is left alone: {} calls", store.all_calls());
}
