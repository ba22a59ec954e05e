//! The operations that the matrix goes through.

use std::time::Duration;

use posthaste::{
    BeginAttempt, DeadSelection, DueRecords, Error, Keys, Lane, LeaseRequest, ListFilter, MessageId, Mode,
    Outcome, Position, Purge, ReadRequest, RecordRef, RelayId, Scan, SettleRequest, Settlement,
    UpkeepRequest,
};

use super::NetworkFixture;

const DAY: Duration = Duration::from_hours(24);

/// What is asked of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "they are the methods of the traits")]
pub enum Operation {
    Lease,
    Read,
    BeginAttempt,
    Settle,
    Upkeep,
    Leave,
    Stats,
    List,
    Show,
    Redrive,
    Discard,
    Purge,
    PendingMigrations,
    Migrate,
    /// A producer connects, enqueues and commits.
    Produce,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Lease,
        Self::Read,
        Self::BeginAttempt,
        Self::Settle,
        Self::Upkeep,
        Self::Leave,
        Self::Stats,
        Self::List,
        Self::Show,
        Self::Redrive,
        Self::Discard,
        Self::Purge,
        Self::PendingMigrations,
        Self::Migrate,
        Self::Produce,
    ];

    /// Does it, with a deadline of the test's own, far behind that of any operation.
    pub(super) async fn run(self, fixture: &impl NetworkFixture, relay: RelayId) -> Result<(), Error> {
        let ended = tokio::time::timeout(Duration::from_secs(30), self.ask(fixture, relay)).await;
        ended.unwrap_or_else(|_| panic!("{self:?} goes on and on"))
    }

    async fn ask(self, fixture: &impl NetworkFixture, relay: RelayId) -> Result<(), Error> {
        let (store, admin) = (fixture.store(), fixture.admin());
        // Of a lane that this relay may not hold: what is asked for matters less than that the answer comes. A store whose
        // positions name the id knows without asking that any other position is of no record.
        let id = MessageId::generate();
        let position = Position { major: 1, minor: id.as_uuid().as_u128() };
        let record = RecordRef { id, position, lane: Lane(0), token: 1 };
        match self {
            Self::Lease => store.lease(&lease(relay)).await.map(drop),
            Self::Read => store.read(&everything()).await.map(drop),
            Self::BeginAttempt => {
                store.begin_attempt(&BeginAttempt { relay, record, attempts: 1 }).await.map(drop)
            }
            Self::Settle => store.settle(&settle(relay, record)).await.map(drop),
            Self::Upkeep => store.upkeep(&upkeep(relay)).await.map(drop),
            Self::Leave => store.leave(relay).await,
            Self::Stats => admin.stats(Some(10)).await.map(drop),
            Self::List => admin.list(&ListFilter { state: None, event_type: None, limit: 9 }).await.map(drop),
            Self::Show => admin.show(record.id).await.map(drop),
            Self::Redrive => admin.redrive(&DeadSelection::All, Mode::UpTo(9)).await.map(drop),
            Self::Discard => admin.discard(&DeadSelection::All, Mode::UpTo(9)).await.map(drop),
            Self::Purge => {
                admin.purge(&Purge { older_than: DAY, include_dead: true, limit: 9 }).await.map(drop)
            }
            Self::PendingMigrations => admin.pending_migrations().await.map(drop),
            Self::Migrate => admin.migrate().await.map(drop),
            Self::Produce => fixture.produce().await,
        }
    }
}

fn lease(relay: RelayId) -> LeaseRequest {
    LeaseRequest { relay, name: "network".into(), duration: DAY, give_back: Vec::new() }
}

fn settle(relay: RelayId, record: RecordRef) -> SettleRequest {
    let settlement = Settlement { record, outcome: Outcome::Processed };
    SettleRequest { relay, delete_processed: false, settlements: vec![settlement] }
}

fn upkeep(relay: RelayId) -> UpkeepRequest {
    let keep = Some(DAY);
    UpkeepRequest { relay, lease: DAY, keep_processed: keep, keep_keys: keep, keep_inbox: keep, limit: 9 }
}

fn everything() -> ReadRequest {
    let scan = |lane| Scan { lane: Lane(lane), after: None, until: None, due: DueRecords::All };
    ReadRequest {
        scans: (0..64).map(scan).collect(),
        keys: Keys::Except(Vec::new()),
        in_hand: Vec::new(),
        max_rows: 1_000,
        max_per_key: 1_000,
        max_bytes: 1 << 24,
        max_scanned: 1_000,
    }
}
