//! Logs, on stderr.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::output::wants_colours;

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Logs (on stderr)")]
pub(crate) struct LogArgs {
    /// How a line of the log is written
    #[arg(long, value_enum, default_value = "text", value_name = "FORMAT")]
    log_format: Format,

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

impl LogArgs {
    fn level(&self) -> &'static str {
        match (self.quiet, self.verbose) {
            (true, _) => "error",
            (false, 0) => "info",
            (false, 1) => "debug",
            (false, _) => "trace",
        }
    }

    /// Starts logging. `RUST_LOG` goes before the options.
    pub(crate) fn start(&self) {
        // lapin logs messages that are returned to it, with their payloads; what it reports, we do.
        let own = format!(
            "warn,lapin=off,posthaste={level},posthaste_sqlite={level},posthaste_postgres={level},\
             posthaste_rabbitmq={level}",
            level = self.level()
        );
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(own));
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(io::stderr)
            .with_ansi(wants_colours(io::stderr().is_terminal()))
            // A closed stderr is nothing to panic about.
            .log_internal_errors(false);
        // An error: somebody has started logging before, which happens in tests only.
        let _ = match self.log_format {
            Format::Text => builder.try_init(),
            Format::Json => builder.json().flatten_event(true).try_init(),
        };
    }
}
