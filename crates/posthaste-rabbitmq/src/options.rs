//! Settings of a publisher.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use posthaste::Error;

use crate::settings::Settings;
use crate::topology::Topology;

/// How a [`RabbitPublisher`](crate::RabbitPublisher) connects and publishes.
///
/// ```
/// use std::time::Duration;
/// use posthaste_rabbitmq::RabbitOptions;
///
/// let options = RabbitOptions::new("amqps://relay@rabbit.internal/shop")
///     .exchange("events")
///     .routing_key("{aggregate_type}.{event_type}")
///     .publish_timeout(Duration::from_secs(5));
/// assert_eq!(options.channels, 4);
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RabbitOptions {
    /// `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. User and password are percent-encoded, and so is
    /// the vhost; without one it is `/`. The port is 5672, or 5671 with TLS, unless given.
    pub url: String,
    /// The exchange to publish to, at most 255 bytes. Default: the empty name, RabbitMQ's default exchange, which
    /// takes the routing key for the name of a queue.
    pub exchange: String,
    /// The template of the routing key. `{event_type}`, `{aggregate_type}`, `{aggregate_id}` and `{header.NAME}` stand
    /// for what the message has; `{{` and `}}` for braces. Default: `{event_type}`.
    pub routing_key: String,
    /// Whether a message that no queue takes has failed (`unroutable`). Without it, such a message is lost, and counts
    /// as published. Default: yes.
    pub mandatory: bool,
    /// Whether messages survive a restart of the broker, where their queue does. Default: yes.
    pub persistent: bool,
    /// How many channels share the work, 1 to 64. Default: 4.
    pub channels: u16,
    /// How long making a connection may take, with TLS, login and declarations. Default: 3 s.
    pub connect_timeout: Duration,
    /// How long one publish may take, waiting for the connection included. Keep it shorter than the relay's
    /// `publish_timeout`: what the relay ends counts as a failed attempt, what ends here does not. Default: 8 s.
    pub publish_timeout: Duration,
    /// How often both sides show that they are alive, in whole seconds; a connection that is silent for twice as long
    /// is dead. Default: 10 s.
    pub heartbeat: Duration,
    /// The longest pause between attempts to connect. They begin at 100 ms and double, with jitter. Default: 5 s.
    pub reconnect_max: Duration,
    /// What the broker shows as the connection's name. Default: `posthaste`.
    pub connection_name: String,
    /// A PEM file with the certificates to trust, instead of those that the system trusts. Default: none.
    pub ca_file: Option<PathBuf>,
    /// What to declare with every new connection. Default: nothing; the exchange has to be there.
    pub declare: Option<Topology>,
}

impl RabbitOptions {
    /// The defaults, for a broker.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            exchange: String::new(),
            routing_key: "{event_type}".to_owned(),
            mandatory: true,
            persistent: true,
            channels: 4,
            connect_timeout: Duration::from_secs(3),
            publish_timeout: Duration::from_secs(8),
            heartbeat: Duration::from_secs(10),
            reconnect_max: Duration::from_secs(5),
            connection_name: "posthaste".to_owned(),
            ca_file: None,
            declare: None,
        }
    }

    /// Options from a URL that may carry some of them behind a question mark: `exchange`, `routing_key`, `mandatory`
    /// and `persistent` (`true` or `false`), `channels`, `heartbeat` and `connect_timeout` (whole seconds), `cacertfile`
    /// and `declare` (`direct`, `fanout`, `topic` or `headers`: the exchange's type).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](posthaste::ErrorKind::InvalidInput) if it is no such URL or has an unknown option.
    /// The error never quotes the URL.
    ///
    /// ```
    /// use posthaste_rabbitmq::RabbitOptions;
    ///
    /// let options = RabbitOptions::from_url("amqp://rabbit/shop?exchange=events&declare=topic").unwrap();
    /// assert_eq!(options.exchange, "events");
    /// assert!(RabbitOptions::from_url("amqp://rabbit/shop?exchnage=events").is_err());
    /// ```
    pub fn from_url(url: &str) -> Result<Self, Error> {
        crate::target::options(url)
    }

    /// Checks the options as [`RabbitPublisher::start`](crate::RabbitPublisher::start) does, and connects to nothing.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](posthaste::ErrorKind::InvalidInput) if an option makes no sense, or a file with
    /// certificates cannot be read. The error never quotes the URL.
    pub fn check(&self) -> Result<(), Error> {
        Settings::check(self.clone()).map(|_| ())
    }

    /// Sets the exchange.
    pub fn exchange(mut self, exchange: impl Into<String>) -> Self {
        self.exchange = exchange.into();
        self
    }

    /// Sets the template of the routing key.
    pub fn routing_key(mut self, template: impl Into<String>) -> Self {
        self.routing_key = template.into();
        self
    }

    /// Switches whether a message that no queue takes has failed.
    pub fn mandatory(mut self, on: bool) -> Self {
        self.mandatory = on;
        self
    }

    /// Switches whether messages survive a restart of the broker.
    pub fn persistent(mut self, on: bool) -> Self {
        self.persistent = on;
        self
    }

    /// Sets how many channels share the work.
    pub fn channels(mut self, channels: u16) -> Self {
        self.channels = channels;
        self
    }

    /// Sets how long making a connection may take.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets how long one publish may take.
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.publish_timeout = timeout;
        self
    }

    /// Sets how often both sides show that they are alive.
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = interval;
        self
    }

    /// Sets the longest pause between attempts to connect.
    pub fn reconnect_max(mut self, pause: Duration) -> Self {
        self.reconnect_max = pause;
        self
    }

    /// Sets what the broker shows as the connection's name.
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = name.into();
        self
    }

    /// Sets the PEM file with the certificates to trust.
    pub fn ca_file(mut self, file: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(file.into());
        self
    }

    /// Sets what to declare with every new connection.
    pub fn declare(mut self, topology: Topology) -> Self {
        self.declare = Some(topology);
        self
    }
}

impl fmt::Debug for RabbitOptions {
    /// Leaves the URL out, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitOptions")
            .field("exchange", &self.exchange)
            .field("routing_key", &self.routing_key)
            .field("mandatory", &self.mandatory)
            .field("persistent", &self.persistent)
            .field("channels", &self.channels)
            .field("connect_timeout", &self.connect_timeout)
            .field("publish_timeout", &self.publish_timeout)
            .field("heartbeat", &self.heartbeat)
            .field("reconnect_max", &self.reconnect_max)
            .field("connection_name", &self.connection_name)
            .field("ca_file", &self.ca_file)
            .field("declare", &self.declare)
            .finish_non_exhaustive()
    }
}
