//! What a publisher was asked to do, and what became of it.

use std::future::Future;
use std::sync::Arc;

use posthaste::{FailureClass, Key, Lane, MessageId, Position, PublishError, Record};
use tokio::sync::watch;
use tokio::time::Instant;

/// The calls of a publisher, in the order in which they began. Clones are the same log.
#[derive(Debug, Clone)]
pub struct PublishLog(Arc<watch::Sender<Vec<Call>>>);

/// One call of a publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The record's id.
    pub id: MessageId,
    /// Its event type.
    pub event_type: String,
    /// Its key, if it has one.
    pub key: Option<Key>,
    /// Its lane.
    pub lane: Lane,
    /// Its position.
    pub position: Position,
    /// The number of the attempt; the first is 1.
    pub attempt: u32,
    /// When the call began.
    pub began: Instant,
    /// How and when it ended, if it has.
    pub end: Option<(End, Instant)>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The record was published.
    Published,
    /// It was not, for this reason.
    Failed(FailureClass),
    /// The publisher panicked.
    Panicked,
    /// The caller dropped the call before it was done.
    Dropped,
}

impl Default for PublishLog {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }
}

impl PublishLog {
    /// All calls, in the order in which they began.
    pub fn calls(&self) -> Vec<Call> {
        self.0.borrow().clone()
    }

    /// The calls for one record.
    pub fn calls_of(&self, id: MessageId) -> Vec<Call> {
        self.0.borrow().iter().filter(|call| call.id == id).cloned().collect()
    }

    /// What was published, in the order in which the calls ended.
    pub fn published(&self) -> Vec<MessageId> {
        let mut published: Vec<_> = self
            .0
            .borrow()
            .iter()
            .filter_map(|call| match call.end {
                Some((End::Published, at)) => Some((at, call.id)),
                _ => None,
            })
            .collect();
        published.sort_by_key(|(at, _)| *at);
        published.into_iter().map(|(_, id)| id).collect()
    }

    /// How many calls are under way.
    pub fn in_flight(&self) -> usize {
        self.0.borrow().iter().filter(|call| call.end.is_none()).count()
    }

    /// Waits until something holds of the calls.
    pub async fn until(&self, holds: impl FnMut(&Vec<Call>) -> bool) {
        // The log holds the sender, so the channel does not close.
        let _ = self.0.subscribe().wait_for(holds).await;
    }

    /// Waits until so many calls have begun.
    pub async fn until_begun(&self, count: usize) {
        self.until(|calls| calls.len() >= count).await;
    }

    /// Waits until so many calls have ended, however they did.
    pub async fn until_ended(&self, count: usize) {
        self.until(|calls| calls.iter().filter(|call| call.end.is_some()).count() >= count).await;
    }

    /// Waits until so many calls have published their record.
    pub async fn until_published(&self, count: usize) {
        let is_published = |call: &&Call| matches!(call.end, Some((End::Published, _)));
        self.until(|calls| calls.iter().filter(is_published).count() >= count).await;
    }

    /// Records a call, and returns how many there were with it.
    pub(super) fn begin(&self, record: &Record) -> OpenCall {
        let call = Call {
            id: record.id,
            event_type: record.event_type.clone(),
            key: record.key().cloned(),
            lane: record.lane,
            position: record.position,
            attempt: record.attempt(),
            began: Instant::now(),
            end: None,
        };
        let mut number = 0;
        self.0.send_modify(|calls| {
            calls.push(call);
            number = calls.len();
        });
        OpenCall { log: self.clone(), number }
    }

    fn end(&self, number: usize, end: End) {
        let at = Instant::now();
        self.0.send_modify(|calls| {
            if let Some(call) = calls.get_mut(number - 1) {
                call.end.get_or_insert((end, at));
            }
        });
    }
}

/// A call under way. Dropped, it is noted as dropped or panicked.
pub(super) struct OpenCall {
    log: PublishLog,
    /// Its number; the first is 1.
    pub(super) number: usize,
}

impl OpenCall {
    /// Waits for the result and notes it.
    pub(super) async fn follow<F>(self, publish: F) -> Result<(), PublishError>
    where
        F: Future<Output = Result<(), PublishError>>,
    {
        let result = publish.await;
        let end = result.as_ref().map_or_else(|error| End::Failed(error.class()), |()| End::Published);
        self.log.end(self.number, end);
        result
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let end = if std::thread::panicking() { End::Panicked } else { End::Dropped };
        self.log.end(self.number, end);
    }
}
