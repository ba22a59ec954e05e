//! How fast relays empty a full outbox, against a loop on the server that marks (or deletes) the same rows.

use std::sync::Arc;

use posthaste::{Relay, Retain};
use tokio::task::JoinSet;

use super::book::Book;
use super::broker::{self, Broker};
use super::destination::Noting;
use super::floor;
use super::gauge::Gauge;
use super::ground::Count;
use super::latency::Latency;
use super::repeat::Stage;
use super::report::Run;
use crate::failure::Failure;

pub(super) async fn run(stage: &Stage) -> Result<Run, Failure> {
    if let Some(warm) = stage.warming_up() {
        drain(&warm).await?;
    }
    if stage.how.no_floor {
        return drain(stage).await;
    }
    let what = floor::name(stage);
    let run = if stage.floor_first {
        let floor = floor::mark(stage).await?;
        drain(stage).await?.over(what, floor)
    } else {
        let run = drain(stage).await?;
        run.over(what, floor::mark(stage).await?)
    };
    match &stage.broker {
        Some(broker) => Ok(run.over(broker::FLOOR, broker.alone(stage).await?)),
        None => Ok(run),
    }
}

async fn drain(stage: &Stage) -> Result<Run, Failure> {
    stage.fill().await?;
    let held = if stage.load.hold_snapshot { Some(stage.ground.hold_snapshot().await?) } else { None };
    let expected = stage.drafts.expected();
    let book = Arc::new(Book::new(stage.load.messages()).in_order_of(stage.load.keys));
    let noting =
        Noting::new(book.clone(), stage.drafts.clone(), stage.broker.as_deref().map(Broker::publisher));
    let before = stage.ground.counters(0).await?;
    let relays: Vec<_> =
        (0..stage.load.relays.get()).map(|_| relay(stage, &noting)).collect::<Result<_, _>>()?;
    let gauge = Gauge::start();
    stage.watched(expected, "published", || book.published(), drain_by(relays)).await?;
    let taken = gauge.stop();
    book.check(expected)?;
    drop(held);
    // An update or a delete of each message.
    let written = before.dead_rows.map_or(0, |_| stage.load.messages() + expected);
    let server = stage.ground.counters(written).await?.since(&before);
    check_table(stage, expected).await?;
    stage.ground.empty().await?;
    Ok(Run { latency: Latency::of(noting.take_micros()), ..Run::new(expected, taken, server) })
}

/// A relay with connections of its own.
pub(super) fn relay(stage: &Stage, noting: &Noting) -> Result<Relay, Failure> {
    let load = &stage.load;
    let in_flight = load.in_flight.get();
    let mut builder = Relay::builder(stage.ground.store()?)
        .publisher(noting.clone())
        .name("bench")
        .max_in_flight(in_flight)
        .retain(if load.delete { Retain::DeleteOnSettle } else { Retain::Forever });
    if let Some(outcomes) = load.settle_batch {
        builder = builder.settle_batch(outcomes.get());
    }
    Ok(builder.build()?)
}

async fn drain_by(relays: Vec<Relay>) -> Result<(), Failure> {
    let mut running: JoinSet<_> = relays.into_iter().map(Relay::drain).collect();
    while let Some(joined) = running.join_next().await {
        let summary = joined.map_err(|panic| Failure::failed(format!("a relay ended early: {panic}")))??;
        if summary.stale + summary.retried + summary.dead + summary.abandoned > 0 {
            return Err(Failure::failed(format!(
                "not everything went well, so the figures are void: {summary:?}"
            )));
        }
    }
    Ok(())
}

/// What was published is settled, and nothing else.
pub(super) async fn check_table(stage: &Stage, published: u64) -> Result<(), Failure> {
    let found = stage.ground.count().await?;
    let processed = if stage.load.delete { 0 } else { published };
    let expected = Count { pending: stage.load.messages() - published, processed };
    if found == expected {
        return Ok(());
    }
    Err(Failure::failed(format!("{expected:?} should be in the table, and {found:?} are")))
}
