//! Puts producers, relay and destination together, and lets them work until every message is settled.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste::{
    Admin, ListFilter, MessageId, MessageInfo, Outbox, Relay, RelayHandle, RetryPolicy, State, Summary,
    publish_fn,
};
use posthaste_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::Connection;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use super::audit::Evidence;
use super::destination::Destination;
use super::producers::{ORDERS_TABLE, Plan, Produced, failed, produce};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::shutdown::StopRequests;

const PRODUCERS: u64 = 4;
/// How long nothing may move before the demo calls it a stall.
const STALLED: Duration = Duration::from_secs(20);
/// How long the destination may take to answer.
const PUBLISH_TIMEOUT: Duration = Duration::from_millis(100);

/// What the demo is asked to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    pub(crate) messages: u64,
    pub(crate) keys: u64,
    pub(crate) fail: f64,
    pub(crate) seed: u64,
}

/// The database and all who work with it.
pub(crate) struct Stage {
    script: Script,
    path: PathBuf,
    store: SqliteStore,
    outbox: Outbox,
    destination: Destination,
}

/// What happened.
pub(crate) struct Outcome {
    pub(crate) evidence: Evidence,
    pub(crate) summary: Summary,
    /// The messages that were given up.
    pub(crate) dead: Vec<MessageInfo>,
}

impl Stage {
    /// Makes the database.
    pub(crate) async fn set(path: PathBuf, script: Script) -> Result<Self, Failure> {
        let store = SqliteStore::open(&path, SqliteOptions::default().create(true))?;
        store.migrate().await?;
        Connection::open(&path).and_then(|database| database.execute_batch(ORDERS_TABLE)).map_err(failed)?;
        let outbox = store.outbox();
        let destination = Destination::new(script.seed, script.fail);
        Ok(Self { script, path, store, outbox, destination })
    }

    /// How many threads produce.
    pub(crate) fn producers(&self) -> u64 {
        self.script.keys.min(PRODUCERS)
    }

    /// Lets everybody work until every committed message is published or dead.
    pub(crate) async fn play(&self) -> Result<Outcome, Failure> {
        let relay = self.relay()?;
        let handle = relay.handle();
        let relay = tokio::spawn(relay.run_until(std::future::pending()));
        let played = self.until_settled(&handle).await;
        handle.stop();
        let summary = match relay.await {
            Ok(summary) => summary?,
            Err(panic) => return Err(Failure::failed(format!("the relay ended early: {panic}"))),
        };
        let produced = played?;
        self.evidence(produced, summary).await
    }

    fn relay(&self) -> Result<Relay, Failure> {
        let destination = self.destination.clone();
        let (base, cap) = (Duration::from_millis(10), Duration::from_millis(100));
        let relay = Relay::builder(Arc::new(self.store.clone()))
            .publisher(publish_fn(move |record| destination.clone().deliver(record)))
            .name("demo")
            .publish_timeout(PUBLISH_TIMEOUT)
            .retry(RetryPolicy::exponential(base, cap).max_attempts(5))
            .seed(self.script.seed);
        Ok(relay.build()?)
    }

    /// Starts the producers, and waits until all that they committed is settled.
    async fn until_settled(&self, relay: &RelayHandle) -> Result<Vec<Produced>, Failure> {
        let mut requests = StopRequests::listen()?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut producers = self.start_producers(&stop);
        let mut produced = Vec::new();
        let mut progress = Progress::new(self.script.messages, "published");
        let mut watch = Watch::new(self.script.messages);
        let mut ticks = interval(Duration::from_millis(20));
        let result = loop {
            tokio::select! {
                () = requests.next() => break Err(Failure::failed("interrupted")),
                Some(joined) = producers.join_next() => match joined {
                    Ok(Ok(share)) => produced.push(share),
                    Ok(Err(failure)) => break Err(failure),
                    Err(panic) => break Err(Failure::failed(format!("a producer ended early: {panic}"))),
                },
                _ = ticks.tick() => {
                    let summary = relay.summary();
                    progress.set(summary.published);
                    if watch.is_over(&summary, producers.is_empty()) {
                        break Ok(());
                    }
                }
            }
        };
        stop.store(true, Ordering::Relaxed);
        progress.finish();
        while producers.join_next().await.is_some() {}
        result.map(|()| produced)
    }

    fn start_producers(&self, stop: &Arc<AtomicBool>) -> JoinSet<Result<Produced, Failure>> {
        let producers = self.producers();
        let mut running = JoinSet::new();
        for producer in 0..producers {
            let Script { messages, keys, seed, .. } = self.script;
            let plan = Plan { messages, keys, seed, producer, producers };
            let (path, outbox, stop) = (self.path.clone(), self.outbox.clone(), stop.clone());
            running.spawn_blocking(move || produce(&path, &outbox, plan, &stop));
        }
        running
    }

    async fn evidence(&self, produced: Vec<Produced>, summary: Summary) -> Result<Outcome, Failure> {
        let limit = usize::try_from(self.script.messages).unwrap_or(usize::MAX);
        let filter = ListFilter { state: Some(State::Dead), event_type: None, limit };
        let dead = self.store.list(&filter).await?;
        let (deliveries, overlaps) = self.destination.take_book();
        let evidence = Evidence {
            committed: produced.iter().flat_map(|share| share.committed.iter().copied()).collect(),
            rolled_back: produced.iter().flat_map(|share| share.rolled_back.iter().copied()).collect(),
            in_orders: read_orders(&self.path).map_err(failed)?,
            deliveries,
            overlaps,
            dead: dead.iter().map(|message| message.id).collect(),
            lease_lost: summary.stale > 0,
        };
        Ok(Outcome { evidence, summary, dead })
    }
}

/// The messages that the orders in the database name.
fn read_orders(path: &Path) -> rusqlite::Result<HashSet<MessageId>> {
    let database = Connection::open(path)?;
    let mut orders = database.prepare("SELECT message_id FROM orders")?;
    let ids = orders.query_map([], |row| row.get::<_, String>(0))?;
    ids.map(|id| {
        id?.parse().map_err(|error: posthaste::Error| {
            rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
        })
    })
    .collect()
}

/// Watches whether there is something left to do, and whether anything moves.
struct Watch {
    messages: u64,
    settled: u64,
    moved_at: Instant,
}

impl Watch {
    fn new(messages: u64) -> Self {
        Self { messages, settled: 0, moved_at: Instant::now() }
    }

    /// Whether all is settled; or, after the producers have ended, nothing has moved for too long, which the
    /// audit will find as lost messages.
    fn is_over(&mut self, summary: &Summary, producers_ended: bool) -> bool {
        let settled = summary.published + summary.dead;
        let now = Instant::now();
        if settled != self.settled || !producers_ended {
            (self.settled, self.moved_at) = (settled, now);
        }
        let all = producers_ended && settled >= self.messages;
        all || now.duration_since(self.moved_at) > STALLED
    }
}
