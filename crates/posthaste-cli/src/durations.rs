//! Lengths of time on the command line and in ndjson: `500ms`, `30s`, `5m`, `7d`.

use std::time::Duration;

use posthaste::MAX_DELAY;

/// Parses a length of time that must be longer than zero. The error is a text for the user.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return Err("must not be negative".into());
    }
    if let Ok(number) = trimmed.parse::<f64>() {
        let needs_unit = format!("needs a unit, as in {trimmed}s (units: ms, s, m, h, d)");
        return Err(if number == 0.0 { ZERO.into() } else { needs_unit });
    }
    let duration = humantime::parse_duration(trimmed)
        .map_err(|_| "is no length of time; write it as 500ms, 30s, 5m, 12h, 7d or \"1h 30m\"".to_owned())?;
    if duration.is_zero() {
        return Err(ZERO.into());
    }
    Ok(duration)
}

/// Parses a delay: a length of time of at most ten years.
pub(crate) fn parse_delay(text: &str) -> Result<Duration, String> {
    at_most_ten_years(parse(text)?)
}

/// How long something is kept; `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OrForever(pub(crate) Option<Duration>);

/// Parses a length of time of at most ten years, or `forever`.
pub(crate) fn parse_or_forever(text: &str) -> Result<OrForever, String> {
    match text {
        "forever" => Ok(OrForever(None)),
        _ => parse_delay(text)
            .map(|time| OrForever(Some(time)))
            .map_err(|error| format!("{error}; or say forever")),
    }
}

/// Takes a delay that was given as a number of seconds.
pub(crate) fn delay_from_seconds(seconds: f64) -> Result<Duration, String> {
    if seconds < 0.0 {
        return Err("must not be negative".into());
    }
    let delay = Duration::try_from_secs_f64(seconds).map_err(|_| "is longer than ten years".to_owned())?;
    if delay.is_zero() {
        return Err(ZERO.into());
    }
    at_most_ten_years(delay)
}

fn at_most_ten_years(delay: Duration) -> Result<Duration, String> {
    if delay > MAX_DELAY { Err("is longer than ten years".into()) } else { Ok(delay) }
}

/// A length of time for people: its two largest units at most.
pub(crate) fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 {
        return format!("{}ms", duration.as_millis());
    }
    if seconds < 10 {
        return format!("{:.1}s", duration.as_secs_f64());
    }
    let (large, small) = match seconds {
        0..60 => return format!("{seconds}s"),
        60..3_600 => ((seconds / 60, "m"), (seconds % 60, "s")),
        3_600..86_400 => ((seconds / 3_600, "h"), (seconds % 3_600 / 60, "m")),
        _ => ((seconds / 86_400, "d"), (seconds % 86_400 / 3_600, "h")),
    };
    if small.0 == 0 {
        format!("{}{}", large.0, large.1)
    } else {
        format!("{}{} {}{}", large.0, large.1, small.0, small.1)
    }
}

const ZERO: &str = "must be longer than zero";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse(" 30s "), Ok(Duration::from_secs(30)));
        assert_eq!(parse("1h 30m"), Ok(Duration::from_mins(90)));
        assert_eq!(parse("7d"), Ok(Duration::from_hours(7 * 24)));
    }

    #[test]
    fn zero_and_negative_lengths_are_refused() {
        for text in ["0", "0s", "0ms", "0.0", "0d"] {
            assert_eq!(parse(text), Err("must be longer than zero".to_owned()), "{text}");
        }
        for text in ["-1s", "-0s", "-5"] {
            assert_eq!(parse(text), Err("must not be negative".to_owned()), "{text}");
        }
    }

    #[test]
    fn a_number_needs_a_unit_and_words_are_refused() {
        assert!(parse("30").unwrap_err().contains("30s"));
        for text in ["", "soon", "s", "1 parsec", "99999999999999999999s"] {
            assert!(parse(text).unwrap_err().contains("no length of time"), "{text}");
        }
    }

    #[test]
    fn delays_have_a_limit() {
        assert!(parse_delay("9y").is_ok());
        assert!(parse_delay("11y").is_err());
        assert_eq!(delay_from_seconds(1.5), Ok(Duration::from_millis(1_500)));
        for seconds in [0.0, -1.0, 1e12, 1e300, f64::NAN, f64::INFINITY] {
            assert!(delay_from_seconds(seconds).is_err(), "{seconds}");
        }
    }

    #[test]
    fn what_is_kept_may_be_kept_forever() {
        assert_eq!(parse_or_forever("forever"), Ok(OrForever(None)));
        assert_eq!(parse_or_forever("7d"), Ok(OrForever(Some(Duration::from_hours(7 * 24)))));
        for text in ["0", "-1d", "never", "11y"] {
            assert!(parse_or_forever(text).unwrap_err().ends_with("; or say forever"), "{text}");
        }
    }

    #[test]
    fn people_read_two_units() {
        let text = |seconds| human(Duration::from_secs(seconds));
        assert_eq!(human(Duration::from_millis(320)), "320ms");
        assert_eq!(human(Duration::from_millis(1_320)), "1.3s");
        assert_eq!(text(59), "59s");
        assert_eq!(text(60), "1m");
        assert_eq!(text(3_725), "1h 2m");
        assert_eq!(text(7 * 86_400), "7d");
    }

    #[test]
    fn no_damaged_duration_panics() {
        posthaste_testkit::damaged_text(&["30s", "1h 30m", "7days", "250ms", "forever", "1.5s"], |text| {
            for duration in [parse(text), parse_delay(text)].into_iter().flatten() {
                let _ = human(duration);
            }
            let _ = parse_or_forever(text);
            if let Ok(seconds) = text.parse() {
                let _ = delay_from_seconds(seconds);
            }
        });
    }
}
