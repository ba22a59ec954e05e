//! Counts by destination and event type, however many event types there are.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::always::Always;
use super::{By, ByDestination, LONG_SECONDS, SECONDS, counts};

/// So many event types of a destination are told apart. All later ones are counted as [`OTHER`]: producers choose event
/// types, and must not be able to fill a monitoring system.
const MOST_EVENT_TYPES: usize = 100;
const OTHER: &str = "other";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    destination: String,
    event_type: String,
}

type Durations = Family<ByDestination, Histogram, fn() -> Histogram>;

/// What becomes of messages.
pub(super) struct Messages {
    published: By<Labels>,
    failed: By<Labels>,
    retried: By<Labels>,
    dead: By<Labels>,
    publish_duration: Durations,
    end_to_end: Durations,
    /// What is behind the labels, so that counting neither copies nor hashes them.
    destinations: Mutex<HashMap<String, OfDestination>>,
}

struct OfDestination {
    publish_duration: Histogram,
    end_to_end: Histogram,
    by_event_type: HashMap<String, OfEventType>,
}

#[derive(Clone)]
struct OfEventType {
    published: Counter,
    failed: Counter,
    retried: Counter,
    dead: Counter,
}

impl Messages {
    pub(super) fn new(destinations: &[String], registry: &mut Registry) -> Self {
        let of = "by destination and event type";
        let messages = Self {
            published: counts(
                registry,
                "published",
                &format!("Messages that a destination took responsibility for, {of}"),
            ),
            failed: counts(
                registry,
                "failed",
                &format!("Attempts that failed, an outage of the destination aside, {of}"),
            ),
            retried: counts(registry, "retried", &format!("Failed attempts that are to be repeated, {of}")),
            dead: counts(registry, "dead", &format!("Messages given up, {of}")),
            publish_duration: durations(
                registry,
                "publish_duration",
                "How long a publish took until the destination confirmed it",
                || Histogram::new(SECONDS),
            ),
            end_to_end: durations(
                registry,
                "end_to_end_duration",
                "From enqueueing, by the database's clock, to the destination's confirmation, by this machine's",
                || Histogram::new(LONG_SECONDS),
            ),
            destinations: Mutex::default(),
        };
        for destination in destinations {
            messages.with(destination, |_| {});
        }
        messages
    }

    pub(super) fn published(&self, destination: &str, event_type: &str, took: Duration, waited: Duration) {
        self.with(destination, |of| {
            of.publish_duration.observe(took.as_secs_f64());
            of.end_to_end.observe(waited.as_secs_f64());
        });
        self.count(destination, event_type, |of| of.published.inc());
    }

    pub(super) fn retried(&self, destination: &str, event_type: &str) {
        self.count(destination, event_type, |of| {
            of.failed.inc();
            of.retried.inc()
        });
    }

    pub(super) fn died(&self, destination: &str, event_type: &str) {
        self.count(destination, event_type, |of| {
            of.failed.inc();
            of.dead.inc()
        });
    }

    fn destinations(&self) -> MutexGuard<'_, HashMap<String, OfDestination>> {
        self.destinations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, destination: &str, act: impl FnOnce(&mut OfDestination) -> T) -> T {
        let mut destinations = self.destinations();
        if let Some(of) = destinations.get_mut(destination) {
            return act(of);
        }
        let labels = ByDestination { destination: destination.to_owned() };
        let of = OfDestination {
            publish_duration: self.publish_duration.get_or_create(&labels).clone(),
            end_to_end: self.end_to_end.get_or_create(&labels).clone(),
            by_event_type: HashMap::new(),
        };
        act(destinations.entry(labels.destination).or_insert(of))
    }

    fn count(&self, destination: &str, event_type: &str, act: impl FnOnce(&OfEventType) -> u64) {
        self.with(destination, |of| {
            if let Some(of) = of.by_event_type.get(event_type) {
                act(of);
                return;
            }
            let is_full = of.by_event_type.len() >= MOST_EVENT_TYPES;
            let name = if is_full { OTHER } else { event_type };
            let known = of.by_event_type.entry(name.to_owned());
            act(known.or_insert_with(|| self.of_event_type(destination, name)));
        });
    }

    fn of_event_type(&self, destination: &str, event_type: &str) -> OfEventType {
        let labels = Labels { destination: destination.to_owned(), event_type: event_type.to_owned() };
        OfEventType {
            published: self.published.get_or_create(&labels).clone(),
            failed: self.failed.get_or_create(&labels).clone(),
            retried: self.retried.get_or_create(&labels).clone(),
            dead: self.dead.get_or_create(&labels).clone(),
        }
    }
}

fn durations(registry: &mut Registry, name: &str, help: &str, make: fn() -> Histogram) -> Durations {
    let family = Durations::new_with_constructor(make);
    registry.register_with_unit(name, help, Unit::Seconds, Always(family.clone()));
    family
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_text::encode;

    use super::*;

    #[test]
    fn event_types_are_told_apart_up_to_a_limit() {
        let mut registry = Registry::default();
        let messages = Messages::new(&["a".to_owned()], &mut registry);
        for number in 0..1_000 {
            messages.retried("a", &format!("type {number}"));
        }
        messages.died("a", "type 7");
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert_eq!(
            text.lines().filter(|line| line.starts_with("failed_total{")).count(),
            MOST_EVENT_TYPES + 1
        );
        assert!(text.contains("failed_total{destination=\"a\",event_type=\"other\"} 900\n"), "{text}");
        assert!(text.contains("failed_total{destination=\"a\",event_type=\"type 7\"} 2\n"), "{text}");
        assert!(text.contains("dead_total{destination=\"a\",event_type=\"type 7\"} 1\n"), "{text}");
    }
}
