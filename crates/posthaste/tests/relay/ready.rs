//! Whether a relay says that it works.

use posthaste::{ErrorKind, FailureClass};
use posthaste_testkit::{Gate, ScriptedPublisher, Step};

use crate::support::*;

const DOWN: Fault = Fault::Error(ErrorKind::Unavailable);

#[tokio::test(start_paused = true)]
async fn a_relay_is_ready_from_its_first_lease_on() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let relay = relay(&store, &publisher).build().expect("the settings are valid");
    let handle = relay.handle();
    assert!(!handle.is_ready(), "it does not run yet");
    let _task = tokio::spawn(relay.run_until(std::future::pending()));
    pass(millis(100)).await;
    assert!(handle.is_ready());
    for _ in 0..100 {
        pass(secs(1)).await;
        assert!(handle.is_ready(), "idle or not");
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_waits_for_its_destination_is_ready() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    enqueue_loose(&store, 10);
    publisher.otherwise(Step::Fail(FailureClass::Throttled { retry_after: Some(secs(3_600)) }));
    let running = start(relay(&store, &publisher).idle_poll(secs(600)));
    for _ in 0..20 {
        pass(secs(29)).await;
        assert!(running.handle.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_with_slow_publishes_is_ready() {
    let (store, publisher, gate) = (outbox(4), ScriptedPublisher::default(), Gate::closed());
    enqueue_loose(&store, 10);
    publisher.otherwise(Step::publish_after(&gate));
    let builder = relay(&store, &publisher).max_in_flight(1).idle_poll(secs(600));
    let running = start(builder.publish_timeout(secs(300)));
    for _ in 0..10 {
        pass(secs(29)).await;
        assert!(running.handle.is_ready());
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_whose_reads_fail_is_not_ready_until_one_works() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let running = start(relay(&store, &publisher));
    pass(secs(5)).await;
    store.break_down(&[Op::Read], DOWN);
    pass(secs(1)).await;
    assert!(!running.handle.is_ready(), "the database does not answer");
    pass(secs(60)).await;
    assert!(!running.handle.is_ready());
    store.heal();
    pass(secs(4)).await;
    assert!(running.handle.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_lost_its_lanes_while_its_reads_failed_is_ready_again() {
    let (first, publisher) = (outbox(1), ScriptedPublisher::default());
    let running = start(relay(&first, &publisher).lease(secs(3)));
    pass(secs(5)).await;
    first.break_down(&[Op::Read, Op::Lease], DOWN);
    let second = first.other_view();
    let _next = start(relay(&second, &publisher).lease(secs(3)));
    within(secs(10), second.until(|store| store.held().len() == 1)).await;
    assert!(!running.handle.is_ready());
    first.heal();
    pass(secs(4)).await;
    assert!(running.handle.is_ready(), "it stands by");
}

#[tokio::test(start_paused = true)]
async fn a_relay_whose_lease_lapsed_is_not_ready_until_it_has_one() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let running = start(relay(&store, &publisher));
    pass(secs(5)).await;
    store.break_down(&[Op::Lease], DOWN);
    pass(secs(5)).await;
    assert!(running.handle.is_ready(), "its lease goes on");
    pass(secs(8)).await;
    assert!(!running.handle.is_ready(), "its lease is over");
    store.heal();
    pass(secs(3)).await;
    assert!(running.handle.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_relay_whose_loop_does_not_turn_is_not_ready() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let running = start(relay(&store, &publisher).lease(secs(600)));
    pass(secs(5)).await;
    running.task.abort();
    pass(secs(6)).await;
    assert!(!running.handle.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_relay_that_ended_is_not_ready() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let running = start(relay(&store, &publisher).lease(secs(600)));
    pass(secs(5)).await;
    let handle = running.handle.clone();
    running.stop().await;
    assert!(!handle.is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_handle_tells_what_the_relay_has_done_so_far() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let rejected = enqueue_one(&store, keyed(1));
    publisher.always(rejected, Step::Fail(FailureClass::Rejected));
    enqueue_loose(&store, 10);
    let running = start(relay(&store, &publisher));
    within(secs(1), store.until_settled()).await;
    let summary = running.handle.summary();
    assert_eq!((summary.published, summary.dead), (10, 1));
    assert_eq!(running.stop().await, summary);
}
