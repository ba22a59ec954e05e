//! Settings of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use posthaste::{Clock, SystemClock};

/// How a [`SqliteStore`](crate::SqliteStore) opens and uses its database.
///
/// ```
/// use posthaste_sqlite::SqliteOptions;
///
/// let options = SqliteOptions::default().table("events").create(true);
/// assert_eq!(options.table, "events");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct SqliteOptions {
    /// The name of the outbox table, 1 to 63 bytes. The side tables and indexes are named after it
    /// (`<table>_lane`, …). Default: `outbox`.
    pub table: String,
    /// Whether to create the database file if it is missing. Default: no.
    pub create: bool,
    /// Whether to open the file for reading only, so that nothing can be written. Default: no.
    pub read_only: bool,
    /// How long to wait while another connection writes. Default: 5 s.
    pub busy_timeout: Duration,
    /// How long one operation may take, waiting included. Default: 15 s.
    pub time_limit: Duration,
    /// How hard a commit waits for the disk. Default: [`Synchronous::Normal`].
    pub synchronous: Synchronous,
    /// How large the write-ahead log may become, in bytes, before the store truncates it. Default: 64 MiB.
    pub wal_limit: u64,
    /// The time by which leases, delays and retries are judged. Default: the system's clock.
    pub clock: Arc<dyn Clock>,
}

/// How hard a commit waits for the disk (`PRAGMA synchronous`). It concerns the store's own writes only: settling
/// and leases; what a producer commits is the producer's own setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Synchronous {
    /// A commit does not wait. The database stays sound, but a power failure may undo the last settles, so that
    /// their messages are published again.
    #[default]
    Normal,
    /// A commit waits until its data is on the disk.
    Full,
}

impl SqliteOptions {
    /// Sets the name of the outbox table.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Switches whether a missing database file is created.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Switches whether the file is opened for reading only.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// Sets how long to wait while another connection writes.
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// Sets how long one operation may take.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = limit;
        self
    }

    /// Sets how hard a commit waits for the disk.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets how large the write-ahead log may become, in bytes, before the store truncates it.
    pub fn wal_limit(mut self, bytes: u64) -> Self {
        self.wal_limit = bytes;
        self
    }

    /// Sets the clock.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            table: "outbox".to_owned(),
            create: false,
            read_only: false,
            busy_timeout: Duration::from_secs(5),
            time_limit: Duration::from_secs(15),
            synchronous: Synchronous::default(),
            wal_limit: 64 * 1024 * 1024,
            clock: Arc::new(SystemClock),
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("table", &self.table)
            .field("create", &self.create)
            .field("read_only", &self.read_only)
            .field("busy_timeout", &self.busy_timeout)
            .field("time_limit", &self.time_limit)
            .field("synchronous", &self.synchronous)
            .field("wal_limit", &self.wal_limit)
            .finish_non_exhaustive()
    }
}
