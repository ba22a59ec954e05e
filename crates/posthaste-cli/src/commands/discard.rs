//! `posthaste discard`: delete dead messages.

use posthaste::MessageId;

use super::dead::{Action, Job, by_event_type, by_ids};
use super::stored_id;
use crate::database::Target;
use crate::failure::Failure;

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
    all_dead: bool,

    /// Change nothing; print how many messages would be discarded
    #[arg(long)]
    dry_run: bool,
}

const EXAMPLES: &str = "\
A discarded message is deleted for good and will never be published. Where it parked its key, \
the key's later messages go on.

Exit code 1 if an ID is not there or not dead; the others are discarded all the same.

Examples:
  posthaste discard 01890a5d-ac96-774b-bcce-b302099a8057
  posthaste discard --event-type 'test.*' --dry-run
  posthaste discard --all-dead";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let database = target.open().await?;
    let admin = database.admin.as_ref();
    let job = Job { action: Action::Discard, dry_run: args.dry_run, rate: None };
    if args.ids.is_empty() {
        by_event_type(admin, args.event_type, job).await
    } else {
        by_ids(admin, args.ids, job).await
    }
}
