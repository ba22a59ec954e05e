//! What is declared with every new connection.

use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable, ShortString};
use lapin::{Channel, ExchangeKind};

/// What a publisher declares: its exchange, and queues bound to it. All of it is durable. What is there already has
/// to be the same; otherwise the broker refuses it, and the destination is unavailable (`declaration refused`).
///
/// ```
/// use posthaste_rabbitmq::{ExchangeType, QueueSpec, RabbitOptions, Topology};
///
/// let topology = Topology::new(ExchangeType::Topic)
///     .queue(QueueSpec::new("billing").bind("order.*"))
///     .queue(QueueSpec::new("audit").bind("#").quorum());
/// let options = RabbitOptions::new("amqp://rabbit/shop").exchange("events").declare(topology);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topology {
    /// The type of the exchange.
    pub exchange_type: ExchangeType,
    /// The queues. Default: none.
    pub queues: Vec<QueueSpec>,
}

/// How an exchange routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ExchangeType {
    /// To queues bound with the routing key.
    Direct,
    /// To all queues bound.
    Fanout,
    /// To queues bound with a pattern that matches the routing key.
    Topic,
    /// By headers.
    Headers,
}

/// A queue to declare.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueSpec {
    /// Its name, 1 to 255 bytes.
    pub name: String,
    /// The routing keys or patterns it is bound with.
    pub bindings: Vec<String>,
    /// Whether it is replicated over the broker's nodes. Default: no.
    pub quorum: bool,
}

impl Topology {
    /// An exchange of a type, and no queues.
    pub fn new(exchange_type: ExchangeType) -> Self {
        Self { exchange_type, queues: Vec::new() }
    }

    /// Adds a queue.
    pub fn queue(mut self, queue: QueueSpec) -> Self {
        self.queues.push(queue);
        self
    }
}

impl QueueSpec {
    /// A queue without bindings.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), bindings: Vec::new(), quorum: false }
    }

    /// Binds it to the exchange.
    pub fn bind(mut self, routing_key: impl Into<String>) -> Self {
        self.bindings.push(routing_key.into());
        self
    }

    /// Makes it a quorum queue.
    pub fn quorum(mut self) -> Self {
        self.quorum = true;
        self
    }
}

impl ExchangeType {
    /// By the name that RabbitMQ has for it.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "direct" => Some(Self::Direct),
            "fanout" => Some(Self::Fanout),
            "topic" => Some(Self::Topic),
            "headers" => Some(Self::Headers),
            _ => None,
        }
    }

    fn kind(self) -> ExchangeKind {
        match self {
            Self::Direct => ExchangeKind::Direct,
            Self::Fanout => ExchangeKind::Fanout,
            Self::Topic => ExchangeKind::Topic,
            Self::Headers => ExchangeKind::Headers,
        }
    }
}

impl Topology {
    /// The names in it, each with what it is, for checking them.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.queues.iter().flat_map(|queue| {
            let bindings = queue.bindings.iter().map(|key| ("a binding", key.as_str()));
            std::iter::once(("a queue's name", queue.name.as_str())).chain(bindings)
        })
    }

    pub(crate) async fn declare(&self, channel: &Channel, exchange: &ShortString) -> lapin::Result<()> {
        let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
        let kind = self.exchange_type.kind();
        channel.exchange_declare(exchange.clone(), kind, durable, FieldTable::default()).await?;
        for queue in &self.queues {
            let name = short(&queue.name);
            let mut arguments = FieldTable::default();
            if queue.quorum {
                arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
            }
            let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            channel.queue_declare(name.clone(), durable, arguments).await?;
            for key in &queue.bindings {
                let (key, arguments) = (short(key), FieldTable::default());
                channel
                    .queue_bind(name.clone(), exchange.clone(), key, QueueBindOptions::default(), arguments)
                    .await?;
            }
        }
        Ok(())
    }
}

/// Asks whether an exchange is there. The channel is closed by the broker where it is not.
pub(crate) async fn look_for(channel: &Channel, exchange: &ShortString) -> lapin::Result<()> {
    let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(exchange.clone(), ExchangeKind::Direct, passive, FieldTable::default()).await
}

/// Names were checked when the publisher was made.
fn short(name: &str) -> ShortString {
    ShortString::try_new(name).unwrap_or_default()
}
