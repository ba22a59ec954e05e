//! Transactions that commit late are neither skipped nor overtaken, and hold nobody up.

use posthaste::{FailureClass, MemoryTransaction, Message, RetryPolicy};
use posthaste_testkit::{Gate, ScriptedPublisher, Step};

use crate::support::*;

/// A transaction that has enqueued these, and stays open.
fn open(store: &TappedStore, messages: &[Message]) -> MemoryTransaction {
    let mut transaction = store.memory().begin();
    transaction.enqueue_all(messages).expect("the messages are valid");
    transaction
}

#[tokio::test(start_paused = true)]
async fn an_open_transaction_holds_nobody_up() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let _open = open(&store, &[keyed(1), loose()]);
    let _relay = start(relay(&store, &publisher));
    for round in 1..=20 {
        pass(secs(60)).await;
        enqueue_loose(&store, 5);
        within(millis(100), publisher.log().until_published(round * 5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_commits_late_is_published_at_once() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let slow = open(&store, &[keyed(1)]);
    let _relay = start(relay(&store, &publisher));
    for _ in 0..100 {
        enqueue_loose(&store, 20);
        pass(secs(1)).await;
    }
    slow.commit();
    within(millis(100), publisher.log().until_published(2_001)).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_commits_late_without_a_wake_up_is_found_by_the_next_poll() {
    let bell = posthaste::Waker::default();
    let (store, publisher) = (outbox(1).with_bell(&bell), ScriptedPublisher::default());
    let slow = open(&store, &[keyed(1)]);
    enqueue_loose(&store, 20);
    let _relay = start(relay(&store, &publisher));
    pass(secs(600)).await;
    slow.commit();
    within(millis(410), publisher.log().until_published(21)).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_commits_late_is_not_overtaken_by_its_key_afterwards() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let (early, late) = (keyed("slow"), keyed("slow"));
    let slow = open(&store, std::slice::from_ref(&early));
    let _relay = start(relay(&store, &publisher).window_rows(40).max_in_flight(4));
    enqueue_loose(&store, 300);
    within(secs(5), publisher.log().until_published(300)).await;
    store.slow_down(Op::Read, millis(20));
    pass(secs(3)).await;
    // The later message of the key begins when the earlier one has committed, so their order is defined.
    slow.commit();
    enqueue(&store, std::slice::from_ref(&late));
    within(secs(2), publisher.log().until_published(302)).await;
    assert_eq!(publisher.log().published()[300..], [early.id(), late.id()]);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_commits_late_takes_its_place_before_those_that_have_not_started() {
    let (store, publisher, gate) = (outbox(1), ScriptedPublisher::default(), Gate::closed());
    let (first, late, last) = (keyed(1), keyed(1), keyed(1));
    publisher.on(first.id(), [Step::publish_after(&gate)]);
    enqueue(&store, std::slice::from_ref(&first));
    let slow = open(&store, std::slice::from_ref(&late));
    enqueue(&store, std::slice::from_ref(&last));
    let _relay = start(relay(&store, &publisher));
    gate.until_waiting(1).await;
    pass(secs(1)).await;
    slow.commit();
    pass(secs(1)).await;
    gate.open();
    within(secs(1), store.until_settled()).await;
    assert_eq!(publisher.log().published(), [first.id(), late.id(), last.id()]);
}

/// Publishes `late` before `after`, which was enqueued when `late` had committed, although another of the key failed or
/// was in hand meanwhile; and soon.
async fn is_not_overtaken(
    store: &TappedStore,
    publisher: &ScriptedPublisher,
    late: &Message,
    after: &Message,
) {
    within(millis(1_500), store.until_settled()).await;
    let ids = [late.id(), after.id()];
    assert_eq!(came_out(publisher.log(), &ids), ids, "a late commit is not overtaken");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_commits_while_a_later_one_of_its_key_has_failed_is_not_overtaken() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let (late, failing, after) = (keyed(1), keyed(1), keyed(1));
    publisher.on(failing.id(), [Step::Fail(FailureClass::Failed)]);
    let slow = open(&store, std::slice::from_ref(&late));
    enqueue(&store, std::slice::from_ref(&failing));
    store.slow_down(Op::Settle, millis(200));
    let _relay = start(relay(&store, &publisher).retry(RetryPolicy::fixed(millis(300))));
    publisher.log().until_ended(1).await;
    // The failure is being written down; what is read meanwhile is not for this key.
    slow.commit();
    pass(millis(50)).await;
    enqueue(&store, std::slice::from_ref(&after));
    is_not_overtaken(&store, &publisher, &late, &after).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_commits_before_a_later_one_of_its_key_fails_is_not_overtaken() {
    let (store, publisher, gate) = (outbox(1), ScriptedPublisher::default(), Gate::closed());
    let (late, failing, after) = (keyed(1), keyed(1), keyed(1));
    publisher.on(failing.id(), [Step::Await(gate.clone(), Box::new(Step::Fail(FailureClass::Failed)))]);
    let slow = open(&store, std::slice::from_ref(&late));
    enqueue(&store, std::slice::from_ref(&failing));
    let _relay = start(relay(&store, &publisher).retry(RetryPolicy::fixed(millis(300))));
    gate.until_waiting(1).await;
    slow.commit();
    pass(millis(450)).await;
    gate.open();
    publisher.log().until_ended(1).await;
    enqueue(&store, std::slice::from_ref(&after));
    is_not_overtaken(&store, &publisher, &late, &after).await;
}

#[tokio::test(start_paused = true)]
async fn a_message_of_a_hot_key_that_commits_late_is_not_overtaken() {
    let (store, publisher, gate) = (outbox(1), ScriptedPublisher::default(), Gate::closed());
    let late = keyed("hot");
    let slow = open(&store, std::slice::from_ref(&late));
    let backlog = many(10, |_| keyed("hot"));
    publisher.on(backlog[0].id(), [Step::publish_after(&gate)]);
    enqueue(&store, &backlog);
    // Of the ten, four are in hand.
    let _relay = start(relay(&store, &publisher).window_rows(8).max_in_flight(1));
    gate.until_waiting(1).await;
    slow.commit();
    pass(millis(450)).await;
    let after = keyed("hot");
    enqueue(&store, std::slice::from_ref(&after));
    gate.open();
    is_not_overtaken(&store, &publisher, &late, &after).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_rolled_back_is_never_published() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let _relay = start(relay(&store, &publisher));
    let rolled_back = open(&store, &many(50, |n| keyed(n % 5)));
    enqueue(&store, &many(50, |n| keyed(n % 5)));
    pass(secs(10)).await;
    rolled_back.rollback();
    pass(secs(10)).await;
    assert_eq!(publisher.log().calls().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn many_transactions_that_overlap_lose_nothing() {
    let (store, publisher) = (outbox(3), ScriptedPublisher::default());
    let _relay = start(relay(&store, &publisher).window_rows(50));
    let mut random = fastrand::Rng::with_seed(3);
    let writers: Vec<_> = (0..50)
        .map(|writer| {
            let (store, mut random) = (store.clone(), fastrand::Rng::with_seed(random.u64(..)));
            tokio::spawn(async move {
                let mut messages = Vec::new();
                for _ in 0..10 {
                    let batch = many(random.usize(1..5), |_| keyed(writer));
                    pass(millis(random.u64(0..400))).await;
                    let transaction = open(&store, &batch);
                    pass(millis(random.u64(0..400))).await;
                    transaction.commit();
                    messages.extend(batch);
                }
                messages
            })
        })
        .collect();
    let mut messages = Vec::new();
    for writer in writers {
        messages.extend(writer.await.expect("a writer does not panic"));
    }
    within(secs(5), publisher.log().until_published(messages.len())).await;
    assert_exactly_once(&messages, publisher.log());
}
