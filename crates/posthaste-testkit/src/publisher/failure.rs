//! What does not arrive, and what that must not do to the rest.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use posthaste::{FailureClass, PublishError, Record};
use tokio::time::Instant;

use super::fixture::{Outage, PublisherFixture};
use super::support::{
    assert_unavailable, deliver, deliver_at_once, labels, payloads, publish, publish_at_once, record,
    records, sorted_payloads,
};

/// The record itself is refused: not the destination is away.
#[track_caller]
pub(super) fn assert_blames_the_record(error: &PublishError) {
    let class = error.class();
    assert!(
        matches!(class, FailureClass::Rejected | FailureClass::Failed),
        "the destination is there and refuses this record, so {class:?} is wrong: {error:?}"
    );
    assert!(!error.reason().is_empty(), "an operator wants to know why");
}

pub async fn while_the_destination_is_down_it_is_unavailable(f: &dyn PublisherFixture) {
    for outage in Outage::ALL {
        until_delivered(f, record("before")).await;
        f.break_down(outage).await;
        for _ in 0..2 {
            assert_unavailable(&publish(f, record("lost")).await);
        }
        f.heal().await;
    }
}

/// All that waits must learn of the outage together, not one after another.
pub async fn an_outage_is_noticed_by_many_at_once_in_time(f: &dyn PublisherFixture) {
    for outage in Outage::ALL {
        f.break_down(outage).await;
        let begun = Instant::now();
        for result in publish_at_once(f, records("lost", 60)).await {
            assert_unavailable(&result);
        }
        let took = begun.elapsed();
        assert!(took < f.time_limit() * 2, "60 at once took {took:?}, with a limit of {:?}", f.time_limit());
        f.heal().await;
    }
}

pub async fn it_works_again_when_the_destination_is_back(f: &dyn PublisherFixture) {
    let mut expected = Vec::new();
    for (n, outage) in Outage::ALL.into_iter().cycle().take(4).enumerate() {
        f.break_down(outage).await;
        assert_unavailable(&publish(f, record("lost")).await);
        f.heal().await;
        let after = records(&format!("after outage {n}: "), 5);
        expected.extend(labels(&after));
        for record in after {
            until_delivered(f, record).await;
        }
    }
    let mut arrived = sorted_payloads(f).await;
    arrived.retain(|payload| payload != "lost");
    arrived.dedup();
    expected.sort_unstable();
    assert_eq!(arrived, expected, "everything published since then has arrived");
}

/// Connections may take a few attempts to come back. While they do, the destination is unavailable; the relay backs
/// off and tries again.
async fn until_delivered(f: &dyn PublisherFixture, record: Record) {
    let patience = f.time_limit() * 10;
    let begun = Instant::now();
    while let Err(error) = publish(f, record.clone()).await {
        assert_eq!(error.class(), FailureClass::Unavailable, "while it reconnects: {error:?}");
        assert!(begun.elapsed() < patience, "the destination is back, but nothing is delivered: {error:?}");
        tokio::time::sleep(f.time_limit() / 50).await;
    }
}

/// A publish in flight may have arrived or not, but it must end, and `Ok` must be true.
pub async fn what_is_in_flight_when_the_destination_breaks_down_ends_in_time(f: &dyn PublisherFixture) {
    for outage in Outage::ALL {
        let records = records(&format!("{outage:?} "), 100);
        let (results, ()) = tokio::join!(publish_at_once(f, records.clone()), async {
            tokio::task::yield_now().await;
            f.break_down(outage).await;
        });
        f.heal().await;
        let arrived = payloads(f).await;
        for (record, result) in records.iter().zip(results) {
            match result {
                Ok(()) => {
                    let label = record.aggregate.aggregate_id();
                    assert!(
                        arrived.iter().any(|payload| payload == label),
                        "{label} was Ok, but is not there"
                    );
                }
                Err(error) => assert_eq!(error.class(), FailureClass::Unavailable, "{error:?}"),
            }
        }
        until_delivered(f, record("after")).await;
    }
}

pub async fn a_record_that_is_refused_is_to_blame_itself(f: &dyn PublisherFixture) {
    let spoiled = f.spoil(record("a secret payload")).await;
    for _ in 0..2 {
        let error = publish(f, spoiled.clone()).await;
        let Err(error) = error else { panic!("a record that the destination refuses must not be Ok") };
        assert_blames_the_record(&error);
        assert!(
            !error.reason().contains("secret"),
            "the reason is stored and shown, so it must not hold the payload: {}",
            error.reason()
        );
    }
    assert!(f.arrived().await.is_empty(), "nothing arrives of it");
}

/// Each record has its own result, also where many share a connection, a channel or a batch.
pub async fn a_refused_record_takes_no_other_with_it(f: &dyn PublisherFixture) {
    for round in 0..3 {
        let mut records = records(&format!("round {round} no. "), 10);
        records[4] = f.spoil(records[4].clone()).await;
        let results = publish_at_once(f, records.clone()).await;
        for (n, result) in results.into_iter().enumerate() {
            match result {
                Ok(()) => assert_ne!(n, 4, "the refused one must not be Ok"),
                Err(error) if n == 4 => assert_blames_the_record(&error),
                // A channel that broke may cost its neighbours an attempt, but not more than that.
                Err(_) => until_delivered(f, records[n].clone()).await,
            }
        }
    }
    let mut arrived = sorted_payloads(f).await;
    arrived.dedup();
    assert_eq!(arrived.len(), 27, "nine of ten arrive, three times: {arrived:?}");
}

/// Polls a future a number of times, then drops it.
async fn poll_and_drop<T>(future: impl Future<Output = T>, times: usize) {
    let mut future = pin!(future);
    for _ in 0..times {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The relay drops a publish when its time is over, its lease is lost, or it shuts down.
pub async fn a_dropped_publish_does_no_harm(f: &dyn PublisherFixture) {
    let publisher = f.publisher();
    for times in 0..12 {
        poll_and_drop(publisher.publish(Arc::new(record("dropped"))), times).await;
        deliver(f, record(&format!("after {times}"))).await;
    }
    deliver_at_once(f, records("many after ", 50)).await;
    let mut arrived = sorted_payloads(f).await;
    arrived.retain(|payload| payload != "dropped");
    assert_eq!(arrived.len(), 62, "everything else arrives, and once: {arrived:?}");
    arrived.dedup();
    assert_eq!(arrived.len(), 62, "nothing arrives twice");
}

pub async fn publishes_dropped_during_an_outage_do_no_harm(f: &dyn PublisherFixture) {
    let publisher = f.publisher();
    for outage in Outage::ALL {
        f.break_down(outage).await;
        for times in 0..8 {
            poll_and_drop(publisher.publish(Arc::new(record("dropped"))), times).await;
        }
        f.heal().await;
        for record in records(&format!("after {outage:?} "), 20) {
            until_delivered(f, record).await;
        }
    }
}
