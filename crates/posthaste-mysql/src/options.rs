//! Settings of a store.

use std::fmt;
use std::time::Duration;

use posthaste::Rules;

/// How a [`MySqlStore`](crate::MySqlStore) connects and what it works on.
///
/// ```
/// use std::time::Duration;
/// use posthaste_mysql::{MySqlOptions, Payload};
///
/// let options = MySqlOptions::new("mysql://relay@db.internal/shop?ssl-mode=verify_identity")
///     .table("billing_outbox")
///     .payload(Payload::Binary)
///     .statement_timeout(Duration::from_secs(2));
/// assert_eq!(options.lanes, 64);
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MySqlOptions {
    /// Where the database is: a `mysql://` or `mariadb://` URL that names the database, with `ssl-mode` (`disabled`,
    /// `required`, `verify_ca`, `verify_identity`; default: `disabled`), `ssl-ca` (a PEM file instead of the system's
    /// roots) and `socket` (a Unix socket instead of TCP).
    pub url: String,
    /// The name of the outbox table, as `table` (in the database of the URL) or `database.table`. The side tables are
    /// named after it. Default: `outbox`.
    pub table: String,
    /// How many lanes a migration makes, 1 to 1,024. It is fixed from then on: stores of an outbox that is there take
    /// the number from it. Default: 64.
    pub lanes: u16,
    /// The most connections for leases, reading, settling and the rest, at least 1. Default: 4.
    pub connections: usize,
    /// How long making a connection may take. Default: 3 s.
    pub connect_timeout: Duration,
    /// How long one step (a statement or a short transaction) may take; then its connection is closed. Keep it
    /// shorter than the relay's lease. Default: 5 s.
    pub statement_timeout: Duration,
    /// How long a statement of a migration may wait for a lock that somebody else has. Default: 10 s.
    pub migration_timeout: Duration,
    /// What is checked at enqueue. Default: [`Rules::default`].
    pub rules: Rules,
    /// How payloads are stored by an outbox that is made. Default: [`Payload::Json`].
    pub payload: Payload,
    /// How the outbox is partitioned when it is made. Default: not at all.
    pub partition: Option<Partition>,
}

/// How an outbox stores its payloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Payload {
    /// In a column of type JSON. MySQL parses what is written there: it sorts and drops keys, and changes spaces and the
    /// spelling of numbers. MariaDB keeps the text, but it must be JSON. A payload that is no JSON is refused.
    #[default]
    Json,
    /// In a column of type LONGBLOB: bytes in, bytes out.
    Binary,
}

/// How long a stretch of time a partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Partition {
    /// A day, in UTC.
    Day,
    /// A calendar month, in UTC.
    Month,
}

impl MySqlOptions {
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
            rules: Rules::default(),
            payload: Payload::Json,
            partition: None,
        }
    }

    /// Sets the name of the outbox table: `table` or `database.table`.
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

    /// Sets how long a statement of a migration may wait for a lock.
    pub fn migration_timeout(mut self, timeout: Duration) -> Self {
        self.migration_timeout = timeout;
        self
    }

    /// Sets the rules that messages are held to.
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets how payloads are stored by an outbox that is made.
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// Sets how the outbox is partitioned when it is made.
    pub fn partition(mut self, partition: Partition) -> Self {
        self.partition = Some(partition);
        self
    }
}

impl fmt::Debug for MySqlOptions {
    /// Leaves the URL out, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlOptions")
            .field("table", &self.table)
            .field("lanes", &self.lanes)
            .field("connections", &self.connections)
            .field("connect_timeout", &self.connect_timeout)
            .field("statement_timeout", &self.statement_timeout)
            .field("payload", &self.payload)
            .field("partition", &self.partition)
            .finish_non_exhaustive()
    }
}
