//! Cleaning up an outbox by itself, without a relay: by a role that may read and delete, and nothing else.

use std::time::Duration;

use posthaste::{Error, ErrorKind};
use tokio::time::Instant;
use uuid::Uuid;

use crate::partitions::{check_lock_name, take_lock};
use crate::store::{Inner, MySqlStore};
use crate::upkeep::{DEAD, Looked, PROCESSED};

/// How many messages a pass deletes at most, if nothing is said.
const LIMIT: usize = 10_000;
/// How long a pass may take.
const LONGEST: Duration = Duration::from_hours(1);
const DOING: &str = "cleaning up";
/// How many rows are looked at in one step.
const STEP: usize = 2_000;

/// What to clean up.
///
/// ```
/// use std::time::Duration;
/// use posthaste_mysql::Cleanup;
///
/// let cleanup = Cleanup::new(Duration::from_hours(168)).include_dead(true);
/// assert_eq!(cleanup.limit, 10_000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cleanup {
    /// How long messages are kept after they were processed or given up; more than zero.
    pub retention: Duration,
    /// The most messages to delete in a pass; 0 stands for the default. Default: 10,000.
    pub limit: usize,
    /// Whether dead messages are deleted too. Default: no.
    pub include_dead: bool,
    /// The name of the lock under which one instance works at a time, 1 to 64 characters. Default:
    /// `outbox:cleanup:<table>`.
    pub lock_name: Option<String>,
}

impl Cleanup {
    /// The defaults, for a retention.
    pub fn new(retention: Duration) -> Self {
        Self { retention, limit: LIMIT, include_dead: false, lock_name: None }
    }

    /// Sets the most messages to delete in a pass; 0 stands for 10,000.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Switches whether dead messages are deleted too.
    pub fn include_dead(mut self, on: bool) -> Self {
        self.include_dead = on;
        self
    }

    /// Sets the name of the lock under which one instance works at a time.
    pub fn lock_name(mut self, name: impl Into<String>) -> Self {
        self.lock_name = Some(name.into());
        self
    }
}

/// What was cleaned up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CleanupReport {
    /// Whether it was our turn; if not, another instance has the lock and nothing was done.
    pub ours: bool,
    /// Processed messages deleted.
    pub processed: u64,
    /// Dead messages deleted.
    pub dead: u64,
}

impl MySqlStore {
    /// Does one pass: deletes old processed messages (and dead ones, if asked), oldest first. Messages that are pending,
    /// waiting ones too, are never touched. Of several instances at a time, one works.
    ///
    /// It takes SELECT and DELETE on the outbox. Dead messages that park their key are let be: they are for `discard`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the retention is zero or the lock's name has not 1 to 64 characters; and what the
    /// database reports.
    ///
    /// # Cancel safety
    /// What was deleted stays deleted.
    pub async fn clean_up(&self, cleanup: &Cleanup) -> Result<CleanupReport, Error> {
        if cleanup.retention.is_zero() {
            return Err(Error::new(ErrorKind::InvalidInput, "the retention must be more than zero"));
        }
        let name = cleanup.lock_name.clone();
        let name = name.unwrap_or_else(|| self.0.table.lock_name("outbox:cleanup:"));
        check_lock_name(&name)?;
        // The lock ends with this connection.
        let session = self.0.connections.apart(LONGEST, self.0.options.statement_timeout).await;
        let mut session = session.map_err(|failure| self.0.cleanup_error(failure))?;
        let ours = take_lock(&mut session, &name).await.map_err(|failure| self.0.cleanup_error(failure))?;
        let mut report = CleanupReport { ours, ..CleanupReport::default() };
        if ours {
            let limit = if cleanup.limit == 0 { LIMIT } else { cleanup.limit };
            report.processed = self.0.sweep(PROCESSED, cleanup.retention, limit).await? as u64;
            let left = limit - usize::try_from(report.processed).unwrap_or(limit).min(limit);
            if cleanup.include_dead {
                report.dead = self.0.sweep(DEAD, cleanup.retention, left).await? as u64;
            }
        }
        drop(session);
        Ok(report)
    }

    /// Does a pass now and then every so often, until `stop` is over. What goes wrong is logged, and tried again the next
    /// time.
    ///
    /// # Errors
    /// As the first pass of [`clean_up`](Self::clean_up): what is wrong from the beginning.
    ///
    /// # Cancel safety
    /// What was deleted stays deleted.
    pub async fn clean_up_until(
        &self,
        cleanup: &Cleanup,
        every: Duration,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let mut stop = std::pin::pin!(stop);
        let mut report = self.clean_up(cleanup).await?;
        loop {
            tracing::debug!(?report, "cleaned up");
            let next = Instant::now() + every;
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = tokio::time::sleep_until(next) => {}
            }
            report = self.clean_up(cleanup).await.unwrap_or_else(|error| {
                tracing::warn!(error = &error as &dyn std::error::Error, "cleaning up failed");
                CleanupReport::default()
            });
        }
    }
}

impl Inner {
    /// Deletes at most so many old rows of a status, walking them in the order of their ids.
    async fn sweep(&self, status: i8, retention: Duration, most: usize) -> Result<usize, Error> {
        let (mut deleted, mut after) = (0, Uuid::nil());
        while deleted < most {
            let Looked { old, last } = self.look(status, after, retention, STEP).await?;
            let free = old.into_iter().filter(|(_, parked)| status == PROCESSED || !parked);
            let ids: Vec<_> = free.map(|(id, _)| id).take(most - deleted).collect();
            deleted += self.delete_settled(status, &ids, retention).await?;
            let Some(last) = last else { break };
            after = last;
        }
        Ok(deleted)
    }

    fn cleanup_error(&self, failure: crate::error::Failure) -> Error {
        failure.into_error(DOING, &format!("SELECT and DELETE on {}", self.table))
    }
}
