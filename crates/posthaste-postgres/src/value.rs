//! Between Rust's values and the database's.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste::{Lane, MAX_DELAY, Position};

/// Microseconds, rounded up. What is longer than a thousand years is a thousand years.
pub(crate) fn micros(duration: Duration) -> i64 {
    const LONGEST: Duration = Duration::from_hours(1_000 * 366 * 24);
    let duration = duration.min(LONGEST);
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// Microseconds of a delay or a backoff, at most ten years.
pub(crate) fn delay(duration: Duration) -> i64 {
    micros(duration.min(MAX_DELAY))
}

/// Microseconds that came from the database.
pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

pub(crate) fn lane(lane: i16) -> Lane {
    Lane(u16::try_from(lane).unwrap_or_default())
}

pub(crate) fn sequence(position: Position) -> i64 {
    position.major
}

pub(crate) fn count(count: i64) -> usize {
    usize::try_from(count).unwrap_or_default()
}

pub(crate) fn limit(limit: usize) -> i64 {
    // Room is left for statements that look one row further.
    i64::try_from(limit).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

pub(crate) fn attempts(attempts: i32) -> u32 {
    u32::try_from(attempts).unwrap_or_default()
}

pub(crate) fn stored_attempts(attempts: u32) -> i32 {
    i32::try_from(attempts).unwrap_or(i32::MAX)
}

/// Headers from JSON text. Values other than texts, which a producer in another language may have written, come as
/// their JSON text.
pub(crate) fn headers_from_json(json: &str) -> BTreeMap<String, String> {
    use serde_json::Value;
    if json == "{}" {
        return BTreeMap::new();
    }
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match serde_json::from_str(json) {
        Ok(Value::Object(headers)) => headers.into_iter().map(|(name, value)| (name, text(value))).collect(),
        _ => BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up() {
        assert_eq!(micros(Duration::from_nanos(1)), 1);
        assert_eq!(micros(Duration::from_nanos(1_000)), 1);
        assert_eq!(micros(Duration::MAX), 31_622_400_000 * 1_000_000);
    }

    proptest::proptest! {
        #[test]
        fn headers_come_back(headers: BTreeMap<String, String>) {
            proptest::prop_assert_eq!(headers_from_json(&serde_json::to_string(&headers)?), headers);
        }
    }

    #[test]
    fn other_values_come_as_their_json() {
        let headers = headers_from_json(r#"{"a": 1, "b": true, "c": {"d": null}, "e": "text"}"#);
        let expected = [("a", "1"), ("b", "true"), ("c", r#"{"d":null}"#), ("e", "text")];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn no_damaged_headers_panic() {
        let valid = [r#"{"a":"x","b":"\u00fc\n"}"#, r#"{"n":1.10,"t":true,"nothing":null,"o":{"x": [1]}}"#];
        posthaste_testkit::damaged_text(&valid, |json| drop(headers_from_json(json)));
    }
}
