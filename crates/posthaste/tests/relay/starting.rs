//! How a relay is put together, and what it finds when it starts.

use std::time::Duration;

use posthaste::{Admin, ErrorKind, Glob, Relay, RelayBuilder, Retain, RetryPolicy};
use posthaste_testkit::ScriptedPublisher;

use crate::support::*;

/// What a builder says to a setting.
fn refusal(set: impl FnOnce(RelayBuilder) -> RelayBuilder) -> String {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let error = set(relay(&store, &publisher)).build().expect_err("the setting makes no sense");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    error.to_string()
}

#[tokio::test(start_paused = true)]
async fn counts_of_zero_are_refused() {
    assert_eq!(refusal(|relay| relay.max_in_flight(0)), "max_in_flight is 0; it must be at least 1");
    assert_eq!(refusal(|relay| relay.window_rows(0)), "window_rows is 0; it must be at least 1");
    assert_eq!(refusal(|relay| relay.window_bytes(0)), "window_bytes is 0; it must be at least 1");
    assert_eq!(refusal(|relay| relay.settle_batch(0)), "settle_batch is 0; it must be at least 1");
}

/// The settings that are times, except those that may be zero.
#[expect(clippy::type_complexity, reason = "a table of names and setters")]
const TIMES: [(&str, fn(RelayBuilder, Duration) -> RelayBuilder); 6] = [
    ("lease", RelayBuilder::lease),
    ("publish_timeout", RelayBuilder::publish_timeout),
    ("drain_timeout", RelayBuilder::drain_timeout),
    ("idle_poll", RelayBuilder::idle_poll),
    ("keep_keys", RelayBuilder::keep_idempotency_keys),
    ("upkeep_every", RelayBuilder::upkeep_every),
];

#[tokio::test(start_paused = true)]
async fn times_of_zero_are_refused() {
    for (name, set) in TIMES {
        let text = refusal(|relay| set(relay, Duration::ZERO));
        assert_eq!(text, format!("{name} is 0; it must be longer"));
    }
    let text = refusal(|relay| relay.retain(Retain::For(Duration::ZERO)));
    assert_eq!(text, "retain is 0; say `delete` to keep no processed records");
    let text = refusal(|relay| relay.keep_inbox(Some(Duration::ZERO)));
    assert_eq!(text, "keep_inbox is 0; it must be longer");
}

#[tokio::test(start_paused = true)]
async fn times_that_never_end_are_refused() {
    for (name, set) in TIMES {
        let text = refusal(|relay| set(relay, Duration::MAX));
        assert_eq!(text, format!("{name} is longer than ten years"));
    }
    let text = refusal(|relay| relay.settle_linger(Duration::MAX));
    assert_eq!(text, "settle_linger is longer than ten years");
    let text = refusal(|relay| relay.retain(Retain::For(Duration::MAX)));
    assert_eq!(text, "retain is longer than ten years; say `forever` to keep processed records for ever");
    let text = refusal(|relay| relay.keep_inbox(Some(Duration::MAX)));
    assert_eq!(text, "keep_inbox is longer than ten years; leave it out to keep entries for ever");
}

#[tokio::test(start_paused = true)]
async fn retry_policies_that_make_no_sense_are_refused() {
    let text = refusal(|relay| relay.retry(RetryPolicy::default().max_attempts(0)));
    assert_eq!(text, "max attempts is 0; it must be at least 1");
    let text = refusal(|relay| relay.retry_for(Glob::new("a"), RetryPolicy::fixed(Duration::ZERO)));
    assert!(text.starts_with("the retry delay is 0"), "{text}");
    let text = refusal(|relay| relay.retry(RetryPolicy::exponential(secs(2), secs(1))));
    assert_eq!(text, "the backoff's cap is below its start");
}

#[tokio::test(start_paused = true)]
async fn a_retry_delay_without_end_does_not_break_the_relay() {
    let (store, publisher, events) = (outbox(1), ScriptedPublisher::default(), Events::new());
    let id = enqueue_one(&store, keyed(1));
    publisher.always(id, posthaste_testkit::Step::Fail(posthaste::FailureClass::Failed));
    let policy = RetryPolicy::fixed(Duration::MAX);
    let _relay = start(relay(&store, &publisher).retry(policy).observer(events.clone()));
    pass(secs(60)).await;
    assert_eq!(events.all().iter().filter(|event| event.contains("restarted")).count(), 0);
    assert_eq!(publisher.log().calls().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_relay_without_a_publisher_is_refused() {
    let error = Relay::builder(std::sync::Arc::new(outbox(1))).build().expect_err("it cannot publish");
    assert_eq!(
        (error.kind(), error.to_string().as_str()),
        (ErrorKind::InvalidInput, "the relay has no publisher")
    );
}

#[tokio::test(start_paused = true)]
async fn every_sensible_setting_is_taken() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let id = enqueue_one(&store, keyed(1));
    let builder = relay(&store, &publisher)
        .settle_linger(Duration::ZERO)
        .window_bytes(1)
        .window_rows(1)
        .max_in_flight(usize::MAX)
        .settle_batch(usize::MAX)
        .retain(Retain::Forever)
        .retry(RetryPolicy::immediate().unlimited_attempts());
    assert_eq!(within(secs(1), drain(builder)).await.published, 1);
    assert_eq!(attempts(&store, id), 0);
}

#[tokio::test(start_paused = true)]
async fn what_waiting_cannot_mend_is_returned_at_the_start() {
    let fatal = [
        ErrorKind::NotMigrated,
        ErrorKind::SchemaTooNew,
        ErrorKind::ForeignTable,
        ErrorKind::PermissionDenied,
        ErrorKind::InvalidInput,
    ];
    for kind in fatal {
        let (store, publisher) = (outbox(1), ScriptedPublisher::default());
        store.break_down(&[Op::Lease], Fault::Error(kind));
        let build = || relay(&store, &publisher).build().expect("the settings are valid");
        let results = [
            within(secs(1), build().run_until(std::future::pending())).await,
            within(secs(1), build().drain()).await,
            within(secs(1), build().run_once()).await,
        ];
        for result in results {
            assert_eq!(result.expect_err("it cannot work").kind(), kind);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_ridden_out_at_the_start() {
    let passing = [ErrorKind::Unavailable, ErrorKind::Conflict, ErrorKind::ReadOnly, ErrorKind::Database];
    let faults = passing.map(Fault::Error).into_iter().chain([Fault::Panic]);
    for fault in faults {
        let (store, publisher) = (outbox(1), ScriptedPublisher::default());
        enqueue_loose(&store, 3);
        store.break_down(&Op::ALL, fault);
        let running = start(relay(&store, &publisher));
        pass(secs(100)).await;
        assert!(!running.handle.is_ready(), "it has no lease yet");
        store.heal();
        within(secs(5), store.until_settled()).await;
        assert_eq!(running.stop().await.published, 3, "after {fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_relay_is_known_by_its_name() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let _relay = start(relay(&store, &publisher).name("node-7"));
    within(secs(1), store.until(|store| store.held().len() == 2)).await;
    let relays = store.memory().stats(None).await.expect("the store works").relays;
    assert_eq!((relays[0].name.as_str(), relays[0].lanes), ("node-7", 2));
}
