use std::sync::Arc;

use posthaste::{FailureClass, Publisher, Record};
use tokio::task::JoinHandle;

use super::*;
use crate::MemoryDestination;
use crate::publisher::record;

fn spawn<P: Publisher + Clone>(publisher: &P, record: &Record) -> JoinHandle<Result<(), FailureClass>> {
    let (publisher, record) = (publisher.clone(), Arc::new(record.clone()));
    tokio::spawn(async move { publisher.publish(record).await.map_err(|error| error.class()) })
}

fn ends(log: &PublishLog) -> Vec<Option<End>> {
    log.calls().iter().map(|call| call.end.map(|(end, _)| end)).collect()
}

#[tokio::test]
async fn a_script_is_followed_by_id_then_by_call_then_otherwise() {
    let publisher = ScriptedPublisher::default();
    let (flaky, poison, plain) = (record("flaky"), record("poison"), record("plain"));
    publisher.on(flaky.id, [Step::Fail(FailureClass::Failed), Step::Publish]);
    publisher.always(poison.id, Step::Fail(FailureClass::Rejected));
    publisher.on_call(5, Step::Fail(FailureClass::Unavailable));
    let mut results = Vec::new();
    for record in [&flaky, &poison, &flaky, &poison, &flaky, &plain] {
        results.push(spawn(&publisher, record).await.unwrap());
    }
    let rejected = Err(FailureClass::Rejected);
    let expected =
        [Err(FailureClass::Failed), rejected, Ok(()), rejected, Err(FailureClass::Unavailable), Ok(())];
    assert_eq!(results, expected);
    publisher.otherwise(Step::Fail(FailureClass::Throttled { retry_after: None }));
    assert!(spawn(&publisher, &plain).await.unwrap().is_err());
    assert_eq!(publisher.log().published(), [flaky.id, plain.id]);
    assert_eq!(publisher.log().calls_of(flaky.id).len(), 3);
}

#[tokio::test]
async fn a_call_is_logged_with_its_end_however_it_ends() {
    let publisher = ScriptedPublisher::default();
    let gate = Gate::closed();
    for (number, step) in [(1, Step::Panic), (2, Step::Hang), (3, Step::publish_after(&gate))] {
        publisher.on_call(number, step);
    }
    let log = publisher.log().clone();
    assert!(spawn(&publisher, &record("panics")).await.unwrap_err().is_panic());
    let hanging = spawn(&publisher, &record("hangs"));
    log.until_begun(2).await;
    let waiting = spawn(&publisher, &record("waits"));
    gate.until_waiting(1).await;
    assert_eq!(ends(&log), [Some(End::Panicked), None, None]);
    assert_eq!(log.in_flight(), 2);
    hanging.abort();
    log.until_ended(2).await;
    gate.open();
    log.until_published(1).await;
    waiting.await.unwrap().unwrap();
    assert_eq!(ends(&log), [Some(End::Panicked), Some(End::Dropped), Some(End::Published)]);
}

#[tokio::test]
async fn a_recording_publisher_logs_what_the_inner_one_does() {
    let destination = MemoryDestination::default();
    let publisher = RecordingPublisher::new(destination.clone());
    let (good, bad) = (Record { attempts: 2, ..record("good") }, record("bad"));
    destination.refuse(bad.id);
    spawn(&publisher, &good).await.unwrap().unwrap();
    spawn(&publisher, &bad).await.unwrap().unwrap_err();
    let calls = publisher.log().calls();
    assert_eq!(ends(publisher.log()), [Some(End::Published), Some(End::Failed(FailureClass::Rejected))]);
    assert_eq!((calls[0].id, calls[0].attempt, calls[0].position), (good.id, 3, good.position));
    assert_eq!(calls[0].key.as_ref(), good.key());
    assert_eq!(destination.records(), [Arc::new(good)]);
}
