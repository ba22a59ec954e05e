//! The options of `posthaste relay`.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use clap::ValueEnum;
use posthaste::{DeadPolicy, RelayBuilder, Retain, RetryPolicy};

use super::monitor::HttpArgs;
use crate::config::Sources;
use crate::database::{ListenArgs, Settings};
use crate::durations;
use crate::failure::Failure;
use crate::logging::LogArgs;
use crate::numbers::{at_least_one, at_least_one_u32};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) until: Until,

    #[command(flatten)]
    pub(crate) settings: RelayArgs,
}

/// Everything that can be set about a relay, and so stands in a configuration file too.
#[derive(Debug, clap::Args)]
pub(crate) struct RelayArgs {
    /// Where the messages go: `stdout` (one JSON object a line, flushed; a message counts as published when its line
    /// was written), `null` (nowhere: every message counts as published), or the URL of a RabbitMQ broker
    #[arg(
        long,
        env = "POSTHASTE_TO",
        hide_env_values = true,
        default_value = "stdout",
        value_name = "DESTINATION"
    )]
    pub(crate) to: String,

    /// A file with what --to would say, for a URL with a password
    #[arg(long, env = "POSTHASTE_TO_FILE", value_name = "FILE")]
    to_file: Option<String>,

    #[command(flatten)]
    pub(super) outlets: OutletArgs,

    #[command(flatten)]
    pub(crate) limits: Limits,

    #[command(flatten)]
    failures: Failures,

    #[command(flatten)]
    pub(crate) listen: ListenArgs,

    #[command(flatten)]
    pub(super) http: HttpArgs,

    #[command(flatten)]
    pub(crate) logs: LogArgs,
}

/// Several destinations. They are described by the file, as are routes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Several destinations (see docs/relay.md)")]
pub(super) struct OutletArgs {
    /// Publish only to these destinations, and leave the others to other relays [default: all]
    #[arg(long, value_name = "NAME", env = "POSTHASTE_SERVE", value_delimiter = ',')]
    pub(super) serve: Vec<String>,

    /// Which messages go where, instead of the file's routes: `EVENT_TYPE=DESTINATION`, or
    /// `EVENT_TYPE@AGGREGATE_TYPE=DESTINATION`, with * and ? in the patterns; the first that matches counts
    #[arg(long, value_name = "ROUTE", env = "POSTHASTE_ROUTE", value_delimiter = ',')]
    route: Vec<String>,

    /// Set something about a destination: destinations.NAME.KEY=VALUE
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// When to end. Without any of these options: when asked to stop.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
#[command(next_help_heading = "When to end [default: on SIGTERM or Ctrl-C]")]
pub(super) struct Until {
    /// After one round: publish one page of what is ready now (at most 1,024 messages), once
    #[arg(long)]
    pub(super) once: bool,

    /// When the table has no ready message left, whoever published it
    #[arg(long)]
    pub(super) drain: bool,

    /// After this time (units: ms, s, m, h, d)
    #[arg(long = "for", value_name = "TIME", value_parser = durations::parse, allow_hyphen_values = true)]
    pub(super) for_time: Option<Duration>,
}

/// What bounds the work.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Limits {
    /// A name for people, shown by `posthaste status` [default: host and process id]
    #[arg(long, value_name = "NAME", env = "POSTHASTE_NAME")]
    name: Option<String>,

    /// The most messages being published at the same time
    #[arg(long, value_name = "N", env = "POSTHASTE_MAX_IN_FLIGHT")]
    #[arg(default_value = "256", value_parser = at_least_one, allow_hyphen_values = true)]
    max_in_flight: NonZeroUsize,

    /// The most messages in memory
    #[arg(long, value_name = "N", env = "POSTHASTE_WINDOW_ROWS")]
    #[arg(default_value = "4096", value_parser = at_least_one, allow_hyphen_values = true)]
    window_rows: NonZeroUsize,

    /// The most bytes of messages in memory; a larger message is taken alone
    #[arg(long, value_name = "BYTES", env = "POSTHASTE_WINDOW_BYTES")]
    #[arg(default_value = "67108864", value_parser = at_least_one, allow_hyphen_values = true)]
    window_bytes: NonZeroUsize,

    /// The most outcomes written in one transaction
    #[arg(long, value_name = "N", env = "POSTHASTE_SETTLE_BATCH")]
    #[arg(default_value = "1000", value_parser = at_least_one, allow_hyphen_values = true)]
    settle_batch: NonZeroUsize,

    /// How long an outcome waits for others, to be written with them
    #[arg(long, value_name = "TIME", env = "POSTHASTE_SETTLE_LINGER")]
    #[arg(default_value = "2ms", value_parser = durations::parse, allow_hyphen_values = true)]
    settle_linger: Duration,

    /// How long the lease lasts: after a crash, another relay takes over after at most this time
    #[arg(long, value_name = "TIME", env = "POSTHASTE_LEASE")]
    #[arg(default_value = "10s", value_parser = durations::parse, allow_hyphen_values = true)]
    pub(crate) lease: Duration,

    /// How long one attempt to publish may take
    #[arg(long, value_name = "TIME", env = "POSTHASTE_PUBLISH_TIMEOUT")]
    #[arg(default_value = "10s", value_parser = durations::parse, allow_hyphen_values = true)]
    pub(crate) publish_timeout: Duration,

    /// How long a stop waits for messages being published before it abandons them
    #[arg(long, value_name = "TIME", env = "POSTHASTE_DRAIN_TIMEOUT")]
    #[arg(default_value = "30s", value_parser = durations::parse, allow_hyphen_values = true)]
    drain_timeout: Duration,

    /// How often an idle relay looks for work
    #[arg(long, value_name = "TIME", env = "POSTHASTE_IDLE_POLL")]
    #[arg(default_value = "400ms", value_parser = durations::parse, allow_hyphen_values = true)]
    pub(crate) idle_poll: Duration,

    /// How often the relay deletes what is kept no longer, if no other relay is at it
    #[arg(long, value_name = "TIME", env = "POSTHASTE_UPKEEP_EVERY")]
    #[arg(default_value = "1m", value_parser = durations::parse, allow_hyphen_values = true)]
    upkeep_every: Duration,

    /// End with an error if the database or the destination cannot be reached at the start, instead of waiting for it
    #[arg(long, env = "POSTHASTE_FAIL_FAST")]
    pub(crate) fail_fast: bool,
}

/// What becomes of messages.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What becomes of messages")]
struct Failures {
    /// Give a message up after so many failed attempts; an outage of the destination is no attempt
    #[arg(long, value_name = "N", env = "POSTHASTE_MAX_ATTEMPTS")]
    #[arg(default_value = "5", value_parser = at_least_one_u32, allow_hyphen_values = true)]
    max_attempts: NonZeroU32,

    /// The longest wait after the first failed attempt; it doubles with every further one
    #[arg(long, value_name = "TIME", env = "POSTHASTE_RETRY_BASE")]
    #[arg(default_value = "1s", value_parser = durations::parse, allow_hyphen_values = true)]
    retry_base: Duration,

    /// The longest wait after any failed attempt
    #[arg(long, value_name = "TIME", env = "POSTHASTE_RETRY_CAP")]
    #[arg(default_value = "5m", value_parser = durations::parse, allow_hyphen_values = true)]
    retry_cap: Duration,

    /// What the later messages of a key do when one of them is given up
    #[arg(long, value_enum, value_name = "POLICY", env = "POSTHASTE_ON_DEAD", default_value = "skip")]
    on_dead: OnDead,

    /// How long published messages are kept: a time, or `forever`, or `delete` for not at all
    #[arg(long, value_name = "TIME", env = "POSTHASTE_RETAIN")]
    #[arg(default_value = "7d", value_parser = retain, allow_hyphen_values = true)]
    retain: Retain,

    /// How long idempotency keys are kept, within which a repeat is recognised
    #[arg(long, value_name = "TIME", env = "POSTHASTE_KEEP_IDEMPOTENCY_KEYS")]
    #[arg(default_value = "30d", value_parser = durations::parse, allow_hyphen_values = true)]
    keep_idempotency_keys: Duration,

    /// How long the inbox remembers what a consumer has seen: a time, or `forever`
    #[arg(long, value_name = "TIME", env = "POSTHASTE_KEEP_INBOX")]
    #[arg(default_value = "30d", value_parser = durations::parse_or_forever, allow_hyphen_values = true)]
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

Every setting can stand in a file (--config), in the environment and on the command line: the \
command line goes before the environment, and that before the file. `posthaste config check` \
shows what results. docs/relay.md has the whole.

The first SIGTERM or Ctrl-C drains: no new message is taken, those being published are \
finished. The second one abandons them; they are published again by the next relay. A database \
or a broker that cannot be reached is waited for, unless --fail-fast says otherwise, or the relay \
is to end by itself.

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
  posthaste relay --config posthaste.toml --http 127.0.0.1:9186
  posthaste relay --to null --for 10s --lease 5s --log-format json";

impl Until {
    /// Whether it runs until it is asked to stop.
    pub(super) fn is_never(&self) -> bool {
        !self.once && !self.drain && self.for_time.is_none()
    }
}

impl RelayArgs {
    /// Reads what stands in files of its own.
    pub(crate) fn resolve(&mut self, sources: &Sources) -> Result<(), Failure> {
        if let Some(to) = sources.secret("to", "to_file")? {
            self.to = to;
        }
        if let Some(url) = sources.secret("listen_url", "listen_url_file")? {
            self.listen.listen_url = Some(url);
        }
        Ok(())
    }

    /// What the database has to know.
    pub(crate) fn database_settings(&self) -> Settings {
        Settings { listen: self.listen.clone(), lease: Some(self.limits.lease), ..Settings::default() }
    }

    /// When failed messages are tried again; what is not given is as for the relay.
    pub(super) fn retry(
        &self,
        base: Option<Duration>,
        cap: Option<Duration>,
        attempts: Option<NonZeroU32>,
    ) -> RetryPolicy {
        let of = &self.failures;
        RetryPolicy::exponential(base.unwrap_or(of.retry_base), cap.unwrap_or(of.retry_cap))
            .max_attempts(attempts.unwrap_or(of.max_attempts).get())
    }

    /// Hands everything to the relay but the destination.
    pub(crate) fn configure(&self, builder: RelayBuilder) -> RelayBuilder {
        let (limits, failures) = (&self.limits, &self.failures);
        let on_dead = match failures.on_dead {
            OnDead::Skip => DeadPolicy::Skip,
            OnDead::Park => DeadPolicy::Park,
        };
        builder
            .name(limits.name.clone().unwrap_or_else(host_and_process))
            .max_in_flight(limits.max_in_flight.get())
            .window_rows(limits.window_rows.get())
            .window_bytes(limits.window_bytes.get())
            .settle_batch(limits.settle_batch.get())
            .settle_linger(limits.settle_linger)
            .lease(limits.lease)
            .publish_timeout(limits.publish_timeout)
            .drain_timeout(limits.drain_timeout)
            .idle_poll(limits.idle_poll)
            .upkeep_every(limits.upkeep_every)
            .retry(self.retry(None, None, None))
            .on_dead(on_dead)
            .retain(failures.retain)
            .keep_idempotency_keys(failures.keep_idempotency_keys)
            .keep_inbox(failures.keep_inbox.0)
    }
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
