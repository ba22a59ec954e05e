//! Partitions by time: made ahead, and dropped when all in them is over and old.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use posthaste::{Admin, ErrorKind, Message, Store};
use posthaste_mysql::{MySqlStore, Partition, PartitionPlan};
use support::{Database, Fixture, SERVERS, enqueue, everything};

const DAY: Duration = Duration::from_hours(24);

/// An outbox with two old partitions.
async fn with_old_partitions(server: support::Server) -> Fixture {
    let fixture = Fixture::with(server, |options| options.partition(Partition::Day)).await;
    let sql = fixture.store.migration_sql();
    let sql = sql[0].sql.replace(
        "PARTITION pmax",
        "PARTITION p20240101 VALUES LESS THAN (1704153600), PARTITION p20240102 VALUES LESS THAN (1704240000), \
         PARTITION pmax",
    );
    for statement in sql.split(";\n").filter(|it| it.contains("TABLE") || it.contains("INSERT")) {
        fixture.database.execute(statement).await;
    }
    fixture.store.migrate().await.unwrap();
    fixture
}

/// A plan under a lock of the test's own: the names of locks are the whole server's.
fn plan(fixture: &Fixture, every: Partition) -> PartitionPlan {
    PartitionPlan::new(every).lock_name(&fixture.database.name)
}

/// A message whose id was made on 2024-01-01.
async fn old_message(database: &Database, tail: &str, status: i8) {
    let insert = format!(
        "INSERT INTO outbox (id, event_type, payload, status) VALUES (UNHEX('018CC251F4007000800000000000{tail}'), 'old', '1', {status})"
    );
    database.execute(&insert).await;
}

async fn names(database: &Database) -> Vec<String> {
    let select = format!(
        "SELECT PARTITION_NAME FROM information_schema.PARTITIONS WHERE TABLE_SCHEMA = '{}' AND TABLE_NAME = 'outbox' \
         ORDER BY PARTITION_ORDINAL_POSITION",
        database.name
    );
    database.values(&select).await
}

#[tokio::test]
async fn partitions_are_made_ahead_and_only_once() {
    for server in SERVERS {
        for (every, least) in [(Partition::Day, 30), (Partition::Month, 3)] {
            let fixture = Fixture::migrated(server, |options| options.partition(every)).await;
            let made = names(&fixture.database).await;
            assert!(made.len() > least && made.last().unwrap() == "pmax", "{server:?} {made:?}");
            let length = if every == Partition::Day { 9 } else { 7 };
            assert!(made[..made.len() - 1].iter().all(|name| name.len() == length), "{made:?}");
            assert_eq!(fixture.store.partitioned_by().await.unwrap(), Some(every));
            let again = fixture.store.maintain_partitions(&plan(&fixture, every)).await.unwrap();
            assert!(again.ours && again.created.len() <= 1, "but for midnight, nothing is to do: {again:?}");
            enqueue(&fixture.database, &fixture.store.outbox(), &[Message::new("e").payload("1")]).await;
            let in_last: u64 = fixture.database.value("SELECT COUNT(*) FROM outbox PARTITION (pmax)").await;
            assert_eq!(in_last, 0, "it lies in the partition of its time");
        }
    }
}

#[tokio::test]
async fn old_partitions_are_dropped_when_all_in_them_is_over() {
    for server in SERVERS {
        let fixture = with_old_partitions(server).await;
        old_message(&fixture.database, "0001", 1).await;
        old_message(&fixture.database, "0002", -1).await;
        old_message(&fixture.database, "0003", 0).await;
        let forever = plan(&fixture, Partition::Day);
        let plan = forever.clone().retention(Some(DAY));
        assert_eq!(fixture.store.maintain_partitions(&forever).await.unwrap().dropped, Vec::<String>::new());
        let kept = fixture.store.maintain_partitions(&plan).await.unwrap();
        assert_eq!(
            (kept.kept, kept.dropped),
            (vec!["p20240101".to_owned()], vec![]),
            "one keeps all of them"
        );
        fixture.database.execute("UPDATE outbox SET status = 1 WHERE status = 0").await;
        let dropped = fixture.store.maintain_partitions(&plan).await.unwrap();
        assert_eq!(dropped.dropped, ["p20240101", "p20240102"], "{server:?}");
        assert!(!names(&fixture.database).await.iter().any(|name| name.starts_with("p2024")));
        let left: u64 = fixture.database.value("SELECT COUNT(*) FROM outbox").await;
        assert_eq!(left, 0);
        let ended = fixture.store.read(&everything()).await.unwrap();
        assert!(ended.records.is_empty());
    }
}

/// A transaction that has enqueued into an old partition and not committed is not overlooked.
#[tokio::test]
async fn an_open_transaction_keeps_what_it_wrote_into() {
    for server in SERVERS {
        let fixture = with_old_partitions(server).await;
        let plan = plan(&fixture, Partition::Day).retention(Some(DAY));
        let mut conn = fixture.database.client().await;
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        let insert = "INSERT INTO outbox (id, event_type, payload) VALUES (UNHEX('018CC251F40070008000000000000009'), 'old', '1')";
        tx.query_drop(insert).await.unwrap();
        let report = fixture.store.maintain_partitions(&plan).await.unwrap();
        assert_eq!(report.dropped, Vec::<String>::new(), "{server:?} {report:?}");
        assert_eq!(report.postponed.last().map(String::as_str), Some("drop"), "{report:?}");
        tx.commit().await.unwrap();
        let report = fixture.store.maintain_partitions(&plan).await.unwrap();
        assert_eq!(report.kept, ["p20240101"], "{report:?}");
        assert_eq!(fixture.store.read(&everything()).await.unwrap().records.len(), 1);
    }
}

#[tokio::test]
async fn one_instance_works_at_a_time() {
    for server in SERVERS {
        let fixture = Fixture::migrated(server, |options| options.partition(Partition::Day)).await;
        let plan =
            PartitionPlan::new(Partition::Day).lock_name(format!("lock of {}", &fixture.database.name[..40]));
        let mut conn = fixture.database.client().await;
        let name = plan.lock_name.clone().unwrap();
        let _: Option<i64> = conn.query_first(format!("SELECT GET_LOCK('{name}', 0)")).await.unwrap();
        assert!(!fixture.store.maintain_partitions(&plan).await.unwrap().ours);
        drop(conn.disconnect().await);
        assert!(fixture.store.maintain_partitions(&plan).await.unwrap().ours);
    }
}

#[tokio::test]
async fn other_ways_of_partitioning_are_refused() {
    for server in SERVERS {
        for by in [
            "",
            "PARTITION BY HASH (created_ts) PARTITIONS 2",
            "PARTITION BY RANGE (created_ts) (PARTITION p1 VALUES LESS THAN (2000000000))",
            "PARTITION BY RANGE (created_ts) SUBPARTITION BY HASH (created_ts) SUBPARTITIONS 2 (PARTITION pmax VALUES LESS THAN MAXVALUE)",
        ] {
            let fixture = Fixture::migrated(server, |options| options).await;
            if !by.is_empty() {
                fixture.database.execute(&format!("ALTER TABLE outbox {by}")).await;
            }
            let plan = plan(&fixture, Partition::Day);
            let error = fixture.store.maintain_partitions(&plan).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{server:?} {by}: {error:?}");
            let zero = plan.retention(Some(Duration::ZERO));
            let error = fixture.store.maintain_partitions(&zero).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error:?}");
            let _ = MySqlStore::new(fixture.database.options()).unwrap();
        }
    }
}

#[tokio::test]
async fn the_maintainers_go_on_until_they_are_stopped() {
    for server in SERVERS {
        let fixture = with_old_partitions(server).await;
        let every = Duration::from_millis(20);
        let plan = plan(&fixture, Partition::Day).retention(Some(DAY));
        let until_dropped = async {
            while names(&fixture.database).await.contains(&"p20240101".to_owned()) {
                tokio::task::yield_now().await;
            }
        };
        old_message(&fixture.database, "0001", 0).await;
        let over = async {
            // The first passes find something that is not over; a later one drops it.
            fixture.database.execute("UPDATE outbox SET status = 1").await;
            until_dropped.await;
        };
        fixture.store.maintain_partitions_until(&plan, every, over).await.unwrap();
        old_message(&fixture.database, "0002", 1).await;
        fixture.database.execute("UPDATE outbox SET processed_at = NOW(6) - INTERVAL 1 DAY").await;
        let cleanup =
            posthaste_mysql::Cleanup::new(Duration::from_hours(1)).lock_name(&fixture.database.name);
        let until_empty = async {
            while fixture.database.value::<u64>("SELECT COUNT(*) FROM outbox").await > 0 {
                tokio::task::yield_now().await;
            }
        };
        fixture.store.clean_up_until(&cleanup, every, until_empty).await.unwrap();
        let zero = posthaste_mysql::Cleanup::new(Duration::ZERO);
        let error = fixture.store.clean_up_until(&zero, every, async {}).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
