//! A destination that keeps a book of what came in, and fails on purpose.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use posthaste::{Key, MessageId, PublishError, Record};
use tokio::time::Instant;

use super::chance;

/// Takes deliveries. Clones share one book.
#[derive(Clone)]
pub(crate) struct Destination {
    seed: u64,
    fail: f64,
    book: Arc<Mutex<Book>>,
}

#[derive(Default)]
struct Book {
    deliveries: Vec<Delivery>,
    /// How many deliveries of each key are under way.
    under_way: HashMap<Key, u32>,
    overlaps: u64,
}

/// A message that was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delivery {
    pub(crate) id: MessageId,
    pub(crate) at: Instant,
}

impl Destination {
    /// A destination at which deliveries fail with the probability `fail`.
    pub(crate) fn new(seed: u64, fail: f64) -> Self {
        Self { seed, fail, book: Arc::default() }
    }

    /// Takes a message, or fails: mostly so that a retry helps, sometimes for good, sometimes without an answer.
    pub(crate) async fn deliver(self, record: Arc<Record>) -> Result<(), PublishError> {
        let _under_way = UnderWay::begin(&self, &record.aggregate);
        let about = (record.aggregate.aggregate_id(), record.payload.as_deref(), record.attempt());
        // As over a network: the answer does not come at once.
        tokio::task::yield_now().await;
        if chance(self.seed, about) < self.fail {
            return match chance(self.seed, (about, "kind")) {
                kind if kind < 0.1 => Err(PublishError::rejected("the demo's destination refused it")),
                kind if kind < 0.2 => std::future::pending().await,
                _ => Err(PublishError::failed("the demo's destination was busy")),
            };
        }
        self.book().deliveries.push(Delivery { id: record.id, at: Instant::now() });
        Ok(())
    }

    /// What was taken, in order of arrival, and how often two messages of one key were under way at once.
    pub(crate) fn take_book(&self) -> (Vec<Delivery>, u64) {
        let mut book = self.book();
        (std::mem::take(&mut book.deliveries), book.overlaps)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A delivery under way; over when dropped.
struct UnderWay<'a> {
    destination: &'a Destination,
    key: Key,
}

impl<'a> UnderWay<'a> {
    fn begin(destination: &'a Destination, key: &Key) -> Self {
        let mut book = destination.book();
        let under_way = book.under_way.entry(key.clone()).or_default();
        *under_way += 1;
        if *under_way > 1 {
            book.overlaps += 1;
        }
        drop(book);
        Self { destination, key: key.clone() }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(under_way) = self.destination.book().under_way.get_mut(&self.key) {
            *under_way -= 1;
        }
    }
}
