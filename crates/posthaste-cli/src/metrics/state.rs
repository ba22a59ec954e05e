//! How the relay does at the moment of a scrape.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use posthaste::{DestinationState, RelayHandle, Snapshot, Summary};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::in_seconds;
use super::table::TableFigures;

/// What is asked at every scrape.
#[derive(Clone, Default)]
pub(crate) struct State(Arc<Mutex<Parts>>);

#[derive(Default)]
struct Parts {
    relay: Option<RelayHandle>,
    table: Option<Arc<TableFigures>>,
    ready: bool,
}

impl State {
    /// From now on there is a relay.
    pub(crate) fn set_relay(&self, relay: RelayHandle, table: Arc<TableFigures>) {
        let mut parts = self.parts();
        parts.relay = Some(relay);
        parts.table = Some(table);
    }

    /// What `/readyz` says.
    pub(crate) fn set_ready(&self, ready: bool) {
        self.parts().ready = ready;
    }

    pub(crate) fn table(&self) -> Option<Arc<TableFigures>> {
        self.parts().table.clone()
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Parts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("State")
    }
}

impl Collector for State {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (relay, table, ready) = {
            let parts = self.parts();
            (parts.relay.clone(), parts.table.clone(), parts.ready)
        };
        let mut families = Families(encoder);
        families.gauge("ready", "Whether /readyz says yes", [([], Some(f64::from(u8::from(ready))))])?;
        let version = [([("version", env!("CARGO_PKG_VERSION"))], Some(1.0))];
        families.gauge("build_info", "The version of this program", version)?;
        let snapshot = relay.as_ref().map(RelayHandle::snapshot);
        let summary = relay.as_ref().map(RelayHandle::summary);
        of_relay(&mut families, snapshot.as_ref(), summary.as_ref())?;
        of_destinations(&mut families, snapshot.as_ref())?;
        super::table::encode(&mut families, table.as_deref())
    }
}

fn of_relay(
    families: &mut Families<'_>,
    snapshot: Option<&Snapshot>,
    summary: Option<&Summary>,
) -> fmt::Result {
    let mut gauge = |name, help, value: fn(&Snapshot) -> Option<f64>| {
        families.gauge(name, help, [([], snapshot.and_then(value))])
    };
    gauge("lanes_held", "Lanes that this relay holds", |now| Some(now.lanes_held as f64))?;
    gauge("lease_seconds", "How long the lease lasts from now; 0: there is none", |now| {
        Some(now.lease_left.unwrap_or_default().as_secs_f64())
    })?;
    gauge("last_turn_seconds", "How long ago the relay's loop last turned", |now| in_seconds(now.last_turn))?;
    gauge("last_read_seconds", "How long ago a read last succeeded", |now| in_seconds(now.last_read))?;
    gauge("last_settle_seconds", "How long ago a settle last succeeded", |now| in_seconds(now.last_settle))?;
    gauge("queued", "Records in memory that wait for their turn", |now| Some(now.queued as f64))?;
    gauge("unsettled", "Attempts that are over and not yet written down", |now| Some(now.unsettled as f64))?;
    gauge("unrouted", "Messages without a route that this relay came across", |now| {
        Some(now.unrouted as f64)
    })?;
    let lost = [([], snapshot.map(|now| now.lanes_lost))];
    families.counter("lanes_lost", "Lanes that went to other relays because the lease had run out", lost)?;
    let lapsed = [([], snapshot.map(|now| now.leases_lapsed))];
    families.counter("lease_losses", "Times that the lease could not be renewed in time", lapsed)?;
    let risks = [
        ([("cause", "stale")], summary.map(|summary| summary.stale)),
        ([("cause", "abandoned")], summary.map(|summary| summary.abandoned)),
    ];
    families.counter(
        "duplicate_risk",
        "Messages that may be published twice: published under a lease that was over, or abandoned while being published",
        risks,
    )
}

fn of_destinations(families: &mut Families<'_>, snapshot: Option<&Snapshot>) -> fmt::Result {
    let all = snapshot.map(|now| now.destinations.as_slice()).unwrap_or_default();
    let in_flight = all.iter().map(|of| ([("destination", &*of.name)], Some(of.in_flight as f64)));
    families.gauge("in_flight", "Records being published", in_flight)?;
    let last = all.iter().map(|of| ([("destination", &*of.name)], in_seconds(of.last_success)));
    families.gauge(
        "last_publish_seconds",
        "How long ago a destination last took responsibility for a record",
        last,
    )?;
    let states = [
        DestinationState::Running,
        DestinationState::Unavailable { retry_in: std::time::Duration::ZERO },
        DestinationState::Throttled { retry_in: std::time::Duration::ZERO },
        DestinationState::Paused,
    ];
    let states = all.iter().flat_map(|of| {
        states.map(|state| {
            let is = of.state.as_str() == state.as_str();
            ([("destination", &*of.name), ("state", state.as_str())], Some(f64::from(u8::from(is))))
        })
    });
    families.gauge("destination_state", "1 for the state in which a destination is, 0 for the others", states)
}

/// Families that are written at every scrape.
pub(super) struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    /// A gauge; a sample without a value is left out.
    pub(super) fn gauge<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'l str, &'l str); N], Option<f64>)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            match value {
                Some(value) if labels.is_empty() => family.encode_gauge(&value)?,
                Some(value) => family.encode_family(&labels)?.encode_gauge(&value)?,
                None => {}
            }
        }
        Ok(())
    }

    /// A counter.
    pub(super) fn counter<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'l str, &'l str); N], Option<u64>)>,
    ) -> fmt::Result {
        use prometheus_client::encoding::NoLabelSet;
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            match value {
                Some(value) if labels.is_empty() => {
                    family.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                }
                Some(value) => {
                    family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
                }
                None => {}
            }
        }
        Ok(())
    }
}
