//! Options that were checked.

use std::time::Duration;

use lapin::types::ShortString;
use lapin::uri::{AMQPScheme, AMQPUri};
use posthaste::Error;

use crate::options::RabbitOptions;
use crate::routing_key::RoutingKey;
use crate::target::{self, check_name, invalid};
use crate::tls::Tls;
use crate::topology::Topology;

const MAX_CHANNELS: u16 = 64;

pub(crate) struct Settings {
    pub(crate) uri: AMQPUri,
    pub(crate) tls: Option<Tls>,
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: RoutingKey,
    pub(crate) mandatory: bool,
    pub(crate) persistent: bool,
    pub(crate) channels: u16,
    pub(crate) connect_timeout: Duration,
    pub(crate) publish_timeout: Duration,
    pub(crate) reconnect_max: Duration,
    pub(crate) connection_name: String,
    pub(crate) declare: Option<Topology>,
}

impl Settings {
    pub(crate) fn check(options: RabbitOptions) -> Result<Self, Error> {
        let uri = target::uri(&options)?;
        check_name("the exchange's name", &options.exchange)?;
        if !(1..=MAX_CHANNELS).contains(&options.channels) {
            return Err(invalid(format!("channels must be 1 to {MAX_CHANNELS}")));
        }
        let times = [
            ("connect_timeout", options.connect_timeout),
            ("publish_timeout", options.publish_timeout),
            ("reconnect_max", options.reconnect_max),
        ];
        if let Some((name, _)) = times.iter().find(|(_, time)| time.is_zero()) {
            return Err(invalid(format!("{name} must be longer than zero")));
        }
        if let Some(topology) = &options.declare {
            check_topology(topology, &options.exchange)?;
        }
        if options.ca_file.is_some() && uri.scheme == AMQPScheme::AMQP {
            return Err(invalid("there is a CA file, but the RabbitMQ URL is amqp://, without TLS"));
        }
        let tls = match uri.scheme {
            AMQPScheme::AMQP => None,
            AMQPScheme::AMQPS => Some(Tls::new(options.ca_file.as_deref())?),
        };
        Ok(Self {
            uri,
            tls,
            exchange: ShortString::try_new(options.exchange).unwrap_or_default(),
            routing_key: RoutingKey::parse(&options.routing_key)?,
            mandatory: options.mandatory,
            persistent: options.persistent,
            channels: options.channels,
            connect_timeout: options.connect_timeout,
            publish_timeout: options.publish_timeout,
            reconnect_max: options.reconnect_max,
            connection_name: options.connection_name,
            declare: options.declare,
        })
    }
}

fn check_topology(topology: &Topology, exchange: &str) -> Result<(), Error> {
    if exchange.is_empty() || exchange.starts_with("amq.") {
        return Err(invalid(format!(
            "the exchange {exchange:?} is RabbitMQ's own and cannot be declared; name another"
        )));
    }
    for (what, name) in topology.names() {
        check_name(what, name)?;
    }
    if topology.queues.iter().any(|queue| queue.name.is_empty()) {
        return Err(invalid("a queue to declare has no name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use posthaste::ErrorKind;

    use super::*;
    use crate::topology::{ExchangeType, QueueSpec};

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let base = || RabbitOptions::new("amqp://ann:secret@host/v").exchange("events");
        let topic = || Topology::new(ExchangeType::Topic);
        let cases = [
            (base().exchange("€".repeat(86)), "exchange"),
            (base().routing_key("{x}"), "routing_key"),
            (base().channels(0), "channels"),
            (base().channels(65), "channels"),
            (base().connect_timeout(Duration::ZERO), "connect_timeout"),
            (base().publish_timeout(Duration::ZERO), "publish_timeout"),
            (base().reconnect_max(Duration::ZERO), "reconnect_max"),
            (base().heartbeat(Duration::from_millis(900)), "heartbeat"),
            (base().exchange("").declare(topic()), "declared"),
            (base().exchange("amq.topic").declare(topic()), "declared"),
            (base().declare(topic().queue(QueueSpec::new(""))), "no name"),
            (base().declare(topic().queue(QueueSpec::new("q").bind("k".repeat(256)))), "binding"),
            (base().ca_file("/nowhere.pem"), "without TLS"),
            (RabbitOptions::new("amqps://ann:secret@host/").ca_file("/nowhere.pem"), "/nowhere.pem"),
        ];
        assert!(Settings::check(base()).is_ok());
        for (options, said) in cases {
            let Err(error) = Settings::check(options) else { panic!("{said} was accepted") };
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(said), "{error}");
            assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        }
    }
}
