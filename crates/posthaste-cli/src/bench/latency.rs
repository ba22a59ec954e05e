//! How long something took, over all its cases.

use serde::{Deserialize, Serialize};

/// Percentiles, in milliseconds.
#[expect(clippy::struct_field_names, reason = "the unit is part of the JSON")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl Latency {
    /// Of times in microseconds; `None` where there are none.
    pub(super) fn of(mut micros: Vec<u32>) -> Option<Self> {
        micros.sort_unstable();
        let last = micros.len().checked_sub(1)?;
        // The smallest time that so many percent of the cases do not exceed.
        let at =
            |percent: usize| f64::from(micros[(micros.len() * percent).div_ceil(100).max(1) - 1]) / 1_000.0;
        Some(Self {
            p50_ms: at(50),
            p95_ms: at(95),
            p99_ms: at(99),
            max_ms: f64::from(micros[last]) / 1_000.0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_occurred() {
        let latency = Latency::of((1..=200).rev().map(|n| n * 1_000).collect()).unwrap();
        assert_eq!(latency, Latency { p50_ms: 100.0, p95_ms: 190.0, p99_ms: 198.0, max_ms: 200.0 });
        let one = Latency { p50_ms: 5.0, p95_ms: 5.0, p99_ms: 5.0, max_ms: 5.0 };
        assert_eq!(Latency::of(vec![5_000]), Some(one));
        assert_eq!(Latency::of(Vec::new()), None);
    }
}
