//! Figures about the table. Counting rows costs the database something, so it is done at most every so often, whoever
//! asks how often, one at a time, and stops at a cap: a scrape gets what was counted last.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use posthaste::{Admin, Stats};
use tokio::sync::watch;
use tokio::time::Instant;

use super::in_seconds;
use super::state::Families;

/// Counting stops here, so that its cost does not grow with the table.
pub(crate) const CAP: u64 = 10_000;
/// How long a scrape waits for the first figures.
const PATIENCE: Duration = Duration::from_secs(2);

/// The figures that were counted last.
pub(crate) struct TableFigures {
    admin: Arc<dyn Admin>,
    every: Duration,
    counted: Mutex<Counted>,
    /// How often counting came to its end, well or not.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct Counted {
    stats: Option<(Stats, Instant)>,
    began: Option<Instant>,
    under_way: bool,
    failures: u64,
}

impl TableFigures {
    pub(crate) fn new(admin: Arc<dyn Admin>, every: Duration) -> Arc<Self> {
        Arc::new(Self { admin, every, counted: Mutex::default(), ended: watch::Sender::new(0) })
    }

    /// Sees to it that the figures are not too old. Waits only for the first ones, and not for long.
    pub(crate) async fn look(self: &Arc<Self>) {
        let mut ended = self.ended.subscribe();
        let begin = {
            let (mut counted, now) = (self.counted(), Instant::now());
            let is_due = counted.began.is_none_or(|began| now - began >= self.every);
            let begin = is_due && !counted.under_way;
            if begin {
                counted.under_way = true;
                counted.began = Some(now);
            }
            begin
        };
        if begin {
            tokio::spawn(self.clone().count());
        }
        if self.counted().stats.is_none() {
            // Too late or not: what there is then is answered.
            let _ = tokio::time::timeout(PATIENCE, ended.wait_for(|ended| *ended > 0)).await;
        }
    }

    async fn count(self: Arc<Self>) {
        let result = self.admin.stats(Some(CAP)).await;
        {
            let mut counted = self.counted();
            counted.under_way = false;
            match result {
                Ok(stats) => counted.stats = Some((stats, Instant::now())),
                Err(error) => {
                    counted.failures += 1;
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "the table's figures cannot be counted"
                    );
                }
            }
        }
        self.ended.send_modify(|ended| *ended += 1);
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the figures. Before there are any, the families stand there without samples.
pub(super) fn encode(families: &mut Families<'_>, table: Option<&TableFigures>) -> fmt::Result {
    let counted = table.map(|table| {
        let counted = table.counted();
        (counted.stats.clone(), counted.failures)
    });
    let stats = counted.as_ref().and_then(|(stats, _)| stats.as_ref());
    let of = |value: fn(&Stats) -> f64| [([], stats.map(|(stats, _)| value(stats)))];
    let counts = stats.map(|(stats, _)| {
        [("ready", stats.ready), ("waiting", stats.waiting), ("blocked", stats.blocked), ("dead", stats.dead)]
    });
    let samples =
        counts.into_iter().flatten().map(|(state, count)| ([("state", state)], Some(count.count as f64)));
    families.gauge("messages", "Messages in the table, by state; counting stops at 10000", samples)?;
    let samples = counts
        .into_iter()
        .flatten()
        .map(|(state, count)| ([("state", state)], Some(f64::from(u8::from(count.capped)))));
    families.gauge("messages_capped", "Whether there are more messages than were counted", samples)?;
    families.gauge(
        "oldest_ready_age_seconds",
        "How long the oldest ready message has been ready; 0: none is",
        of(|stats| stats.oldest_ready_age.unwrap_or_default().as_secs_f64()),
    )?;
    families.gauge("lanes", "Lanes of the table", of(|stats| stats.lanes_total as f64))?;
    families.gauge(
        "lanes_leased",
        "Lanes that any live relay holds",
        of(|stats| stats.lanes_leased as f64),
    )?;
    families.gauge(
        "relays",
        "Live relays that the table knows",
        of(|stats| stats.relays.iter().filter(|relay| relay.lease_left.is_some()).count() as f64),
    )?;
    let age = stats.map(|(_, at)| at.elapsed());
    families.gauge(
        "figures_age_seconds",
        "How long ago the figures about the table were counted",
        [([], in_seconds(age))],
    )?;
    families.counter(
        "figures_failures",
        "Times that they could not be counted",
        [([], counted.map(|(_, failures)| failures))],
    )
}
