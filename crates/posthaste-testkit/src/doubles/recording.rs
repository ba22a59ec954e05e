//! A publisher that keeps a record of what another one is asked.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste::{PublishError, Publisher, Record};

use super::log::PublishLog;

/// Keeps a record of every call of the publisher inside.
///
/// ```
/// use posthaste_testkit::{MemoryDestination, RecordingPublisher};
///
/// let publisher = RecordingPublisher::new(MemoryDestination::default());
/// let log = publisher.log().clone();
/// // relay.publisher(publisher) …
/// assert!(log.calls().is_empty());
/// ```
#[derive(Debug, Clone)]
pub struct RecordingPublisher<P> {
    inner: P,
    log: PublishLog,
}

impl<P: Publisher> RecordingPublisher<P> {
    /// Records the calls of this publisher.
    pub fn new(inner: P) -> Self {
        Self { inner, log: PublishLog::default() }
    }

    /// The calls.
    pub fn log(&self) -> &PublishLog {
        &self.log
    }
}

#[async_trait]
impl<P: Publisher> Publisher for RecordingPublisher<P> {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        let call = self.log.begin(&record);
        call.follow(self.inner.publish(record)).await
    }
}
