//! `posthaste config check`: whether a configuration makes sense, and what results of it.

use std::sync::Arc;

use clap::{CommandFactory, Subcommand};
use posthaste::{MemoryStore, Relay};

use super::relay::{Plan, RelayArgs};
use crate::cli::Cli;
use crate::config::{self, Sources};
use crate::database::Target;
use crate::failure::Failure;
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: What,
}

#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// Check the configuration of a relay, and print every setting with where it comes from
    Check(Box<Check>),
}

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(crate) settings: RelayArgs,
}

const EXAMPLES: &str = "\
The file (--config), the environment and the options are those of `posthaste relay`. What is \
printed is a configuration file again; passwords are replaced by ***. Nothing is connected to.

Exit code 2: a key is not known, or a value makes no sense; the line says where.

Examples:
  posthaste config check --config posthaste.toml
  POSTHASTE_LEASE=5s posthaste config check --config posthaste.toml --max-in-flight 64";

pub(crate) fn run(target: &Target, args: &Check, sources: &Sources) -> Result<(), Failure> {
    let settings = &args.settings;
    let plan = Plan::of(settings, sources)?;
    target.with(settings.database_settings()).check()?;
    // What only the relay itself can tell; it is not run.
    let builder = settings.configure(Relay::builder(Arc::new(MemoryStore::new(1))));
    plan.try_on(builder, settings).build()?;
    let mut output = Output::new();
    config::print(&mut output, &Cli::command(), sources)?;
    Ok(output.finish()?)
}
