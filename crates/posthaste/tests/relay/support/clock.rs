//! A clock that jumps.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use posthaste::{Clock, MemoryStore};
use posthaste_testkit::VirtualClock;

use super::{TappedStore, secs};

/// A clock that a test can move forward, as when a database fails over to a server whose clock is ahead.
#[derive(Clone)]
pub(crate) struct JumpingClock(VirtualClock, Arc<AtomicU64>);

impl JumpingClock {
    pub(crate) fn jump(&self, by: Duration) {
        self.1.fetch_add(by.as_secs(), Ordering::SeqCst);
    }
}

impl Clock for JumpingClock {
    fn now(&self) -> SystemTime {
        self.0.now() + secs(self.1.load(Ordering::SeqCst))
    }
}

/// An outbox in memory on such a clock.
pub(crate) fn outbox_on_jumping_clock(lanes: u16) -> (TappedStore, JumpingClock) {
    let clock = JumpingClock(VirtualClock::start(), Arc::default());
    (TappedStore::new(MemoryStore::new(lanes).with_clock(clock.clone())), clock)
}
