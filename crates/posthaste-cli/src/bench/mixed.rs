//! How long a message takes from commit to publish while producers and relays work at the same time.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use posthaste::{Relay, RelayHandle, Summary};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::book::Book;
use super::broker::Broker;
use super::destination::Noting;
use super::drain::{check_table, relay};
use super::enqueue::{FLOOR, bare};
use super::gauge::Gauge;
use super::ground::Way;
use super::latency::Latency;
use super::produce::Producers;
use super::repeat::Stage;
use super::report::Run;
use crate::failure::Failure;

pub(super) async fn run(stage: &Stage) -> Result<Run, Failure> {
    if let Some(warm) = stage.warming_up() {
        mixed(&warm).await?;
    }
    // At a rate, neither does what it can.
    if stage.how.no_floor || stage.load.rate.is_some() {
        return mixed(stage).await;
    }
    if stage.floor_first {
        let floor = bare(stage).await?;
        return Ok(mixed(stage).await?.over(FLOOR, floor));
    }
    let run = mixed(stage).await?;
    Ok(run.over(FLOOR, bare(stage).await?))
}

async fn mixed(stage: &Stage) -> Result<Run, Failure> {
    let load = &stage.load;
    let held = if load.hold_snapshot { Some(stage.ground.hold_snapshot().await?) } else { None };
    let expected = stage.drafts.expected();
    let book = Book::new(load.messages()).with_times();
    // Transactions of one key that overlap have no defined order.
    let book = Arc::new(if load.producers.get() == 1 { book.in_order_of(load.keys) } else { book });
    let noting =
        Noting::new(book.clone(), stage.drafts.clone(), stage.broker.as_deref().map(Broker::publisher));
    let before = stage.ground.counters(0).await?;
    let producers = Producers::connect(&*stage.ground, Way::Outbox, load.producers.get()).await?;
    let relays = Relays::start(stage, &noting)?;
    let done = Arc::new(AtomicU64::new(0));
    let gauge = Gauge::start();
    let work = async {
        let micros = producers.write(load, &stage.drafts, &done, Some(book.clone())).await?;
        let mut ticks = interval(Duration::from_millis(1));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while book.published() < expected {
            ticks.tick().await;
        }
        Ok(micros)
    };
    let micros = stage.watched(expected, "published", || book.published(), work).await?;
    let taken = gauge.stop();
    relays.stop().await?;
    book.check(expected)?;
    drop(held);
    let server = stage.ground.counters(load.messages() + expected).await?.since(&before);
    check_table(stage, expected).await?;
    stage.ground.empty().await?;
    Ok(Run {
        latency: Latency::of(book.commit_to_publish()),
        enqueue_latency: Latency::of(micros),
        ..Run::new(expected, taken, server)
    })
}

/// Relays at work; they are abandoned when this is dropped.
pub(super) struct Relays {
    handles: Vec<RelayHandle>,
    running: JoinSet<Result<Summary, posthaste::Error>>,
}

impl Relays {
    pub(super) fn start(stage: &Stage, noting: &Noting) -> Result<Self, Failure> {
        let relays: Vec<Relay> =
            (0..stage.load.relays.get()).map(|_| relay(stage, noting)).collect::<Result<_, _>>()?;
        let handles = relays.iter().map(Relay::handle).collect();
        let running = relays.into_iter().map(|relay| relay.run_until(std::future::pending())).collect();
        Ok(Self { handles, running })
    }

    /// Lets them settle what they have published, and ends them.
    pub(super) async fn stop(mut self) -> Result<(), Failure> {
        self.handles.iter().for_each(RelayHandle::stop);
        while let Some(joined) = self.running.join_next().await {
            let summary =
                joined.map_err(|panic| Failure::failed(format!("a relay ended early: {panic}")))??;
            if summary.stale + summary.retried + summary.dead + summary.abandoned > 0 {
                let text = format!("not everything went well, so the figures are void: {summary:?}");
                return Err(Failure::failed(text));
            }
        }
        Ok(())
    }
}
