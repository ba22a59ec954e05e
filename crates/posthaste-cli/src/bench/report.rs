//! What came out of a run.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::gauge::{Counters, Taken};
use super::latency::Latency;
use super::load::Load;
use crate::failure::Failure;
use crate::output::{Output, Table};

/// The result of a benchmark.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) benchmark: String,
    pub(crate) server: String,
    /// Where the messages went.
    pub(crate) to: String,
    /// What was made for it and removed again, run by run.
    pub(crate) grounds: Vec<String>,
    pub(crate) load: Load,
    pub(crate) median: Run,
    pub(crate) runs: Vec<Run>,
}

/// One run. What the server does not tell is absent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) messages: u64,
    pub(crate) seconds: f64,
    pub(crate) per_second: f64,
    /// enqueue: of a transaction; drain: of a publish; mixed: from commit to publish.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency: Option<Latency>,
    /// mixed: of an enqueueing transaction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) enqueue_latency: Option<Latency>,
    pub(crate) cpu_seconds: f64,
    pub(crate) cpu_micros_per_message: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peak_rss_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) database_cpu_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) database_cpu_micros_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) statements_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transactions_per_message: Option<f64>,
    /// WAL or redo log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) log_bytes_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_rows_per_message: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) floors: Vec<Floor>,
}

/// What goes without an outbox, in the same run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Floor {
    pub(crate) what: String,
    pub(crate) per_second: f64,
    /// Our figure, as a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<f64>,
}

impl Run {
    pub(super) fn new(messages: u64, taken: Taken, server: Counters) -> Self {
        // An idle relay has no messages; then the figures are those of a second.
        let each = if messages == 0 { taken.time.as_secs_f64() } else { messages as f64 };
        let per_message = |count: Option<u64>| count.map(|count| count as f64 / each);
        Self {
            messages,
            seconds: taken.time.as_secs_f64(),
            per_second: messages as f64 / taken.time.as_secs_f64(),
            cpu_seconds: taken.cpu.as_secs_f64(),
            cpu_micros_per_message: taken.cpu.as_secs_f64() * 1e6 / each,
            peak_rss_bytes: taken.peak_rss,
            database_cpu_seconds: server.cpu.map(|cpu| cpu.as_secs_f64()),
            database_cpu_micros_per_message: server.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / each),
            statements_per_message: per_message(server.statements),
            transactions_per_message: per_message(server.transactions),
            log_bytes_per_message: per_message(server.log_bytes),
            dead_rows_per_message: per_message(server.dead_rows),
            ..Self::default()
        }
    }

    /// Compares it with what goes without an outbox.
    pub(super) fn over(mut self, what: &str, floor: f64) -> Self {
        let ratio = (self.per_second > 0.0).then(|| self.per_second / floor);
        self.floors.push(Floor { what: what.to_owned(), per_second: floor, ratio });
        self
    }
}

/// The median of each figure by itself: always one that was measured.
pub(super) fn median(runs: &[Run]) -> Result<Run, Failure> {
    let wrong = |error| Failure::failed(format!("the figures cannot be summed up: {error}"));
    let values: Result<Vec<_>, _> = runs.iter().map(serde_json::to_value).collect();
    serde_json::from_value(median_of(&values.map_err(wrong)?)).map_err(wrong)
}

fn median_of(values: &[Value]) -> Value {
    match values.first() {
        Some(Value::Object(first)) => {
            let of =
                |key: &str| values.iter().filter_map(|value| value.get(key)).cloned().collect::<Vec<_>>();
            let fields: Map<_, _> = first.keys().map(|key| (key.clone(), median_of(&of(key)))).collect();
            Value::Object(fields)
        }
        Some(Value::Array(first)) => {
            let of = |at: usize| values.iter().filter_map(|value| value.get(at)).cloned().collect::<Vec<_>>();
            Value::Array((0..first.len()).map(|at| median_of(&of(at))).collect())
        }
        Some(Value::Number(_)) => {
            let mut numbers: Vec<_> = values.iter().filter(|value| value.is_number()).collect();
            numbers.sort_by(|a, b| a.as_f64().unwrap_or(0.0).total_cmp(&b.as_f64().unwrap_or(0.0)));
            numbers[(numbers.len() - 1) / 2].clone()
        }
        Some(other) => other.clone(),
        None => Value::Null,
    }
}

impl Report {
    /// Prints it for people.
    pub(crate) fn print(&self, output: &mut Output) -> Result<(), Failure> {
        let Self { benchmark, server, load, median: run, .. } = self;
        let runs = self.runs.len();
        output.line(format_args!(
            "{benchmark} on {server}, median of {runs} {}",
            if runs == 1 { "run" } else { "runs" }
        ))?;
        let mut table = Table::new();
        if run.messages > 0 {
            table.field("  messages", format!("{} of {} bytes", run.messages, load.payload_bytes));
            table.field("  throughput", format!("{} msgs/s in {:.2} s", whole(run.per_second), run.seconds));
        }
        for floor in &run.floors {
            let ratio = floor.ratio.map_or(String::new(), |ratio| format!("; ratio {ratio:.2}"));
            table.field(&format!("  floor: {}", floor.what), format!("{}/s{ratio}", whole(floor.per_second)));
        }
        for (what, latency) in [("  latency", run.latency), ("  enqueue", run.enqueue_latency)] {
            if let Some(latency) = latency {
                table.field(what, latency.to_string());
            }
        }
        print_cost(&mut table, run);
        Ok(output.table(&table)?)
    }
}

fn print_cost(table: &mut Table, run: &Run) {
    let per = if run.messages == 0 { "a second" } else { "a message" };
    table.field("  CPU, this process", format!("{:.1} µs {per}", run.cpu_micros_per_message));
    if let Some(bytes) = run.peak_rss_bytes {
        table.field("  peak memory, this process", format!("{:.1} MiB", bytes as f64 / 1024.0 / 1024.0));
    }
    let figures = [
        ("  CPU, the server", run.database_cpu_micros_per_message, "µs "),
        ("  statements", run.statements_per_message, ""),
        ("  transactions, the whole database", run.transactions_per_message, ""),
        ("  WAL or redo log, the whole server", run.log_bytes_per_message, "bytes "),
        ("  dead rows", run.dead_rows_per_message, ""),
    ];
    for (what, figure, unit) in figures {
        if let Some(figure) = figure {
            table.field(what, format!("{figure:.2} {unit}{per}"));
        }
    }
}

/// A number without a fraction, in groups of three.
pub(crate) fn whole(number: f64) -> String {
    let digits = format!("{number:.0}");
    let grouped: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    grouped.join(",")
}

impl std::fmt::Display for Latency {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p50_ms, p95_ms, p99_ms, max_ms } = self;
        write!(f, "p50 {p50_ms:.2} ms, p95 {p95_ms:.2} ms, p99 {p99_ms:.2} ms, max {max_ms:.2} ms")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn run(seconds: u64, floor: f64) -> Run {
        let taken =
            Taken { time: Duration::from_secs(seconds), cpu: Duration::ZERO, peak_rss: Some(seconds) };
        Run::new(100, taken, Counters::default()).over("INSERT", floor)
    }

    #[test]
    fn each_figure_has_its_own_median() {
        let median = median(&[run(1, 50.0), run(4, 10.0), run(2, 200.0)]).unwrap();
        assert_eq!((median.seconds, median.per_second, median.peak_rss_bytes), (2.0, 50.0, Some(2)));
        let floor = &median.floors[0];
        assert_eq!((floor.per_second, floor.ratio), (50.0, Some(2.0)));
        assert!(median.latency.is_none());
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(whole(1_234_567.4), "1,234,567");
        assert_eq!(whole(999.0), "999");
    }
}
