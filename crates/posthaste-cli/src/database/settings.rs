//! What can be set for PostgreSQL alone.

use std::time::Duration;

use clap::ValueEnum;
use posthaste::Migration;
use posthaste_postgres::Partition;

use crate::failure::Failure;
use crate::numbers::lanes;

/// Settings that other kinds of database refuse, and the relay's lease.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) schema: SchemaArgs,
    pub(crate) listen: ListenArgs,
    /// How long a relay's lease lasts; what is done with the database must be over sooner.
    pub(crate) lease: Option<Duration>,
}

/// What is made.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "PostgreSQL only")]
pub(crate) struct SchemaArgs {
    /// Make the outbox a partitioned table; see `posthaste partitions`
    #[arg(long, value_enum, value_name = "LENGTH", conflicts_with = "inbox_only")]
    pub(crate) partition: Option<Every>,

    /// Add a trigger, so that a plain INSERT wakes an idle relay as `posthaste enqueue` does
    #[arg(long, conflicts_with = "inbox_only")]
    pub(crate) wake_trigger: bool,

    /// How many lanes the outbox has, 1 to 1024; they are fixed when it is made [default: 64]
    #[arg(long, value_name = "N", value_parser = lanes, conflicts_with = "inbox_only")]
    #[arg(allow_hyphen_values = true)]
    pub(crate) lanes: Option<u16>,

    /// Only the inbox, for a service that consumes and has no outbox
    #[arg(long)]
    pub(crate) inbox_only: bool,
}

/// How a relay is woken.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "PostgreSQL only")]
pub(crate) struct ListenArgs {
    /// Where to listen for producers: a direct connection beside a pooler [default: the database URL]
    #[arg(long, value_name = "URL", env = "POSTHASTE_LISTEN_URL", hide_env_values = true)]
    pub(crate) listen_url: Option<String>,

    /// Do not listen for producers, only look every --idle-poll; goes before --listen-url
    #[arg(long)]
    pub(crate) no_listen: bool,
}

/// The length of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Every {
    /// A day, in UTC
    Day,
    /// A calendar month, in UTC
    Month,
}

impl From<Every> for Partition {
    fn from(every: Every) -> Self {
        match every {
            Every::Day => Self::Day,
            Every::Month => Self::Month,
        }
    }
}

impl SchemaArgs {
    /// Leaves only the migrations that are asked for.
    pub(crate) fn choose(&self, migrations: &mut Vec<Migration>) {
        migrations.retain(|migration| !self.inbox_only || migration.name == INBOX);
    }
}

impl ListenArgs {
    /// Where to listen; an empty variable is none.
    pub(crate) fn url(&self) -> Option<&str> {
        self.listen_url.as_deref().filter(|url| !url.is_empty())
    }
}

/// The name of the migration that makes the inbox.
const INBOX: &str = "inbox";

impl Settings {
    /// Refuses settings that a database does not have.
    pub(super) fn refuse(&self, database: &str) -> Result<(), Failure> {
        let (schema, listen) = (&self.schema, &self.listen);
        let options = [
            ("--partition", schema.partition.is_some()),
            ("--wake-trigger", schema.wake_trigger),
            ("--lanes", schema.lanes.is_some()),
            ("--inbox-only", schema.inbox_only),
            ("--listen-url (or POSTHASTE_LISTEN_URL)", listen.url().is_some()),
            ("--no-listen", listen.no_listen),
        ];
        match options.iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((option, _)) => {
                Err(Failure::bad_input(format!("{option} is for PostgreSQL; the database is {database}"))
                    .hint("leave it out, or name a postgres:// URL"))
            }
        }
    }
}
