//! What Posthaste means to reach, and whether it did.

use super::results::Entry;
use crate::bench::report::{Run, whole};

/// One target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) what: &'static str,
    pub(super) measured: String,
    pub(super) is_met: bool,
}

/// The targets of which the results tell.
pub(super) fn targets(entries: &[Entry]) -> Vec<Target> {
    let find = |group: &str, series: &str, x: &str| {
        let entry =
            entries.iter().find(|entry| entry.group == group && entry.series == series && entry.x == x)?;
        Some(&entry.report.as_ref()?.median)
    };
    let mut targets = Vec::new();
    let mut target = |what, measured: Option<(String, bool)>| {
        if let Some((measured, is_met)) = measured {
            targets.push(Target { what, measured, is_met });
        }
    };
    if let Some(run) = find("in-flight", "rows kept", "256") {
        let memory = run.peak_rss_bytes.map(|bytes| bytes as f64 / 1024.0 / 1024.0);
        target(
            "memory of a draining relay at most 64 MiB",
            memory.map(|mib| (format!("{mib:.0} MiB"), mib <= 64.0)),
        );
        let cpu = run.cpu_micros_per_message;
        target("its CPU at most 10 µs a message", Some((format!("{cpu:.1} µs"), cpu <= 10.0)));
    }
    if let Some(run) = find("idle", "idle", "1") {
        let percent = run.cpu_seconds / run.seconds * 100.0;
        target("CPU of an idle relay at most 0.5 %", Some((format!("{percent:.2} %"), percent <= 0.5)));
        let statements = run.statements_per_message.map(|count| (format!("{count:.1}"), count <= 5.0));
        target("its statements at most 5 a second", statements);
    }
    let (none, thousand) = (find("keys", "in turn", "0"), find("keys", "in turn", "1000"));
    target(
        "1,000 keys at least 0.85 of none",
        none.zip(thousand).map(|(none, thousand)| at_least(0.85, thousand, none)),
    );
    let is_sqlite = entries
        .iter()
        .filter_map(|entry| entry.report.as_ref())
        .any(|report| report.server.starts_with("SQLite"));
    if is_sqlite {
        let enqueue = find("enqueue", "a transaction each", "1").and_then(|run| run.floors.first()?.ratio);
        target(
            "enqueueing at least 0.83 of a bare INSERT",
            enqueue.map(|ratio| (format!("{ratio:.2}"), ratio >= 0.83)),
        );
        let drain = find("in-flight", "rows kept", "256").map(|run| rate_of_at_least(100_000.0, run));
        target("draining at least 100,000 msgs/s", drain);
    } else {
        let one = find("keys", "in turn", "1").map(|run| rate_of_at_least(20_000.0, run));
        target("one key at least 20,000 msgs/s", one);
    }
    targets
}

fn at_least(share: f64, run: &Run, of: &Run) -> (String, bool) {
    let ratio = run.per_second / of.per_second;
    (format!("{ratio:.2}"), ratio >= share)
}

fn rate_of_at_least(rate: f64, run: &Run) -> (String, bool) {
    (format!("{} msgs/s", whole(run.per_second)), run.per_second >= rate)
}
