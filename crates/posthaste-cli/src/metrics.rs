//! Metrics for Prometheus: what the relay tells as it happens ([`Metrics`]), how it does ([`state`]), and what stands in
//! the table ([`table`]).

mod always;
mod labels;
mod state;
mod table;

use std::sync::Arc;
use std::time::Duration;

use posthaste::{Clock, Event, Observer, SystemClock};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::EncodeMetric;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use self::always::Always;
use self::labels::Messages;
pub(crate) use self::state::State;
pub(crate) use self::table::TableFigures;

/// What `/metrics` answers with.
pub(crate) const CONTENT_TYPE: &str = prometheus_text::CONTENT_TYPE;

/// From a fast broker on the same machine to one that hardly answers.
const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// A message may have waited for long.
const LONG_SECONDS: [f64; 15] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0];

/// A count by one label.
type By<L> = Family<L, Counter>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDestination {
    destination: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOperation {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByTask {
    task: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRows {
    rows: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByTurn {
    turn: &'static str,
}

/// What `/metrics` shows.
pub(crate) struct Metrics {
    registry: Registry,
    counts: Counts,
}

/// What is counted as it happens.
struct Counts {
    messages: Messages,
    pauses: By<ByDestination>,
    read_records: Counter,
    read_duration: Histogram,
    settled: Counter,
    stale_settles: Counter,
    gone_settles: Counter,
    settle_duration: Histogram,
    lanes_taken: Counter,
    lanes_taken_expired: Counter,
    store_failures: By<ByOperation>,
    task_restarts: By<ByTask>,
    upkeep_runs: By<ByTurn>,
    upkeep_deleted: By<ByRows>,
    clock: SystemClock,
}

impl Metrics {
    /// All families, for destinations of these names.
    pub(crate) fn new(destinations: &[String], state: State) -> Self {
        let mut registry = Registry::with_prefix("posthaste");
        let counts = Counts::new(destinations, &mut registry);
        registry.register_collector(Box::new(state));
        Self { registry, counts }
    }

    /// Everything, in Prometheus' text format.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::with_capacity(16 * 1024);
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl Counts {
    fn new(destinations: &[String], registry: &mut Registry) -> Self {
        let counted = Self {
            messages: Messages::new(destinations, registry),
            pauses: counts(
                registry,
                "destination_pauses",
                "Times that a destination was left alone because it was unavailable or throttled",
            ),
            read_records: count(registry, "read_records", "Records read from the table"),
            read_duration: seconds(registry, "read_duration", "How long a read took that brought records"),
            settled: count(registry, "settled", "Outcomes written to the table"),
            stale_settles: count(
                registry,
                "stale_settles",
                "Outcomes refused because the lane had gone to another relay",
            ),
            gone_settles: count(
                registry,
                "gone_settles",
                "Outcomes of records that were settled or deleted by somebody else",
            ),
            settle_duration: seconds(
                registry,
                "settle_duration",
                "How long it took to write a batch of outcomes",
            ),
            lanes_taken: count(registry, "lanes_taken", "Lanes taken"),
            lanes_taken_expired: count(
                registry,
                "lanes_taken_expired",
                "Lanes taken from relays whose lease had run out",
            ),
            store_failures: counts(registry, "store_failures", "Calls to the database that failed"),
            task_restarts: counts(
                registry,
                "task_restarts",
                "Tasks of the relay that panicked and were started anew",
            ),
            upkeep_runs: counts(registry, "upkeep_runs", "Pieces of upkeep, by whose turn it was"),
            upkeep_deleted: counts(registry, "upkeep_deleted", "Rows deleted by upkeep"),
            clock: SystemClock,
        };
        for operation in ["lease", "read", "settle", "upkeep", "leave", "begin attempt", "set idle"] {
            begin(&counted.store_failures, &ByOperation { operation });
        }
        for task in ["loop", "lease", "upkeep"] {
            begin(&counted.task_restarts, &ByTask { task });
        }
        for turn in ["ours", "other"] {
            begin(&counted.upkeep_runs, &ByTurn { turn });
        }
        for rows in ["processed", "keys", "inbox"] {
            begin(&counted.upkeep_deleted, &ByRows { rows });
        }
        for destination in destinations {
            begin(&counted.pauses, &ByDestination { destination: destination.clone() });
        }
        counted
    }

    fn record(&self, event: &Event<'_>) {
        match event {
            Event::Published { destination, record, took } => {
                let waited = self.clock.now().duration_since(record.enqueued_at).unwrap_or_default();
                self.messages.published(destination, &record.event_type, *took, waited);
            }
            Event::Retried { destination, record, .. } => {
                self.messages.retried(destination, &record.event_type);
            }
            Event::Died { destination, record, .. } => self.messages.died(destination, &record.event_type),
            Event::Paused { destination, .. } => {
                self.pauses.get_or_create(&ByDestination { destination: (*destination).to_owned() }).inc();
            }
            Event::Read { records, took } => {
                self.read_records.inc_by(as_u64(*records));
                self.read_duration.observe(took.as_secs_f64());
            }
            Event::Settled { report, took } => {
                self.settled.inc_by(as_u64(report.applied));
                self.stale_settles.inc_by(as_u64(report.stale));
                self.gone_settles.inc_by(as_u64(report.gone));
                self.settle_duration.observe(took.as_secs_f64());
            }
            Event::LanesTaken { lanes, from_expired } => {
                self.lanes_taken.inc_by(as_u64(*lanes));
                self.lanes_taken_expired.inc_by(as_u64(*from_expired));
            }
            Event::StoreFailed { operation, .. } => {
                self.store_failures.get_or_create(&ByOperation { operation }).inc();
            }
            Event::TaskRestarted { task } => {
                self.task_restarts.get_or_create(&ByTask { task }).inc();
            }
            Event::Upkeep { report } => {
                let turn = if report.ours { "ours" } else { "other" };
                self.upkeep_runs.get_or_create(&ByTurn { turn }).inc();
                let deleted = [
                    ("processed", report.purged),
                    ("keys", report.keys_purged),
                    ("inbox", report.inbox_purged),
                ];
                for (rows, count) in deleted {
                    self.upkeep_deleted.get_or_create(&ByRows { rows }).inc_by(as_u64(count));
                }
            }
            _ => {}
        }
    }
}

/// Hands what happens in a relay to the metrics.
pub(crate) struct Counting(pub(crate) Arc<Metrics>);

impl Observer for Counting {
    fn event(&self, event: &Event<'_>) {
        self.0.counts.record(event);
    }
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn register<M: EncodeMetric + Clone + std::fmt::Debug + Send + Sync + 'static>(
    registry: &mut Registry,
    name: &str,
    help: &str,
    metric: &M,
) {
    registry.register(name, help, Always(metric.clone()));
}

fn count(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    register(registry, name, help, &counter);
    counter
}

fn counts<L>(registry: &mut Registry, name: &str, help: &str) -> By<L>
where
    L: EncodeLabelSet + Clone + std::fmt::Debug + Eq + std::hash::Hash + Send + Sync + 'static,
{
    let family = By::<L>::default();
    register(registry, name, help, &family);
    family
}

/// Shows a count from the start.
fn begin<L: Clone + Eq + std::hash::Hash>(family: &By<L>, labels: &L) {
    drop(family.get_or_create(labels));
}

fn seconds(registry: &mut Registry, name: &str, help: &str) -> Histogram {
    let histogram = Histogram::new(SECONDS);
    registry.register_with_unit(name, help, Unit::Seconds, Always(histogram.clone()));
    histogram
}

/// A time, for a gauge.
fn in_seconds(time: Option<Duration>) -> Option<f64> {
    time.map(|time| time.as_secs_f64())
}
