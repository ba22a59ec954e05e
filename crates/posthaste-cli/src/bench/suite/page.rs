//! The report of a suite, as Markdown with its charts beside it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::chart::Chart;
use super::plan::{GROUPS, Group, Shows};
use super::results::{Entry, Heading, Results};
use super::targets::targets;
use crate::bench::report::{Report, whole};
use crate::failure::Failure;

/// Writes the report, its charts and the CSV.
pub(super) fn write(directory: &Path, heading: &Heading, results: &Results) -> Result<(), Failure> {
    let mut text = title(heading, results);
    for group in &GROUPS {
        let entries: Vec<_> = results.entries.iter().filter(|entry| entry.group == group.name).collect();
        if entries.is_empty() {
            continue;
        }
        let _ = write!(text, "\n## {}\n\n", group.title);
        if let Some(chart) = chart(group, &entries) {
            let file = format!("{}.svg", group.name);
            put(directory, &file, &chart.svg().map_err(Failure::failed)?)?;
            let _ = write!(text, "![{}]({file})\n\n", group.title);
        }
        text.push_str(&table(group, &entries));
    }
    put(directory, "report.md", &text)?;
    put(directory, "results.csv", &results.csv())
}

fn put(directory: &Path, file: &str, text: &str) -> Result<(), Failure> {
    let path = directory.join(file);
    fs::write(&path, text).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

fn title(heading: &Heading, results: &Results) -> String {
    let server =
        results.entries.iter().find_map(|entry| entry.report.as_ref()).map(|report| report.server.as_str());
    let plan = format!("{:?}", heading.plan).to_lowercase();
    let mut text = format!(
        "# Benchmarks on {}\n\nPosthaste {}, plan `{plan}`, {}. Figures are medians, with the server on the same machine unless said \
         otherwise; ratios are to what the database does without an outbox in the same run. CPU (this process and the server), bytes of WAL or redo log and dead \
         rows are a message's, or a second's where there are none. docs/benchmarks.md of Posthaste explains how to read them.\n",
        server.unwrap_or("nothing"),
        heading.version,
        heading.machine
    );
    let targets = targets(&results.entries);
    if !targets.is_empty() {
        text.push_str("\n| target | measured | |\n|---|---|---|\n");
        for target in targets {
            let verdict = if target.is_met { "met" } else { "**missed**" };
            let _ = writeln!(text, "| {} | {} | {verdict} |", target.what, target.measured);
        }
    }
    text
}

fn chart(group: &Group, entries: &[&Entry]) -> Option<Chart> {
    let y = match group.shows {
        Shows::Throughput => "msgs/s",
        Shows::Latency => "ms",
        Shows::Nothing => return None,
    };
    let mut chart =
        Chart { title: group.title.to_owned(), x: group.x.to_owned(), y: y.to_owned(), ..Chart::default() };
    for (entry, report) in entries.iter().filter_map(|entry| Some((entry, entry.report.as_ref()?))) {
        let run = &report.median;
        match (group.shows, run.latency) {
            (Shows::Latency, Some(latency)) => {
                chart.add("p50", &entry.x, latency.p50_ms);
                chart.add("p95", &entry.x, latency.p95_ms);
                chart.add("p99", &entry.x, latency.p99_ms);
            }
            (Shows::Latency | Shows::Nothing, _) => {}
            (Shows::Throughput, _) => {
                chart.add(&entry.series, &entry.x, run.per_second);
                if let Some(floor) = run.floors.first() {
                    chart.add(&format!("floor: {}", entry.series), &entry.x, floor.per_second);
                }
            }
        }
    }
    (!chart.places.is_empty()).then_some(chart)
}

fn table(group: &Group, entries: &[&Entry]) -> String {
    let mut text = format!(
        "| | {} | msgs/s | ratio | p50 ms | p99 ms | CPU µs | server CPU µs | MiB | log bytes | dead rows |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        group.x
    );
    for entry in entries {
        match (&entry.report, &entry.error) {
            (Some(report), _) => text.push_str(&row(entry, report)),
            (None, error) => {
                let error = error.as_deref().unwrap_or_default().replace('|', "\\|").replace('\n', " ");
                let _ = writeln!(text, "| {} | {} | failed: {error} |", entry.series, entry.x);
            }
        }
    }
    text
}

fn row(entry: &Entry, report: &Report) -> String {
    let run = &report.median;
    let shown = |figure: Option<f64>, places: usize| {
        figure.map_or(String::new(), |value| format!("{value:.places$}"))
    };
    let rate = if run.messages == 0 { String::new() } else { whole(run.per_second) };
    let fields = [
        entry.series.clone(),
        entry.x.clone(),
        rate,
        shown(run.floors.first().and_then(|floor| floor.ratio), 2),
        shown(run.latency.map(|latency| latency.p50_ms), 2),
        shown(run.latency.map(|latency| latency.p99_ms), 2),
        shown(Some(run.cpu_micros_per_message), 1),
        shown(run.database_cpu_micros_per_message, 1),
        shown(run.peak_rss_bytes.map(|bytes| bytes as f64 / 1024.0 / 1024.0), 0),
        shown(run.log_bytes_per_message, 0),
        shown(run.dead_rows_per_message, 2),
    ];
    format!("| {} |\n", fields.join(" | "))
}
