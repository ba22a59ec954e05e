//! The destinations of a relay.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::breaker::Breaker;
use super::rate::{Pacer, RateLimit};
use super::settings::Settings;
use super::snapshot::DestinationHealth;
use crate::admin::Glob;
use crate::error::Error;
use crate::publisher::Publisher;
use crate::retry::{RetryPolicies, RetryPolicy};
use crate::validate::MAX_DELAY;

/// The most characters of a name.
const MAX_NAME: usize = 64;

/// Where some records go: a name, a publisher, and limits of its own.
///
/// Destinations do not hold each other up: each has its own records in flight, rate limit, retry policy, timeout and
/// pauses, and its share of the relay's memory. Only the order of a key reaches across: a message waits for an earlier one of
/// its key, wherever that goes.
///
/// ```
/// use std::time::Duration;
/// use posthaste::{BoxError, Destination, RetryPolicy, publish_fn};
///
/// let handler = publish_fn(|_record| async { Ok::<_, BoxError>(()) });
/// let mail = Destination::new("mail", handler)
///     .max_in_flight(4)
///     .rate_limit(50, Duration::from_secs(1))
///     .retry(RetryPolicy::fixed(Duration::from_mins(1)).max_attempts(30));
/// ```
#[must_use]
pub struct Destination {
    name: String,
    /// `None`: another relay serves it.
    publisher: Option<Arc<dyn Publisher>>,
    max_in_flight: Option<usize>,
    rate_limit: Option<RateLimit>,
    retry: Option<RetryPolicy>,
    retry_for: Vec<(Glob, RetryPolicy)>,
    publish_timeout: Option<Duration>,
}

impl Destination {
    /// A destination that the relay serves. The name may have letters, digits, `_`, `-` and `.`, and is what routes,
    /// metrics and operators call it.
    pub fn new(name: impl Into<String>, publisher: impl Publisher) -> Self {
        Self { publisher: Some(Arc::new(publisher)), ..Self::elsewhere(name) }
    }

    /// A destination that other relays serve: messages that are routed to it are left to them, and not counted as
    /// unrouted.
    pub fn elsewhere(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            publisher: None,
            max_in_flight: None,
            rate_limit: None,
            retry: None,
            retry_for: Vec::new(),
            publish_timeout: None,
        }
    }

    /// The most records being published to it at the same time. Default: that of the relay.
    pub fn max_in_flight(mut self, records: usize) -> Self {
        self.max_in_flight = Some(records);
        self
    }

    /// The most records that begin in a time, repeated attempts included. They are spread evenly over it; up to ten
    /// milliseconds' worth may begin together. Every relay counts for itself. Default: no limit.
    pub fn rate_limit(mut self, records: u32, per: Duration) -> Self {
        self.rate_limit = Some(RateLimit { records, per });
        self
    }

    /// When failed records are tried again, and when they are given up. Default: as the relay says, for all and by event
    /// type.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// The same for some event types; the first pattern that matches counts, before what the relay says.
    pub fn retry_for(mut self, event_type: Glob, policy: RetryPolicy) -> Self {
        self.retry_for.push((event_type, policy));
        self
    }

    /// How long one attempt may take before it counts as failed. Default: that of the relay.
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.publish_timeout = Some(timeout);
        self
    }

    /// The only destination of a relay.
    pub(super) fn only(name: &str, publisher: Arc<dyn Publisher>) -> Self {
        Self { publisher: Some(publisher), ..Self::elsewhere(name) }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_served(&self) -> bool {
        self.publisher.is_some()
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        let name = &self.name;
        let is_fine = |character: char| character.is_ascii_alphanumeric() || "_-.".contains(character);
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_fine) {
            return Err(Error::invalid_input(format!(
                "{name:?} cannot be the name of a destination: it must have 1 to {MAX_NAME} letters, digits, `_`, `-` or `.`"
            )));
        }
        if self.max_in_flight == Some(0) {
            return Err(Error::invalid_input(format!(
                "max_in_flight of `{name}` is 0; it must be at least 1"
            )));
        }
        match self.publish_timeout {
            Some(Duration::ZERO) => {
                return Err(Error::invalid_input(format!(
                    "publish_timeout of `{name}` is 0; it must be longer"
                )));
            }
            Some(timeout) if timeout > MAX_DELAY => {
                return Err(Error::invalid_input(format!(
                    "publish_timeout of `{name}` is longer than ten years"
                )));
            }
            Some(_) | None => {}
        }
        if let Some(limit) = self.rate_limit {
            limit.check(name)?;
        }
        self.retry_for.iter().map(|(_, policy)| policy).chain(&self.retry).try_for_each(RetryPolicy::check)
    }

    /// The destination as the relay works with it; `None`: it serves it not.
    pub(super) fn into_target(self, settings: &Settings) -> Option<Target> {
        Some(Target {
            name: self.name,
            publisher: self.publisher?,
            max_in_flight: self.max_in_flight.unwrap_or(settings.max_in_flight),
            rate_limit: self.rate_limit,
            retries: settings.retries.with(self.retry, self.retry_for),
            publish_timeout: self.publish_timeout.unwrap_or(settings.publish_timeout),
        })
    }
}

impl fmt::Debug for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Destination").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A destination that is served.
pub(super) struct Target {
    pub(super) name: String,
    pub(super) publisher: Arc<dyn Publisher>,
    pub(super) max_in_flight: usize,
    pub(super) rate_limit: Option<RateLimit>,
    pub(super) retries: RetryPolicies,
    pub(super) publish_timeout: Duration,
}

/// What the loop knows about a destination.
#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) breaker: Breaker,
    pub(super) pacer: Pacer,
    pub(super) succeeded_at: Option<Instant>,
}

impl Outlet {
    pub(super) fn new(target: &Target) -> Self {
        Self { breaker: Breaker::new(), pacer: Pacer::new(target.rate_limit), succeeded_at: None }
    }

    /// Whether a record may start now, as far as the destination is concerned.
    pub(super) fn may_start(&self, now: Instant) -> bool {
        self.breaker.may_start() && self.pacer.not_before(now).is_none()
    }

    /// When something may change by itself: its pause ends, or a record that waits may start.
    pub(super) fn next_at(&self, is_waiting: bool, now: Instant) -> Option<Instant> {
        let paced = if is_waiting { self.pacer.not_before(now) } else { None };
        self.breaker.paused_until().or(paced)
    }

    pub(super) fn started(&mut self, now: Instant) {
        self.breaker.started();
        self.pacer.started(now);
    }

    pub(super) fn health(&self, in_flight: usize, now: Instant) -> DestinationHealth {
        let (outage, succeeded_at) = (self.breaker.outage(now), self.succeeded_at);
        DestinationHealth { outage, paused: false, in_flight, succeeded_at }
    }
}
