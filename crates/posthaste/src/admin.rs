//! What operators ask of a database.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use bytes::Bytes;
use wildmatch::WildMatch;

use crate::error::Error;
use crate::id::MessageId;
use crate::record::Lane;

/// The operator's side of a database adapter: schema, figures, and mending.
///
/// # Cancel safety
/// Each call is a transaction of its own (purging and redriving in one bounded step each): a dropped future leaves
/// the step either done or undone.
#[async_trait]
pub trait Admin: Send + Sync + 'static {
    /// Brings the schema up to date; safe to run at the same time from many places, and again. Returns the
    /// migrations applied now.
    async fn migrate(&self) -> Result<Vec<Migration>, Error>;

    /// The migrations that are not applied yet.
    ///
    /// # Errors
    /// [`ErrorKind::SchemaTooNew`](crate::ErrorKind::SchemaTooNew) if the schema is newer than this version.
    async fn pending_migrations(&self) -> Result<Vec<Migration>, Error>;

    /// All migrations as plain SQL, for other migration tools.
    fn migration_sql(&self) -> Vec<Migration>;

    /// How many records there are in each state. Counts stop at `cap` unless it is `None`, so that the cost does
    /// not grow with the table.
    async fn stats(&self, cap: Option<u64>) -> Result<Stats, Error>;

    /// Lists messages, oldest first. A store may take the order of the ids for that where it has no index in order of
    /// enqueueing.
    async fn list(&self, filter: &ListFilter) -> Result<Vec<MessageInfo>, Error>;

    /// Shows one message whole, or `None` where there is no message with this id.
    async fn show(&self, id: MessageId) -> Result<Option<MessageDetails>, Error>;

    /// Makes dead messages pending again, with no attempts, oldest first. Touches nothing that is not dead.
    async fn redrive(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error>;

    /// Deletes dead messages, oldest first. Touches nothing that is not dead.
    async fn discard(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error>;

    /// Deletes processed messages (and dead ones, if asked) that were settled longer ago than an age, in one
    /// bounded step. Touches nothing that is pending.
    ///
    /// # Errors
    /// As [`Purge::check`], and what the database reports.
    async fn purge(&self, purge: &Purge) -> Result<Purged, Error>;
}

/// A step of the schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Its version; versions rise.
    pub version: i64,
    /// What it does.
    pub name: String,
    /// Its statements.
    pub sql: String,
}

/// The state of a message, as an operator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Pending, and may be published now.
    Ready,
    /// Pending, but not yet: it waits for a delay or a backoff, or behind an earlier message of its key that was
    /// held back.
    Waiting,
    /// Given up.
    Dead,
    /// Published and kept.
    Processed,
}

impl State {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Dead => "dead",
            Self::Processed => "processed",
        }
    }
}

/// A count that may have stopped at a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// How many were counted.
    pub count: u64,
    /// Whether counting stopped there, so that there may be more.
    pub capped: bool,
}

/// Figures about an outbox.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stats {
    /// Messages that may be published now.
    pub ready: Count,
    /// Messages that wait, the blocked ones included.
    pub waiting: Count,
    /// Those of the waiting that wait behind an earlier message of their key.
    pub blocked: Count,
    /// Messages given up.
    pub dead: Count,
    /// How long the oldest ready message has been ready; `None` where nothing is.
    pub oldest_ready_age: Option<Duration>,
    /// How many lanes there are.
    pub lanes_total: usize,
    /// How many of them a live relay holds.
    pub lanes_leased: usize,
    /// The relays that the table knows.
    pub relays: Vec<RelayInfo>,
}

/// A relay as the table knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayInfo {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// How many lanes it holds.
    pub lanes: usize,
    /// How long its lease lasts from now; `None`: it is over.
    pub lease_left: Option<Duration>,
}

/// Which messages to list.
#[derive(Debug, Clone)]
pub struct ListFilter {
    /// Only messages in this state.
    pub state: Option<State>,
    /// Only messages whose event type matches.
    pub event_type: Option<Glob>,
    /// The most messages to return.
    pub limit: usize,
}

/// A message, without its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageInfo {
    /// Its id.
    pub id: MessageId,
    /// Its state.
    pub state: State,
    /// Its event type.
    pub event_type: String,
    /// The type of its aggregate, or an empty text.
    pub aggregate_type: String,
    /// The id of its aggregate, or an empty text.
    pub aggregate_id: String,
    /// How many attempts failed, or were made before it was given up.
    pub attempts: u32,
    /// When it was enqueued.
    pub enqueued_at: SystemTime,
    /// Until when it waits, if it does.
    pub next_attempt_at: Option<SystemTime>,
    /// When it was processed or given up.
    pub settled_at: Option<SystemTime>,
    /// Why the last attempt failed.
    pub last_error: Option<String>,
}

/// A message, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageDetails {
    /// What a list shows of it.
    pub info: MessageInfo,
    /// Its lane.
    pub lane: Lane,
    /// Its content type.
    pub content_type: Option<String>,
    /// Its headers.
    pub headers: BTreeMap<String, String>,
    /// Its idempotency key.
    pub idempotency_key: Option<String>,
    /// Its payload.
    pub payload: Option<Bytes>,
    /// The earlier message of its key that it waits for: waiting, or dead and parking its key.
    pub blocked_by: Option<MessageId>,
}

/// Which dead messages to redrive or discard.
#[derive(Debug, Clone)]
pub enum DeadSelection {
    /// These.
    Ids(Vec<MessageId>),
    /// Those whose event type matches.
    EventType(Glob),
    /// All.
    All,
}

/// Whether to act, and on how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Only count the messages that would be touched.
    DryRun,
    /// Touch at most so many.
    UpTo(u64),
}

/// What to purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Purge {
    /// Only messages that were settled longer ago than this; not zero.
    pub older_than: Duration,
    /// Dead messages too.
    pub include_dead: bool,
    /// The most messages to delete.
    pub limit: usize,
}

impl Purge {
    /// What every store checks before it purges.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the age is zero: what was published a moment ago
    /// would be deleted, and with it what tells an operator that it was.
    pub fn check(&self) -> Result<(), Error> {
        if self.older_than.is_zero() {
            return Err(Error::invalid_input("older_than is 0; a purge needs an age"));
        }
        Ok(())
    }
}

/// What was purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Purged {
    /// Processed messages deleted.
    pub processed: u64,
    /// Dead messages deleted.
    pub dead: u64,
}

/// A pattern for event types: `*` stands for any characters, `?` for one, everything else for itself.
///
/// ```
/// use posthaste::Glob;
///
/// assert!(Glob::new("order.*").matches("order.created"));
/// assert!(!Glob::new("order.?").matches("order.created"));
/// ```
#[derive(Debug, Clone)]
pub struct Glob {
    text: String,
    pattern: WildMatch,
}

impl Glob {
    /// A pattern. Every text is one.
    pub fn new(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { pattern: WildMatch::new(&text), text }
    }

    /// Whether an event type matches.
    pub fn matches(&self, event_type: &str) -> bool {
        self.pattern.matches(event_type)
    }

    /// The pattern as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}
