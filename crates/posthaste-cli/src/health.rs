//! Whether the relay lives and works, for `/livez`, `/readyz` and the service manager.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste::{DestinationState, RelayHandle, Snapshot};
use serde::Serialize;

use crate::database::redact;

/// The relay's loop turns at least so often.
const TURN: Duration = Duration::from_secs(1);
/// A loop that has not turned for so long does not come back; a start anew helps.
const STUCK: Duration = Duration::from_secs(60);

/// What a destination says about itself, without having been asked to publish; `None`: nothing is wrong.
pub(crate) type Look = Box<dyn Fn() -> Option<String> + Send + Sync>;

/// How the relay does.
pub(crate) struct Health {
    phase: Mutex<Phase>,
    idle_poll: Duration,
    looks: Mutex<Vec<(String, Look)>>,
}

enum Phase {
    /// It does not run yet, and why.
    Starting(String),
    Running(RelayHandle),
    Stopping(RelayHandle),
}

/// What `/readyz` answers.
#[derive(Debug, Serialize)]
pub(crate) struct Readiness {
    pub(crate) ready: bool,
    /// Why it is not.
    pub(crate) reasons: Vec<String>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
}

/// Seconds are `null` where something never happened.
#[derive(Debug, Serialize)]
struct Details {
    lease: Lease,
    #[serde(rename = "loop")]
    turns: Last,
    read: Last,
    settle: Last,
    lanes_held: usize,
    lanes_total: usize,
    unrouted: u64,
    destinations: Vec<Destination>,
}

#[derive(Debug, Serialize)]
struct Lease {
    seconds_left: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Last {
    last_success_seconds_ago: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Destination {
    name: String,
    state: &'static str,
    in_flight: usize,
    last_success_seconds_ago: Option<f64>,
}

impl Health {
    pub(crate) fn new(idle_poll: Duration) -> Self {
        let phase = Phase::Starting("starting".to_owned());
        Self { phase: Mutex::new(phase), idle_poll, looks: Mutex::default() }
    }

    /// It still does not run.
    pub(crate) fn starting(&self, why: &str) {
        *self.phase() = Phase::Starting(redact(why));
    }

    /// It runs, with destinations that can be asked.
    pub(crate) fn running(&self, relay: RelayHandle, looks: Vec<(String, Look)>) {
        *self.looks.lock().unwrap_or_else(PoisonError::into_inner) = looks;
        *self.phase() = Phase::Running(relay);
    }

    /// It was asked to stop.
    pub(crate) fn stopping(&self) {
        let mut phase = self.phase();
        if let Phase::Running(relay) = &*phase {
            *phase = Phase::Stopping(relay.clone());
        }
    }

    /// Whether it gets anywhere, if only in waiting for a database. If not, a start anew may help.
    pub(crate) fn is_alive(&self) -> bool {
        match &*self.phase() {
            Phase::Starting(_) => true,
            // Before the first turn and after the last one, there is none.
            Phase::Running(relay) | Phase::Stopping(relay) => {
                relay.snapshot().last_turn.is_none_or(|ago| ago < STUCK)
            }
        }
    }

    /// Whether it does what it is there for.
    pub(crate) fn readiness(&self) -> Readiness {
        let (snapshot, stopping) = match &*self.phase() {
            Phase::Starting(why) => {
                return Readiness { ready: false, reasons: vec![why.clone()], details: None };
            }
            Phase::Running(relay) => (relay.snapshot(), false),
            Phase::Stopping(relay) => (relay.snapshot(), true),
        };
        let mut reasons = reasons(&snapshot, self.idle_poll);
        if stopping {
            reasons.push("stopping".to_owned());
        }
        for (name, look) in &*self.looks.lock().unwrap_or_else(PoisonError::into_inner) {
            reasons.extend(look().map(|trouble| format!("destination {name}: {}", redact(&trouble))));
        }
        Readiness { ready: reasons.is_empty(), reasons, details: Some(Details::of(&snapshot)) }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Health")
    }
}

/// What keeps a relay from being ready.
fn reasons(now: &Snapshot, idle_poll: Duration) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut say = |text: String| reasons.push(text);
    if now.last_turn.is_none_or(|ago| ago > 2 * TURN) {
        say("the relay's loop does not turn".to_owned());
    }
    if now.lease_left.is_none() {
        say("there is no lease: the database did not answer in time".to_owned());
    }
    // A relay that has its hands full does not read.
    let in_flight: usize = now.destinations.iter().map(|of| of.in_flight).sum();
    let is_idle = now.queued + now.unsettled + in_flight == 0;
    let longest = 2 * idle_poll.max(TURN);
    if now.lanes_held > 0 && is_idle && now.last_read.is_none_or(|ago| ago > longest) {
        say("nothing was read for two intervals".to_owned());
    }
    if !now.ready && reasons.is_empty() {
        reasons.push("reading fails".to_owned());
    }
    for of in &now.destinations {
        if matches!(of.state, DestinationState::Unavailable { .. }) {
            reasons.push(format!("destination {} is unavailable", of.name));
        }
    }
    reasons
}

impl Details {
    fn of(now: &Snapshot) -> Self {
        let seconds = |time: Option<Duration>| time.map(|time| time.as_millis() as f64 / 1_000.0);
        let last = |ago| Last { last_success_seconds_ago: seconds(ago) };
        let destinations = now.destinations.iter().map(|of| Destination {
            name: of.name.clone(),
            state: of.state.as_str(),
            in_flight: of.in_flight,
            last_success_seconds_ago: seconds(of.last_success),
        });
        Self {
            lease: Lease { seconds_left: seconds(now.lease_left) },
            turns: last(now.last_turn),
            read: last(now.last_read),
            settle: last(now.last_settle),
            lanes_held: now.lanes_held,
            lanes_total: now.lanes_total,
            unrouted: now.unrouted,
            destinations: destinations.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use posthaste::{
        BeginAttempt, Error, LeaseRequest, Leases, MemoryStore, Page, PublishError, ReadRequest, Relay,
        RelayId, SettleReport, SettleRequest, Store, UpkeepReport, UpkeepRequest, publish_fn,
    };
    use tokio::time::Instant;

    use super::*;

    /// A store whose reads may hang.
    struct Sick {
        store: MemoryStore,
        reads_hang: AtomicBool,
    }

    #[async_trait]
    impl Store for Sick {
        async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
            self.store.lease(request).await
        }

        async fn leave(&self, relay: RelayId) -> Result<(), Error> {
            self.store.leave(relay).await
        }

        async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
            if self.reads_hang.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            self.store.read(request).await
        }

        async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error> {
            self.store.begin_attempt(attempt).await
        }

        async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error> {
            self.store.settle(request).await
        }

        async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
            self.store.upkeep(request).await
        }

        async fn set_idle(&self, relay: RelayId, idle: bool) -> Result<(), Error> {
            self.store.set_idle(relay, idle).await
        }

        async fn rung(&self) {
            self.store.rung().await;
        }
    }

    /// How long it takes.
    async fn until(health: &Health, ready: bool) -> Duration {
        let began = Instant::now();
        while health.readiness().ready != ready {
            assert!(began.elapsed() < Duration::from_secs(100), "{:?}", health.readiness());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    }

    /// On virtual time.
    async fn fall_sick(reads: bool) -> Readiness {
        let store = Arc::new(Sick { store: MemoryStore::new(4), reads_hang: AtomicBool::new(false) });
        let publisher = publish_fn(async |_| Ok::<_, PublishError>(()));
        let relay = Relay::builder(store.clone()).publisher(publisher).build().unwrap();
        let health = Health::new(Duration::from_millis(400));
        assert!(!health.readiness().ready, "it does not run yet");
        health.running(relay.handle(), Vec::new());
        let work = tokio::spawn(relay.run_until(std::future::pending()));
        until(&health, true).await;
        if reads {
            store.reads_hang.store(true, Ordering::SeqCst);
        } else {
            work.abort();
        }
        let took = until(&health, false).await;
        // Looked at every ten milliseconds.
        assert!(took <= 2 * TURN + Duration::from_millis(20), "{took:?}");
        health.readiness()
    }

    #[tokio::test(start_paused = true)]
    async fn a_relay_that_reads_no_more_is_unready_within_two_intervals() {
        assert_eq!(fall_sick(true).await.reasons, ["nothing was read for two intervals"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_relay_whose_loop_was_killed_is_unready_within_two_intervals() {
        assert_eq!(fall_sick(false).await.reasons[0], "the relay's loop does not turn");
    }
}
