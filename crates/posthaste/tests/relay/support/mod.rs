//! What the tests are written with.

mod clock;
mod crowd;
mod messages;
mod routes;
mod store;

use std::sync::Arc;
use std::time::Duration;

use posthaste::{
    DeadSelection, Error, Event, MemoryStore, Observer, Publisher, Relay, RelayBuilder, RelayHandle, Summary,
};
use posthaste_testkit::VirtualClock;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(crate) use self::clock::{JumpingClock, outbox_on_jumping_clock};
pub(crate) use self::crowd::Crowd;
pub(crate) use self::messages::*;
pub(crate) use self::routes::*;
pub(crate) use self::store::{Fault, Op, TappedStore};

/// An outbox in memory on virtual time, and the store through which a relay sees it.
pub(crate) fn outbox(lanes: u16) -> TappedStore {
    TappedStore::new(MemoryStore::new(lanes).with_clock(VirtualClock::start()))
}

/// A relay that is always the same.
pub(crate) fn relay(store: &TappedStore, publisher: &(impl Publisher + Clone)) -> RelayBuilder {
    Relay::builder(Arc::new(store.clone())).publisher(publisher.clone()).name("tested").seed(7)
}

/// A relay that runs until it is told to stop.
pub(crate) struct Running {
    pub(crate) handle: RelayHandle,
    pub(crate) task: JoinHandle<Result<Summary, Error>>,
}

pub(crate) fn start(relay: RelayBuilder) -> Running {
    let relay = relay.build().expect("the settings are valid");
    let handle = relay.handle();
    Running { handle, task: tokio::spawn(relay.run_until(std::future::pending())) }
}

impl Running {
    pub(crate) async fn stop(self) -> Summary {
        self.handle.stop();
        self.ended().await
    }

    pub(crate) async fn ended(self) -> Summary {
        self.task.await.expect("the relay does not panic").expect("the relay started")
    }
}

pub(crate) async fn drain(relay: RelayBuilder) -> Summary {
    relay.build().expect("the settings are valid").drain().await.expect("the relay started")
}

pub(crate) async fn run_once(relay: RelayBuilder) -> Summary {
    relay.build().expect("the settings are valid").run_once().await.expect("the relay started")
}

/// Waits at most so long, in virtual time.
#[track_caller]
pub(crate) fn within<T>(limit: Duration, event: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = std::panic::Location::caller();
    async move {
        let result = tokio::time::timeout(limit, event).await;
        result.unwrap_or_else(|_| panic!("it did not happen within {limit:?} (awaited at {caller})"))
    }
}

/// Lets virtual time pass.
pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The times between calls.
pub(crate) fn gaps(times: &[Instant]) -> Vec<Duration> {
    times.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn millis(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) fn only(id: posthaste::MessageId) -> DeadSelection {
    DeadSelection::Ids(vec![id])
}

/// An observer that keeps the names of what happened, with details where tests need them.
#[derive(Clone)]
pub(crate) struct Events(Arc<watch::Sender<Vec<String>>>);

impl Events {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(Vec::new())))
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.0.borrow().iter().filter(|event| *event == name).count()
    }

    pub(crate) async fn until(&self, name: &str) {
        self.until_count(name, 1).await;
    }

    pub(crate) async fn until_count(&self, name: &str, count: usize) {
        let mut events = self.0.subscribe();
        let enough = |events: &Vec<String>| events.iter().filter(|event| *event == name).count() >= count;
        events.wait_for(enough).await.expect("the sender lives");
    }
}

impl Observer for Events {
    fn event(&self, event: &Event<'_>) {
        let text = match event {
            Event::LanesTaken { from_expired: 0, .. } => "lanes taken".to_owned(),
            Event::LanesTaken { .. } => "lanes taken over".to_owned(),
            Event::LanesGivenBack { .. } => "lanes given back".to_owned(),
            Event::LanesLost { .. } => "lanes lost".to_owned(),
            Event::LeaseLapsed => "lapsed".to_owned(),
            Event::Retried { .. } => "retried".to_owned(),
            Event::Died { .. } => "died".to_owned(),
            Event::Paused { .. } => "paused".to_owned(),
            Event::Resumed { .. } => "resumed".to_owned(),
            Event::StoreFailed { operation, .. } => format!("{operation} failed"),
            Event::TaskRestarted { task } => format!("{task} restarted"),
            Event::Upkeep { report } if report.ours => format!("purged {}", report.purged),
            _ => return,
        };
        self.0.send_modify(|events| events.push(text));
    }
}
