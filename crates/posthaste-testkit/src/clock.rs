//! A wall clock that follows tokio's, which tests pause.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthaste::Clock;
use tokio::time::Instant;

/// A wall clock that goes as tokio's monotonic clock goes: with the runtime's time paused, it stands until the
/// runtime moves on.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock {
    start: Instant,
}

impl VirtualClock {
    /// A clock that starts now, at 2026-01-01T00:00:00Z.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_767_225_600) + self.start.elapsed()
    }
}
