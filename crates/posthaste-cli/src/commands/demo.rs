//! `posthaste demo`: producers, failing deliveries, and a check of every promise.

use std::io;
use std::num::NonZeroU64;
use std::path::Path;

use posthaste::MessageInfo;

use crate::demo::{Audit, Outcome, Script, Stage};
use crate::failure::Failure;
use crate::numbers::{at_least_one_u64, probability};
use crate::output::{Output, Style, Table, messages, printable};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// How many messages to commit
    #[arg(long, value_name = "N", default_value = "1000", value_parser = at_least_one_u64)]
    #[arg(allow_hyphen_values = true)]
    messages: NonZeroU64,

    /// Over how many keys to spread them
    #[arg(long, value_name = "N", default_value = "50", value_parser = at_least_one_u64)]
    #[arg(allow_hyphen_values = true)]
    keys: NonZeroU64,

    /// The probability with which a delivery fails, from 0 to 1
    #[arg(long, value_name = "P", default_value = "0.02", value_parser = probability)]
    #[arg(allow_hyphen_values = true)]
    fail: f64,

    /// What failures and rollbacks follow from: the same seed gives the same ones
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,

    /// Keep the database, to look at it with the other commands
    #[arg(long)]
    keep: bool,
}

const EXAMPLES: &str = "\
It makes a SQLite file in a temporary directory. Producers on several threads write an order \
and its message in one transaction, and roll some of them back. A relay delivers the messages \
to a destination at which some deliveries fail, some are refused for good and some get no \
answer. At the end it compares what was committed with what was published. Exit code 1 if a \
promise was broken.

Examples:
  posthaste demo
  posthaste demo --messages 20000 --keys 500
  posthaste demo --fail 0.3 --keep";

pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let directory =
        tempfile::Builder::new()
            .prefix("posthaste-demo-")
            .disable_cleanup(args.keep)
            .tempdir()
            .map_err(|error| Failure::failed(format!("a temporary directory cannot be made: {error}")))?;
    let path = directory.path().join("outbox.db");
    let script = Script {
        messages: args.messages.get(),
        keys: args.keys.get().min(args.messages.get()),
        fail: args.fail,
        seed: args.seed,
    };
    let stage = Stage::set(path.clone(), script).await?;
    let mut output = Output::new();
    output.line(format_args!(
        "{} over {} keys from {} producers, while {}% of the deliveries fail (seed {})",
        messages(script.messages),
        script.keys,
        stage.producers(),
        script.fail * 100.0,
        script.seed
    ))?;
    if args.keep {
        output.line(format_args!("database: {}", path.display()))?;
    }
    output.flush()?;
    let outcome = stage.play().await?;
    let audit = Audit::of(&outcome.evidence);
    report(&mut output, &audit, &outcome)?;
    report_dead(&mut output, &outcome.dead, args.keep.then_some(path.as_path()))?;
    output.finish()?;
    if audit.all_kept() { Ok(()) } else { Err(Failure::failed("a promise was broken")) }
}

fn report(output: &mut Output, audit: &Audit, outcome: &Outcome) -> io::Result<()> {
    let mut table = Table::new();
    let mut row = |what: &str, count: usize, verdict: &str, style| {
        table.row(vec![
            (format!("  {what}"), Style::Plain),
            (format!("{count:>8}"), Style::Plain),
            (verdict.to_owned(), style),
        ]);
    };
    row("committed", audit.committed, "", Style::Plain);
    row("published", audit.published, "", Style::Plain);
    let retried = usize::try_from(outcome.summary.retried).unwrap_or(usize::MAX);
    row("retried", retried, "", Style::Plain);
    row("dead", audit.dead, "", Style::Plain);
    row("rolled back on purpose", audit.rolled_back, "", Style::Plain);
    for check in &audit.checks {
        let (verdict, style) = if check.kept { ("ok", Style::Good) } else { ("BROKEN", Style::Bad) };
        row(check.what, check.count, verdict, style);
    }
    output.line("")?;
    output.table(&table)?;
    output.line("")?;
    output.line(format_args!(
        "{:.0} msgs/s; from commit to delivery: p50 {:.1?}, p99 {:.1?}",
        audit.rate, audit.p50, audit.p99
    ))
}

fn attempts(count: u32) -> String {
    format!("after {count} {}", if count == 1 { "attempt" } else { "attempts" })
}

/// Shows what was given up, and how to mend it.
fn report_dead(output: &mut Output, dead: &[MessageInfo], kept: Option<&Path>) -> io::Result<()> {
    const SHOWN: usize = 5;
    if dead.is_empty() {
        return Ok(());
    }
    let mut table = Table::new();
    for message in dead.iter().take(SHOWN) {
        table.row(vec![
            (format!("  {}", message.id), Style::Plain),
            (format!("{}/{}", message.aggregate_type, message.aggregate_id), Style::Plain),
            (attempts(message.attempts), Style::Plain),
            (printable(message.last_error.as_deref().unwrap_or_default()), Style::Faint),
        ]);
    }
    output.line("")?;
    output.line("Given up, as refused for good or out of attempts:")?;
    output.table(&table)?;
    if dead.len() > SHOWN {
        output.line(format_args!("  … and {} more", dead.len() - SHOWN))?;
    }
    let Some(path) = kept else {
        return output.line("Run it with --keep to look at them with `posthaste list`, and to mend them with `posthaste redrive`.");
    };
    output.line("Look at them, and give them another try:")?;
    for command in ["list --state dead", "redrive --all", "relay --drain"] {
        output.line(format_args!("  posthaste --database-url 'sqlite:{}' {command}", path.display()))?;
    }
    Ok(())
}
