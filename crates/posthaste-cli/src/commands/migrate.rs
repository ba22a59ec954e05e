//! `posthaste migrate`: create the tables, or bring them up to date.

use posthaste::Migration;

use crate::database::Target;
use crate::failure::Failure;
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
}

const EXAMPLES: &str = "\
Running it again does nothing; running it from many places at once is safe. Where there is no \
SQLite file, it makes one.

Examples:
  posthaste migrate --database-url sqlite:outbox.db
  posthaste migrate --check || echo 'run posthaste migrate'
  posthaste migrate --print > migrations/0042_outbox.sql";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    if args.print {
        print(&target.migrations()?)
    } else if args.check {
        check(target).await
    } else {
        migrate(target).await
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
    let pending = target.open_any()?.admin.pending_migrations().await?;
    let mut output = Output::new();
    for migration in &pending {
        output.line(format_args!("pending {}: {}", migration.version, migration.name))?;
    }
    if pending.is_empty() {
        output.line("up to date")?;
    }
    output.finish()?;
    if pending.is_empty() { Ok(()) } else { Err(Failure::silent()) }
}

async fn migrate(target: &Target) -> Result<(), Failure> {
    let applied = target.open_or_create()?.admin.migrate().await?;
    let mut output = Output::new();
    for migration in &applied {
        output.line(format_args!("applied {}: {}", migration.version, migration.name))?;
    }
    if applied.is_empty() {
        output.line("up to date")?;
    }
    Ok(output.finish()?)
}
