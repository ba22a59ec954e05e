//! The command line: global options and the list of commands.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::commands::{
    bench, cleanup, config, demo, discard, enqueue, list, migrate, partitions, purge, redrive, relay, show,
    status,
};
use crate::config::Sources;
use crate::failure::Failure;

/// Writes events in the transaction that makes them true, and ships them at least once, in order per key.
#[derive(Debug, Parser)]
#[command(name = "posthaste", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  posthaste demo                                       see it work; needs nothing
  export POSTHASTE_DATABASE_URL=sqlite:outbox.db
  posthaste migrate                                    make the tables (and the SQLite file)
  posthaste enqueue --event-type order.created --aggregate order/7 --payload '{\"total\":12}'
  posthaste relay --to stdout --drain                  publish all there is as JSON lines, then end
  posthaste status                                     how many messages are ready, waiting, dead
  posthaste redrive --all                              give dead messages another try

Exit codes:
  0  done
  1  failed: the database, the destination, or what was asked for is not there
  2  bad usage or bad input; nothing was changed";

/// Options that every command takes.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    #[arg(long, global = true, value_name = "URL", env = "POSTHASTE_DATABASE_URL", hide_env_values = true)]
    #[arg(help_heading = "Global options", allow_hyphen_values = true)]
    #[arg(help = "The database: sqlite:PATH, postgres://USER@HOST/DATABASE[?schema=SCHEMA] or \
                  mysql://USER@HOST/DATABASE[?ssl-mode=MODE] (better set in the environment if it holds a password)")]
    pub(crate) database_url: Option<String>,

    /// A file with the database's URL
    #[arg(long, global = true, value_name = "FILE", env = "POSTHASTE_DATABASE_URL_FILE")]
    #[arg(help_heading = "Global options")]
    database_url_file: Option<String>,

    /// The outbox table, on servers also SCHEMA.TABLE; the tables beside it are named after it
    #[arg(long, global = true, value_name = "TABLE", default_value = "outbox", env = "POSTHASTE_TABLE")]
    #[arg(help_heading = "Global options")]
    pub(crate) table: String,

    /// A file with settings; see `posthaste config check --help`
    #[arg(long, global = true, value_name = "FILE", env = "POSTHASTE_CONFIG")]
    #[arg(help_heading = "Global options")]
    config: Option<PathBuf>,
}

impl Cli {
    /// Reads what stands in files of its own.
    pub(crate) fn resolve(&mut self, sources: &Sources) -> Result<(), Failure> {
        if let Some(url) = sources.secret("database_url", "database_url_file")? {
            self.global.database_url = Some(url);
        }
        match &mut self.command {
            Command::Relay(args) => args.settings.resolve(sources),
            Command::Config(args) => {
                let config::What::Check(check) = &mut args.command;
                check.settings.resolve(sources)
            }
            _ => Ok(()),
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show it at work: producers, failing deliveries, and a check of every promise
    Demo(demo::Args),
    /// Create the tables, or bring them up to date
    Migrate(migrate::Args),
    /// Enqueue one message, or many from newline-delimited JSON
    Enqueue(enqueue::Args),
    /// Publish messages until stopped, in order per key
    Relay(Box<relay::Args>),
    /// Check the configuration of a relay
    Config(config::Args),
    /// Show how many messages are ready, waiting and dead, and which relays run
    Status(status::Args),
    /// List messages, oldest first
    List(list::Args),
    /// Show one message whole
    Show(show::Args),
    /// Make dead messages pending again
    Redrive(redrive::Args),
    /// Delete dead messages
    Discard(discard::Args),
    /// Delete messages that were settled long ago
    Purge(purge::Args),
    /// Delete old messages, by a role that may do nothing else (MySQL)
    Cleanup(cleanup::Args),
    /// Make partitions ahead, and drop old ones (PostgreSQL, MySQL)
    Partitions(partitions::Args),
    /// Measure how fast it is here, against what the database does without it
    Bench(bench::Args),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_and_every_option_a_help_text() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            assert!(command.get_after_help().is_some(), "{name} has no examples");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name}: {} has no help", argument.get_id());
            }
        }
    }
}
