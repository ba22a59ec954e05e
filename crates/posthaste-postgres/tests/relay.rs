//! The relay on a real server.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste::{BoxError, Message, Record, Relay, RelayHandle, publish_fn};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use posthaste_testkit::FaultProxy;
use support::{PostgresFixture, Schema, server_url};
use tokio::sync::mpsc;

/// A relay that passes on what it publishes.
fn relay(
    store: &PostgresStore,
    idle_poll: Duration,
) -> (tokio::task::JoinHandle<()>, RelayHandle, mpsc::UnboundedReceiver<Record>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let relay = Relay::builder(Arc::new(store.clone()))
        .publisher(publish_fn(move |record: Arc<Record>| {
            let sender = sender.clone();
            async move {
                sender.send((*record).clone())?;
                Ok::<_, BoxError>(())
            }
        }))
        .idle_poll(idle_poll)
        .build()
        .unwrap();
    let handle = relay.handle();
    let task = tokio::spawn(async move {
        relay.run_until(std::future::pending()).await.unwrap();
    });
    (task, handle, receiver)
}

async fn enqueue(store: &PostgresStore, messages: &[Message]) {
    let mut client = support::client().await.unwrap();
    let tx = client.transaction().await.unwrap();
    store.outbox().enqueue_all(&tx, messages).await.unwrap();
    tx.commit().await.unwrap();
}

async fn until<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    for _ in 0..500 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{what}: not in ten seconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_relay_is_woken_by_an_enqueue() {
    let Some(fixture) = PostgresFixture::direct(|options| options).await else { return };
    // So long that a message that is published in time was not found by polling.
    let (task, handle, mut published) = relay(&fixture.store, Duration::from_secs(60));
    let idle = || async { fixture.schema.value::<bool>("SELECT idle FROM {}outbox_wake").await };
    until("the relay is idle", idle).await;
    for n in 0..3 {
        enqueue(&fixture.store, &[Message::new(format!("e{n}"))]).await;
        let record = tokio::time::timeout(Duration::from_secs(5), published.recv()).await;
        assert_eq!(record.unwrap().unwrap().event_type, format!("e{n}"));
        until("the relay is idle again", idle).await;
    }
    handle.stop();
    task.await.unwrap();
    assert!(!idle().await, "who left wants no calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_that_is_killed_listens_again() {
    let Some(schema) = Schema::new().await else { return };
    let name = format!("l{}", &schema.name[15..]);
    let options = PostgresOptions::new(server_url()).table(schema.table());
    let store =
        PostgresStore::new(options.listen_url(format!("{}?application_name={name}", server_url()))).unwrap();
    posthaste::Admin::migrate(&store).await.unwrap();
    let (task, handle, mut published) = relay(&store, Duration::from_secs(60));
    let idle = || async { schema.value::<bool>("SELECT idle FROM {}outbox_wake").await };
    let listeners = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
    until("the relay is idle", idle).await;
    for n in 0..2 {
        let kill = listeners.replace("count(*)", "count(pg_terminate_backend(pid))");
        assert_eq!(schema.value::<i64>(&kill).await, 1);
        // Enqueued while nobody listens: found by the poll after the next LISTEN.
        enqueue(&store, &[Message::new(format!("e{n}"))]).await;
        let record = tokio::time::timeout(Duration::from_secs(10), published.recv()).await;
        assert_eq!(record.unwrap().unwrap().event_type, format!("e{n}"));
        until("it listens again", || async { schema.value::<i64>(&listeners).await == 1 }).await;
        until("the relay is idle again", idle).await;
    }
    handle.stop();
    task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_insert_wakes_by_the_trigger() {
    let Some(fixture) = PostgresFixture::direct(|options| options.wake_trigger(true)).await else { return };
    let (task, handle, mut published) = relay(&fixture.store, Duration::from_secs(60));
    until("the relay is idle", || async { fixture.schema.value("SELECT idle FROM {}outbox_wake").await })
        .await;
    fixture.schema.execute("INSERT INTO {}outbox (event_type) VALUES ('plain')").await;
    let record = tokio::time::timeout(Duration::from_secs(5), published.recv()).await;
    assert_eq!(record.unwrap().unwrap().event_type, "plain");
    handle.stop();
    task.await.unwrap();
}

/// Behind a pooler in transaction mode nothing can be heard: the relay finds out and polls. `POSTHASTE_TEST_POSTGRES_POOLER`
/// says where there is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_a_pooler_the_relay_polls() {
    let Some(pooler) = support::pooler_url() else {
        eprintln!("SKIPPED: no pooler (POSTHASTE_TEST_POSTGRES_POOLER)");
        return;
    };
    let Some(schema) = Schema::new().await else { return };
    let address = support::address_of(&pooler);
    let proxy = FaultProxy::start(address.as_str());
    let listen_url = pooler.replace(&address, &proxy.address().to_string());
    let options = PostgresOptions::new(pooler).table(schema.table()).listen_url(listen_url);
    let store = PostgresStore::new(options).unwrap();
    posthaste::Admin::migrate(&store).await.unwrap();
    let (task, handle, mut published) = relay(&store, Duration::from_millis(100));
    // It listens when it is idle, and hangs up when its trial call has not arrived.
    proxy.until_open(|open| proxy.accepted() > open as u64).await;
    assert!(!schema.value::<bool>("SELECT idle FROM {}outbox_wake").await, "producers need not call");
    enqueue(&store, &[Message::new("e")]).await;
    assert!(tokio::time::timeout(Duration::from_secs(5), published.recv()).await.unwrap().is_some());
    handle.stop();
    task.await.unwrap();
    let advisory: i64 = schema
        .value("SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE locktype = 'advisory' AND state = 'idle'")
        .await;
    assert_eq!(advisory, 0, "no lock is left in a session of the pooler");
}

/// Producers with transactions of random length and rollbacks, two relays, and sessions killed all the time: nothing is
/// lost, nothing of a rollback is published, and each key keeps its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_order_is_kept_while_sessions_are_killed() {
    const KEYS: usize = 7;
    let Some(schema) = Schema::new().await else { return };
    let name = schema.name[15..].to_owned();
    let url = format!("{}?application_name={name}", server_url());
    let stores: Vec<_> = (0..2)
        .map(|_| PostgresStore::new(PostgresOptions::new(url.as_str()).table(schema.table())).unwrap())
        .collect();
    posthaste::Admin::migrate(&stores[0]).await.unwrap();
    let published: Arc<Mutex<BTreeMap<String, Vec<u64>>>> = Arc::default();
    let mut relays = Vec::new();
    for store in &stores {
        let published = published.clone();
        let relay = Relay::builder(Arc::new(store.clone()))
            .publisher(publish_fn(move |record: Arc<Record>| {
                let number =
                    std::str::from_utf8(record.payload.as_deref().unwrap()).unwrap().parse().unwrap();
                published
                    .lock()
                    .unwrap()
                    .entry(record.aggregate.aggregate_id().to_owned())
                    .or_default()
                    .push(number);
                async { Ok::<_, BoxError>(()) }
            }))
            .build()
            .unwrap();
        let handle = relay.handle();
        relays.push((handle, tokio::spawn(relay.run_until(std::future::pending()))));
    }
    // Each producer has keys of its own, so that the order of a key is that of its transactions.
    let producers: Vec<_> = (0..KEYS)
        .map(|key| {
            let outbox = stores[0].outbox();
            tokio::spawn(async move {
                let mut random = fastrand::Rng::with_seed(key as u64);
                let mut client = support::client().await.unwrap();
                let mut committed = Vec::new();
                for number in 0..120_u64 {
                    let tx = client.transaction().await.unwrap();
                    let payload = if random.u8(0..5) == 0 { u64::MAX - number } else { number };
                    let message = Message::new("e").aggregate("k", key).payload(payload.to_string());
                    outbox.enqueue(&tx, &message).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(random.u64(0..12))).await;
                    if payload == number {
                        tx.commit().await.unwrap();
                        committed.push(number);
                    } else {
                        tx.rollback().await.unwrap();
                    }
                }
                committed
            })
        })
        .collect();
    let kill = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '{name}'"
    );
    for _ in 0..12 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        schema.value::<i64>(&kill).await;
    }
    for (key, producer) in producers.into_iter().enumerate() {
        let committed = producer.await.unwrap();
        let found = || {
            let mut found = published.lock().unwrap().get(&key.to_string()).cloned().unwrap_or_default();
            found.dedup();
            found
        };
        until("everything is published", || async { found().len() >= committed.len() }).await;
        let mut first_times = Vec::new();
        for number in found() {
            if !first_times.contains(&number) {
                first_times.push(number);
            }
        }
        assert_eq!(first_times, committed, "key {key}");
    }
    for (handle, relay) in relays {
        handle.stop();
        relay.await.unwrap().unwrap();
    }
    let pending: i64 = schema.value("SELECT count(*) FROM {}outbox WHERE status <> 1").await;
    assert_eq!(pending, 0);
}
