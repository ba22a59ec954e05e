//! The partitioned layout and its upkeep.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::ops::ControlFlow;
use std::time::Duration;

use posthaste::{Admin, ErrorKind, Message};
use posthaste_postgres::{Partition, PartitionPlan, PartitionReport};
use posthaste_testkit::store_conformance;
use support::{PartitionedFixture, PostgresFixture};

store_conformance!(PartitionedFixture);

const DAY: Duration = Duration::from_hours(24);

async fn partitioned() -> Option<PostgresFixture> {
    PostgresFixture::direct(|options| options.partition(Partition::Day)).await
}

fn plan() -> PartitionPlan {
    PartitionPlan::new(Partition::Day).lookahead(3 * DAY)
}

async fn enqueue(fixture: &PostgresFixture, message: &Message) {
    let mut client = support::client().await.unwrap();
    let tx = client.transaction().await.unwrap();
    fixture.store.outbox().enqueue(&tx, message).await.unwrap();
    tx.commit().await.unwrap();
}

/// A partition of long ago with rows of these states.
async fn old_partition(fixture: &PostgresFixture, days_ago: u32, statuses: &str) -> String {
    let ms = "(extract(epoch FROM date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '{days} days') * 1000)::bigint";
    let id = |ms: &str, tail: &str| {
        format!("encode(substring(int8send({ms}) FROM 3) || '\\x{tail}'::bytea, 'hex')::uuid")
    };
    let (lower, upper) =
        (ms.replace("{days}", &days_ago.to_string()), ms.replace("{days}", &(days_ago - 1).to_string()));
    let name = format!("old_{days_ago}");
    let none = "00000000000000000000";
    let bounds: String = fixture
        .schema
        .value(&format!("SELECT format('FROM (%L) TO (%L)', {}, {})", id(&lower, none), id(&upper, none)))
        .await;
    fixture
        .schema
        .execute(&format!("CREATE TABLE {{}}{name} PARTITION OF {{}}outbox FOR VALUES {bounds}"))
        .await;
    let insert = format!(
        "INSERT INTO {{}}outbox (id, event_type, status)
         SELECT encode(substring(int8send({lower} + n) FROM 3) || '\\x70008000000000000000'::bytea, 'hex')::uuid, 'old', s
         FROM unnest(ARRAY[{statuses}]::smallint[]) WITH ORDINALITY AS u(s, n)"
    );
    fixture.schema.execute(&insert).await;
    name
}

async fn rows_in(fixture: &PostgresFixture, table: &str) -> i64 {
    fixture.schema.value(&format!("SELECT count(*) FROM ONLY {{}}{table}")).await
}

#[tokio::test]
async fn partitions_are_made_ahead_and_take_the_messages() {
    let Some(fixture) = partitioned().await else { return };
    enqueue(&fixture, &Message::new("e")).await;
    assert_eq!(rows_in(&fixture, "outbox_default").await, 0, "it went into the partition of today");
    let report = fixture.store.maintain_partitions(&plan()).await.unwrap();
    assert_eq!(report, PartitionReport::default(), "migrate has made them for 30 days");
    let report = fixture.store.maintain_partitions(&plan().lookahead(33 * DAY)).await.unwrap();
    assert_eq!(report.created.len(), 3, "{report:?}");
}

#[tokio::test]
async fn a_table_that_is_not_partitioned_is_refused() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    let error = fixture.store.maintain_partitions(&plan()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[tokio::test]
async fn a_partition_is_dropped_when_all_in_it_is_over_and_old() {
    let Some(fixture) = partitioned().await else { return };
    let over = old_partition(&fixture, 20, "1, 1, 1").await;
    let open = old_partition(&fixture, 19, "1, 0").await;
    let dead = old_partition(&fixture, 18, "1, -1").await;
    let young = old_partition(&fixture, 5, "1").await;
    let report = fixture.store.maintain_partitions(&plan()).await.unwrap();
    assert_eq!((report.dropped, report.kept), (vec![over], vec![dead.clone(), open.clone()]));
    let report = fixture.store.maintain_partitions(&plan().include_dead(true)).await.unwrap();
    assert_eq!((report.dropped, report.kept), (vec![dead], vec![open]));
    assert_eq!(rows_in(&fixture, &young).await, 1);
    let keep = fixture.store.maintain_partitions(&plan().retention(None)).await.unwrap();
    assert!(keep.dropped.is_empty());
}

#[tokio::test]
async fn rows_in_the_default_partition_are_moved_into_one_of_their_own() {
    let Some(fixture) = partitioned().await else { return };
    fixture.schema.execute("DO $$ DECLARE p text; BEGIN FOR p IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = '{}outbox'::regclass AND inhrelid <> '{}outbox_default'::regclass LOOP EXECUTE 'DROP TABLE ' || p; END LOOP; END $$").await;
    enqueue(&fixture, &Message::new("before").aggregate("a", 1)).await;
    assert_eq!(rows_in(&fixture, "outbox_default").await, 1, "an INSERT never fails for want of a partition");
    let lane: (i64, i16) = {
        let row = fixture
            .schema
            .client
            .query_one(&fixture.schema.named("SELECT seq, lane FROM {}outbox"), &[])
            .await
            .unwrap();
        (row.get(0), row.get(1))
    };
    let report = fixture.store.maintain_partitions(&plan()).await.unwrap();
    assert_eq!(report.created.len(), 5, "yesterday, today and three days ahead: {report:?}");
    assert_eq!(rows_in(&fixture, "outbox_default").await, 0);
    enqueue(&fixture, &Message::new("after").aggregate("a", 1)).await;
    let row = fixture
        .schema
        .client
        .query_one(&fixture.schema.named("SELECT seq, lane FROM {}outbox WHERE event_type = 'before'"), &[])
        .await
        .unwrap();
    assert_eq!(lane, (row.get(0), row.get(1)));
    let stats = fixture.store.stats(None).await.unwrap();
    assert_eq!(stats.ready.count, 2);
}

#[tokio::test]
async fn a_long_reader_postpones_the_change_and_holds_up_no_producer() {
    let Some(fixture) = partitioned().await else { return };
    let over = old_partition(&fixture, 20, "1").await;
    fixture.schema.execute("BEGIN; SELECT count(*) FROM {}outbox").await;
    let plan_now = plan();
    let (report, slowest) = tokio::join!(fixture.store.maintain_partitions(&plan_now), async {
        let mut slowest = Duration::ZERO;
        for n in 0..100 {
            let began = tokio::time::Instant::now();
            enqueue(&fixture, &Message::new(format!("e{n}"))).await;
            slowest = slowest.max(began.elapsed());
        }
        slowest
    });
    let report = report.unwrap();
    assert_eq!((report.postponed, report.dropped), (vec![over.clone()], Vec::new()));
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    fixture.schema.execute("COMMIT").await;
    assert_eq!(fixture.store.maintain_partitions(&plan()).await.unwrap().dropped, [over]);
}

#[tokio::test]
async fn many_maintainers_at_once_are_no_trouble() {
    let Some(fixture) = partitioned().await else { return };
    let over = old_partition(&fixture, 20, "1").await;
    let tasks: Vec<_> = (0..4)
        .map(|_| {
            let store = fixture.store.clone();
            tokio::spawn(async move { store.maintain_partitions(&plan().lookahead(40 * DAY)).await.unwrap() })
        })
        .collect();
    let mut dropped = Vec::new();
    for task in tasks {
        dropped.extend(task.await.unwrap().dropped);
    }
    fixture
        .store
        .maintain_partitions(&plan().lookahead(40 * DAY))
        .await
        .map(|report| dropped.extend(report.dropped))
        .unwrap();
    assert_eq!(dropped, [over]);
    let count: i64 =
        fixture.schema.value("SELECT count(*) FROM pg_inherits WHERE inhparent = '{}outbox'::regclass").await;
    assert_eq!(count, 1 + 1 + 1 + 40, "the default one, yesterday, today and 40 days ahead");
}

#[tokio::test]
async fn months_are_made_too() {
    let Some(fixture) = PostgresFixture::direct(|options| options.partition(Partition::Month)).await else {
        return;
    };
    enqueue(&fixture, &Message::new("e")).await;
    assert_eq!(rows_in(&fixture, "outbox_default").await, 0);
}

type Rounds = tokio::sync::mpsc::UnboundedReceiver<Result<PartitionReport, ErrorKind>>;

/// Runs the maintainer that goes on, and hands on what each round did.
fn keep(
    fixture: &PostgresFixture,
    plan: PartitionPlan,
) -> (tokio::sync::oneshot::Sender<()>, Rounds, tokio::task::JoinHandle<Result<(), posthaste::Error>>) {
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let (rounds, heard) = tokio::sync::mpsc::unbounded_channel();
    let store = fixture.store.clone();
    let task = tokio::spawn(async move {
        let stopped = async { drop(stopped.await) };
        store
            .keep_partitions(&plan, stopped, |round| {
                let round = round.cloned().map_err(posthaste::Error::kind);
                if rounds.send(round).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
            .await
    });
    (stop, heard, task)
}

#[tokio::test]
async fn the_maintainer_goes_on_until_it_is_stopped() {
    let Some(fixture) = partitioned().await else { return };
    let every = Duration::from_millis(20);
    let (stop, mut rounds, task) = keep(&fixture, plan().check_every(every));
    assert_eq!(rounds.recv().await.unwrap(), Ok(PartitionReport::default()));
    let over = old_partition(&fixture, 20, "1").await;
    loop {
        let report = rounds.recv().await.unwrap().unwrap();
        if report.dropped == [over.clone()] {
            break;
        }
        assert_eq!(report, PartitionReport::default());
    }
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_maintainer_rides_out_trouble_and_tells_of_it() {
    let Some(fixture) = partitioned().await else { return };
    let (stop, mut rounds, task) = keep(&fixture, plan().check_every(Duration::from_millis(20)));
    rounds.recv().await.unwrap().unwrap();
    fixture.schema.execute("ALTER TABLE {}outbox RENAME TO gone").await;
    while rounds.recv().await.unwrap().is_ok() {}
    fixture.schema.execute("ALTER TABLE {}gone RENAME TO outbox").await;
    while rounds.recv().await.unwrap().is_err() {}
    stop.send(()).unwrap();
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_maintainer_finishes_its_change_when_it_is_stopped_and_begins_no_other() {
    let Some(fixture) = partitioned().await else { return };
    let (first, second) = (old_partition(&fixture, 20, "1").await, old_partition(&fixture, 21, "1").await);
    fixture.schema.execute(&format!("BEGIN; SELECT count(*) FROM {{}}{first}")).await;
    let (stop, mut rounds, task) = keep(&fixture, plan());
    // The first change waits for its lock.
    let waiting =
        format!("SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = '{{}}{first}'::regclass");
    let watch = Watch::new(&fixture).await;
    watch.until(&waiting, 1).await;
    stop.send(()).unwrap();
    let report = rounds.recv().await.unwrap().unwrap();
    assert_eq!((report.postponed, report.dropped), (vec![first], Vec::new()), "{second} was not begun");
    task.await.unwrap().unwrap();
    fixture.schema.execute("COMMIT").await;
}

#[tokio::test]
async fn a_maintainer_that_cannot_work_says_so_at_once() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    for (plan, says) in
        [(plan(), "not partitioned"), (plan().check_every(Duration::ZERO), "check_every is 0")]
    {
        let (_stop, _rounds, task) = keep(&fixture, plan);
        let error = task.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// A connection that looks on.
struct Watch {
    client: tokio_postgres::Client,
    prefix: String,
}

impl Watch {
    async fn new(fixture: &PostgresFixture) -> Self {
        let prefix = format!("\"{}\".", fixture.schema.name);
        Self { client: support::client().await.unwrap(), prefix }
    }

    async fn until(&self, count: &str, wanted: i64) {
        let sql = count.replace("{}", &self.prefix);
        for _ in 0..5_000 {
            if self.client.query_one(&sql, &[]).await.unwrap().get::<_, i64>(0) == wanted {
                return;
            }
        }
        panic!("{sql} never was {wanted}");
    }
}
