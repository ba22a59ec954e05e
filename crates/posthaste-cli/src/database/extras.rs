//! What not every kind of database has.

use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Error, Migration};

use super::Every;

/// What not every kind of database has: partitions, an inbox without an outbox, and more.
#[async_trait]
pub(crate) trait Extras: Send + Sync {
    /// Brings the inbox alone up to date.
    async fn migrate_inbox(&self) -> Result<Vec<Migration>, Error>;

    /// What a migration would change about a table that somebody else made, as parts of `ALTER TABLE`.
    async fn changes_to_adopt(&self) -> Result<Vec<String>, Error>;

    /// How long the partitions are; `None` where there is none yet.
    async fn partitioned_by(&self) -> Result<Option<Every>, Error>;

    /// Makes partitions ahead, and drops old ones.
    async fn maintain_partitions(&self, work: &PartitionsWork) -> Result<PartitionsDone, Error>;

    /// Deletes old messages under a lock by which one instance works at a time.
    async fn clean_up(&self, work: &CleanupWork) -> Result<CleanupDone, Error>;
}

/// What is to be done about partitions; what is `None` is for the database to choose.
#[derive(Debug, Clone)]
pub(crate) struct PartitionsWork {
    pub(crate) every: Every,
    pub(crate) lookahead: Option<Duration>,
    pub(crate) retention: Option<Keep>,
    pub(crate) include_dead: bool,
    pub(crate) lock_name: Option<String>,
}

/// How long something is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    For(Duration),
    Forever,
}

impl Keep {
    /// The time; `None`: for ever.
    pub(crate) fn time(self) -> Option<Duration> {
        match self {
            Self::For(time) => Some(time),
            Self::Forever => None,
        }
    }
}

/// What was done about partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PartitionsDone {
    pub(crate) created: Vec<String>,
    pub(crate) dropped: Vec<String>,
    pub(crate) kept: Vec<String>,
    pub(crate) postponed: Vec<String>,
}

/// What is to be deleted.
#[derive(Debug, Clone)]
pub(crate) struct CleanupWork {
    pub(crate) retention: Duration,
    pub(crate) limit: usize,
    pub(crate) include_dead: bool,
    pub(crate) lock_name: Option<String>,
}

/// What was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CleanupDone {
    /// Whether it was our turn.
    pub(crate) ours: bool,
    pub(crate) processed: u64,
    pub(crate) dead: u64,
}
