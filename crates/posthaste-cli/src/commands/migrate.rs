//! `posthaste migrate`: create the tables, or bring them up to date.

use posthaste::Migration;

use crate::database::{Every, SchemaArgs, Settings, Target};
use crate::failure::{Failure, note};
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print all migrations as plain SQL for another migration tool; needs no database
    #[arg(long, conflicts_with = "check")]
    print: bool,

    /// Change nothing; exit with 1 if migrations are pending
    #[arg(long)]
    check: bool,

    #[command(flatten)]
    schema: SchemaArgs,
}

const EXAMPLES: &str = "\
Running it again does nothing; running it from many places at once is safe. Where there is no \
SQLite file, it makes one; on PostgreSQL it makes the schema too if the user may. --partition, \
--payload and --lanes count when the outbox is made, and change nothing about one that is there; \
--wake-trigger adds the trigger to it. On MySQL a table of velmie/outbox is completed with the columns \
and indexes it lacks.

Examples:
  posthaste migrate --database-url sqlite:outbox.db
  posthaste migrate --database-url postgres://migrator@host/shop --table billing.outbox
  posthaste migrate --database-url mysql://migrator@host/shop --payload binary
  posthaste migrate --partition day --lanes 128
  posthaste migrate --check || echo 'run posthaste migrate'
  posthaste migrate --print > migrations/0042_outbox.sql";

/// The migration that makes the outbox.
const OUTBOX: &str = "outbox";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let target = target.with(Settings { schema: args.schema, ..Settings::default() });
    if args.print {
        let mut migrations = target.migrations()?;
        target.settings.schema.choose(&mut migrations);
        print(&migrations)
    } else if args.check {
        check(&target).await
    } else {
        migrate(&target).await
    }
}

fn print(migrations: &[Migration]) -> Result<(), Failure> {
    let mut output = Output::new();
    for (index, migration) in migrations.iter().enumerate() {
        if index > 0 {
            output.line("")?;
        }
        output.line(format_args!("-- {}: {}", migration.version, migration.name))?;
        output.line(migration.sql.trim_end())?;
    }
    Ok(output.finish()?)
}

async fn check(target: &Target) -> Result<(), Failure> {
    let mut pending = target.open_any()?.admin.pending_migrations().await?;
    target.settings.schema.choose(&mut pending);
    list("pending", &pending)?;
    if pending.is_empty() { Ok(()) } else { Err(Failure::silent()) }
}

async fn migrate(target: &Target) -> Result<(), Failure> {
    let schema = &target.settings.schema;
    let database = target.open_or_create()?;
    if let Some(extras) = database.extras.as_ref().filter(|_| !schema.inbox_only) {
        say_what_is_adopted(&target.table, &extras.changes_to_adopt().await?);
    }
    let applied = match &database.extras {
        Some(extras) if schema.inbox_only => extras.migrate_inbox().await?,
        _ => database.admin.migrate().await?,
    };
    list("applied", &applied)?;
    if applied.iter().any(|migration| migration.name == OUTBOX) {
        return Ok(());
    }
    if let (Some(extras), Some(wanted)) = (&database.extras, schema.partition) {
        check_partitions(extras.partitioned_by().await?, wanted)?;
    }
    if schema.lanes.is_some() || schema.payload.is_some() {
        note("the outbox was there before; --payload and --lanes count only when it is made");
    }
    Ok(())
}

/// Says what is changed about a table that somebody else made, before it is done.
fn say_what_is_adopted(table: &str, changes: &[String]) {
    if changes.is_empty() {
        return;
    }
    note(&format!(
        "the table {table} is there and is completed; producers go on meanwhile where the server can:"
    ));
    for change in changes {
        let how = match change {
            _ if change.ends_with("/* copies the whole table */") => "producers wait until it is done",
            _ if change.starts_with("ADD INDEX") => "reads the whole table",
            _ => "changes no row",
        };
        note(&format!("  {change} ({how})"));
    }
}

/// Says if the outbox that was there before is partitioned otherwise than asked.
fn check_partitions(there: Option<Every>, wanted: Every) -> Result<(), Failure> {
    match there {
        Some(there) if there != wanted => {
            Err(Failure::bad_input("the outbox was there before, and its partitions are of another length")
                .hint("`posthaste partitions --partition` chooses the length of further ones"))
        }
        Some(_) | None => Ok(()),
    }
}

/// Prints migrations, and what was or is to be done about them.
fn list(done: &str, migrations: &[Migration]) -> Result<(), Failure> {
    let mut output = Output::new();
    for migration in migrations {
        output.line(format_args!("{done} {}: {}", migration.version, migration.name))?;
    }
    if migrations.is_empty() {
        output.line("up to date")?;
    }
    Ok(output.finish()?)
}
