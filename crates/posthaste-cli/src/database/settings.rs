//! What can be set for some kinds of database only.

use std::time::Duration;

use clap::ValueEnum;
use posthaste::Migration;
use serde::{Deserialize, Serialize};

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
#[command(next_help_heading = "PostgreSQL and MySQL only")]
pub(crate) struct SchemaArgs {
    /// Make the outbox a partitioned table; see `posthaste partitions`
    #[arg(long, value_enum, value_name = "LENGTH", conflicts_with = "inbox_only")]
    pub(crate) partition: Option<Every>,

    /// How payloads are stored: as JSON, which MySQL rewrites, or as bytes [MySQL; default: json]
    #[arg(long, value_enum, value_name = "LAYOUT", conflicts_with = "inbox_only")]
    pub(crate) payload: Option<Layout>,

    /// Add a trigger, so that a plain INSERT wakes an idle relay as `posthaste enqueue` does [PostgreSQL]
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

    /// A file with what --listen-url would say
    #[arg(long, value_name = "FILE", env = "POSTHASTE_LISTEN_URL_FILE")]
    listen_url_file: Option<String>,

    /// Do not listen for producers, only look every --idle-poll; goes before --listen-url
    #[arg(long, env = "POSTHASTE_NO_LISTEN")]
    pub(crate) no_listen: bool,
}

/// The length of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Every {
    /// A day, in UTC
    Day,
    /// A calendar month, in UTC
    Month,
}

/// How payloads are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Layout {
    /// A column of type JSON
    Json,
    /// Bytes, which come out as they went in
    Binary,
}

/// The kinds of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Sqlite,
    Postgres,
    MySql,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MySQL",
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
    pub(super) fn refuse(&self, database: Kind) -> Result<(), Failure> {
        let (schema, listen) = (&self.schema, &self.listen);
        let (both, postgres, mysql) =
            (&[Kind::Postgres, Kind::MySql][..], &[Kind::Postgres][..], &[Kind::MySql][..]);
        let options = [
            ("--partition", schema.partition.is_some(), both),
            ("--payload", schema.payload.is_some(), mysql),
            ("--wake-trigger", schema.wake_trigger, postgres),
            ("--lanes", schema.lanes.is_some(), both),
            ("--inbox-only", schema.inbox_only, both),
            ("--listen-url (or POSTHASTE_LISTEN_URL)", listen.url().is_some(), postgres),
            ("--no-listen", listen.no_listen, postgres),
        ];
        let Some((option, _, kinds)) =
            options.iter().find(|(_, is_set, kinds)| *is_set && !kinds.contains(&database))
        else {
            return Ok(());
        };
        let kinds: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
        let text = format!("{option} is for {}; the database is {}", kinds.join(" and "), database.as_str());
        Err(Failure::bad_input(text).hint("leave it out, or name another kind of database"))
    }
}
