//! The connection is cut after every single message of every operation. What was half done is undone or done, the next
//! call works, and nothing is lost, doubled or left locked.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use posthaste::{
    Admin, BeginAttempt, DeadSelection, Error, ErrorKind, LaneLease, LeaseRequest, ListFilter, Message, Mode,
    Outcome, Purge, Record, RecordRef, RelayId, SettleRequest, Settlement, Store, UpkeepRequest,
};
use posthaste_postgres::{Partition, PartitionPlan, PostgresOptions, PostgresStore};
use support::cutter::Cutter;
use support::producers::connect;
use support::{Schema, all_lanes, until};

const DAY: Duration = Duration::from_hours(24);

/// An outbox behind a cutter. One connection does everything, so that no other one is cut.
struct Bed {
    schema: Schema,
    cutter: Cutter,
    store: PostgresStore,
}

impl Bed {
    async fn new(options: impl FnOnce(PostgresOptions) -> PostgresOptions) -> Option<Self> {
        let schema = Schema::new().await?;
        let cutter = Cutter::start().await;
        let given = PostgresOptions::new(cutter.url()).table(schema.table()).connections(1).wake(false);
        let store = PostgresStore::new(options(given)).unwrap();
        store.migrate().await.unwrap();
        Some(Self { schema, cutter, store })
    }

    /// Does something with the connection cut after each message in turn, until it gets through, and calls `check`
    /// after every try. It must fail if and only if it was cut. Returns how many messages it takes.
    async fn cut_everywhere<T, P>(
        &self,
        prepare: impl AsyncFn() -> P,
        step: impl AsyncFn(&P) -> Result<T, Error>,
        check: impl AsyncFn(P),
    ) -> u64 {
        for messages in 0..1_000 {
            let prepared = prepare().await;
            // So that there is a connection, which is not what is tested here.
            eventually(async || self.store.stats(Some(1)).await).await;
            self.cutter.cut_after(messages);
            let result = step(&prepared).await.map(|_| ());
            let has_cut = self.cutter.has_cut();
            assert_eq!(result.is_err(), has_cut, "cut after {messages}: {result:?}");
            if let Err(error) = &result {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "cut after {messages}: {error:?}");
            }
            check(prepared).await;
            if !has_cut {
                return messages;
            }
        }
        panic!("it never got through");
    }

    async fn enqueue(&self, messages: &[Message]) {
        let mut client = support::client().await.unwrap();
        let tx = client.transaction().await.unwrap();
        self.store.outbox().enqueue_all(&tx, messages).await.unwrap();
        tx.commit().await.unwrap();
    }

    async fn count(&self, what: &str) -> i64 {
        self.schema.value(&format!("SELECT count(*) FROM {what}")).await
    }

    async fn lanes(&self, relay: RelayId) -> Vec<LaneLease> {
        eventually(async || self.store.lease(&lease(relay)).await).await.lanes
    }

    /// What is ready, with the tokens under which a relay that holds every lane settles it.
    async fn in_hand(&self, relay: RelayId) -> Vec<(Record, RecordRef)> {
        let lanes = self.lanes(relay).await;
        assert_eq!(lanes.len(), 64);
        let page = eventually(async || self.store.read(&all_lanes()).await).await;
        let named = |record: Record| {
            let token = lanes.iter().find(|lease| lease.lane == record.lane).unwrap().token;
            let named = RecordRef { id: record.id, position: record.position, lane: record.lane, token };
            (record, named)
        };
        page.records.into_iter().map(named).collect()
    }
}

fn lease(relay: RelayId) -> LeaseRequest {
    LeaseRequest { relay, name: "cut".into(), duration: Duration::from_mins(10), give_back: Vec::new() }
}

/// Asks until it works.
async fn eventually<T>(ask: impl AsyncFn() -> Result<T, Error>) -> T {
    for _ in 0..200 {
        match ask().await {
            Ok(value) => return value,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
    }
    panic!("it did not come back");
}

#[tokio::test]
async fn a_lease_that_is_cut_is_taken_whole_by_the_next_call() {
    let Some(bed) = Bed::new(|options| options).await else { return };
    bed.cut_everywhere(
        async || RelayId::random(),
        async |relay| bed.store.lease(&lease(*relay)).await,
        async |relay| {
            let lanes = bed.lanes(relay).await;
            assert_eq!(lanes.len(), 64);
            assert!(lanes.iter().all(|lease| !lease.from_expired), "nobody's lease ran out");
            eventually(async || bed.store.leave(relay).await).await;
        },
    )
    .await;
}

#[tokio::test]
async fn leaving_that_is_cut_can_be_done_again() {
    let Some(bed) = Bed::new(|options| options).await else { return };
    bed.cut_everywhere(
        async || {
            let relay = RelayId::random();
            assert_eq!(bed.lanes(relay).await.len(), 64);
            relay
        },
        async |relay| bed.store.leave(*relay).await,
        async |relay| {
            eventually(async || bed.store.leave(relay).await).await;
            assert_eq!(bed.count("{}outbox_relay").await, 0);
            assert_eq!(bed.count("{}outbox_lane WHERE owner IS NOT NULL").await, 0);
        },
    )
    .await;
}

#[tokio::test]
async fn reads_that_are_cut_change_nothing() {
    let Some(bed) = Bed::new(|options| options).await else { return };
    bed.enqueue(&[Message::new("e").aggregate("a", 1), Message::new("e")]).await;
    let everything = ListFilter { state: None, event_type: None, limit: 9 };
    let id = bed.store.list(&everything).await.unwrap()[0].id;
    let check = async |()| {
        let page = eventually(async || bed.store.read(&all_lanes()).await).await;
        assert_eq!(page.records.len(), 2);
    };
    let none = async || ();
    bed.cut_everywhere(none, async |()| bed.store.read(&all_lanes()).await, check).await;
    bed.cut_everywhere(none, async |()| bed.store.stats(None).await, check).await;
    bed.cut_everywhere(none, async |()| bed.store.list(&everything).await, check).await;
    bed.cut_everywhere(none, async |()| bed.store.show(id).await, check).await;
    bed.cut_everywhere(none, async |()| bed.store.pending_migrations().await, check).await;
}

/// Outcomes that were written before the cut are found gone when they are written again; none is lost.
async fn settles(delete_processed: bool, outcome: impl Fn(usize) -> Outcome) {
    let Some(bed) = Bed::new(|options| options).await else { return };
    let relay = RelayId::random();
    bed.cut_everywhere(
        async || {
            bed.schema.execute("DELETE FROM {}outbox").await;
            bed.enqueue(&[1, 2, 3].map(|key| Message::new("e").aggregate("a", key))).await;
            let in_hand = bed.in_hand(relay).await;
            assert_eq!(in_hand.len(), 3);
            let settlements = in_hand
                .iter()
                .enumerate()
                .map(|(n, (_, record))| Settlement { record: *record, outcome: outcome(n) });
            SettleRequest { relay, delete_processed, settlements: settlements.collect() }
        },
        async |request| bed.store.settle(request).await,
        async |request| {
            let report = eventually(async || bed.store.settle(&request).await).await;
            // A retry that was written may be written again: it is still pending.
            assert_eq!((report.applied + report.gone, report.stale), (3, 0), "{report:?}");
            let expected = |wanted: fn(&Outcome) -> bool| {
                i64::try_from(request.settlements.iter().filter(|it| wanted(&it.outcome)).count()).unwrap()
            };
            let processed = expected(|outcome| matches!(outcome, Outcome::Processed));
            let (dead, retried) = (
                expected(|outcome| matches!(outcome, Outcome::Dead { .. })),
                expected(|outcome| matches!(outcome, Outcome::Retry { .. })),
            );
            let kept = if delete_processed { 0 } else { processed };
            assert_eq!(bed.count("{}outbox WHERE status = 1").await, kept);
            assert_eq!(bed.count("{}outbox WHERE status = -1 AND attempts = 5").await, dead);
            assert_eq!(bed.count("{}outbox WHERE status = 0 AND attempts = 1").await, retried);
            assert_eq!(bed.count("{}outbox").await, kept + dead + retried);
        },
    )
    .await;
}

fn each_outcome(n: usize) -> Outcome {
    match n {
        0 => Outcome::Processed,
        1 => Outcome::Retry { after: DAY, attempts: 1, error: "no".into() },
        _ => Outcome::Dead { attempts: 5, error: "no".into(), park: true },
    }
}

#[tokio::test]
async fn a_settle_that_is_cut_is_done_or_undone() {
    settles(false, |_| Outcome::Processed).await;
}

#[tokio::test]
async fn a_settle_of_each_outcome_that_is_cut_is_done_or_undone() {
    settles(false, each_outcome).await;
}

#[tokio::test]
async fn a_settle_that_deletes_and_is_cut_is_done_or_undone() {
    settles(true, each_outcome).await;
}

#[tokio::test]
async fn an_attempt_whose_beginning_is_cut_is_written_once() {
    let Some(bed) = Bed::new(|options| options).await else { return };
    bed.enqueue(&[Message::new("e").aggregate("a", 1)]).await;
    let relay = RelayId::random();
    bed.cut_everywhere(
        async || {
            let (_, record) = bed.in_hand(relay).await.remove(0);
            BeginAttempt { relay, record, attempts: 3 }
        },
        async |attempt| bed.store.begin_attempt(attempt).await,
        async |attempt| {
            assert!(eventually(async || bed.store.begin_attempt(&attempt).await).await);
            assert_eq!(bed.count("{}outbox WHERE status = 0 AND attempts = 3").await, 1);
        },
    )
    .await;
}

#[tokio::test]
async fn upkeep_that_is_cut_purges_what_it_may_and_no_more() {
    let Some(bed) = Bed::new(|options| options).await else { return };
    let relay = RelayId::random();
    let keep = Some(DAY);
    let request = UpkeepRequest {
        relay,
        lease: Duration::from_mins(10),
        keep_processed: keep,
        keep_keys: keep,
        keep_inbox: keep,
        limit: 10,
    };
    let old = "now() - interval '2 days'";
    bed.cut_everywhere(
        async || {
            bed.schema
                .execute(&format!(
                    "DELETE FROM {{}}outbox; DELETE FROM {{}}outbox_key; DELETE FROM {{}}outbox_inbox;
                     INSERT INTO {{}}outbox (event_type, status, processed_at)
                         VALUES ('old', 1, {old}), ('young', 1, now()), ('dead', -1, {old}), ('ready', 0, NULL);
                     INSERT INTO {{}}outbox_key VALUES ('old', {old}), ('young', now());
                     INSERT INTO {{}}outbox_inbox VALUES ('c', 'old', {old}), ('c', 'young', now())"
                ))
                .await;
        },
        async |()| bed.store.upkeep(&request).await,
        async |()| {
            assert!(eventually(async || bed.store.upkeep(&request).await).await.ours);
            assert_eq!(bed.count("{}outbox WHERE event_type <> 'old'").await, 3);
            for table in ["outbox", "outbox_key", "outbox_inbox"] {
                let left = if table == "outbox" { 3 } else { 1 };
                assert_eq!(bed.count(&format!("{{}}{table}")).await, left, "{table}");
            }
        },
    )
    .await;
}

#[tokio::test]
async fn mending_that_is_cut_can_be_done_again() {
    let Some(bed) = Bed::new(|options| options).await else { return };
    let dead = async || {
        bed.schema
            .execute(
                "DELETE FROM {}outbox; INSERT INTO {}outbox (event_type, status, attempts, processed_at)
                 SELECT 'dead', -1, 5, now() - interval '2 days' FROM generate_series(1, 3)",
            )
            .await;
    };
    let (all, most) = (DeadSelection::All, Mode::UpTo(9));
    bed.cut_everywhere(
        dead,
        async |()| bed.store.redrive(&all, most).await,
        async |()| {
            eventually(async || bed.store.redrive(&all, most).await).await;
            assert_eq!(bed.count("{}outbox WHERE status = 0 AND attempts = 0").await, 3);
        },
    )
    .await;
    bed.cut_everywhere(
        dead,
        async |()| bed.store.discard(&all, most).await,
        async |()| {
            eventually(async || bed.store.discard(&all, most).await).await;
            assert_eq!(bed.count("{}outbox").await, 0);
        },
    )
    .await;
    let purge = Purge { older_than: DAY, include_dead: true, limit: 9 };
    bed.cut_everywhere(
        dead,
        async |()| bed.store.purge(&purge).await,
        async |()| {
            eventually(async || bed.store.purge(&purge).await).await;
            assert_eq!(bed.count("{}outbox").await, 0);
        },
    )
    .await;
}

/// A producer's transaction, with a key, one message and many: all of it or nothing is there. A producer that does not
/// know looks, and enqueues the same messages again.
#[tokio::test]
async fn a_producers_transaction_that_is_cut_is_whole_or_nothing() {
    let Some(bed) = Bed::new(|options| options).await else { return };
    let outbox = bed.store.outbox();
    let mut done = 0;
    for messages in 0..1_000 {
        let mut client = connect(&bed.cutter.url()).await;
        let batch =
            [1, 2].map(|n| Message::new("e").aggregate("a", n).idempotency_key(format!("{n} of {messages}")));
        let single = Message::new("e").idempotency_key(format!("single of {messages}"));
        let enqueue = async |client: &mut tokio_postgres::Client| {
            let tx = client.transaction().await.ok()?;
            outbox.enqueue(&tx, &single).await.ok()?;
            outbox.enqueue_all(&tx, &batch).await.ok()?;
            tx.commit().await.ok()
        };
        bed.cutter.cut_after(messages);
        let result = enqueue(&mut client).await;
        let has_cut = bed.cutter.has_cut();
        assert_eq!(result.is_none(), has_cut, "cut after {messages}");
        drop(client);
        // The server may still be at it: whoever enqueues the same again waits for that.
        let mut client = support::client().await.unwrap();
        let again = enqueue(&mut client).await.is_some();
        assert!(!again || has_cut, "what was enqueued is refused");
        done += 3;
        assert_eq!(bed.count("{}outbox").await, done, "cut after {messages}");
        assert_eq!(bed.count("{}outbox_key").await, done, "cut after {messages}");
        if !has_cut {
            return;
        }
    }
}

#[tokio::test]
async fn a_migration_that_is_cut_is_whole_or_nothing() {
    let Some(bed) = Bed::new(|options| options).await else { return };
    let number = std::cell::Cell::new(0);
    let url = bed.cutter.url();
    let messages = bed
        .cut_everywhere(
            async || {
                number.set(number.get() + 1);
                let table = format!("{}.t{}", bed.schema.name, number.get());
                let options = PostgresOptions::new(&url).table(table).connections(1).wake_trigger(true);
                let store = PostgresStore::new(options).unwrap();
                eventually(async || store.pending_migrations().await).await;
                store
            },
            async |store| store.migrate().await,
            async |store| {
                let pending = eventually(async || store.pending_migrations().await).await;
                let applied = eventually(async || store.migrate().await).await;
                assert_eq!(applied, pending, "either both or none was applied");
                assert!([0, 2].contains(&applied.len()), "{applied:?}");
                assert_eq!(eventually(async || store.pending_migrations().await).await, []);
                bed.schema
                    .execute(&format!("INSERT INTO {{}}t{} (event_type) VALUES ('e')", number.get()))
                    .await;
                // What is left behind in a session is a lock that nobody gives back.
                let drop = format!("DROP TABLE {{}}t{0}, {{}}t{0}_lane CASCADE", number.get());
                bed.schema.execute(&format!("SET lock_timeout = '5s'; {drop}")).await;
            },
        )
        .await;
    assert!(messages >= 10, "{messages}");
}

#[tokio::test]
async fn maintenance_of_partitions_that_is_cut_goes_on_where_it_was() {
    let Some(bed) = Bed::new(|options| options.partition(Partition::Day)).await else { return };
    let plan = PartitionPlan::new(Partition::Day).lookahead(31 * DAY);
    let partitions = "pg_inherits WHERE inhparent = '{}outbox'::regclass";
    let made = bed.count(partitions).await;
    let newest: String = bed
        .schema
        .value(&format!("SELECT max(inhrelid::regclass::text) FROM {partitions} AND inhrelid::regclass::text ~ 'p[0-9]+\"?$'"))
        .await;
    bed.cut_everywhere(
        async || {
            let bounds =
                "FROM ('0193a000-0000-0000-0000-000000000000') TO ('0193a001-0000-0000-0000-000000000000')";
            // One that is old, one that is to be made, and a row in the default partition that belongs there.
            bed.schema
                .execute(&format!(
                    "DROP TABLE IF EXISTS {newest}; DELETE FROM {{}}outbox;
                     CREATE TABLE {{}}old PARTITION OF {{}}outbox FOR VALUES {bounds};
                     INSERT INTO {{}}outbox (event_type) VALUES ('e')"
                ))
                .await;
        },
        async |()| bed.store.maintain_partitions(&plan).await,
        async |()| {
            until("nothing is left to do", async || {
                bed.store
                    .maintain_partitions(&plan)
                    .await
                    .is_ok_and(|report| report == posthaste_postgres::PartitionReport::default())
            })
            .await;
            assert_eq!(bed.count("{}outbox").await, 1, "no row is lost");
            assert_eq!(bed.count(partitions).await, made + 1, "one more day ahead, and none of old");
        },
    )
    .await;
}

/// The connection that listens is cut anywhere; after that a call is heard again.
#[tokio::test]
async fn listening_that_is_cut_begins_again() {
    let Some(schema) = Schema::new().await else { return };
    PostgresStore::new(schema.options()).unwrap().migrate().await.unwrap();
    // As many messages as connecting, LISTEN and the trial take, and some. A dozen at a time: each has three connections.
    let most = if support::cutter::counts_every_message() { 36 } else { 12 };
    for first in (0..most).step_by(12) {
        let several = (first..first + 12).map(|messages| listens_again(&schema, messages));
        futures_util::future::join_all(several).await;
    }
}

async fn listens_again(schema: &Schema, messages: u64) {
    let cutter = Cutter::start().await;
    let options = PostgresOptions::new(support::server_url()).table(schema.table()).connections(1);
    let store = PostgresStore::new(options.listen_url(cutter.url())).unwrap();
    let relay = RelayId::random();
    store.lease(&lease(relay)).await.unwrap();
    cutter.cut_after(messages);
    store.set_idle(relay, true).await.unwrap();
    let is_heard =
        format!("SELECT count(*) FROM {}.outbox_relay WHERE id = '{}' AND idle", schema.name, relay.0);
    until("it listens", async || schema.value::<i64>(&is_heard).await == 1).await;
    let rung = tokio::spawn({
        let store = store.clone();
        async move { store.rung().await }
    });
    let call = format!("SELECT pg_notify('{}.outbox', '')", schema.name);
    until("a call is heard", async || {
        schema.client.batch_execute(&call).await.unwrap();
        rung.is_finished()
    })
    .await;
    store.leave(relay).await.unwrap();
}
