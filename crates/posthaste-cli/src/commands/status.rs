//! `posthaste status`: figures about an outbox.

use std::time::Duration;

use posthaste::{Count, RelayInfo, Stats};
use serde::Serialize;

use crate::database::Target;
use crate::durations::human;
use crate::failure::Failure;
use crate::output::{Output, Style, Table, printable};

/// Counting stops here, so that its cost does not grow with the table.
const CAP: u64 = 10_000;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// Count to the end instead of stopping at 10000 rows a state; takes long on a large table
    #[arg(long)]
    exact: bool,
}

const EXAMPLES: &str = "\
States:
  ready    may be published now
  waiting  not yet: delayed, after a failure, or blocked behind an earlier message of its key
  dead     given up; see `posthaste list --state dead`, `posthaste redrive`, `posthaste discard`

With --json:
  ready, waiting, blocked, dead  counts (blocked ones are among the waiting)
  capped, cap                    which counts stopped early, and where counting stops
  oldest_ready_age_seconds       how long the oldest ready message has been so; 0: none is
  lanes.total, lanes.leased      slices of the table, and those that a live relay holds
  relays[]                       id, name, lanes, lease_left_seconds (null: the lease is over)

Examples:
  posthaste status
  posthaste status --json | jq .oldest_ready_age_seconds";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let cap = (!args.exact).then_some(CAP);
    let stats = target.open().await?.admin.stats(cap).await?;
    let mut output = Output::new();
    if args.json {
        output.json(&Status::new(&stats, cap))?;
    } else {
        print(&mut output, &stats)?;
    }
    Ok(output.finish()?)
}

#[derive(Serialize)]
struct Status<'a> {
    ready: u64,
    waiting: u64,
    blocked: u64,
    dead: u64,
    oldest_ready_age_seconds: f64,
    capped: Vec<&'static str>,
    cap: Option<u64>,
    lanes: Lanes,
    relays: Vec<Relay<'a>>,
}

#[derive(Serialize)]
struct Lanes {
    total: usize,
    leased: usize,
}

#[derive(Serialize)]
struct Relay<'a> {
    id: &'a str,
    name: &'a str,
    lanes: usize,
    lease_left_seconds: Option<f64>,
}

impl<'a> Status<'a> {
    fn new(stats: &'a Stats, cap: Option<u64>) -> Self {
        let counts = [
            ("ready", stats.ready),
            ("waiting", stats.waiting),
            ("blocked", stats.blocked),
            ("dead", stats.dead),
        ];
        Self {
            ready: stats.ready.count,
            waiting: stats.waiting.count,
            blocked: stats.blocked.count,
            dead: stats.dead.count,
            oldest_ready_age_seconds: seconds(stats.oldest_ready_age.unwrap_or_default()),
            capped: counts.iter().filter(|(_, count)| count.capped).map(|(name, _)| *name).collect(),
            cap,
            lanes: Lanes { total: stats.lanes_total, leased: stats.lanes_leased },
            relays: stats.relays.iter().map(Relay::new).collect(),
        }
    }
}

impl<'a> Relay<'a> {
    fn new(relay: &'a RelayInfo) -> Self {
        let lease_left_seconds = relay.lease_left.map(seconds);
        Self { id: &relay.id, name: &relay.name, lanes: relay.lanes, lease_left_seconds }
    }
}

/// Seconds with three decimals.
fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1_000.0
}

fn print(output: &mut Output, stats: &Stats) -> std::io::Result<()> {
    let mut table = Table::new();
    let mut row = |name: &str, value: String, style, remark: String| {
        table.row(vec![(name.into(), Style::Heading), (value, style), (remark, Style::Faint)]);
    };
    let oldest = match stats.oldest_ready_age {
        Some(age) => format!("the oldest for {}", human(age)),
        None => String::new(),
    };
    row("ready", count(stats.ready), Style::Plain, oldest);
    let blocked = match stats.blocked.count {
        0 => String::new(),
        _ => format!("{} of them blocked behind an earlier message of their key", count(stats.blocked)),
    };
    row("waiting", count(stats.waiting), Style::Plain, blocked);
    let (style, hint) = match stats.dead.count {
        0 => (Style::Good, ""),
        _ => (Style::Bad, "see: posthaste list --state dead"),
    };
    row("dead", count(stats.dead), style, hint.into());
    let lanes = format!("{} of {} leased", stats.lanes_leased, stats.lanes_total);
    let style = if stats.lanes_leased < stats.lanes_total { Style::Warning } else { Style::Good };
    row("lanes", lanes, style, String::new());
    output.table(&table)?;
    output.line("")?;
    print_relays(output, &stats.relays)
}

/// `10000+` where counting stopped.
fn count(count: Count) -> String {
    format!("{}{}", count.count, if count.capped { "+" } else { "" })
}

fn print_relays(output: &mut Output, relays: &[RelayInfo]) -> std::io::Result<()> {
    if relays.is_empty() {
        return output.line("no relay is running");
    }
    let mut table = Table::with_headings(&["relay", "name", "lanes", "lease"]);
    for relay in relays {
        let (lease, style) = match relay.lease_left {
            Some(left) => (format!("{} left", human(left)), Style::Good),
            None => ("over".into(), Style::Warning),
        };
        table.row(vec![
            (printable(&relay.id), Style::Plain),
            (printable(&relay.name), Style::Plain),
            (relay.lanes.to_string(), Style::Plain),
            (lease, style),
        ]);
    }
    output.table(&table)
}
