//! What a relay costs that has nothing to do.

use std::sync::Arc;
use std::time::Duration;

use super::book::Book;
use super::destination::Noting;
use super::gauge::Gauge;
use super::mixed::Relays;
use super::repeat::Stage;
use super::report::Run;
use crate::failure::Failure;

/// How long a relay gets to calm down, as a part of the time for which it is watched.
const CALM: f64 = 0.2;

pub(super) async fn run(stage: &Stage, watched: Duration) -> Result<Run, Failure> {
    let noting = Noting::new(Arc::new(Book::new(0)), stage.drafts.clone(), None);
    let relays = Relays::start(stage, &noting)?;
    tokio::time::sleep(watched.mul_f64(CALM)).await;
    let before = stage.ground.counters(0).await?;
    let gauge = Gauge::start();
    tokio::time::sleep(watched).await;
    let taken = gauge.stop();
    let server = stage.ground.counters(0).await?.since(&before);
    relays.stop().await?;
    Ok(Run::new(0, taken, server))
}
