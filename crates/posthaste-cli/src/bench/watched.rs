//! Shows how far something has come, and does not wait for ever.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::failure::Failure;
use crate::progress::Progress;

/// How long nothing may move.
const STALLED: Duration = Duration::from_secs(60);

/// What is shown of a piece of work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    pub(super) total: u64,
    /// What is being done, as in "published".
    pub(super) what: &'static str,
    pub(super) quiet: bool,
}

/// Does a piece of work, whose progress `count` tells.
///
/// # Errors
/// What goes wrong with the work, and when nothing moves any more.
pub(super) async fn watched<T>(
    shown: Shown,
    count: impl Fn() -> u64,
    work: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::pin!(work);
    let mut progress = (!shown.quiet).then(|| Progress::new(shown.total, shown.what));
    let mut ticks = interval(Duration::from_millis(100));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut last, mut moved_at) = (0, Instant::now());
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            _ = ticks.tick() => {
                let done = count();
                if let Some(progress) = &mut progress {
                    progress.set(done);
                }
                if done != last {
                    (last, moved_at) = (done, Instant::now());
                } else if moved_at.elapsed() > STALLED {
                    let text = format!("{done} of {} {}, and nothing moves any more", shown.total, shown.what);
                    break Err(Failure::failed(text));
                }
            }
        }
    };
    if let Some(progress) = progress {
        progress.finish();
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: Shown = Shown { total: 9, what: "published", quiet: true };

    #[tokio::test(start_paused = true)]
    async fn what_does_not_move_is_given_up() {
        let stuck = watched(SHOWN, || 7, std::future::pending::<Result<(), Failure>>()).await;
        assert!(format!("{stuck:?}").contains("7 of 9 published"), "{stuck:?}");
        let done = watched(SHOWN, || 0, async { Ok(5) }).await;
        assert_eq!(done.unwrap(), 5);
    }
}
