//! What the database does without an outbox.

use super::enqueue::{FLOOR, bare};
use super::gauge::Gauge;
use super::repeat::Stage;
use super::report::Run;
use crate::failure::Failure;

/// How many rows the server marks in a statement.
const ROWS: u32 = 1_000;

pub(super) async fn run(stage: &Stage) -> Result<Run, Failure> {
    let gauge = Gauge::start();
    let inserted = bare(stage).await?;
    let marked = mark(stage).await?;
    let taken = gauge.stop();
    let run =
        Run { per_second: 0.0, ..Run::new(stage.load.messages(), taken, super::gauge::Counters::default()) };
    Ok(run.over(FLOOR, inserted).over(name(stage), marked))
}

/// What the loop is called.
pub(super) fn name(stage: &Stage) -> &'static str {
    if stage.load.delete { "rows deleted by the server alone" } else { "rows marked by the server alone" }
}

/// Rows a second that the server marks or deletes alone: no order, no fence, nothing read.
pub(super) async fn mark(stage: &Stage) -> Result<f64, Failure> {
    stage.fill().await?;
    let expected = stage.drafts.expected();
    let marked = std::sync::atomic::AtomicU64::new(0);
    let gauge = Gauge::start();
    let marking = async {
        loop {
            let rows = stage.ground.mark(ROWS, stage.load.delete).await?;
            if rows == 0 {
                return Ok(());
            }
            marked.fetch_add(rows, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let count = || marked.load(std::sync::atomic::Ordering::Relaxed);
    stage.watched(expected, "marked (floor)", count, marking).await?;
    let taken = gauge.stop();
    stage.ground.empty().await?;
    Ok(count() as f64 / taken.time.as_secs_f64())
}
