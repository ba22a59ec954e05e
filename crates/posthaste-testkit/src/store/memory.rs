//! The fixture of the store in memory.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{
    Admin, Error, ManualClock, MemoryStore, MemoryTransaction, Message, MessageId, Receipt, Store,
};

use super::fixture::{FixtureTransaction, Payloads, StoreFixture};

/// A [`MemoryStore`] with so many lanes, on a manual clock.
#[derive(Debug)]
pub struct MemoryFixture<const LANES: u16 = 8> {
    store: MemoryStore,
    clock: ManualClock,
}

#[async_trait]
impl<const LANES: u16> StoreFixture for MemoryFixture<LANES> {
    async fn new() -> Option<Self> {
        let clock = ManualClock::default();
        Some(Self { store: MemoryStore::new(LANES).with_clock(clock.clone()), clock })
    }

    async fn unmigrated() -> Option<Self> {
        Self::new().await
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn admin(&self) -> Arc<dyn Admin> {
        Arc::new(self.store.clone())
    }

    async fn second(&self) -> Arc<dyn Store> {
        self.store()
    }

    fn lanes(&self) -> u16 {
        LANES
    }

    fn concurrent_transactions(&self) -> bool {
        true
    }

    fn payloads(&self) -> Payloads {
        Payloads::AnyBytes
    }

    async fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    async fn begin(&self) -> Box<dyn FixtureTransaction> {
        Box::new(self.store.begin())
    }
}

#[async_trait]
impl FixtureTransaction for MemoryTransaction {
    async fn enqueue(&mut self, message: &Message) -> Result<MessageId, Error> {
        self.enqueue(message).map(|receipt| receipt.id())
    }

    async fn enqueue_all(&mut self, messages: &[Message]) -> Result<Vec<MessageId>, Error> {
        Ok(self.enqueue_all(messages)?.iter().map(Receipt::id).collect())
    }

    async fn commit(self: Box<Self>) {
        MemoryTransaction::commit(*self);
    }

    async fn rollback(self: Box<Self>) {
        MemoryTransaction::rollback(*self);
    }
}
