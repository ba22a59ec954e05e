//! Where the relays of a run publish to, and that every message is noted there.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use posthaste::{PublishError, Publisher, Record};
use tokio::time::Instant;

use super::book::Book;
use super::drafts::{Drafts, number_of};

/// Notes each message in the book, once the destination behind it has taken it.
#[derive(Clone)]
pub(super) struct Noting {
    book: Arc<Book>,
    drafts: Arc<Drafts>,
    behind: Option<Arc<Behind>>,
}

/// A real destination, and how long each publish took.
struct Behind {
    publisher: Arc<dyn Publisher>,
    micros: Mutex<Vec<u32>>,
}

impl Noting {
    /// In front of a destination; without one, there is nothing behind.
    pub(super) fn new(book: Arc<Book>, drafts: Arc<Drafts>, publisher: Option<Arc<dyn Publisher>>) -> Self {
        let behind = publisher.map(|publisher| Arc::new(Behind { publisher, micros: Mutex::default() }));
        Self { book, drafts, behind }
    }

    /// How long publishing took, in microseconds; nothing where there was nothing to do.
    pub(super) fn take_micros(&self) -> Vec<u32> {
        let behind = self.behind.as_ref();
        behind.map_or_else(Vec::new, |behind| {
            std::mem::take(&mut *behind.micros.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }
}

#[async_trait]
impl Publisher for Noting {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        let number = record.payload.as_deref().and_then(number_of);
        if let Some(behind) = &self.behind {
            let begun = Instant::now();
            behind.publisher.publish(record).await?;
            let micros = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
            behind.micros.lock().unwrap_or_else(PoisonError::into_inner).push(micros);
        }
        self.book.note_published(number, &self.drafts);
        Ok(())
    }
}
