//! Bad input, and trouble with the server.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use posthaste::tokio_postgres_0_7::Prepared;
use posthaste::{Admin, Error, ErrorKind, LeaseRequest, Message, RelayId, Store};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use posthaste_testkit::{Fault, FaultProxy};
use support::{PostgresFixture, Schema, all_lanes, server_url};

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

/// Enqueues one message with a connection of the test's own.
async fn enqueue(fixture: &PostgresFixture, message: &Message) -> Result<(), Error> {
    let mut client = support::client().await.unwrap();
    let tx = client.transaction().await.unwrap();
    fixture.store.outbox().enqueue(&tx, message).await?;
    tx.commit().await.unwrap();
    Ok(())
}

#[tokio::test]
async fn a_wrong_url_says_what_is_wrong() {
    let Some(schema) = Schema::new().await else { return };
    let connect =
        |url: &str| PostgresStore::connect(PostgresOptions::new(url).connect_timeout(Duration::from_secs(2)));
    let role = schema.name.replace("posthaste_test", "role");
    schema.execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'open'")).await;
    let no_database = &format!("postgres://postgres@{}/no_such_database", support::address());
    refused(connect(no_database).await, ErrorKind::InvalidInput, "no_such_database");
    refused(connect(&support::url_as("nobody")).await, ErrorKind::PermissionDenied, "refused the user");
    refused(
        connect("postgres://postgres@no-such-host.invalid/test").await,
        ErrorKind::Unavailable,
        "cannot be reached",
    );
    refused(
        connect("postgres://postgres@127.0.0.1:1/test").await,
        ErrorKind::Unavailable,
        "cannot be reached",
    );
    refused(
        connect("postgres://u:sesame@127.0.0.1:5432/test?sslmode=certainly").await,
        ErrorKind::InvalidInput,
        "sslmode",
    );
    refused(connect("postgres:///test").await, ErrorKind::InvalidInput, "no host");
    refused(connect("mysql://127.0.0.1/test").await, ErrorKind::InvalidInput, "URL");
    schema.execute(&format!("DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_setting_that_makes_no_sense_is_refused() {
    let new = |options: PostgresOptions| PostgresStore::new(options);
    let options = || PostgresOptions::new("postgres://h/d");
    refused(new(options().table("")), ErrorKind::InvalidInput, "empty");
    refused(new(options().table("x".repeat(64))), ErrorKind::InvalidInput, "63 bytes");
    refused(new(options().lanes(0)), ErrorKind::InvalidInput, "lanes");
    refused(new(options().connections(0)), ErrorKind::InvalidInput, "connections");
    refused(new(options().statement_timeout(Duration::ZERO)), ErrorKind::InvalidInput, "timeout");
}

#[tokio::test]
async fn a_table_that_is_not_ours_is_left_alone() {
    let Some(fixture) = PostgresFixture::with(|options| options).await else { return };
    fixture.schema.execute("CREATE TABLE {}outbox (id int)").await;
    refused(fixture.store.migrate().await, ErrorKind::ForeignTable, "another name");
    refused(fixture.store.pending_migrations().await, ErrorKind::ForeignTable, "another name");
    fixture.schema.execute("CREATE TABLE {}outbox_migrations (id int)").await;
    refused(fixture.store.migrate().await, ErrorKind::ForeignTable, "another name");
    let count: i64 = fixture
        .schema
        .value("SELECT count(*) FROM information_schema.columns WHERE table_schema = 'x'")
        .await;
    assert_eq!(count, 0);
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    fixture
        .schema
        .execute("INSERT INTO {}outbox_migrations (version, name) VALUES (99, 'from the future')")
        .await;
    refused(fixture.store.lease(&lease(RelayId::random())).await, ErrorKind::SchemaTooNew, "99");
    refused(fixture.store.migrate().await, ErrorKind::SchemaTooNew, "99");
    refused(fixture.store.pending_migrations().await, ErrorKind::SchemaTooNew, "99");
}

#[tokio::test]
async fn a_relay_without_tables_is_told_to_migrate() {
    let Some(fixture) = PostgresFixture::with(|options| options).await else { return };
    refused(
        fixture.store.lease(&lease(RelayId::random())).await,
        ErrorKind::NotMigrated,
        "posthaste migrate",
    );
    let Some(missing) = PostgresFixture::with(|options| options.table("no_such_schema.outbox")).await else {
        return;
    };
    refused(missing.store.read(&all_lanes()).await, ErrorKind::NotMigrated, "posthaste migrate");
}

#[tokio::test]
async fn names_of_every_kind_are_migrated_and_used() {
    let long = "ü".repeat(31);
    for table in
        ["select", "My \"Table\"", "with space", "Ünïcode", "a'b", "{outbox}", "a\\b", &"x".repeat(63), &long]
    {
        let Some(schema) = Schema::new().await else { return };
        let quoted = format!("{}.\"{}\"", schema.name, table.replace('"', "\"\""));
        let store = PostgresStore::new(schema.options().table(quoted.as_str()).wake_trigger(true)).unwrap();
        store.migrate().await.unwrap();
        assert!(store.pending_migrations().await.unwrap().is_empty(), "{table}");
        let mut client = support::client().await.unwrap();
        let tx = client.transaction().await.unwrap();
        store.outbox().enqueue(&tx, &Message::new("e").idempotency_key("k")).await.unwrap();
        assert!(store.inbox().first_time(&tx, "c", "1").await.unwrap());
        tx.commit().await.unwrap();
        store.lease(&lease(RelayId::random())).await.unwrap();
        assert_eq!(store.read(&all_lanes()).await.unwrap().records.len(), 1, "{table}");
        let made: String = schema.value(&format!("SELECT string_agg(relname, ',') FROM pg_class WHERE relnamespace = '{}'::regnamespace AND relkind = 'r'", schema.name)).await;
        assert_eq!(made.split(',').count(), 7, "{made}");
    }
}

#[tokio::test]
async fn the_schema_is_made_if_it_is_missing() {
    let Some(schema) = Schema::new().await else { return };
    let name = format!("{}_x", schema.name);
    let store = PostgresStore::new(PostgresOptions::new(format!("{}?schema={name}", server_url()))).unwrap();
    assert_eq!(store.migrate().await.unwrap().len(), 2);
    schema.execute(&format!("DROP SCHEMA {name} CASCADE")).await;
}

#[tokio::test]
async fn sequences_may_go_beyond_32_bits() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    fixture.schema.execute("ALTER TABLE {}outbox ALTER seq RESTART WITH 9223372036854775800").await;
    enqueue(&fixture, &Message::new("e").aggregate("a", 1)).await.unwrap();
    let page = fixture.store.read(&all_lanes()).await.unwrap();
    assert_eq!(page.records[0].position.major, 9_223_372_036_854_775_800);
}

#[tokio::test]
async fn a_plain_insert_is_a_complete_message() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    fixture.schema.execute("INSERT INTO {}outbox (event_type) VALUES ('bare')").await;
    fixture
        .schema
        .execute(
            "INSERT INTO {}outbox (event_type, aggregate_type, aggregate_id, payload, headers)
                  VALUES ('full', 'order', '7', 'bytes', '{\"n\": 1, \"t\": \"x\"}')",
        )
        .await;
    let records = fixture.store.read(&all_lanes()).await.unwrap().records;
    assert_eq!(records.len(), 2);
    for record in &records {
        assert!(posthaste::MessageId::new(*record.id.as_uuid()).is_ok(), "{} is no UUID v7", record.id);
    }
    let full = records.iter().find(|record| record.event_type == "full").unwrap();
    assert_eq!(full.headers["n"], "1");
    for bad in [
        "(event_type) VALUES ('')",
        "(event_type, aggregate_id) VALUES ('e', '7')",
        "(event_type, id) VALUES ('e', gen_random_uuid())",
        "(event_type, headers) VALUES ('e', '[]')",
        "(event_type, seq) VALUES ('e', 1)",
        "(event_type, status) VALUES ('e', 7)",
    ] {
        let sql = fixture.schema.named(&format!("INSERT INTO {{}}outbox {bad}"));
        assert!(fixture.schema.client.batch_execute(&sql).await.is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_blackholed_connection_is_given_up_in_time_and_replaced() {
    let Some(schema) = Schema::new().await else { return };
    let proxy = FaultProxy::start(support::address());
    let options = PostgresOptions::new(support::url_by(&proxy))
        .table(schema.table())
        .statement_timeout(Duration::from_millis(500));
    let store = PostgresStore::new(options.connect_timeout(Duration::from_millis(500))).unwrap();
    store.migrate().await.unwrap();
    let relay = RelayId::random();
    store.lease(&lease(relay)).await.unwrap();
    store.read(&all_lanes()).await.unwrap();
    proxy.set(Fault::Blackhole);
    let began = tokio::time::Instant::now();
    refused(store.read(&all_lanes()).await, ErrorKind::Unavailable, "in time");
    refused(store.lease(&lease(relay)).await, ErrorKind::Unavailable, "in time");
    refused(store.leave(relay).await, ErrorKind::Unavailable, "in time");
    refused(store.stats(None).await, ErrorKind::Unavailable, "in time");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    proxy.heal();
    eventually(|| async { store.read(&all_lanes()).await }).await;
    eventually(|| async { store.lease(&lease(relay)).await }).await;
}

/// Asks until it works.
async fn eventually<T, F: Future<Output = Result<T, Error>>>(ask: impl Fn() -> F) -> T {
    for _ in 0..100 {
        match ask().await {
            Ok(value) => return value,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Database), "{error:?}");
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not come back");
}

#[tokio::test]
async fn a_connection_that_breaks_is_replaced() {
    let Some(schema) = Schema::new().await else { return };
    let proxy = FaultProxy::start(support::address());
    let options = PostgresOptions::new(support::url_by(&proxy)).table(schema.table());
    let store = PostgresStore::new(options).unwrap();
    store.migrate().await.unwrap();
    let relay = RelayId::random();
    for _ in 0..3 {
        store.lease(&lease(relay)).await.unwrap();
        proxy.set(Fault::Reset);
        assert!(store.lease(&lease(relay)).await.is_err());
        proxy.heal();
        let leases = eventually(|| async { store.lease(&lease(relay)).await }).await;
        assert_eq!(leases.lanes.len(), 64, "the lanes are still held");
        assert!(leases.lanes.iter().all(|lease| lease.token == 1 && !lease.from_expired));
    }
}

#[tokio::test]
async fn sessions_that_are_killed_are_replaced() {
    let Some(schema) = Schema::new().await else { return };
    let name = schema.name.clone();
    let options =
        PostgresOptions::new(format!("{}?application_name={name}", server_url())).table(schema.table());
    let store = PostgresStore::new(options).unwrap();
    store.migrate().await.unwrap();
    let kill = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '{name}'"
    );
    let relay = RelayId::random();
    for _ in 0..5 {
        eventually(|| async { store.read(&all_lanes()).await }).await;
        eventually(|| async { store.lease(&lease(relay)).await }).await;
        let killed: i64 = schema.value(&kill).await;
        assert!(killed >= 2, "{killed}");
    }
    assert_eq!(eventually(|| async { store.lease(&lease(relay)).await }).await.lanes.len(), 64);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_read_only_and_recovers() {
    let Some(schema) = Schema::new().await else { return };
    let store = PostgresStore::new(schema.options()).unwrap();
    store.migrate().await.unwrap();
    let role = schema.name.replace("posthaste_test", "ro");
    schema
        .execute(&format!(
            "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET default_transaction_read_only = on"
        ))
        .await;
    let url = support::url_as(&role);
    let standby = PostgresStore::new(PostgresOptions::new(url).table(schema.table())).unwrap();
    let relay = RelayId::random();
    refused(standby.lease(&lease(relay)).await, ErrorKind::ReadOnly, "standby");
    schema.execute(&format!("ALTER ROLE {role} SET default_transaction_read_only = off")).await;
    // The connection was discarded, so the next one is of the server that takes writes again.
    standby.lease(&lease(relay)).await.unwrap();
    drop(standby);
    schema.execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
}

#[tokio::test]
async fn a_statement_that_waits_too_long_for_a_lock_is_given_up() {
    let Some(schema) = Schema::new().await else { return };
    let store = PostgresStore::new(schema.options().statement_timeout(Duration::from_millis(300))).unwrap();
    store.migrate().await.unwrap();
    let relay = RelayId::random();
    store.lease(&lease(relay)).await.unwrap();
    schema.execute("BEGIN; LOCK TABLE {}outbox_lane").await;
    let error = store.lease(&lease(relay)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    schema.execute("ROLLBACK").await;
    eventually(|| async { store.lease(&lease(relay)).await }).await;
}

#[tokio::test]
async fn the_isolation_is_ours_whatever_the_default() {
    let Some(schema) = Schema::new().await else { return };
    for isolation in ["serializable", "repeatable read"] {
        let role = format!("{}{}", schema.name.replace("posthaste_test", "iso"), isolation.len());
        schema.execute(&format!("CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET default_transaction_isolation = '{isolation}'")).await;
        let url = support::url_as(&role);
        let store = PostgresStore::new(PostgresOptions::new(url).table(schema.table())).unwrap();
        store.migrate().await.unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let store = store.clone();
                tokio::spawn(async move {
                    for _ in 0..10 {
                        store.lease(&lease(RelayId::random())).await.unwrap();
                        store.read(&all_lanes()).await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        drop(store);
        schema
            .execute(&format!("REASSIGN OWNED BY {role} TO postgres; DROP OWNED BY {role}; DROP ROLE {role}"))
            .await;
    }
}

#[tokio::test]
async fn a_business_transaction_of_any_isolation_enqueues_and_learns_of_conflicts() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    fixture.schema.execute("CREATE TABLE {}stock (n int); INSERT INTO {}stock VALUES (0)").await;
    let update = fixture.schema.named("UPDATE {}stock SET n = n + 1");
    for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let (mut a, mut b) = (support::client().await.unwrap(), support::client().await.unwrap());
        for client in [&a, &b] {
            client
                .batch_execute(&format!(
                    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {isolation}"
                ))
                .await
                .unwrap();
        }
        let (a, b) = (a.transaction().await.unwrap(), b.transaction().await.unwrap());
        let outbox = fixture.store.outbox();
        let key = || Message::new("e").idempotency_key(isolation);
        b.query("SELECT 1", &[]).await.unwrap();
        b.query(&fixture.schema.named("SELECT * FROM {}stock"), &[]).await.unwrap();
        a.batch_execute(&update).await.unwrap();
        outbox.enqueue(&a, &key()).await.unwrap();
        a.commit().await.unwrap();
        let result = outbox.enqueue(&b, &key()).await.map(|receipt| receipt.id());
        let expected =
            if isolation == "READ COMMITTED" { ErrorKind::DuplicateKey } else { ErrorKind::Conflict };
        assert_eq!(result.unwrap_err().kind(), expected, "{isolation}");
    }
    assert_eq!(fixture.store.read(&all_lanes()).await.unwrap().records.len(), 3);
}

#[tokio::test]
async fn one_connection_is_enough() {
    let Some(fixture) = PostgresFixture::migrated(|options| options.connections(1).wake(false)).await else {
        return;
    };
    enqueue(&fixture, &Message::new("e")).await.unwrap();
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let store = fixture.store.clone();
            tokio::spawn(async move {
                store.lease(&lease(RelayId::random())).await.unwrap();
                store.read(&all_lanes()).await.unwrap();
                store.stats(Some(10)).await.unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Debian's server comes with a certificate that nobody has signed.
#[tokio::test]
async fn tls_is_used_and_checked_as_sslmode_says() {
    let Some(schema) = Schema::new().await else { return };
    let on: String = schema.value("SHOW ssl").await;
    let connect = |mode: &str| {
        let url =
            format!("{}?sslmode={mode}&application_name={}", support::url_as("postgres"), &schema.name[15..]);
        PostgresStore::connect(PostgresOptions::new(url))
    };
    if on != "on" {
        refused(connect("require").await, ErrorKind::Database, "");
        eprintln!("SKIPPED: the server has no TLS");
        return;
    }
    for (mode, encrypted) in [("disable", false), ("allow", false), ("prefer", true), ("require", true)] {
        let store = connect(mode).await.unwrap();
        let ssl: bool = schema
            .value(&format!(
                "SELECT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = '{}'",
                &schema.name[15..]
            ))
            .await;
        assert_eq!(ssl, encrypted, "{mode}");
        drop(store);
        let gone = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'",
            &schema.name[15..]
        );
        while schema.value::<i64>(&gone).await > 0 {
            tokio::task::yield_now().await;
        }
    }
    let (own, another) = ("/etc/ssl/certs/ssl-cert-snakeoil.pem", "/etc/ssl/certs/ISRG_Root_X1.pem");
    if ![own, another].iter().all(|file| std::path::Path::new(file).exists()) {
        eprintln!("SKIPPED: no certificates to check with");
        return;
    }
    let with = |mode: &str, root: &str| connect(&format!("{mode}&sslrootcert={root}"));
    with("verify-ca", own).await.unwrap();
    for (mode, root) in
        [("verify-full", own), ("verify-ca", another), ("verify-full", another), ("require", another)]
    {
        let error = with(mode, root).await.unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Database | ErrorKind::Unavailable),
            "{mode} {root}: {error:?}"
        );
    }
}

#[tokio::test]
async fn prepared_statements_enqueue_the_same() {
    let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
    let mut client = support::client().await.unwrap();
    let outbox = fixture.store.outbox();
    let prepared = Prepared::new(&client, &outbox).await.unwrap();
    let tx = client.transaction().await.unwrap();
    let first =
        Message::new("first").aggregate("a", 1).payload("x").header("h", "v").delay(Duration::from_millis(1));
    let id = outbox.enqueue(prepared.on(&tx), &first).await.unwrap().id();
    outbox.enqueue(prepared.on(&tx), &Message::new("keyed").idempotency_key("k")).await.unwrap();
    let again = outbox.enqueue(prepared.on(&tx), &Message::new("keyed").idempotency_key("k")).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::DuplicateKey);
    let again = outbox.enqueue(prepared.on(&tx), &Message::new("other").with_id(id)).await;
    assert_eq!(again.unwrap_err().kind(), ErrorKind::DuplicateId);
    tx.commit().await.unwrap();
    assert_eq!(
        fixture
            .store
            .list(&posthaste::ListFilter { state: None, event_type: None, limit: 9 })
            .await
            .unwrap()
            .len(),
        2
    );
}
