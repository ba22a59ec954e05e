//! An exchange on RabbitMQ, and everything that arrives there.

use std::net::SocketAddr;
use std::sync::Mutex;

use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};
use posthaste::MessageId;
use tokio::runtime::Runtime;

/// The exchange and its queue are gone with the connection.
pub(crate) struct Broker {
    runtime: Runtime,
    url: String,
    exchange: String,
    queue: String,
    channel: Channel,
    _connection: Connection,
    arrived: Mutex<Vec<MessageId>>,
}

impl Broker {
    pub(crate) fn new() -> Self {
        let url = std::env::var("POSTHASTE_TEST_RABBITMQ")
            .unwrap_or_else(|_| "amqp://guest:guest@127.0.0.1:5672".to_owned());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let exchange = format!("posthaste_test_{}", MessageId::generate());
        let (connection, channel, queue) = runtime.block_on(declare(&url, &exchange));
        Self { runtime, url, exchange, queue, channel, _connection: connection, arrived: Mutex::default() }
    }

    pub(crate) fn address(&self) -> String {
        let address = self.url.rsplit('@').next().unwrap();
        address.split('/').next().unwrap().to_owned()
    }

    /// The exchange by way of a proxy.
    pub(crate) fn url_by(&self, proxy: SocketAddr) -> String {
        let url = self.url.replace(&self.address(), &proxy.to_string());
        format!("{url}?exchange={}&heartbeat=1&connect_timeout=1", self.exchange)
    }

    /// Everything that arrived so far, in order.
    pub(crate) fn arrived(&self) -> Vec<MessageId> {
        let mut arrived = self.arrived.lock().unwrap();
        let options = BasicGetOptions { no_ack: true };
        self.runtime.block_on(async {
            while let Some(message) =
                self.channel.basic_get(self.queue.as_str().into(), options).await.unwrap()
            {
                let id = message.delivery.properties.message_id().as_ref().unwrap().to_string();
                arrived.push(MessageId::new(id.parse().unwrap()).unwrap());
            }
        });
        arrived.clone()
    }
}

async fn declare(url: &str, exchange: &str) -> (Connection, Channel, String) {
    let connection = Connection::connect(url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let options = ExchangeDeclareOptions { auto_delete: true, ..ExchangeDeclareOptions::default() };
    let (kind, none) = (ExchangeKind::Topic, FieldTable::default);
    channel.exchange_declare(exchange.into(), kind, options, none()).await.unwrap();
    let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare("".into(), options, none()).await.unwrap().name().to_string();
    let options = QueueBindOptions::default();
    channel.queue_bind(queue.as_str().into(), exchange.into(), "#".into(), options, none()).await.unwrap();
    (connection, channel, queue)
}
