//! Between Rust's values and the database's.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthaste::{Lane, MAX_DELAY, Position};
use uuid::Uuid;

/// A value as it is written in a statement: a number, a hexadecimal literal, or a list or a condition made of these.
#[derive(Debug, Clone)]
pub(crate) struct Literal(String);

impl Literal {
    pub(crate) fn as_sql(&self) -> &str {
        &self.0
    }

    /// SQL made from literals.
    pub(crate) fn made(sql: String) -> Self {
        Self(sql)
    }
}

pub(crate) fn null() -> Literal {
    Literal("NULL".to_owned())
}

pub(crate) fn int(value: impl Into<i128>) -> Literal {
    Literal(value.into().to_string())
}

/// A number of rows.
pub(crate) fn limit(limit: usize) -> Literal {
    // Room is left for statements that look one row further.
    int(i64::try_from(limit).unwrap_or(i64::MAX).min(i64::MAX / 4))
}

pub(crate) fn bytes(value: &[u8]) -> Literal {
    Literal(format!("X'{}'", hex(value)))
}

pub(crate) fn uuid(value: Uuid) -> Literal {
    bytes(value.as_bytes())
}

/// A text in UTF-8, whatever the character set of the session.
pub(crate) fn text(value: &str) -> Literal {
    Literal(format!("_utf8mb4 X'{}'", hex(value.as_bytes())))
}

/// A list for `IN`. An empty one matches nothing.
pub(crate) fn list(values: impl IntoIterator<Item = Literal>) -> Literal {
    let mut sql = String::new();
    for value in values {
        if !sql.is_empty() {
            sql.push(',');
        }
        sql.push_str(&value.0);
    }
    if sql.is_empty() { null() } else { Literal(sql) }
}

/// A time of the session's zone, which is UTC.
pub(crate) fn time(micros: i64) -> Literal {
    let (seconds, fraction) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    Literal(format!(
        "TIMESTAMP'{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{fraction:06}'"
    ))
}

/// The date so many days after 1970-01-01, in the Gregorian calendar.
pub(crate) fn date(days: i64) -> (i64, i64, i64) {
    // Years are counted from March, so that the day that comes and goes is their last.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// How many days after 1970-01-01 a date is.
pub(crate) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let from_march = (month + 9) % 12;
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing into a String does not fail.
        let _ = write!(hex, "{byte:02X}");
    }
    hex
}

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

/// A time that came from the database as microseconds since 1970.
pub(crate) fn system_time(micros: i64) -> SystemTime {
    UNIX_EPOCH + duration(micros)
}

pub(crate) fn lane(lane: i64) -> Lane {
    Lane(u16::try_from(lane).unwrap_or_default())
}

/// Where a row stands: when the server took it in, and where that is the same, by its id.
pub(crate) fn position(created_at: i64, id: Uuid) -> Position {
    Position { major: created_at, minor: id.as_u128() }
}

pub(crate) fn attempts(attempts: i64) -> u32 {
    u32::try_from(attempts).unwrap_or_default()
}

pub(crate) fn stored_attempts(attempts: u32) -> i32 {
    i32::try_from(attempts).unwrap_or(i32::MAX)
}

/// The whole seconds of the time in an id, as the table's `created_ts` has them.
pub(crate) fn created_ts(id: Uuid) -> i64 {
    let millis = u64::try_from(id.as_u128() >> 80).unwrap_or_default();
    i64::try_from(millis / 1_000).unwrap_or_default()
}

/// Headers from JSON text. Values other than texts, which a producer in another language may have written, come as
/// their JSON text.
pub(crate) fn headers_from_json(json: Option<&[u8]>) -> BTreeMap<String, String> {
    use serde_json::Value;
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match json.map(serde_json::from_slice) {
        Some(Ok(Value::Object(headers))) => {
            headers.into_iter().map(|(name, value)| (name, text(value))).collect()
        }
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

    #[test]
    fn times_are_written_in_utc() {
        let cases = [
            (0, "TIMESTAMP'1970-01-01 00:00:00.000000'"),
            (951_826_496_000_007, "TIMESTAMP'2000-02-29 12:14:56.000007'"),
            (253_402_300_799_999_999, "TIMESTAMP'9999-12-31 23:59:59.999999'"),
        ];
        for (micros, expected) in cases {
            assert_eq!(time(micros).as_sql(), expected);
        }
    }

    #[test]
    fn lists_are_never_empty() {
        assert_eq!(list([]).as_sql(), "NULL");
        assert_eq!(list([int(1), bytes(b"\x0a")]).as_sql(), "1,X'0A'");
    }

    proptest::proptest! {
        #[test]
        fn headers_come_back(headers: BTreeMap<String, String>) {
            let json = serde_json::to_vec(&headers).unwrap();
            proptest::prop_assert_eq!(headers_from_json(Some(&json)), headers);
        }

        #[test]
        fn dates_come_back(day in 0_i64..2_932_896) {
            let (year, month, of_month) = date(day);
            proptest::prop_assert_eq!(days(year, month, of_month), day);
            proptest::prop_assert!((1..=12).contains(&month) && (1..=31).contains(&of_month));
        }
    }

    #[test]
    fn other_values_come_as_their_json() {
        let headers = headers_from_json(Some(br#"{"a": 1, "b": true, "c": {"d": null}, "e": "text"}"#));
        let expected = [("a", "1"), ("b", "true"), ("c", r#"{"d":null}"#), ("e", "text")];
        assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    }

    #[test]
    fn no_damaged_headers_panic() {
        let valid = [r#"{"a":"x","b":"\u00fc\n"}"#, r#"{"n":1.10,"t":true,"nothing":null,"o":{"x": [1]}}"#];
        posthaste_testkit::damaged(&valid, |json| drop(headers_from_json(Some(json))));
    }
}
