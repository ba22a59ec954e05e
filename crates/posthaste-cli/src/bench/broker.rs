//! RabbitMQ as the destination: a queue of its own, and what the client does without us.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use posthaste::Publisher;
use posthaste_rabbitmq::{RabbitOptions, RabbitPublisher};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::drafts::Drafts;
use super::repeat::Stage;
use crate::failure::Failure;

/// What the floor is called.
pub(super) const FLOOR: &str = "confirmed publishes by the same client";
/// Nobody consumes, so the queue forgets.
const KEPT: i32 = 1_000;

/// A queue that goes away with this connection, however that ends.
pub(super) struct Broker {
    options: RabbitOptions,
    queue: String,
    connection: Connection,
    publisher: RabbitPublisher,
}

impl Broker {
    /// Refuses what is no URL of a broker, before anything is made.
    pub(super) fn check(url: &str) -> Result<(), Failure> {
        if url.starts_with("amqp:") {
            return Ok(RabbitOptions::from_url(url).map(drop)?);
        }
        Err(Failure::bad_input("--to takes null or an amqp:// URL")
            .hint("of a broker on which queues may be declared"))
    }

    pub(super) async fn open(url: &str, queue: String) -> Result<Self, Failure> {
        // Its exchange and routing key are replaced: a benchmark is not for other people's queues.
        let options = RabbitOptions::from_url(url)?.exchange("").routing_key(queue.clone());
        let connection =
            Connection::connect(&options.url, ConnectionProperties::default()).await.map_err(failed)?;
        let channel = connection.create_channel().await.map_err(failed)?;
        let mut bounds = FieldTable::default();
        bounds.insert("x-max-length".into(), AMQPValue::LongInt(KEPT));
        let declare = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
        channel.queue_declare(queue.as_str().into(), declare, bounds).await.map_err(failed)?;
        let publisher = RabbitPublisher::start(options.clone())?;
        Ok(Self { options, queue, connection, publisher })
    }

    pub(super) fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.publisher.clone())
    }

    /// Publishes the messages of a run with the same client, as many at the same time, and gives how many a second.
    pub(super) async fn alone(&self, stage: &Stage) -> Result<f64, Failure> {
        let total = stage.drafts.expected();
        let done = Arc::new(AtomicU64::new(0));
        let mut channels = Vec::new();
        for _ in 0..self.options.channels {
            let channel = self.connection.create_channel().await.map_err(failed)?;
            channel.confirm_select(ConfirmSelectOptions::default()).await.map_err(failed)?;
            channels.push(channel);
        }
        let next = Arc::new(AtomicU64::new(0));
        let begun = Instant::now();
        let mut workers: JoinSet<_> = (0..stage.load.in_flight.get())
            .map(|worker| Worker {
                channel: channels[worker % channels.len()].clone(),
                queue: self.queue.clone(),
                drafts: stage.drafts.clone(),
                persistent: self.options.persistent,
                next: next.clone(),
                total,
                done: done.clone(),
            })
            .map(Worker::work)
            .collect();
        let work = async {
            while let Some(joined) = workers.join_next().await {
                joined.map_err(failed)??;
            }
            Ok(())
        };
        stage.watched(total, "published (floor)", || done.load(Relaxed), work).await?;
        Ok(total as f64 / begun.elapsed().as_secs_f64())
    }

    pub(super) async fn close(&self) {
        self.publisher.close().await;
        // The queue goes with the connection, and that with the process.
        let _ = self.connection.close(200, "done".into()).await;
    }
}

/// One publish after another.
struct Worker {
    channel: Channel,
    queue: String,
    drafts: Arc<Drafts>,
    persistent: bool,
    next: Arc<AtomicU64>,
    total: u64,
    done: Arc<AtomicU64>,
}

impl Worker {
    async fn work(self) -> Result<(), Failure> {
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            if number >= self.total {
                return Ok(());
            }
            let message = self.drafts.message(number);
            let properties = BasicProperties::default()
                .with_message_id(message.id().to_string().into())
                .with_type(message.event_type().into())
                .with_content_type(message.content_type_str().unwrap_or_default().into())
                .with_delivery_mode(if self.persistent { 2 } else { 1 });
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let payload = message.payload_bytes().map_or(&[][..], AsRef::<[u8]>::as_ref);
            let queue = self.queue.as_str().into();
            let confirm = self.channel.basic_publish("".into(), queue, options, payload, properties).await;
            let confirm = confirm.map_err(failed)?.await.map_err(failed)?;
            if !confirm.is_ack() {
                return Err(Failure::failed("the broker refused a message of the benchmark"));
            }
            self.done.fetch_add(1, Relaxed);
        }
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("the benchmark's own work with the broker failed: {error}"))
}
