//! `posthaste bench`: how fast it is on this machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;

use crate::bench::load::Load;
use crate::bench::repeat::{How, What, repeat};
use crate::bench::suite::plan::Plan;
use crate::bench::suite::{self, Suite};
use crate::database::Target;
use crate::durations;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Kind,
}

/// What is measured.
#[derive(Debug, Subcommand)]
enum Kind {
    /// How fast producers write messages, against bare INSERTs
    Enqueue(Measure),
    /// How fast relays empty a full outbox, against a loop on the server alone
    Drain(Measure),
    /// How long messages take from commit to publish while both work
    Mixed(Measure),
    /// What the database does without an outbox
    Floor(Measure),
    /// What an idle relay costs
    Idle(IdleArgs),
    /// All of it in many sizes, with a report and charts
    Suite(SuiteArgs),
}

#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are options")]
struct Measure {
    #[command(flatten)]
    load: Load,

    /// Do not measure what the database does without an outbox
    #[arg(long)]
    no_floor: bool,

    /// Print one JSON object, with every run
    #[arg(long)]
    json: bool,

    /// Where drain and mixed publish to: null (nowhere), or the amqp:// URL of a RabbitMQ broker, to a queue of its own
    #[arg(long = "to", value_name = "DESTINATION", env = "POSTHASTE_BENCH_TO", hide_env_values = true)]
    #[arg(default_value = "null", hide_default_value = true)]
    bench_to: String,

    /// Show no progress
    #[arg(long)]
    quiet: bool,

    /// End when stdin is closed
    #[arg(long, hide = true)]
    with_parent: bool,
}

#[derive(Debug, clap::Args)]
struct IdleArgs {
    /// How long it is watched
    #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = durations::parse)]
    #[arg(allow_hyphen_values = true)]
    watched: Duration,

    #[command(flatten)]
    measure: Measure,
}

#[derive(Debug, clap::Args)]
struct SuiteArgs {
    /// How much is measured
    #[arg(long, value_enum, value_name = "PLAN", default_value = "mini")]
    plan: Plan,

    /// Where results.jsonl, results.csv, report.md and its charts are written
    #[arg(long, value_name = "DIRECTORY", default_value = "posthaste-bench")]
    out: PathBuf,

    /// Go on where it was cut off, and try again what failed
    #[arg(long)]
    resume: bool,
}

const EXAMPLES: &str = "\
Works in a schema (PostgreSQL), a database (MySQL) or a file (SQLite) of its own, which it removes, also on \
Ctrl-C. Every message is accounted for: one that is lost, published twice or out of order is an error. Ratios to \
the floor, what the database does without an outbox in the same run, say more than figures alone.

Examples:
  posthaste --database-url sqlite:bench.db bench drain
  posthaste bench enqueue --producers 32 --messages 100000
  posthaste bench drain --messages 200000 --keys 1 --delete
  posthaste bench mixed --rate 1000 --messages 20000 --json
  posthaste bench suite --plan mini --out bench-today";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let (what, measure) = match args.what {
        Kind::Enqueue(measure) => (What::Enqueue, measure),
        Kind::Drain(measure) => (What::Drain, measure),
        Kind::Mixed(measure) => (What::Mixed, measure),
        Kind::Floor(measure) => (What::Floor, measure),
        Kind::Idle(idle) => (What::Idle(idle.watched), idle.measure),
        Kind::Suite(args) => return run_suite(target, args).await,
    };
    let to = (measure.bench_to != "null").then_some(measure.bench_to);
    if to.is_some() && !matches!(what, What::Drain | What::Mixed) {
        return Err(
            Failure::bad_input("--to is for drain and mixed").hint("leave it out; nothing is published here")
        );
    }
    let how = How { to, no_floor: measure.no_floor, quiet: measure.quiet, with_parent: measure.with_parent };
    let report = repeat(target, measure.load, what, how).await?;
    let mut output = Output::new();
    if measure.json {
        output.json(&report)?;
    } else {
        report.print(&mut output)?;
    }
    Ok(output.finish()?)
}

async fn run_suite(target: &Target, args: SuiteArgs) -> Result<(), Failure> {
    let suite = Suite { plan: args.plan, directory: args.out, resume: args.resume };
    let done = suite::run(target, &suite).await?;
    let mut output = Output::new();
    output.line(suite.directory.join("report.md").display())?;
    output.finish()?;
    match done.failed {
        0 => Ok(()),
        failed => Err(Failure::failed(format!("{failed} of {} benchmarks failed", failed + done.measured))
            .hint("the report says why; --resume tries them again")),
    }
}
