//! Waking a relay in the same process.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::id::MessageId;

/// Wakes the relays of a store in this process: a hint that saves a polling interval. Clones wake the same relays.
#[derive(Debug, Clone, Default)]
pub struct Waker(Arc<Notify>);

impl Waker {
    /// Tells the relays that there may be work. Call it after the transaction has committed.
    pub fn wake(&self) {
        // Whoever waits, and else the next who does.
        self.0.notify_waiters();
        self.0.notify_one();
    }

    /// Waits for a call of [`wake`](Self::wake); one that came before counts. For store adapters.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn woken(&self) {
        self.0.notified().await;
    }
}

/// What an enqueue returns: the message's id, and a way to wake a relay in the same process.
#[derive(Debug, Clone)]
pub struct Receipt {
    id: MessageId,
    waker: Waker,
}

impl Receipt {
    /// A receipt for a message that was enqueued. For store adapters.
    pub fn new(id: MessageId, waker: Waker) -> Self {
        Self { id, waker }
    }

    /// The message's id.
    pub fn id(&self) -> MessageId {
        self.id
    }

    /// Wakes a relay in the same process. Call it after the transaction has committed; to leave it out costs no
    /// more than a polling interval.
    pub fn wake(&self) {
        self.waker.wake();
    }
}
