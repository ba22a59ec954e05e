//! What a relay says about itself.

use posthaste::{DestinationState, ErrorKind, FailureClass};
use posthaste_testkit::{Gate, ScriptedPublisher, Step};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_snapshot_tells_of_lanes_the_lease_and_the_destination() {
    let (store, publisher, gate) = (outbox(4), ScriptedPublisher::default(), Gate::closed());
    let relay = relay(&store, &publisher).max_in_flight(3).build().expect("the settings are valid");
    let handle = relay.handle();
    let before = handle.snapshot();
    assert_eq!((before.ready, before.last_turn, before.last_read), (false, None, None));
    enqueue_loose(&store, 5);
    publisher.otherwise(Step::publish_after(&gate));
    let task = tokio::spawn(relay.run_until(std::future::pending()));
    within(secs(1), publisher.log().until_begun(3)).await;
    pass(millis(500)).await;
    let busy = handle.snapshot();
    assert!(busy.ready && busy.lease_left > Some(secs(5)) && busy.last_read < Some(secs(1)), "{busy:?}");
    assert_eq!((busy.lanes_held, busy.lanes_total, busy.queued), (4, 4, 2), "{busy:?}");
    let to = &busy.destinations[0];
    assert_eq!((to.state, to.in_flight, to.last_success), (DestinationState::Running, 3, None), "{to:?}");
    gate.open();
    within(secs(1), store.until_settled()).await;
    pass(millis(500)).await;
    let after = handle.snapshot();
    assert_eq!((after.queued, after.unsettled, after.destinations[0].in_flight), (0, 0, 0), "{after:?}");
    assert!(
        after.destinations[0].last_success < Some(secs(1)) && after.last_settle < Some(secs(1)),
        "{after:?}"
    );
    handle.stop();
    task.await.expect("the relay does not panic").expect("the relay started");
    assert_eq!(handle.snapshot().last_turn, None, "it does not turn any more");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_tells_of_an_outage_and_of_failures_to_be_tried_again() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let failed = enqueue_one(&store, loose());
    publisher.always(failed, Step::Fail(FailureClass::Failed));
    let running = start(relay(&store, &publisher).retry(posthaste::RetryPolicy::fixed(secs(50))));
    within(secs(1), publisher.log().until_ended(1)).await;
    pass(secs(2)).await;
    let snapshot = running.handle.snapshot();
    assert_eq!((snapshot.retries_known, snapshot.destinations[0].state), (1, DestinationState::Running));
    publisher.otherwise(Step::Fail(FailureClass::Throttled { retry_after: Some(secs(30)) }));
    enqueue_loose(&store, 1);
    within(secs(1), publisher.log().until_ended(2)).await;
    pass(secs(10)).await;
    let state = running.handle.snapshot().destinations[0].state;
    let DestinationState::Throttled { retry_in } = state else { panic!("{state:?}") };
    assert!(retry_in <= secs(20) && retry_in > secs(18), "{retry_in:?}");
    assert_eq!(state.as_str(), "throttled");
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_counts_leases_that_lapsed_and_lanes_lost() {
    let (first, publisher) = (outbox(1), ScriptedPublisher::default());
    let running = start(relay(&first, &publisher).lease(secs(3)));
    pass(secs(5)).await;
    first.break_down(&[Op::Lease], Fault::Error(ErrorKind::Unavailable));
    pass(secs(10)).await;
    let lapsed = running.handle.snapshot();
    assert_eq!((lapsed.ready, lapsed.leases_lapsed, lapsed.lease_left), (false, 1, None), "{lapsed:?}");
    first.heal();
    pass(secs(4)).await;
    let healed = running.handle.snapshot();
    assert_eq!((healed.ready, healed.leases_lapsed, healed.lanes_held), (true, 1, 1), "{healed:?}");
}
