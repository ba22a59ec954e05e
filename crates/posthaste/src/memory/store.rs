//! The relay's side.

use async_trait::async_trait;

use super::MemoryStore;
use crate::error::Error;
use crate::store::{
    BeginAttempt, LeaseRequest, Leases, Page, ReadRequest, RelayId, SettleReport, SettleRequest, Store,
    UpkeepReport, UpkeepRequest,
};

#[async_trait]
impl Store for MemoryStore {
    async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
        Ok(self.table().lease(request, self.clock.now()))
    }

    async fn leave(&self, relay: RelayId) -> Result<(), Error> {
        self.table().leave(relay);
        Ok(())
    }

    async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        Ok(self.table().read(request, self.clock.now()))
    }

    async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error> {
        Ok(self.table().begin_attempt(attempt))
    }

    async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error> {
        Ok(self.table().settle(request, self.clock.now()))
    }

    async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
        Ok(self.table().tidy_up(request, self.clock.now()))
    }

    /// Does nothing: a commit always wakes.
    async fn set_idle(&self, _relay: RelayId, _idle: bool) -> Result<(), Error> {
        Ok(())
    }

    async fn rung(&self) {
        self.waker.woken().await;
    }
}
