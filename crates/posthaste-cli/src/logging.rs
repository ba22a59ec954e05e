//! Logs, on stderr.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::database::redact;
use crate::failure::{Failure, note};
use crate::output::wants_colours;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs (on stderr)")]
pub(crate) struct LogArgs {
    /// How a line of the log is written
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT", env = "POSTHASTE_LOG_FORMAT")]
    log_format: Format,

    /// How much is logged; -q, -v and `RUST_LOG` go before it
    #[arg(long, value_enum, default_value = "info", value_name = "LEVEL", env = "POSTHASTE_LOG_LEVEL")]
    log_level: Level,

    /// Log more: -v debug, -vv trace
    #[arg(short, long, action = clap::ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,

    /// Log errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Level {
    /// Dead messages and failed bookkeeping
    Error,
    /// Retries, pauses, a lost database or broker
    Warn,
    /// The beginning and end of things
    Info,
    /// Cycles
    Debug,
    /// Every message
    Trace,
}

impl LogArgs {
    fn level(&self) -> LevelFilter {
        match (self.quiet, self.verbose) {
            (true, _) => LevelFilter::ERROR,
            (false, 0) => match self.log_level {
                Level::Error => LevelFilter::ERROR,
                Level::Warn => LevelFilter::WARN,
                Level::Info => LevelFilter::INFO,
                Level::Debug => LevelFilter::DEBUG,
                Level::Trace => LevelFilter::TRACE,
            },
            (false, 1) => LevelFilter::DEBUG,
            (false, _) => LevelFilter::TRACE,
        }
    }

    /// Says something to whoever reads stderr: a program reads JSON only.
    pub(crate) fn say(&self, text: &str) {
        match self.log_format {
            _ if self.quiet => {}
            Format::Json => tracing::info!(target: "posthaste", "{}", redact(text)),
            Format::Text => note(text),
        }
    }

    /// Says why the relay failed, if whoever reads stderr is a program; otherwise it is said at the end.
    pub(crate) fn say_failure(&self, failure: Failure) -> Failure {
        match self.log_format {
            Format::Text => failure,
            Format::Json => {
                tracing::error!(target: "posthaste", "{}", failure.text());
                failure.said()
            }
        }
    }

    /// Starts logging. `RUST_LOG` goes before the options, but not before [`may_be_logged`].
    pub(crate) fn start(&self) {
        let chosen = EnvFilter::try_from_default_env()
            .unwrap_or_else(|_| EnvFilter::new(format!("warn,posthaste={}", self.level())));
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(io::stderr)
            .with_ansi(wants_colours(io::stderr().is_terminal()))
            // A closed stderr is nothing to panic about.
            .log_internal_errors(false);
        let limit = || filter_fn(may_be_logged);
        let registry = tracing_subscriber::registry().with(chosen);
        // An error: somebody has started logging before, which happens in tests only.
        let _ = match self.log_format {
            Format::Text => registry.with(lines.with_filter(limit())).try_init(),
            Format::Json => registry.with(lines.json().flatten_event(true).with_filter(limit())).try_init(),
        };
    }
}

/// Whether something may be logged at all. What other crates say below a warning may hold payloads, statements with
/// values, or passwords; lapin logs messages that are returned to it as warnings, and what it reports, we do.
fn may_be_logged(metadata: &Metadata<'_>) -> bool {
    let name = metadata.target().split("::").next().unwrap_or_default();
    match name {
        "lapin" => false,
        name if name == "posthaste" || name.starts_with("posthaste_") => true,
        _ => *metadata.level() <= tracing::Level::WARN,
    }
}
