//! How fast producers write messages, against bare INSERTs of the same values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::gauge::Gauge;
use super::ground::{Count, Way};
use super::latency::Latency;
use super::produce::Producers;
use super::repeat::Stage;
use super::report::Run;
use crate::failure::Failure;

/// What the floor is called.
pub(super) const FLOOR: &str = "bare INSERT";

pub(super) async fn run(stage: &Stage) -> Result<Run, Failure> {
    if let Some(warm) = stage.warming_up() {
        write(&warm, Way::Outbox).await?;
        stage.ground.empty().await?;
    }
    if stage.how.no_floor {
        return outbox(stage).await;
    }
    if stage.floor_first {
        let floor = bare(stage).await?;
        return Ok(outbox(stage).await?.over(FLOOR, floor));
    }
    let run = outbox(stage).await?;
    Ok(run.over(FLOOR, bare(stage).await?))
}

/// Messages a second into a bare table.
pub(super) async fn bare(stage: &Stage) -> Result<f64, Failure> {
    let run = write(stage, Way::Bare).await?;
    stage.ground.empty().await?;
    Ok(run.per_second)
}

async fn outbox(stage: &Stage) -> Result<Run, Failure> {
    let run = write(stage, Way::Outbox).await?;
    let expected = Count { pending: stage.load.messages(), processed: 0 };
    let found = stage.ground.count().await?;
    if found != expected {
        let text = format!("{} messages were enqueued, and {found:?} are there", expected.pending);
        return Err(Failure::failed(text));
    }
    stage.ground.empty().await?;
    Ok(run)
}

async fn write(stage: &Stage, way: Way) -> Result<Run, Failure> {
    let load = &stage.load;
    let before = stage.ground.counters(0).await?;
    let producers = Producers::connect(&*stage.ground, way, load.producers.get()).await?;
    let done = Arc::new(AtomicU64::new(0));
    let what = if way == Way::Bare { "inserted (floor)" } else { "enqueued" };
    let gauge = Gauge::start();
    let writing = producers.write(load, &stage.drafts, &done, None);
    let micros = stage.watched(load.messages(), what, || done.load(Relaxed), writing).await?;
    let taken = gauge.stop();
    let server = stage.ground.counters(load.messages()).await?.since(&before);
    Ok(Run { latency: Latency::of(micros), ..Run::new(load.messages(), taken, server) })
}
