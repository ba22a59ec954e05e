//! The settings of a relay, as plain data.

use std::time::Duration;

use crate::error::Error;
use crate::retry::RetryPolicies;
use crate::validate::MAX_DELAY;

/// What becomes of the later messages of a key when one of them is given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeadPolicy {
    /// They go on without it.
    #[default]
    Skip,
    /// They wait until it is redriven or discarded.
    Park,
}

/// What becomes of processed records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retain {
    /// They are kept for so long and then purged by upkeep.
    For(Duration),
    /// They are kept for ever.
    Forever,
    /// They are deleted when they are settled.
    DeleteOnSettle,
}

impl Default for Retain {
    /// Seven days.
    fn default() -> Self {
        Self::For(Duration::from_hours(7 * 24))
    }
}

#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) name: String,
    pub(super) max_in_flight: usize,
    pub(super) window_rows: usize,
    pub(super) window_bytes: usize,
    pub(super) settle_batch: usize,
    pub(super) settle_linger: Duration,
    pub(super) lease: Duration,
    pub(super) publish_timeout: Duration,
    pub(super) drain_timeout: Duration,
    pub(super) idle_poll: Duration,
    pub(super) retries: RetryPolicies,
    pub(super) on_dead: DeadPolicy,
    pub(super) retain: Retain,
    pub(super) keep_keys: Duration,
    pub(super) keep_inbox: Option<Duration>,
    pub(super) upkeep_every: Duration,
    pub(super) seed: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: format!("pid {}", std::process::id()),
            max_in_flight: 256,
            window_rows: 4_096,
            window_bytes: 64 * 1024 * 1024,
            settle_batch: 1_000,
            settle_linger: Duration::from_millis(2),
            lease: Duration::from_secs(10),
            publish_timeout: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
            idle_poll: Duration::from_millis(400),
            retries: RetryPolicies::default(),
            on_dead: DeadPolicy::default(),
            retain: Retain::default(),
            keep_keys: Duration::from_hours(30 * 24),
            keep_inbox: Some(Duration::from_hours(30 * 24)),
            upkeep_every: Duration::from_mins(1),
            seed: None,
        }
    }
}

impl Settings {
    pub(super) fn check(&self) -> Result<(), Error> {
        let counts = [
            ("max_in_flight", self.max_in_flight),
            ("window_rows", self.window_rows),
            ("window_bytes", self.window_bytes),
            ("settle_batch", self.settle_batch),
        ];
        for (name, count) in counts {
            if count == 0 {
                return Err(Error::invalid_input(format!("{name} is 0; it must be at least 1")));
            }
        }
        let durations = [
            ("lease", self.lease),
            ("publish_timeout", self.publish_timeout),
            ("drain_timeout", self.drain_timeout),
            ("idle_poll", self.idle_poll),
            ("keep_keys", self.keep_keys),
            ("upkeep_every", self.upkeep_every),
        ];
        for (name, duration) in durations {
            if duration.is_zero() {
                return Err(Error::invalid_input(format!("{name} is 0; it must be longer")));
            }
        }
        for (name, duration) in durations.into_iter().chain([("settle_linger", self.settle_linger)]) {
            if duration > MAX_DELAY {
                return Err(Error::invalid_input(format!("{name} is longer than ten years")));
            }
        }
        self.check_retain()?;
        self.check_keep_inbox()?;
        self.retries.check()
    }

    fn check_keep_inbox(&self) -> Result<(), Error> {
        match self.keep_inbox {
            Some(Duration::ZERO) => Err(Error::invalid_input("keep_inbox is 0; it must be longer")),
            Some(keep) if keep > MAX_DELAY => {
                let text = "keep_inbox is longer than ten years; leave it out to keep entries for ever";
                Err(Error::invalid_input(text))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_retain(&self) -> Result<(), Error> {
        if self.retain == Retain::For(Duration::ZERO) {
            return Err(Error::invalid_input("retain is 0; say `delete` to keep no processed records"));
        }
        if matches!(self.retain, Retain::For(duration) if duration > MAX_DELAY) {
            let text = "retain is longer than ten years; say `forever` to keep processed records for ever";
            return Err(Error::invalid_input(text));
        }
        Ok(())
    }
}
