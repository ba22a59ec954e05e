//! `posthaste partitions`: make partitions ahead, and drop old ones.

use std::time::Duration;

use crate::database::{Every, Extras, Keep, PartitionsDone, PartitionsWork, Target};
use crate::durations;
use crate::failure::{Failure, tell};
use crate::logging::LogArgs;
use crate::output::Output;
use crate::shutdown::StopRequests;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// How far ahead partitions are made (units: s, m, h, d) [default: 30d; MySQL by month: 90d]
    #[arg(long, value_name = "TIME", value_parser = durations::parse_delay)]
    #[arg(allow_hyphen_values = true)]
    lookahead: Option<Duration>,

    /// How long after its end a partition is kept: a time, or `forever` [default: 7d; MySQL: forever]
    #[arg(long, value_name = "TIME", value_parser = retention)]
    #[arg(allow_hyphen_values = true)]
    retention: Option<Keep>,

    /// Drop partitions that hold dead messages too; on MySQL they never keep one
    #[arg(long)]
    include_dead: bool,

    /// How long a new partition is [default: as the newest one that is there]
    #[arg(long, visible_alias = "period", value_enum, value_name = "LENGTH")]
    partition: Option<Every>,

    /// The lock under which one instance works at a time [MySQL; default: outbox:partitions:TABLE]
    #[arg(long, value_name = "NAME")]
    lock_name: Option<String>,

    /// Look after the partitions once, and end
    #[arg(long, conflicts_with = "check_every")]
    once: bool,

    /// How often to look after the partitions
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = durations::parse)]
    #[arg(allow_hyphen_values = true)]
    check_every: Duration,

    #[command(flatten)]
    logs: LogArgs,
}

const EXAMPLES: &str = "\
For an outbox on PostgreSQL or MySQL that was made by `posthaste migrate --partition`. Runs until SIGTERM or \
Ctrl-C, or once with --once. It may run in many places: of several, one works at a time.

A partition is dropped only if every message in it was published (or, with --include-dead, given \
up). A change that somebody holds up for more than 300 ms is postponed, so that producers never \
queue behind it: to a minute later, or to the next run of --once, which then ends with exit code 1. \
On MySQL a change waits for a second, old partitions are dropped behind a short LOCK TABLES, and one \
message that is not over keeps all of them.

Examples:
  posthaste partitions
  posthaste partitions --lookahead 60d --retention 30d --once
  posthaste partitions --retention forever --check-every 10m";

/// How long after a change was postponed it is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    args.logs.start();
    let mut requests = StopRequests::listen()?;
    let database = target.open().await?;
    let Some(extras) = database.extras else {
        return Err(Failure::bad_input("this kind of database has no partitions").hint(
            "partitions are for PostgreSQL and MySQL; elsewhere `posthaste purge` and --retain delete old messages",
        ));
    };
    let plan = plan(extras.as_ref(), &args).await?;
    // What is wrong from the beginning ends the command; what goes wrong later on passes.
    let mut report = extras.maintain_partitions(&plan).await?;
    loop {
        print(&report, args.once)?;
        if args.once {
            return if report.postponed.is_empty() { Ok(()) } else { Err(postponed(&report)) };
        }
        let is_done = report.postponed.is_empty();
        let pause = if is_done { args.check_every } else { args.check_every.min(AGAIN_AFTER) };
        tokio::select! {
            biased;
            () = requests.next() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
        report = tokio::select! {
            biased;
            // Each change is either done or undone.
            () = requests.next() => return Ok(()),
            report = extras.maintain_partitions(&plan) => report.unwrap_or_else(|error| {
                tell("warning", &format!("{error}; trying again in {}", durations::human(args.check_every)));
                PartitionsDone::default()
            }),
        };
    }
}

async fn plan(extras: &dyn Extras, args: &Args) -> Result<PartitionsWork, Failure> {
    let there = extras.partitioned_by().await?;
    let Some(every) = args.partition.or(there) else {
        return Err(Failure::bad_input("there is no partition yet that shows how long they are to be")
            .hint("say --partition day or --partition month"));
    };
    Ok(PartitionsWork {
        every,
        lookahead: args.lookahead,
        retention: args.retention,
        include_dead: args.include_dead,
        lock_name: args.lock_name.clone(),
    })
}

fn print(report: &PartitionsDone, is_once: bool) -> Result<(), Failure> {
    let mut output = Output::new();
    let parts = [
        ("created", &report.created, ""),
        ("dropped", &report.dropped, ""),
        ("kept", &report.kept, ", which holds messages that are not over"),
        ("postponed", &report.postponed, ""),
    ];
    for (done, names, why) in parts {
        for name in names {
            output.line(format_args!("{done} {name}{why}"))?;
        }
    }
    if is_once && *report == PartitionsDone::default() {
        output.line("nothing to do")?;
    }
    Ok(output.finish()?)
}

fn postponed(report: &PartitionsDone) -> Failure {
    let text = match report.postponed.len() {
        1 => "1 change was postponed".to_owned(),
        count => format!("{count} changes were postponed"),
    };
    Failure::failed(format!("{text}: somebody holds a lock, or looks after the partitions now"))
        .hint("run it again")
}

fn retention(text: &str) -> Result<Keep, String> {
    match text {
        "forever" => Ok(Keep::Forever),
        _ => durations::parse_delay(text).map(Keep::For).map_err(|error| format!("{error}; or say forever")),
    }
}
