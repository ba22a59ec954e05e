//! Upkeep: purging what is kept no longer, in small steps, by one relay at a time.

use std::sync::Arc;
use std::time::Duration;

use super::events::Event;
use super::settings::Retain;
use super::store_call::store_call;
use super::{Parts, failpoint};
use crate::store::{RelayId, UpkeepRequest};

const LIMIT: usize = 1_000;
/// The pause between two steps while there is more to do.
const BETWEEN_STEPS: Duration = Duration::from_millis(50);

/// Looks after the upkeep for ever.
pub(super) async fn keep_up(parts: Arc<Parts>, relay: RelayId) {
    let every = parts.settings.upkeep_every;
    let mut random = parts.random();
    loop {
        // Relays that started together do not ask together.
        let wait = every / 2 + every.mul_f64(random.f64()) / 2;
        tokio::time::sleep(wait).await;
        while step(&parts, relay).await {
            tokio::time::sleep(BETWEEN_STEPS).await;
        }
    }
}

/// Does one step. Returns whether there is more to do.
async fn step(parts: &Parts, relay: RelayId) -> bool {
    let settings = &parts.settings;
    let request = UpkeepRequest {
        relay,
        lease: settings.upkeep_every.saturating_mul(3),
        keep_processed: match settings.retain {
            Retain::For(duration) => Some(duration),
            Retain::Forever | Retain::DeleteOnSettle => None,
        },
        keep_keys: Some(settings.keep_keys),
        keep_inbox: settings.keep_inbox,
        limit: LIMIT,
    };
    failpoint::hit(failpoint::BEFORE_UPKEEP);
    let store = parts.store.clone();
    let done = store_call(async move { store.upkeep(&request).await }).await;
    failpoint::hit(failpoint::AFTER_UPKEEP);
    match done {
        Ok(report) => {
            parts.hooks.tell(&Event::Upkeep { report: &report });
            report.ours && report.more
        }
        Err(error) => {
            parts.store_failed("upkeep", &error);
            false
        }
    }
}
