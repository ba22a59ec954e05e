//! Keeping the lease: a task of its own, so that nothing else can hold it up.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::store_call::store_call;
use super::{Parts, failpoint};
use crate::error::Error;
use crate::record::Lane;
use crate::retry::full_jitter;
use crate::store::{LeaseRequest, Leases, RelayId};

/// The longest time between two attempts to get lanes while the relay has fewer than its share.
const SEEK_EVERY: Duration = Duration::from_secs(1);

/// The lease as it was last granted.
#[derive(Debug, Clone, Default)]
pub(super) struct Grant {
    pub(super) leases: Leases,
    /// Until when records may be published: counted from before the renewal was sent, on this process's own
    /// monotonic clock, so never later than the database thinks. `None`: no lease yet.
    pub(super) until: Option<Instant>,
}

/// What the relay's loop and the task that keeps the lease share.
#[derive(Debug)]
pub(super) struct LeaseKeeper {
    relay: RelayId,
    give_back: Mutex<Vec<Lane>>,
    nudge: Notify,
    /// Held by every call about the lease until it is over, also if nobody waits for it any more.
    calling: Arc<tokio::sync::Mutex<()>>,
    grant: watch::Sender<Grant>,
}

impl LeaseKeeper {
    pub(super) fn new(relay: RelayId) -> Self {
        let (grant, _) = watch::channel(Grant::default());
        Self { relay, give_back: Mutex::default(), nudge: Notify::new(), calling: Arc::default(), grant }
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Grant> {
        self.grant.subscribe()
    }

    /// Gives lanes back with the next renewal, which is made at once.
    pub(super) fn give_back(&self, lanes: &[Lane]) {
        self.to_give_back().extend_from_slice(lanes);
        self.nudge.notify_one();
    }

    /// Renews the lease at once.
    pub(super) fn renew(&self) {
        self.nudge.notify_one();
    }

    fn to_give_back(&self) -> std::sync::MutexGuard<'_, Vec<Lane>> {
        self.give_back.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews the lease for ever.
    pub(super) async fn keep(self: Arc<Self>, parts: Arc<Parts>) {
        let mut random = parts.random();
        let mut failures = 0;
        loop {
            let wait = if let Ok(leases) = self.renew_once(&parts).await {
                failures = 0;
                let interval = parts.settings.lease / 3;
                if leases.lanes.len() < leases.share { interval.min(SEEK_EVERY) } else { interval }
            } else {
                failures += 1;
                let longest = parts.settings.lease / 6;
                longest / 10 + full_jitter(longest / 20, longest, failures, &mut random)
            };
            let _ = tokio::time::timeout(wait, self.nudge.notified()).await;
        }
    }

    /// Gives everything back, after the last renewal is over. The task that keeps the lease must have ended.
    pub(super) async fn leave(&self, parts: &Parts) -> Result<(), Error> {
        failpoint::hit(failpoint::BEFORE_LEAVE);
        let calling = self.calling.clone().lock_owned().await;
        let (store, relay) = (parts.store.clone(), self.relay);
        let left = store_call(async move {
            let _calling = calling;
            store.leave(relay).await
        })
        .await;
        failpoint::hit(failpoint::AFTER_LEAVE);
        left
    }

    /// Renews the lease.
    ///
    /// # Errors
    /// What the store reports.
    pub(super) async fn renew_once(&self, parts: &Parts) -> Result<Leases, Error> {
        let give_back = std::mem::take(&mut *self.to_give_back());
        let request = LeaseRequest {
            relay: self.relay,
            name: parts.settings.name.clone(),
            duration: parts.settings.lease,
            give_back: give_back.clone(),
        };
        failpoint::hit(failpoint::BEFORE_LEASE);
        let calling = self.calling.clone().lock_owned().await;
        let (store, sent) = (parts.store.clone(), Instant::now());
        let result = store_call(async move {
            let _calling = calling;
            store.lease(&request).await
        })
        .await;
        failpoint::hit(failpoint::AFTER_LEASE);
        match result {
            Ok(leases) => {
                let grant = Grant { leases: leases.clone(), until: Some(sent + parts.settings.lease) };
                self.grant.send_replace(grant);
                Ok(leases)
            }
            Err(error) => {
                self.to_give_back().extend(give_back);
                parts.store_failed("lease", &error);
                Err(error)
            }
        }
    }
}
