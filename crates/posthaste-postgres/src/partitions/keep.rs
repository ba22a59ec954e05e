//! The maintainer that goes on: looks after the partitions again and again, until it is stopped.

use std::future::Future;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste::{Error, ErrorKind};

use super::{PartitionPlan, PartitionReport};
use crate::store::PostgresStore;

/// How soon a change that was postponed, or that failed, is tried again.
const AGAIN_AFTER: Duration = Duration::from_mins(1);

impl PostgresStore {
    /// Does [`maintain_partitions`](Self::maintain_partitions) now and every [`check_every`](PartitionPlan::check_every)
    /// until `stop` is done; then it finishes the change that is under way and returns. It may run in many places: of
    /// several, one works at a time.
    ///
    /// `tell` hears of every round, and ends it all by [`ControlFlow::Break`]. What was postponed or failed is tried
    /// again after a minute at the latest.
    ///
    /// ```no_run
    /// use std::ops::ControlFlow;
    /// use posthaste_postgres::{Partition, PartitionPlan, PostgresOptions, PostgresStore};
    ///
    /// # async fn maintain(stop: tokio::sync::oneshot::Receiver<()>) -> Result<(), posthaste::Error> {
    /// let store = PostgresStore::new(PostgresOptions::new("postgres://migrator@db.internal/shop"))?;
    /// let plan = PartitionPlan::new(Partition::Day);
    /// let until = async { drop(stop.await) };
    /// store.keep_partitions(&plan, until, |round| {
    ///     match round {
    ///         Ok(report) => println!("{report:?}"),
    ///         Err(error) => eprintln!("trying again: {error}"),
    ///     }
    ///     ControlFlow::Continue(())
    /// }).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the outbox is not partitioned or `check_every` is zero, and what else does not go
    /// away by itself (no rights, no tables): in the first round only. `tell` hears of everything later.
    ///
    /// # Cancel safety
    /// Each change is either done or undone.
    pub async fn keep_partitions(
        &self,
        plan: &PartitionPlan,
        stop: impl Future<Output = ()>,
        mut tell: impl FnMut(Result<&PartitionReport, &Error>) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        if plan.check_every.is_zero() {
            return Err(Error::new(ErrorKind::InvalidInput, "check_every is 0; it must be longer"));
        }
        let mut stop = pin!(stop);
        let stopping = AtomicBool::new(false);
        let mut is_first = true;
        loop {
            let round = {
                let mut work = pin!(self.0.maintain_partitions(plan, &stopping));
                loop {
                    tokio::select! {
                        biased;
                        // What is under way is finished: a statement is never dropped half-way.
                        () = &mut stop, if !stopping.load(Ordering::Relaxed) => {
                            stopping.store(true, Ordering::Relaxed);
                        }
                        round = &mut work => break round,
                    }
                }
            };
            let is_done = round.as_ref().is_ok_and(|report| report.postponed.is_empty());
            let goes_on = match round {
                Err(error) if is_first && !may_go_away(error.kind()) => return Err(error),
                round => tell(round.as_ref()),
            };
            if goes_on.is_break() || stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
            is_first = false;
            let pause = if is_done { plan.check_every } else { plan.check_every.min(AGAIN_AFTER) };
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

/// Whether trouble may go away by itself.
fn may_go_away(kind: ErrorKind) -> bool {
    use ErrorKind as Kind;
    matches!(kind, Kind::Unavailable | Kind::Conflict | Kind::ReadOnly | Kind::Database)
}
