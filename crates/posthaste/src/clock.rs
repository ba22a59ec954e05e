//! Wall-clock time, injected.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where wall-clock time comes from.
///
/// Stores that have no server of their own ([`MemoryStore`](crate::MemoryStore), `SQLite`) judge leases, delays
/// and backoff by it, and [`IdGenerator`](crate::IdGenerator) stamps ids with it. Database servers judge by their
/// own clock. Monotonic time inside the relay is tokio's, which tests pause with `tokio::time::pause`.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> SystemTime;
}

/// The operating system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> SystemTime {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
        let now = SystemTime::now();
        crate::failpoint::skewed(now)
    }
}

/// A clock that moves only when told to. Clones share their time.
///
/// ```
/// use std::time::Duration;
/// use posthaste::{Clock, ManualClock};
///
/// let clock = ManualClock::default();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(clock.now().duration_since(before).unwrap(), Duration::from_secs(5));
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<Mutex<SystemTime>>);

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn new(start: SystemTime) -> Self {
        Self(Arc::new(Mutex::new(start)))
    }

    /// Moves the clock forward by `by`.
    pub fn advance(&self, by: Duration) {
        *self.lock() += by;
    }

    /// Sets the clock, forward or backward.
    pub fn set(&self, to: SystemTime) {
        *self.lock() = to;
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SystemTime> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ManualClock {
    /// A clock that stands at 2026-01-01T00:00:00Z.
    fn default() -> Self {
        Self::new(UNIX_EPOCH + Duration::from_secs(1_767_225_600))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> SystemTime {
        *self.lock()
    }
}
