//! Messages that are not to be published before a time.

use std::time::Duration;

use posthaste::{Message, Receipt, State};
use posthaste_testkit::ScriptedPublisher;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_delayed_message_is_published_when_its_time_has_come() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let began = tokio::time::Instant::now();
    enqueue_one(&store, keyed(1).delay(secs(90)));
    let _relay = start(relay(&store, &publisher));
    within(secs(91), publisher.log().until_published(1)).await;
    let waited = publisher.log().calls()[0].began - began;
    assert!(waited >= secs(90) && waited <= millis(90_401), "published after {waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_delayed_message_keeps_its_place_in_its_key() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let messages = [keyed("a"), keyed("a").delay(secs(5)), keyed("a"), keyed("a").delay(secs(1)), keyed("a")];
    let ids: Vec<_> = enqueue(&store, &messages).iter().map(Receipt::id).collect();
    let other = enqueue_one(&store, keyed("b"));
    let _relay = start(relay(&store, &publisher));
    within(secs(1), publisher.log().until_published(2)).await;
    pass(millis(900)).await;
    assert_eq!(publisher.log().calls().len(), 2, "only its own key waits");
    assert_eq!(came_out(publisher.log(), &[ids[0], other]).len(), 2);
    within(secs(6), store.until_settled()).await;
    assert_eq!(came_out(publisher.log(), &ids), ids);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_message_without_a_key_holds_nobody_up() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let delayed = enqueue_one(&store, loose().delay(secs(60)));
    let others = enqueue_loose(&store, 20);
    let _relay = start(relay(&store, &publisher));
    within(secs(1), publisher.log().until_published(others.len())).await;
    within(secs(61), store.until_settled()).await;
    assert_eq!(publisher.log().published().last(), Some(&delayed));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_delayed_messages_do_not_hold_up_those_that_are_due() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    enqueue(&store, &many(10_000, |n| keyed(n).delay(secs(7 * 24 * 3_600))));
    let due: Vec<_> = (0..10).map(|n| enqueue_one(&store, keyed(format!("due {n}")))).collect();
    let _relay = start(relay(&store, &publisher).window_rows(100));
    within(millis(100), publisher.log().until_published(due.len())).await;
    assert!(store.calls(Op::Read) < 10, "{} reads", store.calls(Op::Read));
}

#[tokio::test(start_paused = true)]
async fn thousands_of_messages_due_at_the_same_instant_are_published_once_each() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let at = posthaste::Clock::now(&posthaste_testkit::VirtualClock::start()) + secs(30);
    let key = |n: usize| if n.is_multiple_of(4) { loose() } else { keyed(n % 100) };
    let messages = many(2_000, |n| key(n).available_at(at));
    enqueue(&store, &messages);
    let _relay = start(relay(&store, &publisher).window_rows(300).max_in_flight(50));
    within(secs(40), publisher.log().until_published(messages.len())).await;
    pass(secs(5)).await;
    assert_exactly_once(&messages, publisher.log());
}

#[tokio::test(start_paused = true)]
async fn a_delay_of_microseconds_is_kept() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let short = |message: Message| message.delay(Duration::from_micros(1));
    let ids = enqueue(&store, &[short(keyed(1)), keyed(1), short(keyed(1)), short(loose())]);
    let _relay = start(relay(&store, &publisher));
    within(millis(200), store.until_settled()).await;
    let ids: Vec<_> = ids.iter().map(Receipt::id).collect();
    assert_eq!(came_out(publisher.log(), &ids[..3]), ids[..3]);
    assert_eq!(count(&store, State::Processed), 4);
}

#[tokio::test(start_paused = true)]
async fn a_delay_survives_a_restart_of_the_relay() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    enqueue_one(&store, keyed(1).delay(secs(20)));
    let first = start(relay(&store, &publisher));
    pass(secs(10)).await;
    first.stop().await;
    let _second = start(relay(&store, &publisher));
    pass(millis(9_900)).await;
    assert!(publisher.log().calls().is_empty(), "it is not due yet");
    within(secs(1), publisher.log().until_published(1)).await;
}
