//! No key waits for another one: hot keys, blocked keys, failing messages, and how keys lie in the table.

use posthaste::{DeadPolicy, FailureClass, Message, RetryPolicy, State};
use posthaste_testkit::{Gate, ScriptedPublisher, Step};

use crate::support::*;

fn of_type(event_type: &str, key: impl ToString) -> Message {
    Message::new(event_type).aggregate("key", key)
}

/// Publishes a hot key beside others, and returns how many of the hot key came out before the last other one.
async fn hot_before_the_last_other(lanes: u16, others_first: bool) -> usize {
    let (store, publisher) = (outbox(lanes), Crowd::new(millis(5)));
    let hot = many(50_000, |_| of_type("hot", "hot"));
    let others = many(1_000, |n| of_type("other", n / 10));
    let order = if others_first { [&others, &hot] } else { [&hot, &others] };
    order.into_iter().for_each(|messages| {
        enqueue(&store, messages);
    });
    let _relay = start(relay(&store, &publisher).max_in_flight(16).window_rows(1_000));
    within(secs(600), publisher.until_published("other", 1_000)).await;
    assert!(publisher.counts().disorders.is_empty(), "each key in order");
    assert_eq!(publisher.counts().most_of_a_key, 1, "one publish per key at a time");
    publisher.published("hot")
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_before_all_others_does_not_hold_them_up() {
    // 100 keys of 10 take 10 turns each; were the hot key served first, 50,000 of it would come out before.
    let hot = hot_before_the_last_other(1, false).await;
    assert!(hot < 1_000, "{hot} hot messages were published before the last other one");
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_in_one_of_many_lanes_does_not_hold_the_others_up() {
    let hot = hot_before_the_last_other(8, false).await;
    assert!(hot < 1_000, "{hot} hot messages were published before the last other one");
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_behind_the_others_changes_nothing() {
    let hot = hot_before_the_last_other(1, true).await;
    assert!(hot < 500, "{hot} hot messages were published before the last other one");
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_that_grows_all_the_time_does_not_hold_the_others_up() {
    let (store, publisher) = (outbox(2), Crowd::new(millis(1)));
    enqueue(&store, &many(2_000, |_| of_type("hot", "hot")));
    let _relay = start(relay(&store, &publisher).max_in_flight(4).window_rows(100));
    for round in 1..=20 {
        enqueue(&store, &many(200, |_| of_type("hot", "hot")));
        enqueue(&store, &many(10, |n| of_type("other", format!("{round}/{n}"))));
        within(millis(500), publisher.until_published("other", round * 10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lanes_take_turns() {
    let (store, publisher) = (outbox(8), Crowd::new(millis(10)));
    enqueue(&store, &many(8_000, |n| of_type("each", n)));
    let _relay = start(relay(&store, &publisher).max_in_flight(4).window_rows(64));
    within(secs(60), publisher.until_published("each", 1_600)).await;
    let of_lanes = publisher.counts().of_lanes.clone();
    assert_eq!(of_lanes.len(), 8, "all lanes are served: {of_lanes:?}");
    assert!(of_lanes.values().all(|count| *count < 400), "and none before all others: {of_lanes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_key_gets_a_place_although_slow_keys_fill_the_window() {
    let (store, publisher, gate) = (outbox(1), ScriptedPublisher::default(), Gate::closed());
    publisher.otherwise(Step::publish_after(&gate));
    let builder = relay(&store, &publisher).window_rows(400).max_in_flight(16);
    let _relay = start(builder.publish_timeout(secs(600)));
    enqueue_key(&store, "hot", 1_000);
    within(secs(1), gate.until_waiting(1)).await;
    for slow in 0..9 {
        enqueue_key(&store, slow, 100);
    }
    within(secs(1), gate.until_waiting(10)).await;
    enqueue_one(&store, keyed("new"));
    within(secs(1), gate.until_waiting(11)).await;
}

#[tokio::test(start_paused = true)]
async fn a_blocked_key_with_thousands_of_successors_starves_nobody() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let blocked = enqueue_key(&store, "blocked", 5_000);
    let others: Vec<_> = (0..50).flat_map(|key| enqueue_key(&store, key, 2)).collect();
    publisher.always(blocked[0], Step::Fail(FailureClass::Failed));
    let policy = RetryPolicy::fixed(secs(3_600)).unlimited_attempts();
    let _relay = start(relay(&store, &publisher).retry(policy).window_rows(50).max_in_flight(4));
    within(secs(1), publisher.log().until_published(others.len())).await;
    assert!(store.calls(Op::Read) < 300, "{} reads", store.calls(Op::Read));
}

#[tokio::test(start_paused = true)]
async fn many_blocked_keys_starve_nobody() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    for key in 0..100 {
        let blocked = enqueue_key(&store, format!("blocked {key}"), 30);
        publisher.always(blocked[0], Step::Fail(FailureClass::Rejected));
    }
    let others: Vec<_> = (0..50).flat_map(|key| enqueue_key(&store, key, 2)).collect();
    let builder = relay(&store, &publisher).on_dead(DeadPolicy::Park).window_rows(50).max_in_flight(4);
    let _relay = start(builder);
    within(secs(2), publisher.log().until_published(others.len())).await;
    assert_eq!(count(&store, State::Dead), 100);
}

#[tokio::test(start_paused = true)]
async fn ten_windows_of_failing_messages_do_not_hold_up_a_good_one() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    enqueue_loose(&store, 500);
    enqueue(&store, &many(500, keyed));
    publisher.otherwise(Step::Fail(FailureClass::Failed));
    let good = enqueue_one(&store, keyed("good"));
    publisher.always(good, Step::Publish);
    let policy = RetryPolicy::exponential(secs(1), secs(300)).unlimited_attempts();
    let _relay = start(relay(&store, &publisher).retry(policy).window_rows(100).max_in_flight(10));
    within(secs(1), publisher.log().until_published(1)).await;
    let later = enqueue_one(&store, keyed("later"));
    publisher.always(later, Step::Publish);
    within(secs(1), publisher.log().until_published(2)).await;
    assert_eq!(publisher.log().published(), [good, later]);
}

#[tokio::test(start_paused = true)]
async fn failing_messages_that_are_due_all_the_time_do_not_hold_up_good_ones() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    enqueue_loose(&store, 1_000);
    publisher.otherwise(Step::Fail(FailureClass::Failed));
    let policy = RetryPolicy::immediate().unlimited_attempts();
    let _relay = start(relay(&store, &publisher).retry(policy).window_rows(100).max_in_flight(10));
    for round in 1..=10 {
        let good = enqueue_one(&store, keyed(round));
        publisher.always(good, Step::Publish);
        within(secs(2), publisher.log().until_published(round)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn keys_that_lie_one_after_the_other_in_the_table_are_published_in_parallel() {
    let (store, publisher) = (outbox(1), Crowd::new(millis(10)));
    for key in 0..64 {
        enqueue(&store, &many(100, |_| of_type("each", key)));
    }
    let _relay = start(relay(&store, &publisher).max_in_flight(32).window_rows(800));
    within(secs(60), publisher.until_published("each", 6_400)).await;
    assert_eq!(publisher.counts().most_in_flight, 32, "all places are used");
    assert!(publisher.counts().disorders.is_empty(), "each key in order");
    let took = publisher.counts().last_at["each"] - store.times(Op::Read)[0];
    assert!(took < secs(4), "6,400 × 10 ms in 32 places take 2 s at best: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn keys_that_lie_mixed_are_published_in_parallel_without_reading_again() {
    let (store, publisher) = (outbox(4), Crowd::new(millis(10)));
    enqueue(&store, &many(6_400, |n| of_type("each", n % 64)));
    let _relay = start(relay(&store, &publisher).max_in_flight(64).window_rows(2_000));
    within(secs(60), publisher.until_published("each", 6_400)).await;
    let took = publisher.counts().last_at["each"] - store.times(Op::Read)[0];
    assert!(took < millis(1_400), "6,400 × 10 ms in 64 places take 1 s at best: {took:?}");
    assert!(store.calls(Op::Read) < 400, "{} reads for 6,400 records", store.calls(Op::Read));
}
