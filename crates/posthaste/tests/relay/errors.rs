//! What is stored and told about failures, and what the user's hooks may do.

use std::sync::{Arc, Mutex};

use posthaste::{
    BoxError, Event, FailureClass, Observer, PublishError, Record, Relay, RelayBuilder, RetryPolicy, State,
    publish_fn,
};
use posthaste_testkit::{ScriptedPublisher, Step};

use crate::support::*;

/// A relay with a handler that fails once in this way and then works.
fn failing_once<E, F>(store: &TappedStore, fail: F) -> RelayBuilder
where
    E: Into<BoxError> + Send + 'static,
    F: Fn() -> E + Send + Sync + 'static,
{
    let fail = Arc::new(fail);
    let handler = publish_fn(move |record: Arc<Record>| {
        let fail = fail.clone();
        async move { if record.attempts == 0 { Err(fail()) } else { Ok(()) } }
    });
    let builder = Relay::builder(Arc::new(store.clone())).publisher(handler).seed(7);
    builder.retry(RetryPolicy::fixed(secs(60)))
}

/// The error that is stored of a message's first attempt.
async fn first_error(store: &TappedStore, relay: RelayBuilder) -> String {
    let id = enqueue_one(store, keyed(1));
    let _relay = start(relay);
    within(secs(30), store.until(|store| last_error(store, id).is_some())).await;
    last_error(store, id).expect("there is one")
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_handlers_own_error_is_not_stored() {
    let store = outbox(1);
    let relay = failing_once(&store, || "the card number is 4711");
    assert_eq!(first_error(&store, relay).await, "handler failed");
}

#[tokio::test(start_paused = true)]
async fn the_text_of_a_panic_is_not_stored() {
    let store = outbox(1);
    let relay = failing_once(&store, || -> &str { panic!("the card number is 4711") });
    assert_eq!(first_error(&store, relay).await, "handler panicked");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_stored_as_such() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    publisher.on_call(1, Step::Hang);
    assert_eq!(first_error(&store, relay(&store, &publisher)).await, "handler timed out");
}

#[tokio::test(start_paused = true)]
async fn the_safe_reason_of_a_publish_error_is_stored_without_its_source() {
    let store = outbox(1);
    let relay = failing_once(&store, || PublishError::failed("unroutable").with_source("password 4711"));
    assert_eq!(first_error(&store, relay).await, "unroutable");
}

#[tokio::test(start_paused = true)]
async fn the_reason_of_a_rejection_is_stored_with_the_dead_message() {
    let store = outbox(1);
    let relay = failing_once(&store, || PublishError::rejected("larger than the broker takes"));
    assert_eq!(first_error(&store, relay).await, "larger than the broker takes");
    assert_eq!(count(&store, State::Dead), 1);
}

#[tokio::test(start_paused = true)]
async fn the_error_callback_gets_the_original_error() {
    let store = outbox(1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let relay = failing_once(&store, || "the card number is 4711").on_error({
        let seen = seen.clone();
        move |record, error| {
            let source = std::error::Error::source(error).expect("the original error is there").to_string();
            seen.lock().unwrap().push((record.id, error.class(), source));
        }
    });
    first_error(&store, relay).await;
    let id = store.memory().messages()[0].info.id;
    let expected = (id, FailureClass::Failed, "the card number is 4711".to_owned());
    assert_eq!(*seen.lock().unwrap(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn the_error_callback_is_told_of_every_kind_of_failure() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let id = enqueue_one(&store, keyed(1));
    let steps = [Step::Fail(FailureClass::Unavailable), Step::Panic, Step::Hang];
    publisher.on(id, steps.into_iter().chain([Step::Fail(FailureClass::Rejected)]));
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let _relay = start(relay(&store, &publisher).on_error({
        let reasons = reasons.clone();
        move |_, error| reasons.lock().unwrap().push(error.reason().to_owned())
    }));
    within(secs(60), store.until_settled()).await;
    let expected = ["scripted failure", "handler panicked", "handler timed out", "scripted failure"];
    assert_eq!(*reasons.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_classifier_can_make_a_timeout_an_outage() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let ids = enqueue_key(&store, 1, 3);
    publisher.on(ids[0], vec![Step::Hang; 8]);
    let relay = start(relay(&store, &publisher).retry(RetryPolicy::default().max_attempts(2)).classify(
        |_, error| {
            if error.reason() == "handler timed out" { FailureClass::Unavailable } else { error.class() }
        },
    ));
    within(secs(300), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids);
    assert_eq!(attempts(&store, ids[0]), 0, "no attempt is counted");
    assert_eq!(relay.stop().await.retried, 0);
}

#[tokio::test(start_paused = true)]
async fn a_classifier_sees_the_record_and_the_original_error() {
    let store = outbox(1);
    let relay = failing_once(&store, || "no such tenant").classify(|record, error| {
        let source = std::error::Error::source(error).map(ToString::to_string);
        let is_known = source.as_deref() == Some("no such tenant") && record.event_type == "tested";
        if is_known { FailureClass::Rejected } else { error.class() }
    });
    assert_eq!(first_error(&store, relay).await, "handler failed");
    assert_eq!(count(&store, State::Dead), 1, "the classifier's word counts");
}

#[tokio::test(start_paused = true)]
async fn panicking_hooks_do_no_harm() {
    struct PanickingObserver;
    impl Observer for PanickingObserver {
        fn event(&self, event: &Event<'_>) {
            panic!("the observer panics at {event:?}");
        }
    }
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let (flaky, poison) = (enqueue_one(&store, keyed(1)), enqueue_one(&store, keyed(2)));
    let others = enqueue_loose(&store, 20);
    publisher.on(flaky, [Step::Fail(FailureClass::Failed), Step::Fail(FailureClass::Unavailable)]);
    publisher.always(poison, Step::Fail(FailureClass::Rejected));
    let relay = start(
        relay(&store, &publisher)
            .observer(PanickingObserver)
            .on_error(|_, _| panic!("the error callback panics"))
            .classify(|_, _| panic!("the classifier panics")),
    );
    within(secs(30), store.until_settled()).await;
    assert_eq!((attempts(&store, flaky), state(&store, flaky)), (1, State::Processed));
    assert_eq!(
        state(&store, poison),
        State::Dead,
        "without a classifier's word, the error's own class counts"
    );
    assert_eq!(publisher.log().calls().len(), others.len() + 4, "nothing is published twice");
    assert_eq!(relay.stop().await.published, 21);
}
