//! A network that swallows everything, and a server that does not answer because everything is locked: each operation
//! ends by itself, in its time, with an error that says so, and the next one works when the trouble is over.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use posthaste::{
    Admin, BeginAttempt, DeadSelection, Error, ErrorKind, LeaseRequest, ListFilter, Message, Mode, Outcome,
    Purge, RecordRef, RelayId, SettleRequest, Settlement, Store, UpkeepRequest,
};
use posthaste_postgres::{Partition, PartitionPlan, PostgresOptions, PostgresStore};
use posthaste_testkit::{Fault, FaultProxy};
use support::{Schema, all_lanes, until};

const LIMIT: Duration = Duration::from_millis(400);
const DAY: Duration = Duration::from_hours(24);

struct Bed {
    schema: Schema,
    proxy: FaultProxy,
    store: PostgresStore,
    relay: RelayId,
    record: RecordRef,
}

impl Bed {
    async fn new() -> Option<Self> {
        let schema = Schema::new().await?;
        let proxy = FaultProxy::start(support::address());
        PostgresStore::new(schema.options().partition(Partition::Month)).unwrap().migrate().await.unwrap();
        let options = PostgresOptions::new(support::url_by(&proxy))
            .table(schema.table())
            .connections(1)
            .connect_timeout(LIMIT)
            .statement_timeout(LIMIT)
            .migration_timeout(LIMIT)
            .wake_trigger(true);
        let store = PostgresStore::new(options).unwrap();
        let mut client = support::client().await.unwrap();
        let tx = client.transaction().await.unwrap();
        store.outbox().enqueue(&tx, &Message::new("e").aggregate("a", 1)).await.unwrap();
        tx.commit().await.unwrap();
        let relay = RelayId::random();
        let lanes = store.lease(&lease(relay)).await.unwrap().lanes;
        let record = store.read(&all_lanes()).await.unwrap().records.remove(0);
        let token = lanes[usize::from(record.lane.0)].token;
        let record = RecordRef { id: record.id, position: record.position, lane: record.lane, token };
        Some(Self { schema, proxy, store, relay, record })
    }

    /// Does an operation, with a deadline of the test's own: far behind that of any operation.
    async fn run(&self, name: &str) -> Result<(), Error> {
        let ended = tokio::time::timeout(Duration::from_secs(15), self.operation(name)).await;
        ended.unwrap_or_else(|_| panic!("{name} goes on and on"))
    }

    async fn operation(&self, name: &str) -> Result<(), Error> {
        let (store, relay, record) = (&self.store, self.relay, self.record);
        match name {
            "lease" => store.lease(&lease(relay)).await.map(drop),
            "read" => store.read(&all_lanes()).await.map(drop),
            "begin_attempt" => {
                store.begin_attempt(&BeginAttempt { relay, record, attempts: 1 }).await.map(drop)
            }
            "settle" => store.settle(&settle(relay, record)).await.map(drop),
            "upkeep" => store.upkeep(&upkeep(relay)).await.map(drop),
            "leave" => store.leave(relay).await,
            "stats" => store.stats(Some(10)).await.map(drop),
            "list" => store.list(&ListFilter { state: None, event_type: None, limit: 9 }).await.map(drop),
            "show" => store.show(record.id).await.map(drop),
            "redrive" => store.redrive(&DeadSelection::All, Mode::UpTo(9)).await.map(drop),
            "discard" => store.discard(&DeadSelection::All, Mode::UpTo(9)).await.map(drop),
            "purge" => store.purge(&Purge { older_than: DAY, include_dead: true, limit: 9 }).await.map(drop),
            "purge_inbox" => store.purge_inbox(DAY, 9).await.map(drop),
            "migrate" => store.migrate().await.map(drop),
            other => unreachable!("{other}"),
        }
    }
}

const OPERATIONS: [&str; 14] = [
    "lease",
    "read",
    "begin_attempt",
    "settle",
    "upkeep",
    "leave",
    "stats",
    "list",
    "show",
    "redrive",
    "discard",
    "purge",
    "purge_inbox",
    "migrate",
];

fn lease(relay: RelayId) -> LeaseRequest {
    LeaseRequest { relay, name: "stuck".into(), duration: DAY, give_back: Vec::new() }
}

fn settle(relay: RelayId, record: RecordRef) -> SettleRequest {
    let settlement = Settlement { record, outcome: Outcome::Processed };
    SettleRequest { relay, delete_processed: false, settlements: vec![settlement] }
}

fn upkeep(relay: RelayId) -> UpkeepRequest {
    let keep = Some(DAY);
    UpkeepRequest { relay, lease: DAY, keep_processed: keep, keep_keys: keep, keep_inbox: keep, limit: 9 }
}

#[tokio::test]
async fn every_operation_on_a_network_that_swallows_all_ends_in_time() {
    let Some(bed) = Bed::new().await else { return };
    for name in OPERATIONS {
        // So that there is a connection that the trouble comes over.
        until("there is a connection", async || bed.store.stats(Some(1)).await.is_ok()).await;
        bed.proxy.set(Fault::Blackhole);
        let error = bed.run(name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error:?}");
        assert!(error.to_string().contains("in time"), "{name}: {error}");
        // Neither is a new connection made.
        let error = bed.run(name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error:?}");
        bed.proxy.heal();
        until(name, async || bed.run(name).await.is_ok()).await;
    }
}

#[tokio::test]
async fn every_operation_that_meets_a_lock_ends_in_time() {
    let Some(bed) = Bed::new().await else { return };
    let tables = ["outbox", "outbox_lane", "outbox_relay", "outbox_key", "outbox_inbox", "outbox_wake"];
    let lock: Vec<_> = tables.iter().map(|table| format!("{{}}{table}")).collect();
    // Adding the trigger is what a migration of this outbox has to do; it is done once the lock is gone.
    for name in OPERATIONS {
        bed.schema.execute(&format!("BEGIN; LOCK TABLE {}", lock.join(", "))).await;
        let error = bed.run(name).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{name}: {error:?}");
        let said = error.to_string();
        assert!(["in time", "time limit"].iter().any(|says| said.contains(says)), "{name}: {said}");
        bed.schema.execute("ROLLBACK").await;
        until(name, async || bed.run(name).await.is_ok()).await;
    }
    // Partitions put it off instead.
    bed.schema.execute("BEGIN; LOCK TABLE {}outbox IN ACCESS SHARE MODE").await;
    let plan = PartitionPlan::new(Partition::Month).lookahead(90 * DAY);
    bed.store.maintain_partitions(&plan).await.unwrap();
    bed.schema.execute("ROLLBACK").await;
}

/// The server reports at COMMIT that its disk is full, as a deferred check may: nothing is there afterwards, it is an
/// outage and no message's fault, and it passes.
#[tokio::test]
async fn a_commit_that_fails_for_want_of_room_undoes_all_of_it() {
    let Some(bed) = Bed::new().await else { return };
    bed.schema
        .execute(
            "CREATE TABLE {}disk (is_full boolean); INSERT INTO {}disk VALUES (true);
             CREATE FUNCTION {}check_disk() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN
                 IF (SELECT is_full FROM {}disk) THEN RAISE EXCEPTION 'no room' USING ERRCODE = '53100'; END IF;
                 RETURN NULL;
             END $f$;
             CREATE CONSTRAINT TRIGGER disk AFTER INSERT OR UPDATE ON {}outbox DEFERRABLE INITIALLY DEFERRED
                 FOR EACH ROW EXECUTE FUNCTION {}check_disk()",
        )
        .await;
    let outbox = bed.store.outbox();
    let mut client = support::client().await.unwrap();
    let enqueue = async |client: &mut tokio_postgres::Client| {
        let tx = client.transaction().await.unwrap();
        outbox.enqueue(&tx, &Message::new("more").idempotency_key("k")).await.unwrap();
        tx.commit().await
    };
    assert!(enqueue(&mut client).await.is_err());
    assert_eq!(bed.schema.value::<i64>("SELECT count(*) FROM {}outbox").await, 1);
    assert_eq!(bed.schema.value::<i64>("SELECT count(*) FROM {}outbox_key").await, 0, "the key goes with it");
    let error = bed.store.settle(&settle(bed.relay, bed.record)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("disk is full"), "{error}");
    assert_eq!(bed.schema.value::<i64>("SELECT count(*) FROM {}outbox WHERE status = 0").await, 1);
    bed.schema.execute("UPDATE {}disk SET is_full = false").await;
    enqueue(&mut client).await.unwrap();
    assert_eq!(bed.store.settle(&settle(bed.relay, bed.record)).await.unwrap().applied, 1);
}
