//! A destination in memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{MessageId, PublishError, Publisher, Record};
use tokio::sync::watch;

use super::fixture::{Arrival, Capabilities, Outage, PublisherFixture};

/// A destination in memory that keeps what was published, and can be away or refuse a record. Clones are the same
/// destination.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use posthaste_testkit::MemoryDestination;
///
/// let destination = MemoryDestination::default();
/// // relay.publisher(destination.clone()) …
/// assert!(destination.records().is_empty());
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MemoryDestination {
    taken: Arc<Mutex<Taken>>,
    outage: Arc<watch::Sender<Option<Outage>>>,
    time_limit: Duration,
}

#[derive(Debug, Default)]
struct Taken {
    records: Vec<Arc<Record>>,
    refused: BTreeSet<MessageId>,
}

impl Default for MemoryDestination {
    /// A destination that gives up after 100 ms of silence.
    fn default() -> Self {
        let (taken, outage) = (Arc::default(), Arc::new(watch::Sender::new(None)));
        Self { taken, outage, time_limit: Duration::from_millis(100) }
    }
}

impl MemoryDestination {
    /// What was published, in the order in which it arrived.
    pub fn records(&self) -> Vec<Arc<Record>> {
        self.taken().records.clone()
    }

    /// Begins an outage, or ends one with `None`.
    pub fn set_outage(&self, outage: Option<Outage>) {
        self.outage.send_replace(outage);
    }

    /// Refuses this record from now on, however often it is tried.
    pub fn refuse(&self, id: MessageId) {
        self.taken().refused.insert(id);
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for silence to end, but not for ever.
    async fn answer(&self) -> Result<(), PublishError> {
        let mut outage = self.outage.subscribe();
        let answers = outage.wait_for(|outage| *outage != Some(Outage::Silent));
        match tokio::time::timeout(self.time_limit, answers).await {
            Ok(Ok(outage)) if outage.is_none() => Ok(()),
            Ok(_) => Err(PublishError::unavailable("destination refuses connections")),
            Err(_) => Err(PublishError::unavailable("destination does not answer")),
        }
    }
}

#[async_trait]
impl Publisher for MemoryDestination {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        // As on a network, others come in between.
        tokio::task::yield_now().await;
        self.answer().await?;
        let mut taken = self.taken();
        if taken.refused.contains(&record.id) {
            return Err(PublishError::rejected("destination refuses this record"));
        }
        taken.records.push(record);
        Ok(())
    }
}

/// The fixture of [`MemoryDestination`].
#[derive(Debug, Default)]
pub struct MemoryDestinationFixture(MemoryDestination);

#[async_trait]
impl PublisherFixture for MemoryDestinationFixture {
    async fn new() -> Option<Self> {
        Some(Self::default())
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.0.clone())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn time_limit(&self) -> Duration {
        // The test's own tasks need time as well.
        self.0.time_limit * 10
    }

    async fn arrived(&self) -> Vec<Arrival> {
        self.0.records().iter().map(|record| arrival(record)).collect()
    }

    async fn break_down(&self, outage: Outage) {
        self.0.set_outage(Some(outage));
    }

    async fn heal(&self) {
        self.0.set_outage(None);
    }

    async fn spoil(&self, record: Record) -> Record {
        self.0.refuse(record.id);
        record
    }
}

fn arrival(record: &Record) -> Arrival {
    Arrival {
        message_id: Some(record.message_id()),
        event_type: Some(record.event_type.clone()),
        key: record.key().cloned(),
        payload: record.payload.clone(),
        content_type: record.content_type.clone(),
        headers: record.headers.clone(),
    }
}
