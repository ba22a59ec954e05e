//! `posthaste bench`: how fast it is on this machine.

use clap::Subcommand;

use crate::bench::load::Load;
use crate::bench::repeat::{How, What, repeat};
use crate::database::Target;
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
    /// What an idle relay costs, watched for ten seconds
    Idle(Measure),
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

    /// Show no progress
    #[arg(long)]
    quiet: bool,

    /// End when stdin is closed
    #[arg(long, hide = true)]
    with_parent: bool,
}

const EXAMPLES: &str = "\
Works in a schema (PostgreSQL), a database (MySQL) or a file (SQLite) of its own, which it removes, also on \
Ctrl-C. Every message is accounted for: one that is lost, published twice or out of order is an error. Ratios to \
the floor, what the database does without an outbox in the same run, say more than figures alone.

Examples:
  posthaste --database-url sqlite:bench.db bench drain
  posthaste bench enqueue --producers 32 --messages 100000
  posthaste bench drain --messages 200000 --keys 1 --delete
  posthaste bench mixed --rate 1000 --messages 20000 --json";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let (what, measure) = match args.what {
        Kind::Enqueue(measure) => (What::Enqueue, measure),
        Kind::Drain(measure) => (What::Drain, measure),
        Kind::Mixed(measure) => (What::Mixed, measure),
        Kind::Floor(measure) => (What::Floor, measure),
        Kind::Idle(measure) => (What::Idle, measure),
    };
    let how = How { no_floor: measure.no_floor, quiet: measure.quiet, with_parent: measure.with_parent };
    let report = repeat(target, measure.load, what, how).await?;
    let mut output = Output::new();
    if measure.json {
        output.json(&report)?;
    } else {
        report.print(&mut output)?;
    }
    Ok(output.finish()?)
}
