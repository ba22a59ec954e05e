//! A slow publisher that counts instead of keeping a record of every call.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Key, MessageId, PublishError, Publisher, Record};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Takes its time for each record, and counts. Clones count together.
#[derive(Clone)]
pub(crate) struct Crowd {
    takes: Duration,
    counts: Arc<Mutex<Counts>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
pub(crate) struct Counts {
    /// How often each event type was published.
    pub(crate) published: BTreeMap<String, usize>,
    pub(crate) in_flight: usize,
    pub(crate) most_in_flight: usize,
    /// The most publishes of one key at once.
    pub(crate) most_of_a_key: usize,
    pub(crate) last_at: BTreeMap<String, Instant>,
    /// How many records of each lane were published.
    pub(crate) of_lanes: BTreeMap<u16, usize>,
    of_keys: HashMap<Key, usize>,
    last_of_keys: HashMap<Key, i64>,
    /// Records that came before an earlier one of their key.
    pub(crate) disorders: Vec<MessageId>,
}

impl Crowd {
    pub(crate) fn new(takes: Duration) -> Self {
        Self { takes, counts: Arc::default(), changed: Arc::default() }
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many records of this event type were published.
    pub(crate) fn published(&self, event_type: &str) -> usize {
        self.counts().published.get(event_type).copied().unwrap_or(0)
    }

    /// Waits until so many records of this event type were published.
    pub(crate) async fn until_published(&self, event_type: &str, count: usize) {
        while self.published(event_type) < count {
            self.changed.notified().await;
        }
    }
}

impl Counts {
    fn begin(&mut self, record: &Record) {
        self.in_flight += 1;
        self.most_in_flight = self.most_in_flight.max(self.in_flight);
        if let Some(key) = record.key() {
            let of_key = self.of_keys.entry(key.clone()).or_default();
            *of_key += 1;
            self.most_of_a_key = self.most_of_a_key.max(*of_key);
            let last = self.last_of_keys.insert(key.clone(), record.position.major);
            if last.is_some_and(|last| last >= record.position.major) {
                self.disorders.push(record.id);
            }
        }
    }

    fn end(&mut self, record: &Record) {
        self.in_flight -= 1;
        if let Some(of_key) = record.key().and_then(|key| self.of_keys.get_mut(key)) {
            *of_key -= 1;
        }
        *self.of_lanes.entry(record.lane.0).or_default() += 1;
        *self.published.entry(record.event_type.clone()).or_default() += 1;
        self.last_at.insert(record.event_type.clone(), Instant::now());
    }
}

#[async_trait]
impl Publisher for Crowd {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        self.counts().begin(&record);
        tokio::time::sleep(self.takes).await;
        self.counts().end(&record);
        self.changed.notify_one();
        Ok(())
    }
}
