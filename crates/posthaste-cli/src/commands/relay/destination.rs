//! Where a relay's messages go.

use std::sync::Arc;
use std::time::Duration;

use posthaste::{PublishError, Publisher, RelayBuilder, Route, publish_fn};
use posthaste_rabbitmq::{RabbitOptions, RabbitPublisher};

use super::args::RelayArgs;
use crate::config::{DestinationArgs, Sourced, Sources, nearest};
use crate::failure::Failure;
use crate::health::Look;
use crate::stdout_check::check_stdout;
use crate::stdout_publisher::{End, StdoutPublisher};

/// The name of a destination that is the only one.
const ONLY: &str = "default";

/// Everywhere a relay's messages go, checked.
pub(crate) struct Plan {
    destinations: Vec<Planned>,
    /// Empty, with one destination: everything goes there.
    routes: Vec<Route>,
}

struct Planned {
    name: String,
    kind: Kind,
    args: DestinationArgs,
    /// Whether this relay publishes to it.
    served: bool,
}

enum Kind {
    Stdout,
    Null,
    RabbitMq(Box<RabbitOptions>),
}

impl Kind {
    /// Errors never quote the text, which may hold a password.
    fn parse(text: &str, place: &str) -> Result<Self, Failure> {
        match text.trim() {
            "stdout" => Ok(Self::Stdout),
            "null" => Ok(Self::Null),
            url if ["amqp:", "amqps:"].iter().any(|scheme| url.starts_with(scheme)) => {
                Ok(Self::RabbitMq(Box::new(RabbitOptions::from_url(url)?)))
            }
            _ => Err(Failure::bad_input(format!(
                "{place} names no destination; known are stdout, null and amqp:// or amqps:// URLs"
            ))
            .hint("a RabbitMQ broker is written amqp://user:password@host/vhost?exchange=events")),
        }
    }

    /// With what stands beside the URL.
    fn with(self, args: &DestinationArgs, name: &str) -> Result<Self, Failure> {
        let Self::RabbitMq(mut options) = self else {
            return match args.of_rabbitmq() {
                Some(key) => Err(Failure::bad_input(format!(
                    "destinations.{name}.{key} is for RabbitMQ, and `to` is not"
                ))),
                None => Ok(self),
            };
        };
        if let Some(exchange) = &args.exchange {
            options.exchange.clone_from(exchange);
        }
        if let Some(routing_key) = &args.routing_key {
            options.routing_key.clone_from(routing_key);
        }
        options.mandatory = args.mandatory.unwrap_or(options.mandatory);
        options.persistent = args.persistent.unwrap_or(options.persistent);
        options.channels = args.channels.unwrap_or(options.channels);
        options.heartbeat = args.heartbeat.unwrap_or(options.heartbeat);
        options.connect_timeout = args.connect_timeout.unwrap_or(options.connect_timeout);
        options.ca_file = args.ca_file.clone().map(Into::into).or(options.ca_file.take());
        Ok(Self::RabbitMq(options))
    }
}

impl Plan {
    /// What the settings say; nothing is connected to.
    pub(crate) fn of(settings: &RelayArgs, sources: &Sources) -> Result<Self, Failure> {
        let outlets = &sources.outlets;
        let plan = if outlets.is_empty() {
            let kind = Kind::parse(&settings.to, "--to")?;
            let args = DestinationArgs::default();
            let only = Planned { name: ONLY.to_owned(), kind, args, served: true };
            Self { destinations: vec![only], routes: Vec::new() }
        } else {
            Self::of_several(settings, sources)?
        };
        plan.check(settings)?;
        Ok(plan)
    }

    fn of_several(settings: &RelayArgs, sources: &Sources) -> Result<Self, Failure> {
        if sources.get("to").is_some_and(Sourced::is_set) || sources.get("to_file").is_some() {
            let failure = Failure::bad_input("relay.to and [destinations] both say where messages go");
            return Err(failure.hint("leave one of them out"));
        }
        let outlets = &sources.outlets;
        let names = || outlets.destinations.iter().map(|destination| destination.name.as_str());
        if let Some(unknown) = settings.outlets.serve.iter().find(|name| !names().any(|known| known == *name))
        {
            let failure = Failure::bad_input(format!("relay.serve names {unknown}, which is no destination"));
            return Err(match nearest(unknown, names()) {
                Some(nearest) => failure.hint(format!("the nearest destination is {nearest}")),
                None => failure,
            });
        }
        let destinations = outlets.destinations.iter().map(|destination| {
            let (name, args) = (destination.name.clone(), destination.args.clone());
            let to = args.to.as_deref().unwrap_or_default();
            let kind = Kind::parse(to, &format!("destinations.{name}.to"))?.with(&args, &name)?;
            let served = settings.outlets.serve.is_empty() || settings.outlets.serve.contains(&name);
            Ok(Planned { name, kind, args, served })
        });
        let routes = outlets.routes.iter().map(|route| {
            let mut made = Route::to(&route.to);
            made = route.event_type.iter().fold(made, Route::event_type);
            route.aggregate_type.iter().fold(made, Route::aggregate_type)
        });
        let destinations = destinations.collect::<Result<Vec<_>, Failure>>()?;
        let mut routes: Vec<_> = routes.collect();
        if let ([only], true) = (destinations.as_slice(), routes.is_empty()) {
            routes.push(Route::to(&only.name));
        }
        Ok(Self { destinations, routes })
    }

    fn check(&self, settings: &RelayArgs) -> Result<(), Failure> {
        let mut to_stdout = 0;
        for planned in self.served() {
            match &planned.kind {
                Kind::RabbitMq(options) => {
                    let timeout = planned.timeout(settings);
                    options.clone().publish_timeout(timeout).check()?;
                }
                Kind::Stdout => to_stdout += 1,
                Kind::Null => {}
            }
        }
        match to_stdout {
            0 | 1 => Ok(()),
            _ => Err(Failure::bad_input("two destinations are stdout")),
        }
    }

    fn served(&self) -> impl Iterator<Item = &Planned> {
        self.destinations.iter().filter(|planned| planned.served)
    }

    /// The names of the destinations to which this relay publishes.
    pub(crate) fn names(&self) -> Vec<String> {
        self.served().map(|planned| planned.name.clone()).collect()
    }

    /// Hands all of it to a relay that is not run.
    pub(crate) fn try_on(&self, builder: RelayBuilder, settings: &RelayArgs) -> RelayBuilder {
        let nowhere = || publish_fn(async |_| Ok::<_, PublishError>(()));
        let builder = self.destinations.iter().fold(builder, |builder, planned| {
            builder.destination(planned.destination(planned.served.then(nowhere), settings))
        });
        self.routed(builder)
    }

    fn routed(&self, builder: RelayBuilder) -> RelayBuilder {
        let routes = if self.routes.is_empty() { vec![Route::to(ONLY)] } else { self.routes.clone() };
        routes.into_iter().fold(builder, RelayBuilder::route_by)
    }

    /// Starts all publishers, and hands them to the relay.
    pub(super) fn start(
        &self,
        mut builder: RelayBuilder,
        settings: &RelayArgs,
    ) -> Result<(RelayBuilder, Served), Failure> {
        let mut served = Served { end: Arc::default(), rabbits: Vec::new() };
        for planned in &self.destinations {
            let timeout = planned.timeout(settings);
            builder = match &planned.kind {
                _ if !planned.served => builder.destination(posthaste::Destination::elsewhere(&planned.name)),
                Kind::Stdout => {
                    check_stdout().map_err(Failure::failed)?;
                    let publisher = StdoutPublisher::start(std::io::stdout(), timeout)
                        .map_err(|error| Failure::failed(format!("a thread cannot be started: {error}")))?;
                    served.end = publisher.end();
                    planned.hand_over(builder, publisher, settings, self.routes.is_empty())
                }
                Kind::Null => {
                    let publisher = publish_fn(async |_| Ok::<_, PublishError>(()));
                    planned.hand_over(builder, publisher, settings, self.routes.is_empty())
                }
                Kind::RabbitMq(options) => {
                    let options = options.clone().publish_timeout(timeout);
                    let publisher = RabbitPublisher::start(options)?;
                    served.rabbits.push((planned.name.clone(), publisher.clone()));
                    planned.hand_over(builder, publisher, settings, self.routes.is_empty())
                }
            };
        }
        if !self.routes.is_empty() {
            builder = self.routed(builder);
        }
        Ok((builder, served))
    }
}

impl Planned {
    /// How long the publisher may take.
    fn timeout(&self, settings: &RelayArgs) -> Duration {
        self.args.publish_timeout.unwrap_or(settings.limits.publish_timeout)
    }

    /// How long the relay waits for the publisher. The publisher's own time limit comes first: a destination that does
    /// not answer is no message's fault.
    fn patience(&self, settings: &RelayArgs) -> Duration {
        match self.kind {
            Kind::Null => self.timeout(settings),
            Kind::Stdout | Kind::RabbitMq(_) => self.timeout(settings).saturating_mul(2),
        }
    }

    fn destination(&self, publisher: Option<impl Publisher>, settings: &RelayArgs) -> posthaste::Destination {
        let args = &self.args;
        let Some(publisher) = publisher else { return posthaste::Destination::elsewhere(&self.name) };
        let mut destination =
            posthaste::Destination::new(&self.name, publisher).publish_timeout(self.patience(settings));
        if let Some(records) = args.max_in_flight {
            destination = destination.max_in_flight(records.get());
        }
        if let Some(records) = args.rate_limit {
            destination = destination.rate_limit(records.get(), Duration::from_secs(1));
        }
        if args.max_attempts.is_some() || args.retry_base.is_some() || args.retry_cap.is_some() {
            destination =
                destination.retry(settings.retry(args.retry_base, args.retry_cap, args.max_attempts));
        }
        destination
    }

    fn hand_over(
        &self,
        builder: RelayBuilder,
        publisher: impl Publisher,
        settings: &RelayArgs,
        is_only: bool,
    ) -> RelayBuilder {
        if is_only {
            return builder.publish_timeout(self.patience(settings)).publisher(publisher);
        }
        builder.destination(self.destination(Some(publisher), settings))
    }
}

/// The destinations that are served.
pub(super) struct Served {
    end: Arc<End>,
    rabbits: Vec<(String, RabbitPublisher)>,
}

impl Served {
    /// Waits until all destinations are there, or one is known not to be.
    pub(super) async fn check(&self) -> Result<(), Failure> {
        for (name, rabbit) in &self.rabbits {
            rabbit.connected().await.map_err(|error| {
                let text = format!("destination {name}: RabbitMQ cannot be reached: {}", error.reason());
                Failure::failed(text).hint("without --fail-fast the relay waits for it")
            })?;
        }
        Ok(())
    }

    /// What the destinations say about themselves.
    pub(super) fn looks(&self) -> Vec<(String, Look)> {
        let look = |(name, rabbit): &(String, RabbitPublisher)| {
            let rabbit = rabbit.clone();
            let look: Look = Box::new(move || rabbit.trouble().map(str::to_owned));
            (name.clone(), look)
        };
        self.rabbits.iter().map(look).collect()
    }

    /// What ends the relay from a destination's side.
    pub(super) fn end(&self) -> &End {
        &self.end
    }

    /// Says goodbye.
    pub(super) async fn close(&self) {
        for (_, rabbit) in &self.rabbits {
            rabbit.close().await;
        }
    }
}
