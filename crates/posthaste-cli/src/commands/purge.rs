//! `posthaste purge`: delete messages that were settled long ago.

use std::num::NonZeroUsize;
use std::time::Duration;

use posthaste::{Admin, Purge, Purged};

use crate::database::Target;
use crate::durations;
use crate::failure::Failure;
use crate::numbers::at_least_one;
use crate::output::{Output, messages};

/// The most rows that one transaction deletes.
const STEP: usize = 10_000;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only messages that were settled longer ago than this (units: s, m, h, d)
    #[arg(long, value_name = "TIME", value_parser = durations::parse, allow_hyphen_values = true)]
    older_than: Duration,

    /// Delete dead messages too, not only published ones
    #[arg(long)]
    include_dead: bool,

    /// Delete at most so many messages
    #[arg(long, value_name = "N", default_value = "10000", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    limit: NonZeroUsize,
}

const EXAMPLES: &str = "\
A running relay purges published messages by itself (see `posthaste relay --retain`). Pending \
messages are never purged.

Examples:
  posthaste purge --older-than 7d
  posthaste purge --older-than 90d --include-dead --limit 1000000";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let database = target.open().await?;
    let purged = purge(database.admin.as_ref(), &args).await?;
    let total = purged.processed + purged.dead;
    let mut output = Output::new();
    if args.include_dead {
        output.line(format_args!("purged {} ({} dead)", messages(total), purged.dead))?;
    } else {
        output.line(format_args!("purged {}", messages(total)))?;
    }
    if total >= args.limit.get() as u64 {
        output.line("the limit was reached; there may be more")?;
    }
    Ok(output.finish()?)
}

async fn purge(admin: &dyn Admin, args: &Args) -> Result<Purged, Failure> {
    let mut total = Purged::default();
    let mut left = args.limit.get();
    while left > 0 {
        let limit = left.min(STEP);
        let step = Purge { older_than: args.older_than, include_dead: args.include_dead, limit };
        let purged = admin.purge(&step).await?;
        total.processed += purged.processed;
        total.dead += purged.dead;
        let deleted = usize::try_from(purged.processed + purged.dead).unwrap_or(usize::MAX);
        if deleted < limit {
            break;
        }
        left = left.saturating_sub(deleted);
    }
    Ok(total)
}
