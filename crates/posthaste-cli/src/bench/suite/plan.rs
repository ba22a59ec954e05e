//! What a suite measures: a grid of points, each a benchmark of its own.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Plan {
    /// The middle of every chart; minutes
    Mini,
    /// All of it; hours
    Full,
    /// One point of each kind, to see that it works
    #[value(hide = true)]
    Tiny,
}

/// The kinds of database, as far as they differ here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
    MySql,
}

/// What a chart shows of its points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shows {
    Throughput,
    Latency,
    /// Figures only.
    Nothing,
}

/// Points that belong together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// What differs along the chart.
    pub(crate) x: &'static str,
    pub(crate) shows: Shows,
}

const fn group(name: &'static str, title: &'static str, x: &'static str) -> Group {
    Group { name, title, x, shows: Shows::Throughput }
}

/// In the order in which they are measured and shown.
pub(crate) const GROUPS: [Group; 13] = [
    group("enqueue", "Enqueueing", "producers"),
    group("in-flight", "Draining by messages in flight", "in flight"),
    group("settle-batch", "Draining by outcomes written at a time", "outcomes"),
    group("payload", "Draining by size of payload", "bytes"),
    group("keys", "Draining by number of keys", "keys"),
    group("backlog", "Draining a backlog", "messages"),
    group("snapshot", "Draining while somebody holds an old snapshot", "messages"),
    group("partition", "Draining a partitioned outbox", "messages"),
    group("blocked", "Draining beside keys that are held up", "held up of 1,000 keys"),
    group("relays", "Draining by number of relays", "relays"),
    Group { shows: Shows::Latency, ..group("mixed", "From commit to publish", "msgs/s enqueued") },
    group("both", "Enqueueing and draining at the same time", "producers"),
    Group { shows: Shows::Nothing, ..group("idle", "An idle relay", "relays") },
];

/// One benchmark of a suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) group: &'static str,
    /// Which line of the chart it is on.
    pub(crate) series: String,
    /// Where along the chart.
    pub(crate) x: String,
    /// The arguments of `posthaste bench`.
    pub(crate) arguments: Vec<String>,
}

impl Point {
    /// Tells points of a plan apart, and stays the same.
    pub(crate) fn id(&self) -> String {
        format!("{}/{}/{}", self.group, self.series, self.x)
    }
}

/// How large a plan is.
struct Scale {
    messages: u64,
    repeats: u64,
    in_flight: &'static [u64],
    batches: &'static [u64],
    payloads: &'static [u64],
    producers: &'static [u64],
    rates: &'static [u64],
    backlogs: &'static [u64],
    relays: &'static [u64],
    keys: &'static [u64],
    blocked: &'static [u64],
}

const MINI: Scale = Scale {
    messages: 20_000,
    repeats: 3,
    in_flight: &[16, 256],
    batches: &[100, 1_000],
    payloads: &[128, 4_096],
    producers: &[1, 8],
    rates: &[100, 1_000],
    backlogs: &[10_000, 60_000],
    relays: &[1, 2, 4],
    keys: &[0, 1, 1_000],
    blocked: &[0, 500],
};

const FULL: Scale = Scale {
    messages: 200_000,
    repeats: 5,
    in_flight: &[1, 4, 16, 64, 256, 1_024],
    batches: &[10, 100, 500, 1_000, 4_000],
    payloads: &[128, 512, 4_096, 16_384, 131_072],
    producers: &[1, 2, 4, 8, 16, 32],
    rates: &[10, 100, 500, 1_000, 2_000, 4_000],
    backlogs: &[10_000, 100_000, 1_000_000],
    relays: &[1, 2, 4, 8],
    keys: &[0, 1, 10, 1_000, 100_000],
    blocked: &[0, 10, 100, 500, 900],
};

const TINY: Scale = Scale {
    messages: 100,
    repeats: 1,
    in_flight: &[16],
    batches: &[100],
    payloads: &[128],
    producers: &[2],
    rates: &[500],
    backlogs: &[100],
    relays: &[1],
    keys: &[1],
    blocked: &[50],
};

/// The most bytes of payload that one run fills in.
const MOST_BYTES: u64 = 512 * 1024 * 1024;

/// The points of a plan.
pub(crate) fn points(plan: Plan, engine: Engine) -> Vec<Point> {
    let scale = match plan {
        Plan::Mini => &MINI,
        Plan::Full => &FULL,
        Plan::Tiny => &TINY,
    };
    let mut grid = Grid { scale, points: Vec::new() };
    grid.enqueueing();
    grid.draining();
    grid.backlogs(engine);
    grid.working_together(engine);
    grid.both();
    grid.points
}

struct Grid<'a> {
    scale: &'a Scale,
    points: Vec<Point>,
}

impl Grid<'_> {
    fn add(&mut self, group: &'static str, series: &str, x: u64, line: &str) {
        self.add_many(group, series, x, self.scale.messages, line);
    }

    fn add_many(&mut self, group: &'static str, series: &str, x: u64, messages: u64, line: &str) {
        let repeats = self.scale.repeats;
        let warm_up = (messages / 10).min(2_000);
        let keys =
            if line.contains("--keys") { String::new() } else { format!("--keys {} ", messages.min(1_000)) };
        let line = format!("{line} {keys}--messages {messages} --warm-up {warm_up} --repeats {repeats}");
        let arguments = line.split_whitespace().map(str::to_owned).collect();
        self.points.push(Point { group, series: series.to_owned(), x: x.to_string(), arguments });
    }

    fn enqueueing(&mut self) {
        for producers in self.scale.producers {
            self.add(
                "enqueue",
                "a transaction each",
                *producers,
                &format!("enqueue --producers {producers}"),
            );
            let line = format!("enqueue --producers {producers} --batch 100");
            self.add("enqueue", "100 in a transaction", *producers, &line);
        }
    }

    fn draining(&mut self) {
        for in_flight in self.scale.in_flight {
            let line = format!("drain --in-flight {in_flight}");
            self.add("in-flight", "rows kept", *in_flight, &line);
            self.add("in-flight", "rows deleted", *in_flight, &format!("{line} --delete"));
        }
        for batch in self.scale.batches {
            self.add(
                "settle-batch",
                "rows kept",
                *batch,
                &format!("drain --no-floor --settle-batch {batch}"),
            );
        }
        for bytes in self.scale.payloads {
            let messages = self.scale.messages.min(MOST_BYTES / bytes);
            for content in ["random", "fixed"] {
                let line = format!("drain --no-floor --payload-bytes {bytes} --payload {content}");
                self.add_many("payload", content, *bytes, messages, &line);
            }
        }
        for keys in self.scale.keys.iter().copied().filter(|keys| *keys <= self.scale.messages) {
            self.add("keys", "in turn", keys, &format!("drain --no-floor --keys {keys}"));
            if keys > 1 {
                let line = format!("drain --no-floor --keys {keys} --skewed");
                self.add("keys", "half of a tenth", keys, &line);
            }
        }
        for blocked in self.scale.blocked {
            self.add("blocked", "rows kept", *blocked, &format!("drain --no-floor --blocked-keys {blocked}"));
        }
    }

    fn backlogs(&mut self, engine: Engine) {
        for messages in self.scale.backlogs {
            let mut add = |group, series, line| self.add_many(group, series, *messages, *messages, line);
            add("backlog", "rows kept", "drain --no-floor");
            add("backlog", "rows deleted", "drain --no-floor --delete");
            add("snapshot", "held", "drain --no-floor --hold-snapshot");
            add("snapshot", "held, rows deleted", "drain --no-floor --hold-snapshot --delete");
            if engine != Engine::Sqlite {
                add("partition", "by day", "drain --no-floor --partition day");
                add("partition", "by month", "drain --no-floor --partition month");
            }
        }
    }

    fn working_together(&mut self, engine: Engine) {
        for relays in self.scale.relays {
            // On SQLite one works and the others stand by.
            if engine != Engine::Sqlite || *relays == 1 {
                self.add("relays", "rows kept", *relays, &format!("drain --no-floor --relays {relays}"));
            }
        }
        let watched = if self.scale.messages < 1_000 { "1s" } else { "10s" };
        self.add_many("idle", "idle", 1, 1, &format!("idle --for {watched}"));
    }

    fn both(&mut self) {
        for rate in self.scale.rates {
            // Five seconds of it.
            let messages = (rate * 5).min(self.scale.messages);
            self.add_many("mixed", "one relay", *rate, messages, &format!("mixed --rate {rate}"));
        }
        for producers in self.scale.producers {
            self.add("both", "one relay", *producers, &format!("mixed --producers {producers}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Parser;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn points_are_told_apart_and_are_command_lines() {
        for plan in [Plan::Mini, Plan::Full, Plan::Tiny] {
            for engine in [Engine::Sqlite, Engine::Postgres, Engine::MySql] {
                let points = points(plan, engine);
                let ids: BTreeSet<_> = points.iter().map(Point::id).collect();
                assert_eq!(ids.len(), points.len());
                for point in &points {
                    assert!(GROUPS.iter().any(|group| group.name == point.group), "{point:?}");
                    let line =
                        ["posthaste", "bench"].into_iter().chain(point.arguments.iter().map(String::as_str));
                    assert!(Cli::try_parse_from(line).is_ok(), "{point:?}");
                }
            }
        }
    }

    #[test]
    fn every_group_has_points_in_every_plan() {
        for plan in [Plan::Mini, Plan::Full, Plan::Tiny] {
            let points = points(plan, Engine::Postgres);
            for group in GROUPS {
                assert!(points.iter().any(|point| point.group == group.name), "{}", group.name);
            }
        }
    }
}
