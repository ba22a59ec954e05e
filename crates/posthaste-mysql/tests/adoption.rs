//! A table that velmie/outbox made becomes an outbox of ours, and both kinds of producers go on writing into it.
#![allow(clippy::unwrap_used, reason = "all of it is tests")]

mod support;

use std::time::Duration;

use mysql_async::TxOpts;
use posthaste::{
    Admin, ErrorKind, LeaseRequest, Message, MessageId, Outcome, Record, RecordRef, RelayId, SettleRequest,
    Settlement, State, Store,
};
use posthaste_mysql::MySqlStore;
use support::{Database, Fixture, SERVERS, Server, enqueue, everything};

/// As its documentation says.
fn table(payload: &str, is_scheduled: bool, is_partitioned: bool, server: Server) -> String {
    // On MariaDB, which takes no generated column in a primary key, the nearest thing to it.
    let (created_ts, key) = match server {
        Server::MySql => (
            "created_ts BIGINT GENERATED ALWAYS AS (CONV(SUBSTR(HEX(id), 1, 12), 16, 10) DIV 1000) STORED",
            "PRIMARY KEY (id, created_ts)",
        ),
        Server::MariaDb => (
            "created_ts BIGINT NOT NULL DEFAULT (CONV(SUBSTR(HEX(id), 1, 12), 16, 10) DIV 1000)",
            "PRIMARY KEY (id, created_ts)",
        ),
    };
    let scheduled = if is_scheduled { "next_attempt_at DATETIME(6) NULL," } else { "" };
    let index =
        if is_scheduled { ", INDEX idx_status_next_attempt_id (status, next_attempt_at, id)" } else { "" };
    let partitions = if is_partitioned {
        "PARTITION BY RANGE (created_ts) (PARTITION p2020 VALUES LESS THAN (1600000000), \
         PARTITION pmax VALUES LESS THAN (MAXVALUE))"
    } else {
        ""
    };
    format!(
        "CREATE TABLE outbox (id BINARY(16) NOT NULL, aggregate_type VARCHAR(128) NOT NULL, \
         aggregate_id VARCHAR(128) NOT NULL, event_type VARCHAR(128) NOT NULL, payload {payload} NOT NULL, \
         headers JSON NULL, status SMALLINT NOT NULL DEFAULT 0, attempt_count INT NOT NULL DEFAULT 0, \
         last_error VARCHAR(1024) NULL, created_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), \
         updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6), \
         processed_at TIMESTAMP(6) NULL, {created_ts}, {scheduled} {key}, INDEX idx_status_id (status, id){index}) \
         ENGINE=InnoDB {partitions}"
    )
}

/// As its producer writes.
async fn insert(database: &Database, key: &str, event_type: &str) -> MessageId {
    let id = MessageId::generate();
    let insert = format!(
        "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers) \
         VALUES (UNHEX('{}'), 'order', '{key}', '{event_type}', '{{\"n\": 1}}', '{{\"trace\": \"t\"}}')",
        id.as_uuid().simple()
    );
    database.execute(&insert).await;
    id
}

async fn read(store: &MySqlStore) -> Vec<Record> {
    store.read(&everything()).await.unwrap().records
}

fn types(records: &[Record]) -> Vec<&str> {
    let mut records: Vec<_> = records.iter().collect();
    records.sort_by_key(|record| record.position);
    records.iter().map(|record| record.event_type.as_str()).collect()
}

/// Settles everything that can be read.
async fn settle_all(store: &MySqlStore, outcome: Outcome) -> usize {
    let relay = RelayId::random();
    let lease =
        LeaseRequest { relay, name: String::new(), duration: Duration::from_mins(1), give_back: Vec::new() };
    let leases = store.lease(&lease).await.unwrap();
    let token = |record: &Record| leases.lanes.iter().find(|lease| lease.lane == record.lane).unwrap().token;
    let settlements = read(store).await;
    let settlements = settlements.iter().map(|record| Settlement {
        record: RecordRef {
            id: record.id,
            position: record.position,
            lane: record.lane,
            token: token(record),
        },
        outcome: outcome.clone(),
    });
    let request = SettleRequest { relay, delete_processed: false, settlements: settlements.collect() };
    let report = store.settle(&request).await.unwrap();
    store.leave(relay).await.unwrap();
    report.applied
}

#[tokio::test]
async fn every_variant_is_completed_and_serves_both_kinds_of_producers() {
    for server in SERVERS {
        for (payload, is_scheduled, is_partitioned) in [
            ("JSON", false, false),
            ("LONGBLOB", false, true),
            ("JSON", true, true),
            ("LONGBLOB", true, false),
        ] {
            let variant = format!("{server:?} {payload} {is_scheduled} {is_partitioned}");
            let database = Database::new(server).await;
            database.execute(&table(payload, is_scheduled, is_partitioned, server)).await;
            insert(&database, "7", "before").await;
            let store = MySqlStore::new(database.options()).unwrap();
            assert_eq!(store.pending_migrations().await.unwrap().len(), 2, "{variant}");
            let changes = store.changes_to_adopt().await.unwrap();
            let copies = changes.iter().filter(|it| it.contains("copies the whole table")).count();
            assert_eq!(
                copies,
                usize::from(server == Server::MariaDb && is_partitioned),
                "{variant}: {changes:?}"
            );
            let all = if is_scheduled { 8 } else { 9 };
            assert_eq!(changes.len(), all - copies, "{variant}: {changes:?}");
            store.migrate().await.unwrap();
            assert!(store.changes_to_adopt().await.unwrap().is_empty(), "{variant}");
            assert!(store.migrate().await.unwrap().is_empty(), "{variant}");

            let ours = Message::new("ours").aggregate("order", 7).json(&1).unwrap().idempotency_key("k");
            enqueue(&database, &store.outbox(), &[ours, Message::new("tombstone").aggregate("order", 7)])
                .await;
            insert(&database, "7", "after").await;
            let records = read(&store).await;
            assert_eq!(types(&records), ["before", "ours", "tombstone", "after"], "{variant}");
            let before = records.iter().find(|record| record.event_type == "before").unwrap();
            assert_eq!(before.headers["trace"], "t", "{variant}");
            assert_eq!(before.payload.as_deref(), Some(&b"{\"n\": 1}"[..]), "{variant}");
            assert_eq!(records.iter().find(|it| it.event_type == "tombstone").unwrap().payload, None);
            assert_eq!(settle_all(&store, Outcome::Processed).await, 4, "{variant}");
            let left: u64 =
                database.value("SELECT COUNT(*) FROM outbox WHERE status <> 1 OR processed_at IS NULL").await;
            assert_eq!(left, 0, "{variant}");
        }
    }
}

/// Its relay leaves `next_attempt_at` where it was, on what it gave up and on what it has delivered.
#[tokio::test]
async fn what_its_relay_left_behind_holds_back_nobody() {
    for server in SERVERS {
        let database = Database::new(server).await;
        database.execute(&table("JSON", true, false, server)).await;
        let ids = [insert(&database, "7", "dead").await, insert(&database, "7", "done").await];
        database.execute("UPDATE outbox SET next_attempt_at = UTC_TIMESTAMP(6), attempt_count = 5").await;
        database.execute("UPDATE outbox SET status = -1, last_error = 'no' WHERE event_type = 'dead'").await;
        database
            .execute("UPDATE outbox SET status = 1, processed_at = NOW(6) WHERE event_type = 'done'")
            .await;
        insert(&database, "7", "next").await;
        let store = MySqlStore::new(database.options()).unwrap();
        store.migrate().await.unwrap();
        assert_eq!(types(&read(&store).await), ["next"]);
        let dead = store.show(ids[0]).await.unwrap().unwrap().info;
        assert_eq!((dead.state, dead.attempts, dead.last_error.as_deref()), (State::Dead, 5, Some("no")));
        assert!(dead.settled_at.is_some(), "the last change of the row stands for it");
        let waiting = insert(&database, "8", "waiting").await;
        let wait = "UPDATE outbox SET next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE event_type = 'waiting'";
        database.execute(wait).await;
        insert(&database, "8", "behind").await;
        assert_eq!(types(&read(&store).await), ["next"], "a retry that waits holds back its key");
        assert_eq!(store.show(waiting).await.unwrap().unwrap().info.state, State::Waiting);
    }
}

/// A lane or a token that is written outside of the transaction would let two relays publish at once.
#[tokio::test]
async fn side_tables_without_transactions_are_refused() {
    for server in SERVERS {
        for side in ["lane", "relay", "key", "inbox", "migrations"] {
            let fixture = Fixture::migrated(server, |options| options).await;
            fixture.database.execute(&format!("ALTER TABLE outbox_{side} ENGINE=MyISAM")).await;
            let error = MySqlStore::connect(fixture.database.options()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ForeignTable, "{server:?} {side}: {error}");
            assert!(error.to_string().contains(&format!("outbox_{side}` is MyISAM")), "{error}");
            let store = MySqlStore::new(fixture.database.options()).unwrap();
            assert_eq!(store.migrate().await.unwrap_err().kind(), ErrorKind::ForeignTable, "{side}");
        }
    }
}

/// Two keys whose hashes are the same share a lane and a place in the index of what is held back, and nothing else.
#[tokio::test]
async fn keys_of_the_same_hash_do_not_hold_each_other_back() {
    for server in SERVERS {
        let fixture = Fixture::migrated(server, |options| options).await;
        let same: bool = fixture.database.value("SELECT CRC32('plumless') = CRC32('buckeroo')").await;
        assert!(same, "they are chosen so");
        let message = |event: &str, key: &str| Message::new(event).aggregate("order", key).payload("1");
        let messages = [
            message("waits", "plumless").delay(Duration::from_hours(1)),
            message("behind", "plumless"),
            message("free", "buckeroo"),
        ];
        enqueue(&fixture.database, &fixture.store.outbox(), &messages).await;
        let records = read(&fixture.store).await;
        assert_eq!(types(&records), ["free"], "{server:?}");
        let lanes: Vec<u16> = fixture.database.values("SELECT DISTINCT lane FROM outbox").await;
        assert_eq!(lanes, [records[0].lane.0], "{server:?}: one lane");
        // And the other way round: both wait, and each lets its own go.
        fixture
            .database
            .execute("UPDATE outbox SET next_attempt_at = UTC_TIMESTAMP(6) WHERE event_type = 'free'")
            .await;
        enqueue(&fixture.database, &fixture.store.outbox(), &[message("next", "buckeroo")]).await;
        assert_eq!(
            types(&read(&fixture.store).await),
            ["free"],
            "{server:?}: due again, and holds back its own key"
        );
    }
}

/// Keys that a collation makes equal are different ones.
#[tokio::test]
async fn keys_are_compared_as_bytes_whatever_the_collation() {
    for server in SERVERS {
        let database = Database::new(server).await;
        database.execute(&table("JSON", true, false, server)).await;
        let store = MySqlStore::new(database.options()).unwrap();
        store.migrate().await.unwrap();
        insert(&database, "a", "waits").await;
        database.execute("UPDATE outbox SET next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR").await;
        for key in ["a", "A", "a ", "ä"] {
            insert(&database, key, &format!("of {key:?}")).await;
        }
        assert_eq!(types(&read(&store).await), ["of \"A\"", "of \"a \"", "of \"ä\""]);
    }
}

#[tokio::test]
async fn what_is_no_outbox_is_refused_and_left_alone() {
    for server in SERVERS {
        let good = table("JSON", false, false, server);
        let cases = [
            ("CREATE TABLE outbox (id INT PRIMARY KEY)".to_owned(), "id is int"),
            (good.replace("attempt_count INT NOT NULL DEFAULT 0,", ""), "attempt_count"),
            (good.replace("ENGINE=InnoDB", "ENGINE=MyISAM"), "InnoDB"),
            (
                good.replace(
                    "created_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
                    "created_at DATETIME",
                ),
                "created_at",
            ),
        ];
        for (create, named) in cases {
            let database = Database::new(server).await;
            database.execute(&create).await;
            let store = MySqlStore::new(database.options()).unwrap();
            let connected = MySqlStore::connect(database.options()).await;
            for error in [store.migrate().await.unwrap_err(), connected.unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::ForeignTable, "{server:?} {create}");
                assert!(error.to_string().contains(named), "{error}");
            }
            let tables: Vec<String> = database.values("SHOW TABLES").await;
            assert_eq!(tables, ["outbox"], "nothing was made beside it");
        }
    }
}

/// DDL is no part of a transaction: wherever a migration is cut off, the next one completes it.
#[tokio::test]
async fn a_migration_that_was_cut_off_is_completed() {
    for server in SERVERS {
        let whole = Database::new(server).await;
        let store = MySqlStore::new(whole.options()).unwrap();
        let script = store.migration_sql().iter().map(|it| it.sql.clone()).collect::<String>();
        let statements: Vec<_> =
            script.split(";\n").filter(|it| it.contains("TABLE") || it.contains("INSERT")).collect();
        for done in 0..statements.len() {
            let database = Database::new(server).await;
            for statement in &statements[..done] {
                database.execute(statement).await;
            }
            let store = MySqlStore::new(database.options()).unwrap();
            store.migrate().await.unwrap_or_else(|error| panic!("{server:?} after {done}: {error:?}"));
            assert!(store.pending_migrations().await.unwrap().is_empty());
            enqueue(&database, &store.outbox(), &[Message::new("e").payload("1")]).await;
            assert_eq!(settle_all(&store, Outcome::Processed).await, 1);
        }
        // Half of the columns are there already.
        let database = Database::new(server).await;
        database.execute(&table("JSON", true, false, server)).await;
        let store = MySqlStore::new(database.options()).unwrap();
        for change in &store.changes_to_adopt().await.unwrap()[..5] {
            database.execute(&format!("ALTER TABLE outbox {change}")).await;
        }
        assert_eq!(store.changes_to_adopt().await.unwrap().len(), 3);
        store.migrate().await.unwrap();
        enqueue(&database, &store.outbox(), &[Message::new("e").payload("1")]).await;
        assert_eq!(settle_all(&store, Outcome::Processed).await, 1);
    }
}

/// Two producers of ours and of velmie's in one transaction each keep their order, whatever the clocks in their ids say.
#[tokio::test]
async fn order_is_that_of_the_server() {
    for server in SERVERS {
        let database = Database::new(server).await;
        database.execute(&table("JSON", false, false, server)).await;
        let store = MySqlStore::new(database.options()).unwrap();
        store.migrate().await.unwrap();
        // Made by a producer whose clock is years ahead.
        database
            .execute(
                "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES \
             (UNHEX('0FFFFFFFFFFF7000800000000000000A'), 'order', '7', 'first', '1')",
            )
            .await;
        insert(&database, "7", "second").await;
        let mut conn = database.client().await;
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        store
            .outbox()
            .enqueue(&mut tx, &Message::new("third").aggregate("order", 7).payload("1"))
            .await
            .unwrap();
        tx.commit().await.unwrap();
        assert_eq!(types(&read(&store).await), ["first", "second", "third"]);
    }
}
