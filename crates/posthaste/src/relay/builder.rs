//! Putting a relay together.

use std::sync::Arc;
use std::time::Duration;

use super::events::{Hooks, Observer};
use super::settings::{DeadPolicy, Retain, Settings};
use super::{DEFAULT_DESTINATION, Parts, Relay, Target};
use crate::admin::Glob;
use crate::error::Error;
use crate::publisher::{FailureClass, PublishError, Publisher};
use crate::record::Record;
use crate::retry::RetryPolicy;
use crate::store::Store;

/// Puts a [`Relay`] together. Only the publisher has no default.
pub struct RelayBuilder {
    store: Arc<dyn Store>,
    publisher: Option<Arc<dyn Publisher>>,
    settings: Settings,
    hooks: Hooks,
}

impl RelayBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, publisher: None, settings: Settings::default(), hooks: Hooks::default() }
    }

    /// Where the records go.
    pub fn publisher(mut self, publisher: impl Publisher) -> Self {
        self.publisher = Some(Arc::new(publisher));
        self
    }

    /// A name for people to know this relay by; nothing is decided by it. Default: its process id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// The most records being published at the same time. Default: 256.
    pub fn max_in_flight(mut self, records: usize) -> Self {
        self.settings.max_in_flight = records;
        self
    }

    /// The most records in memory. Default: 4,096.
    pub fn window_rows(mut self, records: usize) -> Self {
        self.settings.window_rows = records;
        self
    }

    /// The most bytes of records in memory; one record larger than that is taken alone. Default: 64 MiB.
    pub fn window_bytes(mut self, bytes: usize) -> Self {
        self.settings.window_bytes = bytes;
        self
    }

    /// The most outcomes written in one transaction. Default: 1,000.
    pub fn settle_batch(mut self, outcomes: usize) -> Self {
        self.settings.settle_batch = outcomes;
        self
    }

    /// How long an outcome may wait for others to be written with it. Default: 2 ms; zero: not at all.
    pub fn settle_linger(mut self, linger: Duration) -> Self {
        self.settings.settle_linger = linger;
        self
    }

    /// How long the lease lasts: after a crash, other relays take over after at most this time. It is renewed
    /// three times as often. Default: 10 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long one attempt to publish may take before it counts as failed. Default: 10 s.
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.settings.publish_timeout = timeout;
        self
    }

    /// How long a stopping relay waits for records in flight before it abandons them. Default: 30 s.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.settings.drain_timeout = timeout;
        self
    }

    /// How often an idle relay looks for work unless it is woken. Default: 400 ms.
    pub fn idle_poll(mut self, interval: Duration) -> Self {
        self.settings.idle_poll = interval;
        self
    }

    /// When failed records are tried again, and when they are given up. Default: [`RetryPolicy::default`].
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retries.default = policy;
        self
    }

    /// The same for some event types; the first pattern that matches counts.
    pub fn retry_for(mut self, event_type: Glob, policy: RetryPolicy) -> Self {
        self.settings.retries.by_event_type.push((event_type, policy));
        self
    }

    /// What becomes of the later messages of a key when one is given up. Default: [`DeadPolicy::Skip`].
    pub fn on_dead(mut self, policy: DeadPolicy) -> Self {
        self.settings.on_dead = policy;
        self
    }

    /// What becomes of processed records. Default: kept for seven days.
    pub fn retain(mut self, retain: Retain) -> Self {
        self.settings.retain = retain;
        self
    }

    /// How long idempotency keys are kept. Default: 30 days.
    pub fn keep_idempotency_keys(mut self, duration: Duration) -> Self {
        self.settings.keep_keys = duration;
        self
    }

    /// How long the inbox remembers which message a consumer has seen, in a store that has an inbox; `None`: for ever.
    /// Keep it longer than a message may be delivered again, redriven ones included: one that comes again later is
    /// taken for new. Default: 30 days.
    pub fn keep_inbox(mut self, duration: Option<Duration>) -> Self {
        self.settings.keep_inbox = duration;
        self
    }

    /// How often upkeep (purging what is kept no longer) is looked after. Default: 1 min.
    pub fn upkeep_every(mut self, interval: Duration) -> Self {
        self.settings.upkeep_every = interval;
        self
    }

    /// Gets told what happens: for metrics and tests.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.hooks.observer = Some(Box::new(observer));
        self
    }

    /// Gets every failed publish with its original error, which is stored nowhere.
    pub fn on_error(mut self, callback: impl Fn(&Record, &PublishError) + Send + Sync + 'static) -> Self {
        self.hooks.on_error = Some(Box::new(callback));
        self
    }

    /// Decides the class of a failure in the publisher's place; timeouts and panics come here too.
    pub fn classify(
        mut self,
        classifier: impl Fn(&Record, &PublishError) -> FailureClass + Send + Sync + 'static,
    ) -> Self {
        self.hooks.classify = Some(Box::new(classifier));
        self
    }

    /// Seeds the relay's randomness (jitter), so that a test can be repeated.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
        self
    }

    /// The relay.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is no publisher, or a setting makes no
    /// sense.
    pub fn build(self) -> Result<Relay, Error> {
        self.settings.check()?;
        let publisher = self.publisher.ok_or_else(|| Error::invalid_input("the relay has no publisher"))?;
        let targets = vec![Target { name: DEFAULT_DESTINATION.to_owned(), publisher }];
        Ok(Relay::new(Parts::new(self.store, targets, self.settings, self.hooks)))
    }
}

impl std::fmt::Debug for RelayBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
