//! What becomes of a key when one of its messages is given up, and when that is mended.

use posthaste::{Admin, DeadPolicy, DeadSelection, FailureClass, MessageId, Mode, RetryPolicy, State};
use posthaste_testkit::{ScriptedPublisher, Step};

use crate::support::*;

const REJECTED: Step = Step::Fail(FailureClass::Rejected);

/// An outbox with a key whose first message of so many is refused, until it is mended.
fn with_poison(count: usize) -> (TappedStore, ScriptedPublisher, Vec<MessageId>) {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let ids = enqueue_key(&store, "poisoned", count);
    publisher.on(ids[0], [REJECTED]);
    (store, publisher, ids)
}

async fn redrive_all(store: &TappedStore) {
    let count = store.memory().redrive(&DeadSelection::All, Mode::UpTo(100)).await;
    assert_eq!(count.expect("the store works"), 1, "there is one dead message");
}

#[tokio::test(start_paused = true)]
async fn with_skip_the_key_goes_on_without_the_dead_message() {
    let (store, publisher, ids) = with_poison(5);
    let _relay = start(relay(&store, &publisher).on_dead(DeadPolicy::Skip));
    within(secs(1), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids[1..]);
    assert_eq!(state(&store, ids[0]), State::Dead);
}

#[tokio::test(start_paused = true)]
async fn with_skip_a_redriven_message_is_published_after_those_that_went_on() {
    let (store, publisher, ids) = with_poison(3);
    let _relay = start(relay(&store, &publisher).on_dead(DeadPolicy::Skip));
    within(secs(1), store.until_settled()).await;
    redrive_all(&store).await;
    within(secs(1), store.until_settled()).await;
    assert_eq!(publisher.log().published(), [ids[1], ids[2], ids[0]]);
    assert_eq!((state(&store, ids[0]), attempts(&store, ids[0])), (State::Processed, 0));
}

#[tokio::test(start_paused = true)]
async fn with_park_the_key_waits_and_other_keys_go_on() {
    let (store, publisher, ids) = with_poison(5);
    let others: Vec<_> = (0..20).flat_map(|key| enqueue_key(&store, key, 3)).collect();
    let _relay = start(relay(&store, &publisher).on_dead(DeadPolicy::Park));
    within(secs(1), publisher.log().until_published(others.len())).await;
    pass(secs(60)).await;
    assert_eq!(publisher.log().calls_of(ids[0]).len(), 1);
    for id in &ids[1..] {
        assert!(publisher.log().calls_of(*id).is_empty(), "the rest of the key waits");
        assert_eq!(stored(store.memory(), *id).blocked_by, Some(ids[0]), "and it can be seen for what");
    }
}

#[tokio::test(start_paused = true)]
async fn a_redrive_puts_a_parked_key_on_again_in_order() {
    let (store, publisher, ids) = with_poison(5);
    let _relay = start(relay(&store, &publisher).on_dead(DeadPolicy::Park));
    within(secs(1), store.until(|store| state(store, ids[0]) == State::Dead)).await;
    pass(secs(10)).await;
    redrive_all(&store).await;
    within(secs(1), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids);
}

#[tokio::test(start_paused = true)]
async fn a_discard_puts_a_parked_key_on_again_in_order() {
    let (store, publisher, ids) = with_poison(5);
    let _relay = start(relay(&store, &publisher).on_dead(DeadPolicy::Park));
    within(secs(1), store.until(|store| state(store, ids[0]) == State::Dead)).await;
    pass(secs(10)).await;
    store.memory().discard(&only(ids[0]), Mode::UpTo(1)).await.expect("the store works");
    within(secs(1), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids[1..]);
}

#[tokio::test(start_paused = true)]
async fn a_parked_key_goes_on_in_order_after_thousands_of_later_messages_were_passed_over() {
    for mend_by_redrive in [true, false] {
        let (store, publisher, mut ids) = with_poison(50);
        let builder = relay(&store, &publisher).on_dead(DeadPolicy::Park).window_rows(64).max_in_flight(8);
        let _relay = start(builder);
        within(secs(1), store.until(|store| state(store, ids[0]) == State::Dead)).await;
        for round in 0..10 {
            let others = enqueue_key(&store, format!("other {round}"), 200);
            ids.extend(enqueue_key(&store, "poisoned", 50));
            within(secs(20), store.until(|store| state(store, others[199]) == State::Processed)).await;
        }
        if mend_by_redrive {
            redrive_all(&store).await;
        } else {
            store.memory().discard(&only(ids[0]), Mode::UpTo(1)).await.expect("the store works");
            ids.remove(0);
        }
        // What comes now must not overtake what was passed over.
        ids.extend(enqueue_key(&store, "poisoned", 20));
        within(secs(20), store.until_settled()).await;
        assert_eq!(came_out(publisher.log(), &ids), ids, "by redrive: {mend_by_redrive}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_parked_twice_is_redriven_twice_in_order() {
    let (store, publisher, ids) = with_poison(6);
    publisher.on(ids[3], [REJECTED]);
    let _relay = start(relay(&store, &publisher).on_dead(DeadPolicy::Park));
    for poison in [ids[0], ids[3]] {
        within(secs(1), store.until(|store| state(store, poison) == State::Dead)).await;
        redrive_all(&store).await;
    }
    within(secs(1), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids);
}

#[tokio::test(start_paused = true)]
async fn a_redrive_touches_nothing_that_is_in_flight() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let gate = posthaste_testkit::Gate::closed();
    publisher.otherwise(Step::publish_after(&gate));
    let ids = enqueue_loose(&store, 100);
    let relay = start(relay(&store, &publisher));
    gate.until_waiting(100).await;
    let redriven = store.memory().redrive(&DeadSelection::All, Mode::UpTo(1_000)).await;
    assert_eq!(redriven.expect("the store works"), 0);
    pass(secs(2)).await;
    gate.open();
    within(secs(2), store.until_settled()).await;
    assert_eq!(publisher.log().calls().len(), ids.len(), "each is published once");
    assert_eq!(relay.stop().await.published, 100);
}

#[tokio::test(start_paused = true)]
async fn a_redriven_message_is_published_at_once_whatever_its_backoff_was() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let id = enqueue_one(&store, keyed(1));
    publisher.on(id, vec![Step::Fail(FailureClass::Failed); 3]);
    let policy = RetryPolicy::fixed(secs(600)).max_attempts(3);
    let _relay = start(relay(&store, &publisher).retry(policy));
    within(secs(1_300), store.until(|store| state(store, id) == State::Dead)).await;
    redrive_all(&store).await;
    within(millis(300), publisher.log().until_published(1)).await;
    assert_eq!(publisher.log().calls_of(id)[3].attempt, 1, "the attempts begin anew");
}

#[tokio::test(start_paused = true)]
async fn a_new_message_of_a_key_does_not_inherit_the_backoff_of_an_old_one() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let old = enqueue_one(&store, keyed(1));
    publisher.on(old, vec![Step::Fail(FailureClass::Failed); 2]);
    let policy = RetryPolicy::fixed(secs(600)).max_attempts(2);
    let _relay = start(relay(&store, &publisher).retry(policy));
    within(secs(700), store.until(|store| state(store, old) == State::Dead)).await;
    let new = enqueue_one(&store, keyed(1));
    within(millis(300), store.until(|store| state(store, new) == State::Processed)).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_deleted_by_hand_while_it_is_published_holds_nothing_up() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let ids = enqueue_key(&store, 1, 3);
    let gate = posthaste_testkit::Gate::closed();
    publisher.on(ids[0], [Step::Await(gate.clone(), Box::new(Step::Fail(FailureClass::Failed)))]);
    let relay = start(relay(&store, &publisher));
    gate.until_waiting(1).await;
    delete_by_hand(&store, ids[0]).await;
    gate.open();
    within(secs(5), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids[1..]);
    assert_eq!(relay.stop().await.stale, 0);
}
