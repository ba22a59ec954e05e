//! What is kept, for how long, and who tidies up.

use posthaste::{DeadPolicy, FailureClass, Message, Retain, State};
use posthaste_testkit::{ScriptedPublisher, Step};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn processed_messages_are_kept_for_a_time_and_then_purged() {
    let (store, publisher, events) = (outbox(4), ScriptedPublisher::default(), Events::new());
    let dead = enqueue_one(&store, keyed(1));
    publisher.always(dead, Step::Fail(FailureClass::Rejected));
    enqueue_loose(&store, 30);
    enqueue_one(&store, keyed(2).delay(secs(3_600)));
    let _relay = start(
        relay(&store, &publisher)
            .retain(Retain::For(secs(100)))
            .upkeep_every(secs(10))
            .observer(events.clone()),
    );
    pass(secs(95)).await;
    assert_eq!(count(&store, State::Processed), 30);
    within(secs(20), events.until("purged 30")).await;
    assert_eq!(count(&store, State::Processed), 0);
    assert_eq!(store.memory().messages().len(), 2, "what waits and what is dead stays");
}

/// The memory store has no inbox; what a store is asked for is what counts.
#[tokio::test(start_paused = true)]
async fn the_inbox_is_kept_as_long_as_the_relay_says() {
    for (keep, expected) in
        [(None, Some(secs(30 * 86_400))), (Some(Some(secs(5))), Some(secs(5))), (Some(None), None)]
    {
        let (store, publisher) = (outbox(4), ScriptedPublisher::default());
        let mut builder = relay(&store, &publisher).upkeep_every(secs(10));
        if let Some(keep) = keep {
            builder = builder.keep_inbox(keep);
        }
        let _relay = start(builder);
        pass(secs(11)).await;
        assert_eq!(store.last_upkeep().unwrap().keep_inbox, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_purge_is_done_in_small_steps_without_waiting_for_the_next_turn() {
    let (store, publisher, events) = (outbox(4), ScriptedPublisher::default(), Events::new());
    enqueue_loose(&store, 2_500);
    let retain = Retain::For(secs(100));
    let builder = relay(&store, &publisher).retain(retain).upkeep_every(secs(300));
    let _relay = start(builder.observer(events.clone()));
    within(secs(301), events.until_count("purged 1000", 2)).await;
    within(secs(1), events.until("purged 500")).await;
}

#[tokio::test(start_paused = true)]
async fn upkeep_goes_on_while_the_outbox_is_never_empty() {
    let (store, publisher) = (outbox(2), Crowd::new(millis(50)));
    let retain = Retain::For(secs(20));
    let _relay = start(relay(&store, &publisher).retain(retain).upkeep_every(secs(5)).max_in_flight(2));
    for _ in 0..120 {
        enqueue(&store, &many(40, |n| keyed(n % 5)));
        pass(secs(1)).await;
    }
    let kept = count(&store, State::Processed);
    assert!(kept < 30 * 40, "{kept} of {} processed messages are kept", publisher.published("tested"));
}

#[tokio::test(start_paused = true)]
async fn with_retain_forever_nothing_is_purged() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    enqueue_loose(&store, 30);
    let builder = relay(&store, &publisher).retain(Retain::Forever).upkeep_every(secs(60));
    let _relay = start(builder.idle_poll(secs(60)));
    pass(secs(4 * 3_600)).await;
    assert_eq!(count(&store, State::Processed), 30);
    assert!(store.calls(Op::Upkeep) > 100, "although upkeep is done");
}

#[tokio::test(start_paused = true)]
async fn with_delete_on_settle_only_processed_messages_are_deleted() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let (dead, flaky) = (enqueue_one(&store, keyed(1)), enqueue_one(&store, keyed(2)));
    publisher.always(dead, Step::Fail(FailureClass::Rejected));
    publisher.on(flaky, [Step::Fail(FailureClass::Failed)]);
    let others = enqueue_key(&store, 2, 30);
    let builder = relay(&store, &publisher).retain(Retain::DeleteOnSettle).on_dead(DeadPolicy::Park);
    let running = start(builder);
    within(secs(5), store.until(|store| store.memory().messages().len() == 1)).await;
    assert_eq!(state(&store, dead), State::Dead);
    assert_eq!(publisher.log().published(), [&[flaky][..], &others].concat());
    assert_eq!(running.stop().await.published, 31);
}

#[tokio::test(start_paused = true)]
async fn idempotency_keys_are_kept_for_their_own_time() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let message = || Message::new("paid").idempotency_key("payment 7");
    enqueue_one(&store, message());
    let builder = relay(&store, &publisher).retain(Retain::DeleteOnSettle).upkeep_every(secs(10));
    let _relay = start(builder.keep_idempotency_keys(secs(100)));
    pass(secs(90)).await;
    let again = store.memory().begin().enqueue(&message());
    assert_eq!(again.expect_err("it was enqueued").kind(), posthaste::ErrorKind::DuplicateKey);
    pass(secs(30)).await;
    enqueue_one(&store, message());
}

#[tokio::test(start_paused = true)]
async fn one_of_several_relays_tidies_up() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let events = [Events::new(), Events::new(), Events::new()];
    let views = [store.other_view(), store.other_view(), store.other_view()];
    let start_one = |(seed, (view, events)): (u64, (&TappedStore, &Events))| {
        let builder = relay(view, &publisher).upkeep_every(secs(10)).observer(events.clone());
        start(builder.seed(seed).idle_poll(secs(5)))
    };
    let _relays: Vec<_> = (0..).zip(views.iter().zip(&events)).map(start_one).collect();
    pass(secs(600)).await;
    let turns: Vec<_> = events.iter().map(|events| events.count("purged 0")).collect();
    assert_eq!(turns.iter().filter(|turns| **turns > 0).count(), 1, "one relay did it all: {turns:?}");
    assert!(turns.iter().sum::<usize>() >= 50, "{turns:?}");
}
