//! How a relay does at one moment: for readiness, metrics and status pages.

use std::time::Duration;

use tokio::time::Instant;

use super::Parts;

/// How a relay does at one moment, as its loop left it at its last turn. Taking it costs next to nothing.
///
/// A task that serves HTTP can take it as often as it likes: it asks no database.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// As [`RelayHandle::is_ready`](super::RelayHandle::is_ready).
    pub ready: bool,
    /// How long ago the loop last turned; `None`: it does not run. It turns at least once a second.
    pub last_turn: Option<Duration>,
    /// How long the lease lasts from now; `None`: there is none.
    pub lease_left: Option<Duration>,
    /// How often the lease could not be renewed in time.
    pub leases_lapsed: u64,
    /// How many lanes went to other relays because the lease had run out.
    pub lanes_lost: u64,
    /// How many lanes the relay holds.
    pub lanes_held: usize,
    /// How many lanes the table has, as far as is known.
    pub lanes_total: usize,
    /// How long ago a read last succeeded; `None`: none did.
    pub last_read: Option<Duration>,
    /// How long ago a settle last succeeded; `None`: none did.
    pub last_settle: Option<Duration>,
    /// How many records wait in memory for their turn.
    pub queued: usize,
    /// How many attempts are over, but not yet written down.
    pub unsettled: usize,
    /// How many failed records this relay knows of that are to be tried again later. Others may wait in the table.
    pub retries_known: usize,
    /// How many messages without a route the relay came across since it last read its lanes from their start, at least.
    pub unrouted: u64,
    /// The destinations that the relay serves, in the order in which they were given to it.
    pub destinations: Vec<DestinationSnapshot>,
}

/// How a destination does at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DestinationSnapshot {
    /// Its name.
    pub name: String,
    /// Whether messages go to it.
    pub state: DestinationState,
    /// How many records are being published to it.
    pub in_flight: usize,
    /// How long ago it last took responsibility for a record; `None`: it never did.
    pub last_success: Option<Duration>,
}

/// Whether messages go to a destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DestinationState {
    /// They do.
    Running,
    /// It is down, and is tried again after this time with one message. Zero: that one is on its way, or there is none.
    Unavailable {
        /// From now.
        retry_in: Duration,
    },
    /// It wants to be left alone for so long.
    Throttled {
        /// From now.
        retry_in: Duration,
    },
    /// An operator paused it.
    Paused,
}

impl DestinationState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Unavailable { .. } => "unavailable",
            Self::Throttled { .. } => "throttled",
            Self::Paused => "paused",
        }
    }
}

/// What the loop writes down at every turn.
#[derive(Debug, Default)]
pub(super) struct Health {
    pub(super) turned_at: Option<Instant>,
    pub(super) lease_until: Option<Instant>,
    pub(super) reads_fail: bool,
    pub(super) leases_lapsed: u64,
    pub(super) lanes_lost: u64,
    pub(super) lanes_held: usize,
    pub(super) lanes_total: usize,
    pub(super) read_at: Option<Instant>,
    pub(super) settled_at: Option<Instant>,
    pub(super) queued: usize,
    pub(super) unsettled: usize,
    pub(super) retries_known: usize,
    pub(super) unrouted: u64,
    pub(super) destinations: Vec<DestinationHealth>,
}

/// The same about one destination.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct DestinationHealth {
    pub(super) outage: Outage,
    pub(super) paused: bool,
    pub(super) in_flight: usize,
    pub(super) succeeded_at: Option<Instant>,
}

/// Whether a destination is known to be away, and until when it is left alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Outage {
    #[default]
    None,
    Unavailable(Instant),
    Throttled(Instant),
}

impl Health {
    /// Whether the relay works.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        self.turned_at.is_some_and(|at| now - at < Duration::from_secs(5))
            && self.lease_until.is_some_and(|until| now < until)
            && !self.reads_fail
    }
}

/// How the relay does now.
pub(super) fn take(parts: &Parts) -> Snapshot {
    let (health, now) = (parts.health(), Instant::now());
    let ago = |at: Option<Instant>| at.map(|at| now - at);
    let destinations = parts.destination_names().zip(&health.destinations);
    let destinations = destinations.map(|(name, health)| health.snapshot(name, now)).collect();
    Snapshot {
        ready: health.is_ready(now),
        last_turn: ago(health.turned_at),
        lease_left: health.lease_until.map(|until| until - now).filter(|left| !left.is_zero()),
        leases_lapsed: health.leases_lapsed,
        lanes_lost: health.lanes_lost,
        lanes_held: health.lanes_held,
        lanes_total: health.lanes_total,
        last_read: ago(health.read_at),
        last_settle: ago(health.settled_at),
        queued: health.queued,
        unsettled: health.unsettled,
        retries_known: health.retries_known,
        unrouted: health.unrouted,
        destinations,
    }
}

impl DestinationHealth {
    fn snapshot(&self, name: &str, now: Instant) -> DestinationSnapshot {
        let state = match self.outage {
            _ if self.paused => DestinationState::Paused,
            Outage::None => DestinationState::Running,
            Outage::Unavailable(until) => DestinationState::Unavailable { retry_in: until - now },
            Outage::Throttled(until) => DestinationState::Throttled { retry_in: until - now },
        };
        DestinationSnapshot {
            name: name.to_owned(),
            state,
            in_flight: self.in_flight,
            last_success: self.succeeded_at.map(|at| now - at),
        }
    }
}
