//! Numbers on the command line.

use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

/// Parses a number of things, at least one. The error is a text for the user.
pub(crate) fn at_least_one(text: &str) -> Result<NonZeroUsize, String> {
    if text.trim().starts_with('-') {
        return Err("must not be negative".into());
    }
    let number: usize = text.trim().parse().map_err(|_| "is no whole number in range".to_owned())?;
    NonZeroUsize::new(number).ok_or_else(|| "must be at least 1".to_owned())
}

/// As [`at_least_one`], for numbers that are 64 bits wide everywhere.
pub(crate) fn at_least_one_u64(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::try_from(at_least_one(text)?).map_err(|_| TOO_LARGE.to_owned())
}

/// As [`at_least_one`], for small numbers.
pub(crate) fn at_least_one_u32(text: &str) -> Result<NonZeroU32, String> {
    NonZeroU32::try_from(at_least_one(text)?).map_err(|_| TOO_LARGE.to_owned())
}

/// Parses a number of lanes.
pub(crate) fn lanes(text: &str) -> Result<u16, String> {
    match u16::try_from(at_least_one(text)?.get()) {
        Ok(number) if number <= 1_024 => Ok(number),
        _ => Err("must be at most 1024".to_owned()),
    }
}

/// Parses a probability.
pub(crate) fn probability(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("must be a number from 0 (never) to 1 (always)".into()),
    }
}

const TOO_LARGE: &str = "is too large";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_start_at_one() {
        assert_eq!(at_least_one("7").unwrap().get(), 7);
        assert!(at_least_one("0").unwrap_err().contains("at least 1"));
        assert!(at_least_one("-1").unwrap_err().contains("negative"));
        for text in ["", "x", "1.5", "99999999999999999999999"] {
            assert!(at_least_one(text).is_err(), "{text}");
        }
        assert!(at_least_one_u32("5000000000").is_err());
        assert_eq!(at_least_one_u64("5").unwrap().get(), 5);
        assert_eq!(lanes("1024"), Ok(1_024));
        assert!(lanes("1025").is_err() && lanes("0").is_err() && lanes("70000").is_err());
    }

    #[test]
    fn probabilities_lie_between_never_and_always() {
        assert_eq!(probability("0"), Ok(0.0));
        assert_eq!(probability("1.0"), Ok(1.0));
        for text in ["-0.1", "1.1", "NaN", "inf", "", "x"] {
            assert!(probability(text).is_err(), "{text}");
        }
    }
}
