//! Bad input, and trouble with the server.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use posthaste::{Admin, Error, ErrorKind, LeaseRequest, Message, RelayId, Store};
use posthaste_mysql::{MySqlOptions, MySqlStore, PartitionPlan};
use posthaste_testkit::{Fault, FaultProxy};
use support::{Database, Fixture, SERVERS, enqueue, everything};

fn lease(relay: RelayId) -> LeaseRequest {
    LeaseRequest { relay, name: "trouble".into(), duration: Duration::from_secs(10), give_back: Vec::new() }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind, says: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error:?}");
    assert!(error.to_string().contains(says), "{error} does not say {says:?}");
    assert!(!format!("{error:?}").contains("sesame"), "the password must not be told: {error:?}");
}

#[tokio::test]
async fn a_wrong_url_says_what_is_wrong() {
    for server in SERVERS {
        let database = Database::new(server).await;
        let user = database.name.replace("posthaste_test_", "pt_")[..30].to_owned();
        database.execute(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'open'")).await;
        let connect = async |url: String| {
            MySqlStore::connect(MySqlOptions::new(url).connect_timeout(Duration::from_secs(2))).await
        };
        refused(
            connect(server.url_of("no_such_database", None)).await,
            ErrorKind::InvalidInput,
            "no_such_database",
        );
        let wrong = server.url_of(&database.name, Some(&format!("{user}:sesame")));
        refused(connect(wrong).await, ErrorKind::PermissionDenied, "refused the user");
        let no_rights = server.url_of(&database.name, Some(&format!("{user}:open")));
        refused(connect(no_rights).await, ErrorKind::PermissionDenied, "this takes");
        let nowhere = "mysql://root@no-such-host.invalid/d".to_owned();
        refused(connect(nowhere).await, ErrorKind::Unavailable, "cannot be reached");
        let closed = "mysql://root@127.0.0.1:1/d".to_owned();
        refused(connect(closed).await, ErrorKind::Unavailable, "cannot be reached");
        refused(connect("mysql://u:sesame@h".to_owned()).await, ErrorKind::InvalidInput, "no database");
        database.execute(&format!("DROP USER '{user}'@'%'")).await;
    }
}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let options = || MySqlOptions::new("mysql://h/d");
    for bad in [
        options().lanes(0),
        options().lanes(1_025),
        options().connections(0),
        options().statement_timeout(Duration::ZERO),
        options().table("a.b.c"),
        options().table(""),
    ] {
        refused(MySqlStore::new(bad), ErrorKind::InvalidInput, "");
    }
}

#[tokio::test]
async fn tables_that_are_missing_or_newer_are_told() {
    for server in SERVERS {
        let fixture = Fixture::with(server, |options| options).await;
        let me = RelayId::random();
        refused(fixture.store.lease(&lease(me)).await, ErrorKind::NotMigrated, "posthaste migrate");
        refused(fixture.store.read(&everything()).await, ErrorKind::NotMigrated, "posthaste migrate");
        let mut conn = fixture.database.client().await;
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        let enqueued = fixture.store.outbox().enqueue(&mut tx, &Message::new("e").payload("1")).await;
        refused(enqueued, ErrorKind::NotMigrated, "posthaste migrate");
        tx.rollback().await.unwrap();
        fixture.store.migrate().await.unwrap();
        fixture.store.lease(&lease(me)).await.unwrap();
        fixture.database.execute("INSERT INTO outbox_migrations (version, name) VALUES (99, 'later')").await;
        refused(fixture.store.lease(&lease(me)).await, ErrorKind::SchemaTooNew, "upgrade");
        refused(fixture.store.migrate().await, ErrorKind::SchemaTooNew, "upgrade");
        refused(fixture.store.pending_migrations().await, ErrorKind::SchemaTooNew, "upgrade");
    }
}

#[tokio::test]
async fn a_table_of_somebody_elses_is_left_alone() {
    for server in SERVERS {
        for create in [
            "CREATE TABLE outbox_migrations (name VARCHAR(10))",
            "CREATE TABLE outbox_inbox (id INT)",
            "CREATE VIEW outbox AS SELECT 1 AS id",
        ] {
            let fixture = Fixture::with(server, |options| options).await;
            fixture.database.execute(create).await;
            refused(fixture.store.migrate().await, ErrorKind::ForeignTable, "choose another name");
            let tables: Vec<String> = fixture.database.values("SHOW TABLES").await;
            assert_eq!(tables.len(), 1, "{server:?} {create}: {tables:?}");
        }
    }
}

/// Every connection of the store is killed under its hands; what it was used for is done again.
#[tokio::test]
async fn killed_connections_are_replaced() {
    for server in SERVERS {
        let fixture = Fixture::migrated(server, |options| options).await;
        let me = RelayId::random();
        fixture.store.lease(&lease(me)).await.unwrap();
        fixture.store.read(&everything()).await.unwrap();
        let others = format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = '{}' AND ID <> CONNECTION_ID()",
            fixture.database.name
        );
        let ids: Vec<u64> = fixture.database.values(&others).await;
        assert!(ids.len() >= 2, "the store has its connections");
        for id in ids {
            fixture.database.execute(&format!("KILL {id}")).await;
        }
        for _ in 0..2 {
            let first = fixture.store.lease(&lease(me)).await;
            if let Err(error) = first {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                fixture.store.lease(&lease(me)).await.unwrap();
            }
            if let Err(error) = fixture.store.read(&everything()).await {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                fixture.store.read(&everything()).await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn every_call_ends_in_time_when_nothing_comes_through() {
    for server in SERVERS {
        let database = Database::new(server).await;
        let proxy = FaultProxy::start(server.address());
        let limit = Duration::from_millis(400);
        let mut options = database.options().statement_timeout(limit).connect_timeout(limit);
        options.url = options.url.replace(&server.address(), &proxy.address().to_string());
        MySqlStore::new(database.options()).unwrap().migrate().await.unwrap();
        let store = MySqlStore::new(options).unwrap();
        let me = RelayId::random();
        store.lease(&lease(me)).await.unwrap();
        store.read(&everything()).await.unwrap();
        proxy.set(Fault::Blackhole);
        for _ in 0..2 {
            let began = tokio::time::Instant::now();
            refused(store.lease(&lease(me)).await, ErrorKind::Unavailable, "in time");
            refused(store.read(&everything()).await, ErrorKind::Unavailable, "in time");
            refused(store.stats(None).await, ErrorKind::Unavailable, "in time");
            assert!(began.elapsed() < Duration::from_secs(20), "within their time, on a busy machine too");
        }
        proxy.heal();
        let mut tries = 0;
        while store.lease(&lease(me)).await.is_err() {
            tries += 1;
            assert!(tries < 20, "it does not come back");
        }
        store.read(&everything()).await.unwrap();
    }
}

#[tokio::test]
async fn a_lock_of_somebody_elses_ends_a_call_in_time() {
    for server in SERVERS {
        let fixture =
            Fixture::migrated(server, |options| options.statement_timeout(Duration::from_secs(1))).await;
        let mut conn = fixture.database.client().await;
        conn.query_drop("START TRANSACTION").await.unwrap();
        conn.query_drop("SELECT * FROM outbox_relay FOR UPDATE").await.unwrap();
        conn.query_drop("SELECT * FROM outbox_lane FOR UPDATE").await.unwrap();
        let me = RelayId::random();
        let blocked = fixture.store.lease(&lease(me)).await;
        match blocked {
            Ok(leases) => assert!(leases.lanes.is_empty(), "locked lanes are left alone"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}"),
        }
        conn.query_drop("ROLLBACK").await.unwrap();
        assert_eq!(fixture.store.lease(&lease(me)).await.unwrap().lanes.len(), 64);
    }
}

#[tokio::test]
async fn names_may_be_reserved_odd_and_long() {
    for server in SERVERS {
        let database = Database::new(server).await;
        let longest = "x".repeat(64);
        for name in ["select", "Order s", "a`b\"c'd", "{outbox}:id", "ünïcode", &longest, "a.b"] {
            let table = format!("{}.`{}`", database.name, name.replace('`', "``"));
            let store = MySqlStore::new(database.options().table(&table)).unwrap();
            store.migrate().await.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            enqueue(&database, &store.outbox(), &[Message::new("e").payload("1").idempotency_key("k")]).await;
            let me = RelayId::random();
            assert_eq!(store.lease(&lease(me)).await.unwrap().lanes.len(), 64, "{name}");
            assert_eq!(store.read(&everything()).await.unwrap().records.len(), 1, "{name}");
            assert_eq!(store.stats(None).await.unwrap().ready.count, 1, "{name}");
            assert!(store.migrate().await.unwrap().is_empty(), "{name}");
            let plan = PartitionPlan::new(posthaste_mysql::Partition::Day);
            refused(store.maintain_partitions(&plan).await, ErrorKind::InvalidInput, "not partitioned");
            let mut conn = database.client().await;
            let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
            assert!(store.inbox().first_time(&mut tx, "c", "m").await.unwrap());
            assert!(!store.inbox().first_time(&mut tx, "c", "m").await.unwrap());
            let long = "x".repeat(129);
            refused(store.inbox().first_time(&mut tx, &long, "m").await, ErrorKind::InvalidInput, "128");
            tx.commit().await.unwrap();
        }
    }
}

/// A session that is set to cut off what is too long, in another time zone, changes nothing.
#[tokio::test]
async fn a_producers_session_may_be_set_up_in_any_way() {
    for server in SERVERS {
        let fixture = Fixture::migrated(server, |options| options).await;
        let mut conn = fixture.database.client().await;
        let settings =
            "SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT', time_zone = '+13:00'";
        conn.query_drop(settings).await.unwrap();
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        let text = "it's \\ \"ü🦀\"";
        let message = Message::new(text).aggregate(text, text).header(text, text).payload(text);
        let delayed = Message::new("delayed").payload("1").delay(Duration::from_hours(1));
        fixture.store.outbox().enqueue_all(&mut tx, &[message.clone(), delayed.clone()]).await.unwrap();
        tx.commit().await.unwrap();
        let records = fixture.store.read(&everything()).await.unwrap().records;
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].event_type, text);
        assert_eq!((records[0].aggregate.aggregate_id(), records[0].headers[text].as_str()), (text, text));
        assert_eq!(records[0].payload.as_deref(), Some(text.as_bytes()));
        let info = fixture.store.show(delayed.id()).await.unwrap().unwrap().info;
        let wait = info.next_attempt_at.unwrap().duration_since(info.enqueued_at).unwrap();
        assert!(wait >= Duration::from_mins(60) && wait < Duration::from_mins(61), "{wait:?}");
    }
}

/// The server makes a certificate of its own, which nobody else vouches for.
#[tokio::test]
async fn connections_are_encrypted_and_certificates_checked_as_asked() {
    let database = Database::new(support::Server::MySql).await;
    let with = |mode: &str| {
        let mut options = database.options();
        options.url = format!("{}?ssl-mode={mode}", options.url);
        options
    };
    let cipher = async |mode: &str| {
        let store = MySqlStore::connect(with(mode)).await.unwrap();
        let mut conn = store.client().await.unwrap();
        let row: (String, String) = conn.query_first("SHOW STATUS LIKE 'Ssl_cipher'").await.unwrap().unwrap();
        row.1
    };
    assert_eq!(cipher("disabled").await, "");
    assert_ne!(cipher("required").await, "");
    for mode in ["verify_ca", "verify_identity"] {
        refused(MySqlStore::connect(with(mode)).await, ErrorKind::Unavailable, "certificate");
    }
}
