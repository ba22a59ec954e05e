//! Times as the table holds them: milliseconds since 1970.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time at which an operation is judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    exact: SystemTime,
    /// Rounded down.
    pub(crate) millis: i64,
}

impl Now {
    pub(crate) fn new(exact: SystemTime) -> Self {
        Self { exact, millis: whole_millis(exact) }
    }

    /// So long from now, rounded up: nothing happens earlier than asked for.
    pub(crate) fn plus(self, duration: Duration) -> i64 {
        self.exact.checked_add(duration).map_or(i64::MAX, deadline)
    }

    /// So long ago, rounded down.
    pub(crate) fn minus(self, duration: Duration) -> i64 {
        self.exact.checked_sub(duration).map_or(i64::MIN, whole_millis)
    }

    /// How long ago a time was.
    pub(crate) fn since(self, millis: i64) -> Duration {
        Duration::from_millis(u64::try_from(self.millis.saturating_sub(millis)).unwrap_or(0))
    }

    /// How long it is until a time; `None` if it is over.
    pub(crate) fn until(self, millis: i64) -> Option<Duration> {
        let left = u64::try_from(millis.saturating_sub(self.millis)).ok()?;
        (left > 0).then(|| Duration::from_millis(left))
    }
}

/// A time not to be reached too early, rounded up.
pub(crate) fn deadline(at: SystemTime) -> i64 {
    let whole = whole_millis(at);
    if from_millis(whole) < at { whole.saturating_add(1) } else { whole }
}

/// A time, rounded down. Times before 1970 count as 1970.
pub(crate) fn whole_millis(at: SystemTime) -> i64 {
    let age = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}

/// A stored time.
pub(crate) fn from_millis(millis: i64) -> SystemTime {
    let age = Duration::from_millis(u64::try_from(millis).unwrap_or(0));
    UNIX_EPOCH.checked_add(age).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_rounded_up() {
        let at = |micros| UNIX_EPOCH + Duration::from_micros(micros);
        assert_eq!((whole_millis(at(1_999)), deadline(at(1_001)), deadline(at(2_000))), (1, 2, 2));
        let now = Now::new(at(5_500));
        assert_eq!(now.plus(Duration::ZERO), 6);
        assert_eq!(now.plus(Duration::from_micros(500)), 6);
        assert_eq!(now.plus(Duration::MAX), i64::MAX);
        assert_eq!(now.minus(Duration::from_millis(2)), 3);
        assert_eq!((now.since(2), now.since(9)), (Duration::from_millis(3), Duration::ZERO));
        assert_eq!((now.until(5), now.until(7)), (None, Some(Duration::from_millis(2))));
    }

    #[test]
    fn times_out_of_range_do_no_harm() {
        assert_eq!(from_millis(-5), UNIX_EPOCH);
        assert_eq!(whole_millis(UNIX_EPOCH - Duration::from_secs(1)), 0);
        let _ = from_millis(i64::MAX);
    }
}
