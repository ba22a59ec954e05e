//! Settings of a store.

use std::fmt;
use std::time::Duration;

use posthaste::Rules;

/// How a [`PostgresStore`](crate::PostgresStore) connects and what it works on.
///
/// ```
/// use std::time::Duration;
/// use posthaste_postgres::PostgresOptions;
///
/// let options = PostgresOptions::new("postgres://relay@db.internal/shop?sslmode=verify-full")
///     .table("billing.outbox")
///     .statement_timeout(Duration::from_secs(2));
/// assert_eq!(options.lanes, 64);
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresOptions {
    /// Where the database is: a `postgres://` URL or a `key=value` connection string, with the usual `sslmode`
    /// (`disable`, `prefer`, `require`, `verify-ca`, `verify-full`) and `sslrootcert`. A `schema` parameter stands
    /// for the schema of [`table`](Self::table).
    pub url: String,
    /// The name of the outbox table, as `table` (in the schema `public`) or `schema.table`. The side tables and
    /// indexes are named after it. Default: `outbox`.
    pub table: String,
    /// How many lanes a migration makes, 1 to 1,024. It is fixed from then on: stores of an outbox that is there take
    /// the number from it. Default: 64.
    pub lanes: u16,
    /// The most connections for leases, reading, settling and the rest, at least 1; the one that listens comes on top.
    /// Default: 4.
    pub connections: usize,
    /// How long making a connection may take. Default: 3 s.
    pub connect_timeout: Duration,
    /// How long one step (a statement or a short transaction) may take; then its connection is closed. Keep it
    /// shorter than the relay's lease. Default: 5 s.
    pub statement_timeout: Duration,
    /// How long a migration may wait for a lock that somebody else has. Default: 10 s.
    pub migration_timeout: Duration,
    /// Whether producers wake an idle relay (LISTEN and NOTIFY). Behind a pooler that cannot do that the store finds
    /// out by itself and polls. Default: yes.
    pub wake: bool,
    /// Where to listen if not at [`url`](Self::url): a direct connection beside a pooler. Default: none.
    pub listen_url: Option<String>,
    /// What is checked at enqueue. Default: [`Rules::default`].
    pub rules: Rules,
    /// How the outbox is partitioned when it is made. Default: not at all.
    pub partition: Option<Partition>,
    /// Whether a migration adds a trigger by which plain INSERTs wake an idle relay, also to an outbox that is there.
    /// Default: no; then a trigger that is there stays.
    pub wake_trigger: bool,
}

/// How long a stretch of time a partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Partition {
    /// A day, in UTC.
    Day,
    /// A calendar month, in UTC.
    Month,
}

impl PostgresOptions {
    /// The defaults, for a database.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            table: "outbox".to_owned(),
            lanes: 64,
            connections: 4,
            connect_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(5),
            migration_timeout: Duration::from_secs(10),
            wake: true,
            listen_url: None,
            rules: Rules::default(),
            partition: None,
            wake_trigger: false,
        }
    }

    /// Sets the name of the outbox table: `table` or `schema.table`.
    pub fn table(mut self, table: impl Into<String>) -> Self {
        self.table = table.into();
        self
    }

    /// Sets how many lanes a migration makes.
    pub fn lanes(mut self, lanes: u16) -> Self {
        self.lanes = lanes;
        self
    }

    /// Sets the most connections.
    pub fn connections(mut self, connections: usize) -> Self {
        self.connections = connections;
        self
    }

    /// Sets how long making a connection may take.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long one step may take.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = timeout;
        self
    }

    /// Sets how long a migration may wait for a lock.
    pub fn migration_timeout(mut self, timeout: Duration) -> Self {
        self.migration_timeout = timeout;
        self
    }

    /// Switches whether producers wake an idle relay.
    pub fn wake(mut self, wake: bool) -> Self {
        self.wake = wake;
        self
    }

    /// Sets where to listen.
    pub fn listen_url(mut self, url: impl Into<String>) -> Self {
        self.listen_url = Some(url.into());
        self
    }

    /// Sets the rules that messages are held to.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets how the outbox is partitioned when it is made.
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Switches whether a migration adds a trigger by which plain INSERTs wake an idle relay.
    pub fn wake_trigger(mut self, on: bool) -> Self {
        self.wake_trigger = on;
        self
    }
}

impl fmt::Debug for PostgresOptions {
    /// Leaves the URLs out, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("table", &self.table)
            .field("lanes", &self.lanes)
            .field("connections", &self.connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("wake", &self.wake)
            .field("partition", &self.partition)
            .finish_non_exhaustive()
    }
}
