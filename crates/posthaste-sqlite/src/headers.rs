//! Headers as the table holds them: a JSON object.

use std::collections::BTreeMap;

use rusqlite::types::ValueRef;
use serde_json::value::RawValue;

/// Reads headers leniently, since plain SQL can write any JSON object: scalars become text, nested values stay
/// JSON, and `null` counts as no header.
pub(crate) fn parse(value: ValueRef<'_>) -> BTreeMap<String, String> {
    let Ok(json) = value.as_bytes() else { return BTreeMap::new() };
    if let Ok(headers) = serde_json::from_slice(json) {
        return headers;
    }
    match serde_json::from_slice::<BTreeMap<String, &RawValue>>(json) {
        Ok(headers) => {
            headers.into_iter().filter_map(|(name, value)| Some((name, scalar(value.get())?))).collect()
        }
        Err(error) => {
            tracing::warn!(%error, "headers cannot be read, and are left out");
            BTreeMap::new()
        }
    }
}

fn scalar(json: &str) -> Option<String> {
    (json != "null").then(|| serde_json::from_str(json).unwrap_or_else(|_| json.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Vec<(String, String)> {
        parse(ValueRef::Text(json.as_bytes())).into_iter().collect()
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn headers_are_read_leniently() {
        assert_eq!(parsed(r#"{"a":"x","b":"ü\n"}"#), pairs(&[("a", "x"), ("b", "ü\n")]));
        assert_eq!(
            parsed(r#"{"n":1.10,"t":true,"nothing":null,"o":{"x": [1]},"s":"x","half":"\ud800"}"#),
            pairs(&[
                ("half", r#""\ud800""#),
                ("n", "1.10"),
                ("o", r#"{"x": [1]}"#),
                ("s", "x"),
                ("t", "true")
            ])
        );
        assert_eq!(parsed("[]"), []);
        assert_eq!(parsed("{"), []);
        assert_eq!(parse(ValueRef::Null), BTreeMap::new());
    }

    #[test]
    fn no_damaged_headers_panic() {
        let valid = [r#"{"a":"x","b":"\u00fc\n"}"#, r#"{"n":1.10,"t":true,"nothing":null,"o":{"x": [1]}}"#];
        posthaste_testkit::damaged(&valid, |json| drop(parse(ValueRef::Text(json))));
        posthaste_testkit::damaged(&valid, |json| drop(parse(ValueRef::Blob(json))));
    }
}
