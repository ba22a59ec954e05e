//! `posthaste redrive`: make dead messages pending again.

use std::num::NonZeroU32;

use posthaste::MessageId;

use super::dead::{Action, Job, by_event_type, by_ids};
use super::stored_id;
use crate::database::Target;
use crate::failure::Failure;
use crate::numbers::at_least_one_u32;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("selection").required(true))]
pub(crate) struct Args {
    /// These messages. Those that are not dead are named, and left alone
    #[arg(value_name = "ID", value_parser = stored_id, group = "selection")]
    ids: Vec<MessageId>,

    /// All dead messages whose event type matches: * stands for any characters, ? for one
    #[arg(long, value_name = "GLOB", group = "selection")]
    event_type: Option<String>,

    /// All dead messages
    #[arg(long, group = "selection")]
    all: bool,

    /// Change nothing; print how many messages would be redriven
    #[arg(long)]
    dry_run: bool,

    /// Redrive so many messages a second, to spare the destination [default: as fast as it goes]
    #[arg(long, value_name = "N", value_parser = at_least_one_u32, allow_hyphen_values = true)]
    rate: Option<NonZeroU32>,
}

const EXAMPLES: &str = "\
A redriven message starts again with no attempts, at its old place in its key's order. It \
works oldest first and in small transactions: it can be stopped at any time (Ctrl-C) and run \
again.

Exit code 1 if an ID is not there or not dead; the others are redriven all the same.

Examples:
  posthaste redrive 01890a5d-ac96-774b-bcce-b302099a8057
  posthaste redrive --event-type 'order.*' --dry-run
  posthaste redrive --all --rate 100";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let database = target.open().await?;
    let admin = database.admin.as_ref();
    let job = Job { action: Action::Redrive, dry_run: args.dry_run, rate: args.rate };
    if args.ids.is_empty() {
        by_event_type(admin, args.event_type, job).await
    } else {
        by_ids(admin, args.ids, job).await
    }
}
