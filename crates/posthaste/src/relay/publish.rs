//! One attempt to publish one record.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::Instrument;

use super::store_call::store_call;
use super::window::Queued;
use super::{Parts, failpoint};
use crate::publisher::{HANDLER_PANICKED, HANDLER_TIMED_OUT, PublishError};
use crate::store::{BeginAttempt, RecordRef, RelayId};

/// An attempt that came to its end.
pub(super) struct Attempted {
    pub(super) queued: Queued,
    pub(super) result: AttemptResult,
    pub(super) took: Duration,
}

pub(super) enum AttemptResult {
    /// The destination took responsibility.
    Published,
    /// It did not.
    Failed(PublishError),
    /// The attempt was not made, because it could not be written down before.
    NotBegun,
    /// It was not made, because the record is not there any more, or its lane is not ours any more.
    Refused,
}

/// Publishes a record: never longer than the publish timeout, and without letting a panic out.
pub(super) async fn attempt(parts: Arc<Parts>, relay: RelayId, mut queued: Queued) -> Attempted {
    let began = Instant::now();
    if queued.careful && !queued.begun {
        if let Err(result) = begin(&parts, relay, &queued).await {
            return Attempted { queued, result, took: began.elapsed() };
        }
        queued.begun = true;
    }
    failpoint::hit(failpoint::BEFORE_PUBLISH);
    let record = queued.record.clone();
    let target = &parts.targets[queued.to];
    #[cfg(feature = "opentelemetry-0_33")]
    let span = crate::telemetry::publish_span(&record);
    #[cfg(not(feature = "opentelemetry-0_33"))]
    let span = tracing::debug_span!(
        "publish", id = %record.id, event_type = record.event_type, attempt = record.attempt(), destination = target.name
    );
    // The timeout stands inside, so that a panic of a future that is dropped by it is caught as well.
    let publish = async {
        failpoint::hit(failpoint::IN_PUBLISH);
        tokio::time::timeout(target.publish_timeout, target.publisher.publish(record)).await
    };
    let result = match AssertUnwindSafe(publish.instrument(span)).catch_unwind().await {
        Ok(Ok(Ok(()))) => AttemptResult::Published,
        Ok(Ok(Err(error))) => AttemptResult::Failed(error),
        Ok(Err(_elapsed)) => AttemptResult::Failed(PublishError::failed(HANDLER_TIMED_OUT)),
        Err(_panic) => AttemptResult::Failed(PublishError::failed(HANDLER_PANICKED)),
    };
    failpoint::hit(failpoint::AFTER_PUBLISH);
    Attempted { queued, result, took: began.elapsed() }
}

/// Writes down that an attempt begins.
async fn begin(parts: &Arc<Parts>, relay: RelayId, queued: &Queued) -> Result<(), AttemptResult> {
    let attempt = BeginAttempt {
        relay,
        record: record_ref(queued),
        attempts: queued.record.attempts.saturating_add(1),
    };
    let store = parts.store.clone();
    failpoint::hit(failpoint::BEFORE_BEGIN_ATTEMPT);
    let begun = store_call(async move { store.begin_attempt(&attempt).await }).await;
    failpoint::hit(failpoint::AFTER_BEGIN_ATTEMPT);
    match begun {
        Ok(true) => Ok(()),
        Ok(false) => Err(AttemptResult::Refused),
        Err(error) => {
            parts.store_failed("begin attempt", &error);
            Err(AttemptResult::NotBegun)
        }
    }
}

pub(super) fn record_ref(queued: &Queued) -> RecordRef {
    let record = &queued.record;
    RecordRef { id: record.id, position: record.position, lane: record.lane, token: queued.token }
}
