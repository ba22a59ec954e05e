//! `posthaste cleanup`: delete old messages by a role that may do nothing else.

use std::time::Duration;

use crate::database::{CleanupDone, CleanupWork, Extras, Target};
use crate::durations;
use crate::failure::{Failure, tell};
use crate::logging::LogArgs;
use crate::output::{Output, messages};
use crate::shutdown::StopRequests;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// How long messages are kept after they were published or given up (units: s, m, h, d)
    #[arg(long, value_name = "TIME", value_parser = durations::parse, allow_hyphen_values = true)]
    retention: Duration,

    /// Delete at most so many messages in a pass; 0 stands for 10000
    #[arg(long, value_name = "N", default_value = "10000")]
    limit: usize,

    /// Delete dead messages too, not only published ones
    #[arg(long)]
    include_dead: bool,

    /// Clean up once, and end
    #[arg(long, conflicts_with = "check_every")]
    once: bool,

    /// How often to clean up
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = durations::parse)]
    #[arg(allow_hyphen_values = true)]
    check_every: Duration,

    /// The lock under which one instance works at a time [default: outbox:cleanup:TABLE]
    #[arg(long, value_name = "NAME")]
    lock_name: Option<String>,

    #[command(flatten)]
    logs: LogArgs,
}

const EXAMPLES: &str = "\
For an outbox on MySQL that is not partitioned. It needs SELECT and DELETE on the outbox and nothing \
else; a running relay purges published messages by itself (see `posthaste relay --retain`). Runs until \
SIGTERM or Ctrl-C, or once with --once. Pending messages are never deleted, nor dead ones that park \
their key.

Examples:
  posthaste cleanup --retention 168h
  posthaste cleanup --retention 30d --include-dead --limit 100000 --once
  posthaste cleanup --retention 7d --check-every 10m --lock-name shop:cleanup";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    args.logs.start();
    let mut requests = StopRequests::listen()?;
    // Its role cannot see how far the tables are.
    let database = target.open_any()?;
    let Some(extras) = database.extras else {
        return Err(Failure::bad_input("cleanup is for MySQL")
            .hint("`posthaste purge` and a relay's --retain delete old messages here"));
    };
    let work = CleanupWork {
        retention: args.retention,
        limit: args.limit,
        include_dead: args.include_dead,
        lock_name: args.lock_name.clone(),
    };
    // What is wrong from the beginning ends the command; what goes wrong later on passes.
    let mut done = extras.clean_up(&work).await?;
    loop {
        print(&done, &args)?;
        if args.once {
            return if done.ours {
                Ok(())
            } else {
                Err(Failure::failed("another instance is at it").hint("run it again"))
            };
        }
        tokio::select! {
            biased;
            () = requests.next() => return Ok(()),
            () = tokio::time::sleep(args.check_every) => {}
        }
        done = tokio::select! {
            biased;
            // What was deleted stays deleted.
            () = requests.next() => return Ok(()),
            done = clean_up(extras.as_ref(), &work, &args) => done,
        };
    }
}

async fn clean_up(extras: &dyn Extras, work: &CleanupWork, args: &Args) -> CleanupDone {
    extras.clean_up(work).await.unwrap_or_else(|error| {
        tell("warning", &format!("{error}; trying again in {}", durations::human(args.check_every)));
        CleanupDone::default()
    })
}

fn print(done: &CleanupDone, args: &Args) -> Result<(), Failure> {
    let mut output = Output::new();
    let total = done.processed + done.dead;
    if done.ours && (args.once || total > 0) {
        output.line(format_args!("deleted {} ({} dead)", messages(total), done.dead))?;
    }
    Ok(output.finish()?)
}
