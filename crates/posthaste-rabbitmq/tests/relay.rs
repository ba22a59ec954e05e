//! A relay on SQLite and a broker that is killed, stopped, alarmed and robbed of its exchange while messages come in:
//! nothing is lost, every key is in order, nothing is given up, though five failed attempts in a row would do.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lapin::options::{BasicGetOptions, ExchangeDeleteOptions};
use lapin::{Connection, ConnectionProperties};
use posthaste::{Admin, Message, Relay, RelayHandle, RetryPolicy, Summary};
use posthaste_rabbitmq::{ExchangeType, QueueSpec, RabbitOptions, RabbitPublisher, Topology};
use posthaste_sqlite::rusqlite::{Connection as Sqlite, TransactionBehavior};
use posthaste_sqlite::{SqliteOptions, SqliteStore};
use tokio::sync::watch;
use tokio::time::interval;

use support::eventually;
use support::node::Node;

const KEYS: usize = 20;
const EXCHANGE: &str = "posthaste_events";
const QUEUE: &str = "posthaste_all";

/// Enqueues one message of each key again and again, until it is told to stop. Returns how many of each.
async fn produce(path: PathBuf, outbox: posthaste::Outbox, mut stop: watch::Receiver<bool>) -> usize {
    let mut pace = interval(Duration::from_millis(20));
    let mut rounds = 0;
    while !*stop.borrow_and_update() {
        pace.tick().await;
        let (path, outbox) = (path.clone(), outbox.clone());
        let enqueue = move || {
            let mut db = Sqlite::open(path).unwrap();
            db.busy_timeout(Duration::from_secs(30)).unwrap();
            let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            for key in 0..KEYS {
                let message =
                    Message::new("thing.happened").aggregate("thing", key).payload(rounds.to_string());
                outbox.enqueue(&tx, &message).unwrap();
            }
            tx.commit().unwrap();
        };
        tokio::task::spawn_blocking(enqueue).await.unwrap();
        rounds += 1;
    }
    rounds
}

/// Everything in the queue, by key, in the order of arrival.
async fn consume(url: &str) -> BTreeMap<String, Vec<usize>> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let mut arrived: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let options = BasicGetOptions { no_ack: true };
    while let Some(message) = channel.basic_get(QUEUE.into(), options).await.unwrap() {
        let headers = message.delivery.properties.headers().as_ref().unwrap().inner();
        let key = headers["x-outbox-aggregate-key"].as_long_string().unwrap().to_string();
        let number = String::from_utf8_lossy(&message.delivery.data).parse().unwrap();
        arrived.entry(key).or_default().push(number);
    }
    arrived
}

/// Waits until so many more were published.
async fn flows(handle: &RelayHandle) {
    let before = handle.summary().published;
    eventually("messages flow", async || handle.summary().published >= before + 200).await;
}

async fn trouble(node: &mut Node, handle: &RelayHandle, reasons: &Mutex<BTreeSet<String>>) {
    flows(handle).await;
    node.kill();
    node.run().await;
    flows(handle).await;
    node.ctl(&["close_all_connections", "by hand"]).await;
    flows(handle).await;
    node.ctl(&["set_vm_memory_high_watermark", "0"]).await;
    let blocked = || reasons.lock().unwrap().contains("blocked by the broker");
    eventually("the alarm stops it", async || blocked()).await;
    node.ctl(&["set_vm_memory_high_watermark", "0.4"]).await;
    flows(handle).await;
    let connection = Connection::connect(&node.url(), ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    channel.exchange_delete(EXCHANGE.into(), ExchangeDeleteOptions::default()).await.unwrap();
    flows(handle).await;
    node.stop().await;
    node.run().await;
    flows(handle).await;
}

fn options(url: &str) -> RabbitOptions {
    let queue = QueueSpec::new(QUEUE).bind("thing.#");
    support::options(url)
        .exchange(EXCHANGE)
        .declare(Topology::new(ExchangeType::Topic).queue(queue))
        .publish_timeout(Duration::from_secs(2))
}

fn check(arrived: &BTreeMap<String, Vec<usize>>, rounds: usize, summary: &Summary) {
    assert_eq!(arrived.len(), KEYS);
    let mut repeats = 0;
    for (key, numbers) in arrived {
        let mut next = 0;
        for number in numbers {
            assert!(*number <= next, "{key}: {number} came before {next}");
            if *number == next {
                next += 1;
            } else {
                repeats += 1;
            }
        }
        assert_eq!(next, rounds, "{key} has lost some");
    }
    println!("{rounds} rounds of {KEYS} keys, {repeats} repeats, {summary:?}");
    assert_eq!(summary.dead, 0, "an outage is not the message's fault");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_and_every_key_is_in_order_whatever_happens_to_the_broker() {
    let mut node = Node::start("").await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("outbox.db");
    let store = SqliteStore::open(&path, SqliteOptions::default().create(true)).unwrap();
    store.migrate().await.unwrap();
    let publisher = RabbitPublisher::start(options(&node.url())).unwrap();
    let retry =
        RetryPolicy::exponential(Duration::from_millis(50), Duration::from_millis(200)).max_attempts(5);
    let reasons = Arc::new(Mutex::new(BTreeSet::new()));
    let seen = reasons.clone();
    let relay = Relay::builder(Arc::new(store.clone()))
        .publisher(publisher.clone())
        .publish_timeout(Duration::from_secs(4))
        .retry(retry)
        .on_error(move |_, error| {
            seen.lock().unwrap().insert(error.reason().to_owned());
        })
        .build()
        .unwrap();
    let handle = relay.handle();
    let running = tokio::spawn(relay.run_until(std::future::pending()));
    let (stop, stops) = watch::channel(false);
    let producer = tokio::spawn(produce(path, store.outbox(), stops));
    trouble(&mut node, &handle, &reasons).await;
    stop.send_replace(true);
    let rounds = producer.await.unwrap();
    eventually("all is published", async || {
        let stats = store.stats(None).await.unwrap();
        stats.ready.count + stats.waiting.count == 0
    })
    .await;
    handle.stop();
    let summary = running.await.unwrap().unwrap();
    publisher.close().await;
    check(&consume(&node.url()).await, rounds, &summary);
}
