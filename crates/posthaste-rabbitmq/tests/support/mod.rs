//! What the tests share: the broker they are given, an exchange and queues of their own on it, records.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "shared by test binaries that each use a part of it"
)]

pub mod node;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lapin::message::BasicGetMessage;
use lapin::options::{
    BasicGetOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use posthaste::{FailureClass, Key, Lane, MessageId, Position, PublishError, Publisher, Record};
use posthaste_rabbitmq::{RabbitOptions, RabbitPublisher};

/// The broker that the tests are given. Without one they fail.
pub fn url() -> String {
    std::env::var("POSTHASTE_TEST_RABBITMQ").unwrap_or_else(|_| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/rabbitmq-server");
        let output = std::process::Command::new(script).arg("start").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    })
}

/// The host and port in a URL.
pub fn address(url: &str) -> String {
    let address = url.rsplit('@').next().unwrap().trim_start_matches("amqp://");
    address.split('/').next().unwrap().to_owned()
}

/// The URL with another address.
pub fn at(url: &str, other: impl std::fmt::Display) -> String {
    url.replace(&address(url), &format!("{other}"))
}

/// A topic exchange for one test, and a way to look at what comes out of it. It is gone with its connection.
pub struct Place {
    pub url: String,
    pub exchange: String,
    pub channel: Channel,
    _connection: Connection,
}

impl Place {
    pub async fn new() -> Self {
        Self::on(&url()).await
    }

    pub async fn on(url: &str) -> Self {
        let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        let exchange = format!("posthaste_test_{}", MessageId::generate());
        let place = Self { url: url.to_owned(), exchange, channel, _connection: connection };
        place.declare().await;
        place
    }

    pub async fn declare(&self) {
        let options = ExchangeDeclareOptions { auto_delete: true, ..ExchangeDeclareOptions::default() };
        let (name, kind) = (self.exchange.as_str().into(), ExchangeKind::Topic);
        self.channel.exchange_declare(name, kind, options, FieldTable::default()).await.unwrap();
    }

    pub async fn delete(&self) {
        let options = ExchangeDeleteOptions::default();
        self.channel.exchange_delete(self.exchange.as_str().into(), options).await.unwrap();
    }

    /// A queue of this test for routing keys that match.
    pub async fn queue(&self, pattern: &str, arguments: FieldTable) -> String {
        let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        let queue = self.channel.queue_declare("".into(), options, arguments).await.unwrap();
        let name = queue.name().to_string();
        self.bind(&name, pattern).await;
        name
    }

    pub async fn bind(&self, queue: &str, pattern: &str) {
        let (queue, exchange, key) = (queue.into(), self.exchange.as_str().into(), pattern.into());
        let options = QueueBindOptions::default();
        self.channel.queue_bind(queue, exchange, key, options, FieldTable::default()).await.unwrap();
    }

    /// Everything in a queue, taken out of it.
    pub async fn take(&self, queue: &str) -> Vec<BasicGetMessage> {
        let mut all = Vec::new();
        let options = BasicGetOptions { no_ack: true };
        while let Some(message) = self.channel.basic_get(queue.into(), options).await.unwrap() {
            all.push(message);
        }
        all
    }

    pub async fn payloads(&self, queue: &str) -> Vec<String> {
        let taken = self.take(queue).await;
        taken.iter().map(|message| String::from_utf8_lossy(&message.delivery.data).into_owned()).collect()
    }

    pub fn options(&self) -> RabbitOptions {
        options(&self.url).exchange(&self.exchange)
    }

    pub fn publisher(&self) -> RabbitPublisher {
        RabbitPublisher::start(self.options()).unwrap()
    }
}

/// Options with times that suit tests.
pub fn options(url: &str) -> RabbitOptions {
    RabbitOptions::new(url).reconnect_max(Duration::from_millis(300))
}

pub fn long(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

/// A record with a key, whose payload is its label.
pub fn record(label: &str) -> Record {
    Record {
        id: MessageId::generate(),
        lane: Lane(0),
        position: Position::from_sequence(1),
        event_type: "thing.happened".into(),
        aggregate: Key::new("thing", label),
        payload: Some(Bytes::copy_from_slice(label.as_bytes())),
        content_type: Some("text/plain".into()),
        headers: BTreeMap::new(),
        idempotency_key: None,
        attempts: 0,
        enqueued_at: SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600),
        held_back: false,
    }
}

pub async fn publish(publisher: &RabbitPublisher, record: Record) -> Result<(), PublishError> {
    publisher.publish(Arc::new(record)).await
}

/// All at once; the results in the order of the records.
pub async fn publish_all(
    publisher: &RabbitPublisher,
    records: impl IntoIterator<Item = Record>,
) -> Vec<Result<(), PublishError>> {
    let tasks: Vec<_> = records
        .into_iter()
        .map(|record| {
            let publisher = publisher.clone();
            tokio::spawn(async move { publish(&publisher, record).await })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        results.push(task.await.unwrap());
    }
    results
}

/// What a publish came to: its class and reason.
pub fn outcome(result: &Result<(), PublishError>) -> Result<(), (FailureClass, String)> {
    match result {
        Ok(()) => Ok(()),
        Err(error) => Err((error.class(), error.reason().to_owned())),
    }
}

pub fn unavailable(reason: &str) -> Result<(), (FailureClass, String)> {
    Err((FailureClass::Unavailable, reason.to_owned()))
}

pub fn failed(reason: &str) -> Result<(), (FailureClass, String)> {
    Err((FailureClass::Failed, reason.to_owned()))
}

/// Publishes again and again, as a relay would while the destination is unavailable.
pub async fn until_published(publisher: &RabbitPublisher, record: Record) {
    until(publisher, record, Result::is_ok).await;
}

/// The same until it comes to something.
pub async fn until(
    publisher: &RabbitPublisher,
    record: Record,
    wanted: impl Fn(&Result<(), (FailureClass, String)>) -> bool,
) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let outcome = outcome(&publish(publisher, record.clone()).await);
        if wanted(&outcome) {
            return;
        }
        let class = outcome.as_ref().map_err(|(class, _)| *class);
        assert!(
            class == Ok(&()) || class == Err(FailureClass::Unavailable),
            "while it comes back: {outcome:?}"
        );
        assert!(tokio::time::Instant::now() < deadline, "it does not come: {outcome:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits for something to become so.
pub async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
