//! What came of it: committed against published, key by key.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use posthaste::MessageId;
use tokio::time::Instant;

use super::destination::Delivery;
use super::producers::Committed;

/// Everything that is compared.
pub(crate) struct Evidence {
    /// What the producers committed.
    pub(crate) committed: Vec<Committed>,
    /// The messages that the rows of the business table name: what the database says was committed.
    pub(crate) in_orders: HashSet<MessageId>,
    /// The messages of transactions that were rolled back.
    pub(crate) rolled_back: HashSet<MessageId>,
    /// What the destination took, in order of arrival.
    pub(crate) deliveries: Vec<Delivery>,
    /// How often two messages of one key were under way at once.
    pub(crate) overlaps: u64,
    /// The messages that are dead in the table.
    pub(crate) dead: HashSet<MessageId>,
    /// Whether the relay lost its lease, after which repeats are allowed.
    pub(crate) lease_lost: bool,
}

/// The result.
#[derive(Debug)]
pub(crate) struct Audit {
    pub(crate) committed: usize,
    pub(crate) published: usize,
    pub(crate) rolled_back: usize,
    pub(crate) dead: usize,
    pub(crate) checks: Vec<Check>,
    /// Messages a second, from the first commit to the last delivery.
    pub(crate) rate: f64,
    /// From commit to delivery: half of the messages took no longer, and 99 in 100.
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
}

/// One promise, and how often it was broken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) what: &'static str,
    pub(crate) count: usize,
    pub(crate) kept: bool,
}

impl Audit {
    /// Compares.
    pub(crate) fn of(evidence: &Evidence) -> Self {
        let committed: HashMap<MessageId, &Committed> =
            evidence.committed.iter().map(|message| (message.id, message)).collect();
        let firsts = first_deliveries(&evidence.deliveries);
        let published: HashSet<MessageId> = firsts.iter().map(|delivery| delivery.id).collect();
        let (rate, p50, p99) = speed(&committed, &firsts);
        Self {
            committed: committed.len(),
            published: published.len(),
            rolled_back: evidence.rolled_back.len(),
            dead: evidence.dead.len(),
            checks: checks(evidence, &committed, &firsts, &published),
            rate,
            p50,
            p99,
        }
    }

    /// Whether every promise was kept.
    pub(crate) fn all_kept(&self) -> bool {
        self.checks.iter().all(|check| check.kept)
    }
}

fn checks(
    evidence: &Evidence,
    committed: &HashMap<MessageId, &Committed>,
    firsts: &[Delivery],
    published: &HashSet<MessageId>,
) -> Vec<Check> {
    let never = |what, count| Check { what, count, kept: count == 0 };
    let half_done = evidence.in_orders.iter().filter(|id| !committed.contains_key(*id)).count()
        + committed.keys().filter(|id| !evidence.in_orders.contains(*id)).count();
    let lost = committed.keys().filter(|id| !published.contains(*id) && !evidence.dead.contains(*id)).count();
    let unasked = published.iter().filter(|id| !committed.contains_key(*id)).count();
    let ghosts = evidence.rolled_back.intersection(published).count();
    let duplicates = evidence.deliveries.len() - firsts.len();
    let overlaps = usize::try_from(evidence.overlaps).unwrap_or(usize::MAX);
    let disorder = order_violations(committed, firsts) + overlaps;
    vec![
        never("rolled back, but published", ghosts),
        never("published, but never committed", unasked - ghosts),
        never("order without message, or the reverse", half_done),
        never("lost", lost),
        Check { what: "duplicates", count: duplicates, kept: duplicates == 0 || evidence.lease_lost },
        never("order violations", disorder),
    ]
}

/// The deliveries without repeats.
fn first_deliveries(deliveries: &[Delivery]) -> Vec<Delivery> {
    let mut seen = HashSet::new();
    deliveries.iter().filter(|delivery| seen.insert(delivery.id)).copied().collect()
}

/// How many messages came after a later one of their key.
fn order_violations(committed: &HashMap<MessageId, &Committed>, firsts: &[Delivery]) -> usize {
    let mut latest: HashMap<u64, u64> = HashMap::new();
    let known = firsts.iter().filter_map(|delivery| committed.get(&delivery.id));
    known
        .filter(|message| {
            let latest = latest.entry(message.key).or_insert(message.number);
            let late = message.number < *latest;
            *latest = message.number.max(*latest);
            late
        })
        .count()
}

fn speed(committed: &HashMap<MessageId, &Committed>, firsts: &[Delivery]) -> (f64, Duration, Duration) {
    let began: Option<Instant> = committed.values().map(|message| message.at).min();
    let ended: Option<Instant> = firsts.iter().map(|delivery| delivery.at).max();
    let took = match (began, ended) {
        (Some(began), Some(ended)) => ended.saturating_duration_since(began),
        _ => Duration::ZERO,
    };
    let mut delays: Vec<Duration> = firsts
        .iter()
        .filter_map(|delivery| {
            let committed = committed.get(&delivery.id)?;
            // A message may be delivered before its producer has come round to looking at the clock.
            Some(delivery.at.saturating_duration_since(committed.at))
        })
        .collect();
    delays.sort_unstable();
    let rate = firsts.len() as f64 / took.as_secs_f64().max(1e-9);
    (rate, percentile(&delays, 50), percentile(&delays, 99))
}

/// The smallest delay that `percent` of all are not above.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three messages of key 1 and one of key 2, all committed and delivered in order.
    fn evidence() -> Evidence {
        let now = Instant::now();
        let committed: Vec<Committed> = [(1, 0), (1, 1), (1, 2), (2, 0)]
            .into_iter()
            .map(|(key, number)| Committed { id: MessageId::generate(), key, number, at: now })
            .collect();
        let delivered = |message: &Committed| Delivery { id: message.id, at: now + Duration::from_millis(4) };
        Evidence {
            in_orders: committed.iter().map(|message| message.id).collect(),
            deliveries: committed.iter().map(delivered).collect(),
            committed,
            rolled_back: HashSet::from([MessageId::generate()]),
            overlaps: 0,
            dead: HashSet::new(),
            lease_lost: false,
        }
    }

    fn broken(evidence: &Evidence) -> Vec<(&'static str, usize)> {
        let audit = Audit::of(evidence);
        assert_eq!(audit.all_kept(), audit.checks.iter().all(|check| check.kept));
        audit.checks.iter().filter(|check| !check.kept).map(|check| (check.what, check.count)).collect()
    }

    #[test]
    fn a_good_run_passes() {
        let audit = Audit::of(&evidence());
        assert!(audit.all_kept(), "{audit:?}");
        assert_eq!((audit.committed, audit.published, audit.rolled_back), (4, 4, 1));
        assert_eq!(audit.p50, Duration::from_millis(4));
    }

    #[test]
    fn every_broken_promise_is_found() {
        let mut lost = evidence();
        lost.deliveries.pop();
        assert_eq!(broken(&lost), [("lost", 1)]);
        lost.dead.insert(lost.committed[3].id);
        assert_eq!(broken(&lost), []);

        let mut disorder = evidence();
        disorder.deliveries.swap(0, 2);
        assert_eq!(broken(&disorder), [("order violations", 2)]);

        let mut overlapping = evidence();
        overlapping.overlaps = 1;
        assert_eq!(broken(&overlapping), [("order violations", 1)]);

        let mut twice = evidence();
        twice.deliveries.push(twice.deliveries[0]);
        assert_eq!(broken(&twice), [("duplicates", 1)]);
        twice.lease_lost = true;
        assert_eq!(broken(&twice), []);

        let mut ghost = evidence();
        let id = *ghost.rolled_back.iter().next().unwrap();
        ghost.deliveries.push(Delivery { id, ..ghost.deliveries[0] });
        assert_eq!(broken(&ghost), [("rolled back, but published", 1)]);

        let mut torn = evidence();
        torn.in_orders.insert(MessageId::generate());
        assert_eq!(broken(&torn), [("order without message, or the reverse", 1)]);
    }

    #[test]
    fn percentiles_are_of_the_sorted_list() {
        let delays: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(percentile(&delays, 50), Duration::from_millis(100));
        assert_eq!(percentile(&delays, 99), Duration::from_millis(198));
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }
}
