//! Putting a relay together.

use std::sync::Arc;
use std::time::Duration;

use super::destination::Destination;
use super::events::{Hooks, Observer};
use super::route::{Route, Routing};
use super::settings::{DeadPolicy, Retain, Settings};
use super::{DEFAULT_DESTINATION, Parts, Relay};
use crate::admin::Glob;
use crate::error::Error;
use crate::publisher::{FailureClass, PublishError, Publisher};
use crate::record::Record;
use crate::retry::RetryPolicy;
use crate::store::Store;

/// Puts a [`Relay`] together. Only where the records go has no default: a [`publisher`](Self::publisher), or
/// [`destination`](Self::destination)s with [`route`](Self::route)s.
pub struct RelayBuilder {
    store: Arc<dyn Store>,
    publisher: Option<Arc<dyn Publisher>>,
    destinations: Vec<Destination>,
    routes: Vec<Route>,
    settings: Settings,
    hooks: Hooks,
}

impl RelayBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            publisher: None,
            destinations: Vec::new(),
            routes: Vec::new(),
            settings: Settings::default(),
            hooks: Hooks::default(),
        }
    }

    /// Where all records go, if there is only one place; its name is `default`.
    pub fn publisher(mut self, publisher: impl Publisher) -> Self {
        self.publisher = Some(Arc::new(publisher));
        self
    }

    /// One of several places where records go. Which records is said by routes.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use posthaste::{BoxError, Destination, MemoryStore, Relay, Route, publish_fn};
    ///
    /// # fn main() -> Result<(), posthaste::Error> {
    /// # let (rabbit, archive) =
    /// #     (publish_fn(|_| async { Ok::<_, BoxError>(()) }), publish_fn(|_| async { Ok::<_, BoxError>(()) }));
    /// let relay = Relay::builder(Arc::new(MemoryStore::new(4)))
    ///     .destination(Destination::new("rabbit", rabbit).max_in_flight(64))
    ///     .destination(Destination::new("archive", archive))
    ///     .destination(Destination::elsewhere("billing"))
    ///     .route("order.*", "rabbit")
    ///     .route("invoice.*", "billing")
    ///     .route_by(Route::to("archive").aggregate_type("customer"))
    ///     .build()?;
    /// # Ok(()) }
    /// ```
    pub fn destination(mut self, destination: Destination) -> Self {
        self.destinations.push(destination);
        self
    }

    /// Sends records whose event type matches a pattern (`*` for any characters, `?` for one) to a destination. Of all
    /// routes the first that matches counts.
    ///
    /// A message that no route matches stays pending: it costs no attempts, is counted as
    /// [unrouted](super::Snapshot::unrouted), and goes out once a relay runs that knows a route. Later messages of its
    /// key wait for it, and so they do for messages of destinations that are served elsewhere.
    pub fn route(self, event_type: impl Into<String>, destination: impl Into<String>) -> Self {
        self.route_by(Route::to(destination).event_type(event_type))
    }

    /// As [`route`](Self::route), by other things than the event type.
    pub fn route_by(mut self, route: Route) -> Self {
        self.routes.push(route);
        self
    }

    /// A name for people to know this relay by; nothing is decided by it. Default: its process id.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = name.into();
        self
    }

    /// The most records being published at the same time to one destination. Default: 256.
    pub fn max_in_flight(mut self, records: usize) -> Self {
        self.settings.max_in_flight = records;
        self
    }

    /// The most records in memory; each destination may have an equal share of them. Default: 4,096.
    pub fn window_rows(mut self, records: usize) -> Self {
        self.settings.window_rows = records;
        self
    }

    /// The most bytes of records in memory; one record larger than that is taken alone. Each destination
    /// may have an equal share of them. Default: 64 MiB.
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
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if there is nowhere to send records, a route leads to
    /// a destination that is not known, no route leads to one that is served, or a setting makes no sense.
    pub fn build(self) -> Result<Relay, Error> {
        self.settings.check()?;
        let Self { store, publisher, destinations, routes, settings, hooks } = self;
        let (destinations, routing) = match publisher {
            Some(publisher) if destinations.is_empty() && routes.is_empty() => {
                (vec![Destination::only(DEFAULT_DESTINATION, publisher)], Routing::default())
            }
            Some(_) => {
                let text = "the relay has a publisher for everything, and destinations or routes: choose one";
                return Err(Error::invalid_input(text));
            }
            None if destinations.is_empty() => {
                return Err(Error::invalid_input("the relay has no publisher"));
            }
            None => {
                check_destinations(&destinations, &settings)?;
                let routing = Routing::new(routes, &destinations)?;
                (destinations, routing)
            }
        };
        let targets = destinations.into_iter().filter_map(|one| one.into_target(&settings)).collect();
        Ok(Relay::new(Parts::new(store, targets, routing, settings, hooks)))
    }
}

fn check_destinations(destinations: &[Destination], settings: &Settings) -> Result<(), Error> {
    for (place, destination) in destinations.iter().enumerate() {
        destination.check()?;
        if destinations[..place].iter().any(|other| other.name() == destination.name()) {
            let name = destination.name();
            return Err(Error::invalid_input(format!("there are two destinations of the name `{name}`")));
        }
    }
    let served = destinations.iter().filter(|destination| destination.is_served()).count();
    if served == 0 {
        return Err(Error::invalid_input("the relay serves none of its destinations: all are elsewhere"));
    }
    if settings.window_rows < served {
        return Err(Error::invalid_input(format!(
            "window_rows is below the number of destinations ({served})"
        )));
    }
    Ok(())
}

impl std::fmt::Debug for RelayBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
