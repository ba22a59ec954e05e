//! The relay: reads committed messages in order, publishes them, and writes down what became of them.
//!
//! ```text
//! wake → read (lanes.rs) → take in (window.rs) → publish (publish.rs) → settle (settle.rs)
//! ```
//!
//! `run.rs` is the loop that ties the steps together; `leases.rs` and `upkeep.rs` are tasks beside it.

mod accounts;
mod breaker;
mod builder;
mod care;
mod destination;
mod events;
pub mod failpoint;
mod gaps;
mod key_queue;
mod lanes;
mod leases;
mod line;
mod plan;
mod poll;
mod probe;
mod publish;
mod rate;
mod route;
mod run;
mod run_outcomes;
mod run_steps;
mod settings;
mod settle;
mod snapshot;
mod store_call;
mod supervise;
mod take_in;
mod upkeep;
mod window;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

pub use self::builder::RelayBuilder;
pub use self::destination::Destination;
pub use self::events::{Event, Observer};
pub use self::route::Route;
pub use self::settings::{DeadPolicy, Retain};
pub use self::snapshot::{DestinationSnapshot, DestinationState, Snapshot};

use self::destination::Target;
use self::events::Hooks;
use self::leases::LeaseKeeper;
use self::route::Routing;
use self::run::{Goal, Run};
use self::settings::Settings;
use self::snapshot::Health;
use crate::error::{Error, ErrorKind};
use crate::store::{RelayId, Store};

/// Publishes the messages of an outbox: at least once, in order per key.
///
/// Several relays may work on one table, in one process or in many: they share the lanes, and take over those of a
/// relay that died when its lease is over. As long as a relay keeps its lease, no message is published twice.
///
/// ```
/// use std::sync::Arc;
/// use posthaste::{BoxError, MemoryStore, Message, Relay, publish_fn};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let store = MemoryStore::new(4);
/// let mut tx = store.begin();
/// tx.enqueue(&Message::new("order.created").aggregate("order", 7).text("hello"))?;
/// tx.commit();
///
/// let relay = Relay::builder(Arc::new(store))
///     .publisher(publish_fn(|record| async move {
///         println!("{}: {:?}", record.event_type, record.payload);
///         Ok::<_, BoxError>(())
///     }))
///     .build()?;
/// let summary = relay.drain().await?;
/// assert_eq!(summary.published, 1);
/// # Ok(()) }
/// ```
pub struct Relay {
    parts: Arc<Parts>,
    stop: Arc<watch::Sender<Stop>>,
}

/// The name of the destination of a relay that was given but one publisher.
const DEFAULT_DESTINATION: &str = "default";

/// What a relay is made of.
pub(crate) struct Parts {
    store: Arc<dyn Store>,
    /// Where records go. Never empty.
    targets: Vec<Target>,
    routing: Routing,
    settings: Settings,
    hooks: Hooks,
    counters: Counters,
    health: Mutex<Health>,
}

/// How far the relay has been told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Stop {
    #[default]
    Running,
    Stopping,
    Abandoning,
}

impl Relay {
    /// Puts a relay together.
    pub fn builder(store: Arc<dyn Store>) -> RelayBuilder {
        RelayBuilder::new(store)
    }

    fn new(parts: Parts) -> Self {
        Self { parts: Arc::new(parts), stop: Arc::new(watch::Sender::new(Stop::Running)) }
    }

    /// A handle to stop the relay and to ask how it does.
    pub fn handle(&self) -> RelayHandle {
        RelayHandle { parts: self.parts.clone(), stop: self.stop.clone() }
    }

    /// Runs until `shutdown` is ready, then drains: takes nothing new, waits for what is in flight (at most the
    /// drain timeout), settles it and gives the lanes back. Errors of the database are ridden out.
    ///
    /// # Errors
    /// Only what waiting cannot mend, found at the start: the tables are missing or of another version, or this
    /// user has no rights to them.
    ///
    /// # Cancel safety
    /// Dropping the future abandons what is in flight, which may then be published twice, and leaves the lanes to
    /// others only when the lease is over. Use `shutdown` or the handle instead.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Summary, Error> {
        let handle = self.handle();
        let run = self.run(Goal::RunOn);
        tokio::pin!(run, shutdown);
        tokio::select! {
            biased;
            summary = &mut run => return summary,
            () = &mut shutdown => handle.stop(),
        }
        run.await
    }

    /// Runs until no message in the table is due, whoever published it: messages in lanes of another relay count
    /// too, and are taken over if that relay died. Messages that wait for a delay or a backoff, and those behind
    /// them, are not due.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    ///
    /// # Cancel safety
    /// As [`run_until`](Self::run_until).
    pub async fn drain(self) -> Result<Summary, Error> {
        self.run(Goal::Drain).await
    }

    /// Does one round: takes free lanes, reads one page, publishes and settles it, and gives the lanes back.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    ///
    /// # Cancel safety
    /// As [`run_until`](Self::run_until).
    pub async fn run_once(self) -> Result<Summary, Error> {
        self.run(Goal::OneRound).await
    }

    async fn run(self, goal: Goal) -> Result<Summary, Error> {
        let (parts, stop) = (self.parts, self.stop);
        let relay = RelayId::random();
        let keeper = Arc::new(LeaseKeeper::new(relay));
        if let Err(error) = keeper.renew_once(&parts).await
            && !is_worth_waiting_for(&error)
        {
            return Err(error);
        }
        tracing::info!(%relay, name = parts.settings.name, "relay started");
        let lease_task = supervise::start("lease", &parts, {
            let (keeper, parts) = (keeper.clone(), parts.clone());
            move || keeper.clone().keep(parts.clone())
        });
        let upkeep_task = supervise::start("upkeep", &parts, {
            let parts = parts.clone();
            move || upkeep::keep_up(parts.clone(), relay)
        });
        let loop_task = supervise::start("loop", &parts, {
            let (parts, keeper, stop) = (parts.clone(), keeper.clone(), stop.clone());
            move || Run::new(parts.clone(), relay, keeper.clone(), goal, stop.subscribe()).run()
        });
        loop_task.finished().await;
        parts.health().turned_at = None;
        drop((lease_task, upkeep_task));
        leave(&parts, &keeper).await;
        let summary = parts.counters.summary();
        tracing::info!(%relay, ?summary, "relay stopped");
        Ok(summary)
    }
}

/// Gives the lanes back, without letting a database that does not answer hold up the end.
async fn leave(parts: &Parts, keeper: &LeaseKeeper) {
    let most = parts.settings.lease.min(Duration::from_secs(5));
    match tokio::time::timeout(most, keeper.leave(parts)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => parts.store_failed("leave", &error),
        Err(_elapsed) => {
            tracing::warn!("the lanes could not be given back in time; they are free when the lease is over");
        }
    }
}

/// Whether an error at the start may go away by itself.
fn is_worth_waiting_for(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::ReadOnly | ErrorKind::Database
    )
}

impl Parts {
    fn new(
        store: Arc<dyn Store>,
        targets: Vec<Target>,
        routing: Routing,
        settings: Settings,
        hooks: Hooks,
    ) -> Self {
        let (counters, health) = (Counters::default(), Mutex::default());
        Self { store, targets, routing, settings, hooks, counters, health }
    }

    fn random(&self) -> fastrand::Rng {
        let seed = self.settings.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().1);
        fastrand::Rng::with_seed(seed)
    }

    fn store_failed(&self, operation: &'static str, error: &Error) {
        tracing::warn!(
            operation,
            error = error as &dyn std::error::Error,
            "the database failed; trying again"
        );
        self.hooks.tell(&Event::StoreFailed { operation, error });
    }

    /// The names of the destinations, in the order of their numbers.
    fn destination_names(&self) -> impl Iterator<Item = &str> {
        self.targets.iter().map(|target| &*target.name)
    }

    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops a relay, and says how it does. Clones belong to the same relay.
#[derive(Clone)]
pub struct RelayHandle {
    parts: Arc<Parts>,
    stop: Arc<watch::Sender<Stop>>,
}

impl RelayHandle {
    /// Stops taking: what is in flight is finished and settled, then the relay ends.
    pub fn stop(&self) {
        self.advance(Stop::Stopping);
    }

    /// Ends at once: what is in flight is abandoned, and may be published again by the next relay.
    pub fn abandon(&self) {
        self.advance(Stop::Abandoning);
    }

    /// What the relay has done so far.
    pub fn summary(&self) -> Summary {
        self.parts.counters.summary()
    }

    /// Whether the relay works: its loop turns, its lease holds, and the database answers. A relay that stands by
    /// because others hold all lanes, or that waits for a destination that is down, works.
    pub fn is_ready(&self) -> bool {
        self.parts.health().is_ready(Instant::now())
    }

    /// How the relay does at this moment: its lease, its lanes, its destinations.
    pub fn snapshot(&self) -> Snapshot {
        snapshot::take(&self.parts)
    }

    fn advance(&self, to: Stop) {
        self.stop.send_if_modified(|stop| {
            let further = to > *stop;
            *stop = to.max(*stop);
            further
        });
    }
}

impl std::fmt::Debug for RelayHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayHandle").field("summary", &self.summary()).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Relay").field("settings", &self.parts.settings).finish_non_exhaustive()
    }
}

/// What a relay did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Records the destination took responsibility for.
    pub published: u64,
    /// Attempts that failed and are to be repeated.
    pub retried: u64,
    /// Records given up.
    pub dead: u64,
    /// Records that were published, but whose outcome was refused because the lane had gone to another relay: it
    /// may publish them again.
    pub stale: u64,
    /// Attempts under way that were abandoned: their records may be published again.
    pub abandoned: u64,
}

#[derive(Debug, Default)]
struct Counters {
    published: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    stale: AtomicU64,
    abandoned: AtomicU64,
}

impl Counters {
    fn summary(&self) -> Summary {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            published: get(&self.published),
            retried: get(&self.retried),
            dead: get(&self.dead),
            stale: get(&self.stale),
            abandoned: get(&self.abandoned),
        }
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}
