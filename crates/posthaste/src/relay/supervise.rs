//! Tasks that are started anew when they die.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::Parts;
use super::events::Event;

const PAUSE: Duration = Duration::from_millis(100);

/// A supervised task. Dropping it ends the task.
pub(super) struct Supervised(JoinHandle<()>);

impl Supervised {
    /// Waits until the task has come to its own end.
    pub(super) async fn finished(mut self) {
        // The supervisor itself cannot fail: it only starts and awaits.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts a task, and starts it anew whenever it panics.
pub(super) fn start<F>(
    task: &'static str,
    parts: &Arc<Parts>,
    make: impl Fn() -> F + Send + 'static,
) -> Supervised
where
    F: Future<Output = ()> + Send + 'static,
{
    let parts = parts.clone();
    Supervised(tokio::spawn(async move {
        while Aborting(tokio::spawn(make())).panicked().await {
            tracing::error!(task, "a task of the relay panicked and is started anew");
            parts.hooks.tell(&Event::TaskRestarted { task });
            tokio::time::sleep(PAUSE).await;
        }
    }))
}

/// A task that ends with its supervisor.
struct Aborting(JoinHandle<()>);

impl Aborting {
    async fn panicked(mut self) -> bool {
        (&mut self.0).await.is_err_and(|error| error.is_panic())
    }
}

impl Drop for Aborting {
    fn drop(&mut self) {
        self.0.abort();
    }
}
