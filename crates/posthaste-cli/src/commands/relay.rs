//! `posthaste relay`: publish messages until stopped.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use posthaste::{
    DeadPolicy, Error, PublishError, Relay, RelayBuilder, RelayHandle, Retain, RetryPolicy, Summary,
    publish_fn,
};
use posthaste_rabbitmq::{RabbitOptions, RabbitPublisher};
use tokio::time::Instant;

use crate::database::{ListenArgs, Settings, Target};
use crate::durations::{self, human};
use crate::failure::{Failure, note};
use crate::logging::LogArgs;
use crate::numbers::{at_least_one, at_least_one_u32};
use crate::output::messages;
use crate::shutdown::StopRequests;
use crate::stdout_check::check_stdout;
use crate::stdout_publisher::{End, StdoutPublisher};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Where the messages go: `stdout` (one JSON object a line, flushed; a message counts as published when its line
    /// was written), `null` (nowhere: every message counts as published), or the URL of a RabbitMQ broker
    #[arg(
        long,
        env = "POSTHASTE_TO",
        hide_env_values = true,
        default_value = "stdout",
        value_name = "DESTINATION"
    )]
    to: String,

    #[command(flatten)]
    until: Until,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    failures: Failures,

    #[command(flatten)]
    listen: ListenArgs,

    #[command(flatten)]
    logs: LogArgs,
}

#[derive(Debug)]
enum Destination {
    Stdout,
    Null,
    RabbitMq(Box<RabbitOptions>),
}

impl Destination {
    /// Errors never quote the text, which may hold a password.
    fn parse(text: &str) -> Result<Self, Failure> {
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
}

/// When to end. Without any of these options: when asked to stop.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
#[command(next_help_heading = "When to end [default: on SIGTERM or Ctrl-C]")]
struct Until {
    /// After one round: publish one page of what is ready now (at most 1,024 messages), once
    #[arg(long)]
    once: bool,

    /// When the table has no ready message left, whoever published it
    #[arg(long)]
    drain: bool,

    /// After this time (units: ms, s, m, h, d)
    #[arg(long = "for", value_name = "TIME", value_parser = durations::parse, allow_hyphen_values = true)]
    for_time: Option<Duration>,
}

/// What bounds the work.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct Limits {
    /// A name for people, shown by `posthaste status` [default: host and process id]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The most messages being published at the same time
    #[arg(long, value_name = "N", default_value = "256", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    max_in_flight: NonZeroUsize,

    /// The most messages in memory
    #[arg(long, value_name = "N", default_value = "4096", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    window_rows: NonZeroUsize,

    /// The most bytes of messages in memory; a larger message is taken alone
    #[arg(long, value_name = "BYTES", default_value = "67108864", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    window_bytes: NonZeroUsize,

    /// How long the lease lasts: after a crash, another relay takes over after at most this time
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = durations::parse)]
    #[arg(allow_hyphen_values = true)]
    lease: Duration,

    /// How long one attempt to publish may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = durations::parse)]
    #[arg(allow_hyphen_values = true)]
    publish_timeout: Duration,

    /// How long a stop waits for messages being published before it abandons them
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = durations::parse)]
    #[arg(allow_hyphen_values = true)]
    drain_timeout: Duration,

    /// How often an idle relay looks for work
    #[arg(long, value_name = "TIME", default_value = "400ms", value_parser = durations::parse)]
    #[arg(allow_hyphen_values = true)]
    idle_poll: Duration,
}

/// What becomes of messages.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What becomes of messages")]
struct Failures {
    /// Give a message up after so many failed attempts; an outage of the destination is no attempt
    #[arg(long, value_name = "N", default_value = "5", value_parser = at_least_one_u32)]
    #[arg(allow_hyphen_values = true)]
    max_attempts: NonZeroU32,

    /// The longest wait after the first failed attempt; it doubles with every further one
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = durations::parse)]
    #[arg(allow_hyphen_values = true)]
    retry_base: Duration,

    /// The longest wait after any failed attempt
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = durations::parse)]
    #[arg(allow_hyphen_values = true)]
    retry_cap: Duration,

    /// What the later messages of a key do when one of them is given up
    #[arg(long, value_enum, default_value = "skip", value_name = "POLICY")]
    on_dead: OnDead,

    /// How long published messages are kept: a time, or `forever`, or `delete` for not at all
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = retain)]
    #[arg(allow_hyphen_values = true)]
    retain: Retain,

    /// How long the inbox (on PostgreSQL) remembers what a consumer has seen: a time, or `forever`
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = durations::parse_or_forever)]
    #[arg(allow_hyphen_values = true)]
    keep_inbox: durations::OrForever,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnDead {
    /// They go on without it
    Skip,
    /// They wait until it is redriven or discarded
    Park,
}

const EXAMPLES: &str = "\
Messages are published at least once, and those of one key (aggregate type and id) one after \
another in the order in which they were enqueued. Several relays may work on one table: they \
share the lanes; on SQLite one works and the others stand by. On PostgreSQL an idle relay is woken \
by producers; behind a pooler it needs --listen-url for that, and polls without it.

The first SIGTERM or Ctrl-C drains: no new message is taken, those being published are \
finished. The second one abandons them; they are published again by the next relay.

A line on stdout has id, idempotency_key, event_type, aggregate_type, aggregate_id, \
content_type, headers, attempt and enqueued_at (null where there is no value), and the payload \
as `payload` (a JSON string that holds its text) or `payload_base64` (where it is not UTF-8). \
A tombstone has neither. When the reader of stdout goes away, the relay ends with exit code 1; \
what was not written stays in the table, and no attempt is counted.

A RabbitMQ URL takes exchange, routing_key (such as {aggregate_type}.{event_type}), mandatory, \
persistent, channels, heartbeat, connect_timeout, cacertfile and declare behind a question mark; \
docs/rabbitmq.md explains them. With a password in it, better set POSTHASTE_TO.

Examples:
  posthaste relay --to stdout --drain > events.ndjson
  posthaste relay --to stdout | while read -r event; do handle \"$event\"; done
  posthaste relay --to 'amqp://rabbit.internal/shop?exchange=events'
  posthaste relay --to null --for 10s --lease 5s --log-format json";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    args.logs.start();
    let destination = Destination::parse(&args.to)?;
    let mut requests = StopRequests::listen()?;
    let settings =
        Settings { listen: args.listen.clone(), lease: Some(args.limits.lease), ..Settings::default() };
    let database = target.with(settings).open().await?;
    // The relay itself rides out what may go away; a file without write permission will not.
    database.check_writable().await?;
    let builder = configure(Relay::builder(database.store.clone()), &args);
    let (builder, end, rabbit) = with_destination(builder, destination, &args)?;
    #[cfg(feature = "failpoints")]
    let builder = with_frequent_upkeep(builder);
    let relay = builder.build()?;
    let mut stopping = Stopping { handle: relay.handle(), quiet: args.logs.quiet, before: None };
    let begun = Instant::now();
    let work = work(relay, &args.until);
    tokio::pin!(work);
    let mut ended = false;
    let summary = loop {
        tokio::select! {
            summary = &mut work => break summary?,
            () = end.reached(), if !ended => {
                ended = true;
                stopping.handle.stop();
            }
            () = requests.next() => stopping.requested(),
        }
    };
    if let Some(rabbit) = rabbit {
        rabbit.close().await;
    }
    if !args.logs.quiet {
        note(&summary_line(&summary, begun.elapsed()));
    }
    match end.reason() {
        Some(reason) => Err(Failure::failed(reason)
            .hint("what was not written is still in the table, and no attempt was counted")),
        None => stopping.check(&summary),
    }
}

/// Stopping a relay in two steps.
struct Stopping {
    handle: RelayHandle,
    quiet: bool,
    /// What had been done when the relay was asked to stop for the first time.
    before: Option<Summary>,
}

impl Stopping {
    fn requested(&mut self) {
        let text = if self.before.is_none() {
            self.before = Some(self.handle.summary());
            self.handle.stop();
            "stopping: finishing what is being published (once more to abandon it)"
        } else {
            self.handle.abandon();
            "abandoning what is being published"
        };
        if !self.quiet {
            note(text);
        }
    }

    /// Whether everything that was being published was finished.
    fn check(&self, summary: &Summary) -> Result<(), Failure> {
        match self.before.map_or(0, |before| summary.abandoned - before.abandoned) {
            0 => Ok(()),
            count => Err(Failure::failed(format!("abandoned {} while being published", messages(count)))
                .hint("the next relay publishes them, perhaps for the second time")),
        }
    }
}

fn configure(builder: RelayBuilder, args: &Args) -> RelayBuilder {
    let (limits, failures) = (&args.limits, &args.failures);
    let retry = RetryPolicy::exponential(failures.retry_base, failures.retry_cap)
        .max_attempts(failures.max_attempts.get());
    let on_dead = match failures.on_dead {
        OnDead::Skip => DeadPolicy::Skip,
        OnDead::Park => DeadPolicy::Park,
    };
    builder
        .name(limits.name.clone().unwrap_or_else(host_and_process))
        .max_in_flight(limits.max_in_flight.get())
        .window_rows(limits.window_rows.get())
        .window_bytes(limits.window_bytes.get())
        .lease(limits.lease)
        .publish_timeout(limits.publish_timeout)
        .drain_timeout(limits.drain_timeout)
        .idle_poll(limits.idle_poll)
        .retry(retry)
        .on_dead(on_dead)
        .retain(failures.retain)
        .keep_inbox(failures.keep_inbox.0)
}

/// For tests of what happens in the middle of upkeep.
#[cfg(feature = "failpoints")]
fn with_frequent_upkeep(builder: RelayBuilder) -> RelayBuilder {
    let every =
        std::env::var("POSTHASTE_TEST_UPKEEP_EVERY").ok().and_then(|text| durations::parse(&text).ok());
    every.into_iter().fold(builder, RelayBuilder::upkeep_every)
}

/// The builder with its publisher, what ends the relay from the destination's side, and what to close afterwards.
fn with_destination(
    builder: RelayBuilder,
    destination: Destination,
    args: &Args,
) -> Result<(RelayBuilder, Arc<End>, Option<RabbitPublisher>), Failure> {
    let timeout = args.limits.publish_timeout;
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

async fn work(relay: Relay, until: &Until) -> Result<Summary, Error> {
    if until.once {
        relay.run_once().await
    } else if until.drain {
        relay.drain().await
    } else if let Some(time) = until.for_time {
        relay.run_until(tokio::time::sleep(time)).await
    } else {
        relay.run_until(std::future::pending()).await
    }
}

fn summary_line(summary: &Summary, took: Duration) -> String {
    let others = [
        (summary.retried, "retried"),
        (summary.dead, "dead"),
        (summary.stale, "published but lost to another relay"),
        (summary.abandoned, "abandoned"),
    ];
    let counts = others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let parts: Vec<_> =
        std::iter::once(format!("published {}", messages(summary.published))).chain(counts).collect();
    format!("{} in {}", parts.join(", "), human(took))
}

fn host_and_process() -> String {
    let process = std::process::id();
    match std::fs::read_to_string("/proc/sys/kernel/hostname") {
        Ok(host) if !host.trim().is_empty() => format!("{}:{process}", host.trim()),
        _ => format!("pid {process}"),
    }
}

fn retain(text: &str) -> Result<Retain, String> {
    match text {
        "forever" => Ok(Retain::Forever),
        "delete" => Ok(Retain::DeleteOnSettle),
        _ => match durations::parse(text) {
            Ok(time) => Ok(Retain::For(time)),
            Err(error) => Err(format!("{error}; or say forever, or delete")),
        },
    }
}
