//! What the relay asks of a database.

use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use crate::error::Error;
use crate::id::MessageId;
use crate::record::{Key, Lane, Position, Record};

/// A database adapter, as the relay sees it.
///
/// Every promise the relay makes about a database rests on this trait; `store_conformance!` of
/// `posthaste-testkit` is its contract as tests. All times are judged by the database's clock.
///
/// # Cancel safety
/// The relay calls every method but [`rung`](Store::rung) on a task of its own and never drops the future
/// half-way. Each method has a time limit of its own and ends with [`ErrorKind::Unavailable`] when it is over.
///
/// [`ErrorKind::Unavailable`]: crate::ErrorKind::Unavailable
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Renews the relay's lease, gives back the lanes it no longer wants, and takes free lanes up to its share.
    ///
    /// A lane is free when it has no owner or its owner's lease is over. The share is
    /// `ceil(lanes / live relays)`, this relay included. Every change of owner increments the lane's token.
    /// The answer lists every lane the relay now holds, with its token.
    async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error>;

    /// Gives all lanes and the upkeep back, and removes the relay from the table of relays. Calling it again does
    /// nothing.
    async fn leave(&self, relay: RelayId) -> Result<(), Error>;

    /// Reads pending records of some lanes, in order. Writes nothing, and needs no lease.
    async fn read(&self, request: &ReadRequest) -> Result<Page, Error>;

    /// Writes down that an attempt begins, before it is made. `false`: the lane is not ours any more, or the
    /// record is not pending; then nothing was written.
    async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error>;

    /// Writes down what became of records, all in one transaction.
    ///
    /// Nothing is written for a lane whose token is not ours any more (stale), nor for a record that is not
    /// pending any more (gone). Writing the same outcomes twice does no harm. Error texts are cut to 1,024
    /// characters, and whatever they hold, a batch does not fail for it.
    async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error>;

    /// Does a bounded piece of upkeep, if no other relay is at it: purges processed records, old idempotency
    /// keys and relays that died more than 30 days ago.
    async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error>;

    /// Tells producers whether this relay wants to be woken. Stores without a way to wake do nothing.
    async fn set_idle(&self, relay: RelayId, idle: bool) -> Result<(), Error>;

    /// Waits until there may be work: a hint, never the truth, and possibly never.
    ///
    /// # Cancel safety
    /// Safe. A hint that comes while nobody waits is kept for the next call.
    async fn rung(&self);
}

/// A relay, by a random id that it takes at every start of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelayId(pub Uuid);

impl RelayId {
    /// A new random id.
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl std::fmt::Display for RelayId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// What a relay asks for when it renews its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The relay.
    pub relay: RelayId,
    /// A name for people (host and process id, say); nothing is decided by it.
    pub name: String,
    /// How long the lease shall last from now.
    pub duration: Duration,
    /// Lanes to give back. They are not taken again in the same call.
    pub give_back: Vec<Lane>,
}

/// What a relay holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Leases {
    /// Every lane that the relay holds now.
    pub lanes: Vec<LaneLease>,
    /// How many lanes it should hold: `ceil(lanes / live relays)`.
    pub share: usize,
    /// How many lanes the table has.
    pub total: usize,
}

/// A hold on one lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneLease {
    /// The lane.
    pub lane: Lane,
    /// What every settle has to name. It changes with every change of owner.
    pub token: i64,
    /// Whether this call took the lane from a relay whose lease ran out: records of it may have been in flight
    /// when that relay died, and may be why it died.
    pub from_expired: bool,
}

/// Which records to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// The stretches of lanes to read, each in order of position. A lane occurs once.
    pub scans: Vec<Scan>,
    /// Which keys to read. Records without a key match [`Keys::Except`] always and [`Keys::Only`] never.
    pub keys: Keys,
    /// Positions that the relay has in hand, rising: not read again.
    pub in_hand: Vec<Position>,
    /// The most records to return; those that were held back and are due take at most half of it (at least one).
    pub max_rows: usize,
    /// The most records of one key to return; more of it are passed over, so that a key with a long backlog cannot
    /// fill the page. Records without a key are not limited.
    pub max_per_key: usize,
    /// The most bytes of payload to return; a page holds at least one record where there is one.
    pub max_bytes: usize,
    /// The most records to look at for each scan, those passed over included.
    pub max_scanned: usize,
}

/// A stretch of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scan {
    /// The lane.
    pub lane: Lane,
    /// Read only behind this position.
    pub after: Option<Position>,
    /// Read only up to and including this position.
    pub until: Option<Position>,
    /// Which records of the lane to read as well that were held back and are due now. They need not lie between
    /// `after` and `until`.
    pub due: DueRecords,
}

/// Which records that were held back (by a delay or a backoff) and are due now are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueRecords {
    /// None.
    Skip,
    /// Those up to and including this position, and those without a key wherever they stand.
    UpTo(Position),
    /// All. Such a record may be handed on only if the scan came past it or to its end: otherwise an earlier one of
    /// its key may be unread.
    All,
}

/// A choice of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// All but these. The relay has plenty of each in hand.
    Except(Vec<Key>),
    /// These only.
    Only(Vec<Key>),
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The records, in order of position within their lane. Left out are records that wait, that have an earlier
    /// record of their key that was held back (waiting, due again, or dead and parking its key), that are in
    /// hand, whose key was not asked for, or that are more of one key than asked for.
    ///
    /// A record that was held back itself and is due stands here too, with [`Record::held_back`] set, unless an
    /// earlier record of its key is held back.
    pub records: Vec<Record>,
    /// How far each scan came, in the order of the request.
    pub reached: Vec<Reached>,
}

/// How far a scan came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached {
    /// The last position looked at; `None` where there was nothing to look at, or the page was full before.
    pub position: Option<Position>,
    /// Whether the scan came to the end of its stretch. If not, go on behind `position`.
    pub end: bool,
    /// The lane's revision in the same snapshot. It changes whenever a redrive, discard or purge lets records go on
    /// that were hidden behind a dead one, so that the relay reads the lane from its start again.
    pub revision: i64,
    /// Up to and including this position nothing new can appear in the lane: every transaction that enqueued there
    /// was over when this read looked. The relay does not look there again but to make sure. `None` where that is
    /// not known; then the relay reads from where it last was known, so that a slow transaction is neither skipped
    /// nor overtaken.
    pub firm: Option<Position>,
}

/// A record whose attempt begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BeginAttempt {
    /// The relay.
    pub relay: RelayId,
    /// The record.
    pub record: RecordRef,
    /// The number of this attempt, which is written to the record.
    pub attempts: u32,
}

/// A record as a settle names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordRef {
    /// The record's id.
    pub id: MessageId,
    /// Its position.
    pub position: Position,
    /// Its lane.
    pub lane: Lane,
    /// The token of the lease under which it was published.
    pub token: i64,
}

/// Outcomes to write down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleRequest {
    /// The relay.
    pub relay: RelayId,
    /// Whether processed records are deleted at once instead of being kept.
    pub delete_processed: bool,
    /// The records and what became of them. Each record occurs once.
    pub settlements: Vec<Settlement>,
}

/// What became of one record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The record.
    pub record: RecordRef,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a record. See docs/lifecycle.md for the transitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The destination took responsibility for it.
    Processed,
    /// It failed and is tried again later.
    Retry {
        /// How long to wait from now. Zero: at once.
        after: Duration,
        /// How many attempts failed so far.
        attempts: u32,
        /// Safe text that says why.
        error: String,
    },
    /// It is given up.
    Dead {
        /// How many attempts were made.
        attempts: u32,
        /// Safe text that says why.
        error: String,
        /// Whether later records of its key wait until it is redriven or discarded.
        park: bool,
    },
    /// It was not tried after all, although an attempt was written down.
    Released {
        /// How many attempts failed so far.
        attempts: u32,
    },
}

/// What a settle did. The three counts add up to the number of settlements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SettleReport {
    /// Outcomes written.
    pub applied: usize,
    /// Outcomes refused because their lane's token is not ours any more.
    pub stale: usize,
    /// Outcomes without a pending record: settled before, or deleted by somebody.
    pub gone: usize,
    /// The lanes of the stale outcomes.
    pub stale_lanes: Vec<Lane>,
}

/// What to tidy up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpkeepRequest {
    /// The relay.
    pub relay: RelayId,
    /// How long the upkeep's own lease lasts from now; it may outlive the relay's.
    pub lease: Duration,
    /// How long processed records are kept; `None`: for ever.
    pub keep_processed: Option<Duration>,
    /// How long idempotency keys are kept; `None`: for ever.
    pub keep_keys: Option<Duration>,
    /// How long the inbox remembers which message a consumer has seen; `None`: for ever. A store without an inbox has
    /// nothing to do here.
    pub keep_inbox: Option<Duration>,
    /// The most rows to delete in this call, of each kind.
    pub limit: usize,
}

/// What was tidied up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UpkeepReport {
    /// Whether it was this relay's turn; if not, another relay is at it and nothing was done.
    pub ours: bool,
    /// Processed records deleted.
    pub purged: usize,
    /// Idempotency keys deleted.
    pub keys_purged: usize,
    /// Entries of the inbox deleted.
    pub inbox_purged: usize,
    /// Whether the limit was reached, so that there may be more to do.
    pub more: bool,
}
