//! `posthaste partitions`: make partitions ahead, and drop old ones.

use std::ops::ControlFlow;
use std::time::Duration;

use posthaste::Error;
use posthaste_postgres::{Partition, PartitionPlan, PartitionReport};

use crate::database::{Every, Extras, Target};
use crate::durations::{self, OrForever};
use crate::failure::{Failure, tell};
use crate::logging::LogArgs;
use crate::output::Output;
use crate::shutdown::StopRequests;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// How far ahead partitions are made (units: s, m, h, d)
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = durations::parse_delay)]
    #[arg(allow_hyphen_values = true)]
    lookahead: Duration,

    /// How long after its end a partition is kept: a time, or `forever`
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = durations::parse_or_forever)]
    #[arg(allow_hyphen_values = true)]
    retention: OrForever,

    /// Drop partitions that hold dead messages too
    #[arg(long)]
    include_dead: bool,

    /// How long a new partition is [default: as the newest one that is there]
    #[arg(long, value_enum, value_name = "LENGTH")]
    partition: Option<Every>,

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
For an outbox on PostgreSQL that was made by `posthaste migrate --partition`. Runs until SIGTERM or \
Ctrl-C, or once with --once. It may run in many places: of several, one works at a time.

A partition is dropped only if every message in it was published (or, with --include-dead, given \
up). A change that somebody holds up for more than 300 ms is postponed, so that producers never \
queue behind it: to a minute later, or to the next run of --once, which then ends with exit code 1.

Examples:
  posthaste partitions
  posthaste partitions --lookahead 60d --retention 30d --once
  posthaste partitions --retention forever --check-every 10m";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    args.logs.start();
    let mut requests = StopRequests::listen()?;
    let database = target.open().await?;
    let Some(extras) = database.extras else {
        return Err(Failure::bad_input("this kind of database has no partitions").hint(
            "partitions are for PostgreSQL; elsewhere `posthaste purge` and --retain delete old messages",
        ));
    };
    let plan = plan(extras.as_ref(), &args).await?;
    if args.once {
        let report = extras.maintain_partitions(&plan).await?;
        print(&report, true)?;
        return if report.postponed.is_empty() { Ok(()) } else { Err(postponed(&report)) };
    }
    let mut failure = None;
    let mut tell_round = |round: Result<&PartitionReport, &Error>| match round {
        Ok(report) => match print(report, false) {
            Ok(()) => ControlFlow::Continue(()),
            Err(broken) => {
                failure = Some(broken);
                ControlFlow::Break(())
            }
        },
        Err(error) => {
            tell("warning", &format!("{error}; trying again soon"));
            ControlFlow::Continue(())
        }
    };
    extras.keep_partitions(&plan, Box::pin(requests.next()), &mut tell_round).await?;
    failure.map_or(Ok(()), Err)
}

async fn plan(extras: &dyn Extras, args: &Args) -> Result<PartitionPlan, Failure> {
    let there = extras.partitioned_by().await?;
    let Some(every) = args.partition.map(Partition::from).or(there) else {
        return Err(Failure::bad_input("there is no partition yet that shows how long they are to be")
            .hint("say --partition day or --partition month"));
    };
    let plan = PartitionPlan::new(every).lookahead(args.lookahead).retention(args.retention.0);
    Ok(plan.include_dead(args.include_dead).check_every(args.check_every))
}

fn print(report: &PartitionReport, is_once: bool) -> Result<(), Failure> {
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
    if is_once && *report == PartitionReport::default() {
        output.line("nothing to do")?;
    }
    Ok(output.finish()?)
}

fn postponed(report: &PartitionReport) -> Failure {
    let text = match report.postponed.len() {
        1 => "1 change was postponed".to_owned(),
        count => format!("{count} changes were postponed"),
    };
    Failure::failed(format!("{text}: somebody holds a lock, or looks after the partitions now"))
        .hint("run it again")
}
