//! Where a relay's messages go.

use std::sync::Arc;
use std::time::Duration;

use posthaste::{PublishError, RelayBuilder, publish_fn};
use posthaste_rabbitmq::{RabbitOptions, RabbitPublisher};

use crate::failure::Failure;
use crate::stdout_check::check_stdout;
use crate::stdout_publisher::{End, StdoutPublisher};

#[derive(Debug)]
pub(crate) enum Destination {
    Stdout,
    Null,
    RabbitMq(Box<RabbitOptions>),
}

impl Destination {
    /// Errors never quote the text, which may hold a password.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        match text.trim() {
            "stdout" => Ok(Self::Stdout),
            "null" => Ok(Self::Null),
            url if ["amqp:", "amqps:"].iter().any(|scheme| url.starts_with(scheme)) => {
                Ok(Self::RabbitMq(Box::new(RabbitOptions::from_url(url)?)))
            }
            _ => Err(Failure::bad_input(
                "--to names no destination; known are stdout, null and amqp:// or amqps:// URLs",
            )
            .hint("a RabbitMQ broker is written amqp://user:password@host/vhost?exchange=events")),
        }
    }

    /// Whether its options make sense; nothing is connected to.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        match self {
            Self::Stdout | Self::Null => Ok(()),
            Self::RabbitMq(options) => Ok(options.check()?),
        }
    }
}

/// The builder with its publisher, what ends the relay from the destination's side, and what to close afterwards.
pub(super) fn with_destination(
    builder: RelayBuilder,
    destination: Destination,
    timeout: Duration,
) -> Result<(RelayBuilder, Arc<End>, Option<RabbitPublisher>), Failure> {
    // The publisher's own time limit comes first: a destination that does not answer is no message's fault.
    let patient = |builder: RelayBuilder| builder.publish_timeout(timeout.saturating_mul(2));
    match destination {
        Destination::Stdout => {
            check_stdout().map_err(Failure::failed)?;
            let publisher = StdoutPublisher::start(std::io::stdout(), timeout)
                .map_err(|error| Failure::failed(format!("a thread cannot be started: {error}")))?;
            let end = publisher.end();
            Ok((patient(builder).publisher(publisher), end, None))
        }
        Destination::Null => {
            let publisher = publish_fn(async |_| Ok::<_, PublishError>(()));
            Ok((builder.publisher(publisher), Arc::default(), None))
        }
        Destination::RabbitMq(options) => {
            let publisher = RabbitPublisher::start(options.publish_timeout(timeout))?;
            Ok((patient(builder).publisher(publisher.clone()), Arc::default(), Some(publisher)))
        }
    }
}
