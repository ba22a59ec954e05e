//! What the service manager is told (systemd's `Type=notify`). Without one, nothing happens.

use std::sync::Arc;

use sd_notify::NotifyState;
use tokio::task::JoinHandle;

use crate::health::Health;

/// Tells the watchdog that the relay lives, as long as it does. Dropped, it stops.
pub(crate) struct Watchdog(Option<JoinHandle<()>>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some(task) = &self.0 {
            task.abort();
        }
    }
}

/// The relay is up, if only to wait for its database. From now on the watchdog hears of it, if there is one.
pub(crate) fn up(health: Arc<Health>) -> Watchdog {
    notify(&[NotifyState::Ready]);
    Watchdog(sd_notify::watchdog_enabled().map(|interval| {
        tokio::spawn(async move {
            loop {
                if health.is_alive() {
                    notify(&[NotifyState::Watchdog]);
                }
                tokio::time::sleep(interval / 2).await;
            }
        })
    }))
}

/// What the relay is doing, for people.
pub(crate) fn status(text: &str) {
    notify(&[NotifyState::Status(text)]);
}

/// The relay was asked to stop.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "the service manager cannot be told");
    }
}
