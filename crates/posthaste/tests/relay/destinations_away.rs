//! A destination that is away or slow holds up nobody else, beyond what order per key demands.

use posthaste::{FailureClass, Message, State};
use posthaste_testkit::{Gate, Step};

use crate::support::*;

const AWAY: Step = Step::Fail(FailureClass::Unavailable);

#[tokio::test(start_paused = true)]
async fn twenty_thousand_messages_for_a_destination_that_is_away_hold_up_no_other() {
    let (store, two) = (outbox(4), Two::default());
    two.a.otherwise(AWAY);
    let theirs = enqueue_many(&store, 20_000, |place| to_a().aggregate("theirs", place % 5_000));
    let ours = enqueue_many(&store, 1_000, |place| to_b().aggregate("ours", place % 100));
    let running = start(two.relay(&store));
    within(secs(30), two.b.log().until_published(1_000)).await;
    assert_eq!(came_out(two.b.log(), &ours).len(), 1_000);
    let snapshot = running.handle.snapshot();
    assert!(snapshot.queued + snapshot.unsettled <= 4_096, "{snapshot:?}");
    let late = enqueue_one(&store, to_b().aggregate("ours", 1));
    within(secs(2), store.until(|store| state(store, late) == State::Processed)).await;
    assert!(theirs.iter().step_by(500).all(|id| attempts(&store, *id) == 0), "nothing is counted");
    two.a.otherwise(Step::Publish);
    within(secs(120), store.until_settled()).await;
    running.stop().await;
    let mut last = std::collections::HashMap::new();
    let published = two.a.log().calls();
    for call in published
        .iter()
        .filter(|call| call.end.is_some_and(|(end, _)| end == posthaste_testkit::End::Published))
    {
        let before = last.insert(call.key.clone(), call.position);
        assert!(before < Some(call.position), "in order: {call:?}");
    }
    assert_eq!(two.a.log().published().len(), 20_000, "each once");
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_key_wait_for_an_earlier_one_to_a_destination_that_is_away() {
    let (store, two) = (outbox(4), Two::default());
    two.a.otherwise(AWAY);
    // More than its share of the window, so that most of it is passed over.
    let theirs = enqueue_many(&store, 300, |place| to_a().aggregate("key", place));
    let behind = enqueue_many(&store, 300, |place| to_b().aggregate("key", place));
    let free = enqueue_many(&store, 300, |place| to_b().aggregate("free", place));
    let running = start(two.relay(&store).window_rows(64));
    within(secs(10), two.b.log().until_published(300)).await;
    pass(secs(30)).await;
    assert_eq!(came_out(two.b.log(), &free).len(), 300);
    assert_eq!(two.b.log().calls().len(), 300, "the others wait for theirs");
    two.a.otherwise(Step::Publish);
    within(secs(60), store.until_settled()).await;
    running.stop().await;
    for (first, second) in theirs.iter().zip(&behind) {
        let published =
            two.a.log().calls_of(*first).last().and_then(|call| call.end).expect("it was published").1;
        assert!(published <= two.b.log().calls_of(*second)[0].began, "in order");
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_free_as_soon_as_its_message_to_a_slow_destination_is_published() {
    let (store, two) = (outbox(1), Two::default());
    // One after another, a second each.
    let gate = Gate::closed();
    two.a.otherwise(Step::publish_after(&gate));
    enqueue_many(&store, 200, |place| to_a().aggregate("key", place));
    let relay = two.relay_with(&store, |a| a.max_in_flight(1).publish_timeout(secs(1_000)), |b| b);
    let running = start(relay.window_rows(16));
    let turning = tokio::spawn(async move {
        loop {
            pass(secs(1)).await;
            gate.let_through(gate.waiting());
        }
    });
    within(secs(100), two.a.log().until_published(50)).await;
    // The keys up to 40 are done with, and wait for nobody; most of the slow backlog is still there.
    enqueue_many(&store, 40, |place| to_b().aggregate("key", place));
    within(secs(8), two.b.log().until_published(40)).await;
    assert!(two.a.log().published().len() < 70);
    turning.abort();
    running.handle.abandon();
}

#[tokio::test(start_paused = true)]
async fn due_messages_to_a_destination_that_is_away_hold_up_no_other_due_ones() {
    let (store, two) = (outbox(2), Two::default());
    two.a.otherwise(AWAY);
    enqueue_many(&store, 2_500, |_| to_a().delay(secs(5)));
    let ours = enqueue_many(&store, 50, |place| to_b().aggregate("ours", place).delay(secs(6)));
    let unknown = enqueue_many(&store, 50, |_| Message::new("c.created").delay(secs(5)));
    let running = start(two.relay(&store).window_rows(2_000));
    within(secs(30), two.b.log().until_published(50)).await;
    assert_eq!(came_out(two.b.log(), &ours).len(), 50);
    pass(secs(10)).await;
    assert_eq!(running.handle.snapshot().unrouted, 50);
    two.a.otherwise(Step::Publish);
    within(secs(60), two.a.log().until_published(2_500)).await;
    assert!(unknown.iter().all(|id| state(&store, *id) == State::Ready));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_throttled_destination_is_left_alone_while_others_go_on() {
    let (store, two) = (outbox(4), Two::default());
    let wish = FailureClass::Throttled { retry_after: Some(secs(60)) };
    two.a.otherwise(Step::Fail(wish));
    enqueue_many(&store, 100, |place| if place % 2 == 0 { to_a() } else { to_b() });
    let running = start(two.relay_with(&store, |a| a.max_in_flight(5), |b| b));
    within(secs(5), two.b.log().until_published(50)).await;
    pass(secs(50)).await;
    assert_eq!(two.a.log().calls().len(), 5, "those that were in flight");
    two.a.otherwise(Step::Publish);
    within(secs(30), two.a.log().until_published(50)).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_relay_with_much_that_it_cannot_publish_does_not_spin() {
    let (store, two) = (outbox(4), Two::default());
    two.a.otherwise(AWAY);
    enqueue_many(&store, 2_500, |place| to_a().aggregate("theirs", place));
    enqueue_many(&store, 500, |place| Message::new("c.created").aggregate("unknown", place));
    let running = start(two.relay(&store));
    pass(secs(20)).await;
    let (before, tried) = (store.calls(Op::Read), two.a.log().calls().len());
    pass(secs(100)).await;
    let reads = store.calls(Op::Read) - before;
    // One poll every 400 ms, and a sweep of three thousand rows every two seconds.
    assert!(reads < 250 + 50 * 8, "{reads} reads in 100 s");
    let tried = two.a.log().calls().len() - tried;
    assert!(tried < 40, "{tried} attempts in 100 s");
    assert_eq!(running.handle.snapshot().unrouted, 500);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn records_larger_than_the_share_of_their_destination_are_taken_alone() {
    let (store, two) = (outbox(1), Two::default());
    two.a.otherwise(AWAY);
    enqueue_many(&store, 20, |_| to_a().text("x".repeat(50_000)));
    enqueue_many(&store, 20, |_| to_b().text("x".repeat(50_000)));
    let running = start(two.relay(&store).window_bytes(60_000));
    within(secs(30), two.b.log().until_published(20)).await;
    two.a.otherwise(Step::Publish);
    within(secs(60), store.until_settled()).await;
    running.stop().await;
}
