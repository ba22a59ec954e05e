//! From the table to a real RabbitMQ that is killed, restarted, alarmed, and has its exchange and its connections taken away:
//! nothing is lost, nothing dies, no attempt is counted, and the order of each key stays. A consumer counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::process::{Child, Command, Stdio};

use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use serde_json::json;

use crate::http::{Asked, Http};
use crate::node::Node;
use crate::support::Bed;

const EXCHANGE: &str = "events";
const QUEUE: &str = "consumer";
const KEYS: usize = 10;

/// A relay whose log goes to a file, so that it may say as much as it likes for as long as it likes.
struct Daemon {
    child: Child,
    http: Http,
}

impl Daemon {
    fn start(bed: &Bed, to: &str) -> Self {
        let log = bed.path("relay.log");
        let options = [
            "--http",
            "127.0.0.1:0",
            "--count-every",
            "50ms",
            "--idle-poll",
            "20ms",
            "--publish-timeout",
            "2s",
        ];
        let mut command =
            bed.command(&[&["relay", "--max-attempts", "5", "--log-format", "text"][..], &options].concat());
        command.env("POSTHASTE_TO", to).env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(File::create(&log).unwrap()).spawn().unwrap();
        let read = || Http::in_log(&std::fs::read_to_string(&log).unwrap());
        let http = Asked::until_there_is("an address in the log", read);
        Self { child, http }
    }

    fn stop(mut self) {
        let process = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", "TERM", &process]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What was enqueued.
struct Producer<'a> {
    bed: &'a Bed,
    enqueued: usize,
}

impl Producer<'_> {
    fn enqueue(&mut self, count: usize) {
        let lines = (self.enqueued..self.enqueued + count).map(|index| {
            let (key, number) = ((index % KEYS).to_string(), (index / KEYS).to_string());
            json!({ "event_type": "e", "aggregate_type": "t", "aggregate_id": key, "payload": number })
                .to_string()
                + "\n"
        });
        self.bed.enqueue(&lines.collect::<String>());
        self.enqueued += count;
    }

    /// Waits until everything is published.
    fn until_done(&self, daemon: &Daemon) {
        for state in ["ready", "waiting"] {
            daemon.http.until_metric(&format!("posthaste_messages{{state=\"{state}\"}}"), 0.0);
        }
        let all = self.enqueued as f64;
        daemon.http.until_metric_is("all of it", "posthaste_settled_total", |value| value >= all);
        daemon.http.until_ready();
    }
}

async fn connect(node: &Node) -> Channel {
    let connection = Connection::connect(&node.url(), ConnectionProperties::default()).await.unwrap();
    connection.create_channel().await.unwrap()
}

/// A durable exchange, and a durable queue with everything that is published to it.
async fn declare(channel: &Channel) {
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let none = FieldTable::default;
    channel.exchange_declare(EXCHANGE.into(), ExchangeKind::Topic, durable, none()).await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(QUEUE.into(), durable, none()).await.unwrap();
    let bind = QueueBindOptions::default();
    channel.queue_bind(QUEUE.into(), EXCHANGE.into(), "#".into(), bind, none()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_whatever_becomes_of_the_broker() {
    let mut node = Node::start("").await;
    declare(&connect(&node).await).await;
    let bed = Bed::new();
    let daemon = Daemon::start(&bed, &format!("{}/?exchange={EXCHANGE}", node.url()));
    let mut producer = Producer { bed: &bed, enqueued: 0 };
    producer.enqueue(500);
    producer.until_done(&daemon);

    // A power cut, and an outage in which a message would have died five times over.
    producer.enqueue(500);
    node.kill();
    producer.enqueue(500);
    daemon.http.until_unready("destination default");
    let pauses = "posthaste_destination_pauses_total{destination=\"default\"}";
    daemon.http.until_metric_is("eight attempts in vain", pauses, |value| value >= 8.0);
    node.run().await;
    producer.until_done(&daemon);

    // Restarted in order.
    producer.enqueue(500);
    node.stop().await;
    node.run().await;
    producer.until_done(&daemon);

    // No memory left.
    node.ctl(&["set_vm_memory_high_watermark", "0"]).await;
    producer.enqueue(500);
    daemon.http.until_unready("blocked by the broker");
    node.ctl(&["set_vm_memory_high_watermark", "0.4"]).await;
    producer.until_done(&daemon);

    // All connections closed, again and again.
    for _ in 0..3 {
        producer.enqueue(500);
        node.ctl(&["close_all_connections", "by the test"]).await;
    }
    producer.until_done(&daemon);

    // The exchange deleted, and there again.
    let channel = connect(&node).await;
    channel.exchange_delete(EXCHANGE.into(), ExchangeDeleteOptions::default()).await.unwrap();
    producer.enqueue(500);
    daemon.http.until_unready("exchange missing");
    declare(&channel).await;
    producer.until_done(&daemon);
    daemon.http.until_metric("posthaste_messages{state=\"dead\"}", 0.0);
    daemon.stop();
    check(&channel, producer.enqueued).await;
}

/// Everything arrived, at least once, and in order per key after removing repeats.
async fn check(channel: &Channel, enqueued: usize) {
    let (mut seen, mut next) = (BTreeSet::new(), BTreeMap::<String, usize>::new());
    let options = BasicGetOptions { no_ack: true };
    while let Some(message) = channel.basic_get(QUEUE.into(), options).await.unwrap() {
        let properties = &message.delivery.properties;
        if !seen.insert(properties.message_id().as_ref().unwrap().to_string()) {
            continue;
        }
        let headers = properties.headers().as_ref().unwrap().inner();
        let key = format!("{:?}", headers.get("x-outbox-aggregate-key").unwrap());
        let number: usize = std::str::from_utf8(&message.delivery.data).unwrap().parse().unwrap();
        let expected = next.entry(key.clone()).or_default();
        assert_eq!(number, *expected, "out of order: {key}");
        *expected += 1;
    }
    assert_eq!(seen.len(), enqueued, "messages were lost");
}
