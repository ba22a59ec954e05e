//! What has gone wrong elsewhere, in outboxes and queues on PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use posthaste::{Admin, Error, Message, Relay, RelayHandle, Store, Summary};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use posthaste_testkit::{Gate, ScriptedPublisher, Step};
use support::{PostgresFixture, Schema, server_url, until};
use tokio::task::JoinHandle;

async fn enqueue(store: &PostgresStore, messages: &[Message]) {
    let mut client = support::client().await.unwrap();
    let tx = client.transaction().await.unwrap();
    store.outbox().enqueue_all(&tx, messages).await.unwrap();
    tx.commit().await.unwrap();
}

fn start(
    store: &PostgresStore,
    publisher: ScriptedPublisher,
) -> (RelayHandle, JoinHandle<Result<Summary, Error>>) {
    let relay = Relay::builder(Arc::new(store.clone())).publisher(publisher).build().unwrap();
    let handle = relay.handle();
    (handle, tokio::spawn(relay.run_until(std::future::pending())))
}

/// Whoever waits for "every transaction that began before" waits for sessions that have nothing to do with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_elsewhere_that_never_ends_holds_up_nothing() {
    let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
    fixture.schema.execute("CREATE TABLE {}other (n int)").await;
    let strangers = support::client().await.unwrap();
    let begin =
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id(); INSERT INTO {}other VALUES (1)";
    strangers.batch_execute(&fixture.schema.named(begin)).await.unwrap();
    let (handle, task) = start(&fixture.store, ScriptedPublisher::default());
    for n in 0..5_u64 {
        let messages: Vec<_> = (0..20).map(|key| Message::new("e").aggregate("k", key)).collect();
        enqueue(&fixture.store, &messages).await;
        until("all is published", async || handle.summary().published == (n + 1) * 20).await;
    }
    handle.stop();
    task.await.unwrap().unwrap();
    strangers.batch_execute("ROLLBACK").await.unwrap();
}

/// While a destination takes its time, no session of the relay is in a transaction: nothing is locked, and vacuum is not
/// held back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_transaction_is_open_while_publishing() {
    let Some(schema) = Schema::new().await else { return };
    let name = schema.name[15..].to_owned();
    let url = format!("{}?application_name={name}", server_url());
    let store = PostgresStore::new(PostgresOptions::new(url).table(schema.table())).unwrap();
    store.migrate().await.unwrap();
    let messages: Vec<_> = (0..50).map(|key| Message::new("e").aggregate("k", key)).collect();
    enqueue(&store, &messages).await;
    let (gate, publisher) = (Gate::closed(), ScriptedPublisher::default());
    publisher.otherwise(Step::publish_after(&gate));
    let (handle, task) = start(&store, publisher);
    gate.until_waiting(50).await;
    // Between its statements; one that is running is over a moment later.
    let busy = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'
         AND (state LIKE 'idle in transaction%' OR (state = 'idle' AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)))"
    );
    for _ in 0..50 {
        assert_eq!(schema.value::<i64>(&busy).await, 0);
    }
    let locks = "SELECT count(*) FROM pg_locks WHERE granted AND relation = '{}outbox'::regclass AND mode <> 'AccessShareLock'";
    assert_eq!(schema.value::<i64>(locks).await, 0);
    gate.open();
    until("all is published", async || handle.summary().published == 50).await;
    handle.stop();
    task.await.unwrap().unwrap();
}

/// Plain tables, and indexes that are small: nothing that needs rights, that runs in producers' transactions, or that
/// grows with what messages carry.
#[tokio::test]
async fn the_schema_has_no_trigger_function_or_type_and_indexes_no_content() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    let here = format!("'{}'::regnamespace", fixture.schema.name);
    for (what, sql) in [
        ("triggers", format!("SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = tgrelid WHERE relnamespace = {here}")),
        ("functions", format!("SELECT count(*) FROM pg_proc WHERE pronamespace = {here}")),
        ("enums", format!("SELECT count(*) FROM pg_type WHERE typnamespace = {here} AND typtype = 'e'")),
        ("indexes of content", format!("SELECT count(*) FROM pg_indexes WHERE schemaname = '{}' AND indexdef ~ 'payload|headers|last_error'", fixture.schema.name)),
        ("whole indexes besides the key", "SELECT count(*) FROM pg_index WHERE indrelid = '{}outbox'::regclass AND indpred IS NULL AND NOT indisprimary".to_owned()),
    ] {
        assert_eq!(fixture.schema.value::<i64>(&sql).await, 0, "{what}");
    }
}

/// Leases are renewed for ever, also while somebody holds an old snapshot: what that writes is one narrow row, in place.
#[tokio::test]
async fn renewing_a_lease_writes_one_row() {
    let Some(fixture) = PostgresFixture::migrated(|options| options).await else { return };
    let request = posthaste::LeaseRequest {
        relay: posthaste::RelayId::random(),
        name: "r".into(),
        duration: Duration::from_secs(60),
        give_back: Vec::new(),
    };
    fixture.store.lease(&request).await.unwrap();
    let versions = async || -> (i64, String) {
        let lanes = "SELECT count(DISTINCT xmin::text) FROM {}outbox_lane WHERE lane >= 0";
        let row = "SELECT ctid::text FROM {}outbox_relay";
        (fixture.schema.value(lanes).await, fixture.schema.value(row).await)
    };
    let before = versions().await;
    for _ in 0..100 {
        fixture.store.lease(&request).await.unwrap();
        fixture.store.read(&support::all_lanes()).await.unwrap();
    }
    let after = versions().await;
    assert_eq!((before.0, after.0), (1, 1), "the lanes are not written");
    let page = |ctid: &str| ctid.trim_matches(['(', ')']).split(',').next().unwrap().to_owned();
    assert_eq!(page(&before.1), page(&after.1), "the row stays on its page");
}

/// Several outboxes in one process and one database have nothing to do with one another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outboxes_beside_one_another_do_not_mix() {
    let mut running = Vec::new();
    for n in 0..3_u64 {
        let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
        let publisher = ScriptedPublisher::default();
        let log = publisher.log().clone();
        let messages: Vec<_> = (0..=n)
            .map(|key| Message::new(format!("of {n}")).aggregate("k", key).idempotency_key(key.to_string()))
            .collect();
        let (handle, task) = start(&fixture.store, publisher);
        enqueue(&fixture.store, &messages).await;
        running.push((fixture, handle, task, log, n));
    }
    for (fixture, handle, task, log, n) in running {
        until("all is published", async || handle.summary().published == n + 1).await;
        handle.stop();
        task.await.unwrap().unwrap();
        let types: Vec<_> = log.calls().iter().map(|call| call.event_type.clone()).collect();
        assert_eq!(types.len() as u64, n + 1);
        assert!(types.iter().all(|event_type| *event_type == format!("of {n}")), "{types:?}");
        drop(fixture);
    }
}

/// A server that hangs up at once: the relay, and what listens, try again ever more seldom.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_hangs_up_is_not_stormed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://nobody@{}/none?sslmode=disable", listener.local_addr().unwrap());
    let store = PostgresStore::new(PostgresOptions::new(url)).unwrap();
    let (handle, task) = start(&store, ScriptedPublisher::default());
    let mut attempts = 0;
    let time_is_up = tokio::time::sleep(Duration::from_secs(3));
    tokio::pin!(time_is_up);
    loop {
        tokio::select! {
            () = &mut time_is_up => break,
            accepted = listener.accept() => {
                drop(accepted.unwrap());
                attempts += 1;
            }
        }
    }
    assert!((1..60).contains(&attempts), "{attempts} attempts in three seconds");
    handle.abandon();
    let _ = task.await.unwrap();
}
