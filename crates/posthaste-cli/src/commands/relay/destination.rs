//! Where a relay's messages go.

use std::sync::Arc;
use std::time::Duration;

use posthaste::{PublishError, RelayBuilder, publish_fn};
use posthaste_rabbitmq::{RabbitOptions, RabbitPublisher};

use crate::failure::Failure;
use crate::health::Look;
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

/// A destination that is served.
pub(super) struct Served {
    end: Arc<End>,
    rabbit: Option<RabbitPublisher>,
}

impl Served {
    /// Starts a publisher, and hands it to the relay.
    pub(super) fn start(
        builder: RelayBuilder,
        destination: Destination,
        timeout: Duration,
    ) -> Result<(RelayBuilder, Self), Failure> {
        // The publisher's own time limit comes first: a destination that does not answer is no message's fault.
        let patient = |builder: RelayBuilder| builder.publish_timeout(timeout.saturating_mul(2));
        match destination {
            Destination::Stdout => {
                check_stdout().map_err(Failure::failed)?;
                let publisher = StdoutPublisher::start(std::io::stdout(), timeout)
                    .map_err(|error| Failure::failed(format!("a thread cannot be started: {error}")))?;
                let served = Self { end: publisher.end(), rabbit: None };
                Ok((patient(builder).publisher(publisher), served))
            }
            Destination::Null => {
                let publisher = publish_fn(async |_| Ok::<_, PublishError>(()));
                Ok((builder.publisher(publisher), Self { end: Arc::default(), rabbit: None }))
            }
            Destination::RabbitMq(options) => {
                let publisher = RabbitPublisher::start(options.publish_timeout(timeout))?;
                let served = Self { end: Arc::default(), rabbit: Some(publisher.clone()) };
                Ok((patient(builder).publisher(publisher), served))
            }
        }
    }

    /// Waits until the destination is there, or known not to be.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        let Some(rabbit) = &self.rabbit else { return Ok(()) };
        rabbit.connected().await.map_err(|error| {
            Failure::failed(format!("RabbitMQ cannot be reached: {}", error.reason()))
                .hint("without --fail-fast the relay waits for it")
        })
    }

    /// What the destination says about itself.
    pub(super) fn looks(&self) -> Vec<(String, Look)> {
        let rabbit = self.rabbit.clone().map(|rabbit| {
            let look: Look = Box::new(move || rabbit.trouble().map(str::to_owned));
            ("default".to_owned(), look)
        });
        rabbit.into_iter().collect()
    }

    /// What ends the relay from the destination's side.
    pub(super) fn end(&self) -> &End {
        &self.end
    }

    /// Says goodbye.
    pub(super) async fn close(&self) {
        if let Some(rabbit) = &self.rabbit {
            rabbit.close().await;
        }
    }
}
