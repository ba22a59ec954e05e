//! The rules that a message is held to before any SQL is sent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::IgnoredAny;

use crate::error::{Error, ErrorKind};
use crate::message::{Due, Message};

/// The most characters that `event_type`, `aggregate_type`, `aggregate_id` and `content_type` may have.
pub const MAX_NAME_CHARS: usize = 128;
/// The most bytes that an idempotency key may have: what every broker takes as a message id.
pub const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;
/// The longest delay: ten years.
pub const MAX_DELAY: Duration = Duration::from_hours(10 * 366 * 24);

/// What is checked at enqueue, and how large a payload may be.
///
/// ```
/// use posthaste::{Message, Rules};
///
/// let rules = Rules::default();
/// assert!(rules.check(&Message::new("order.created")).is_ok());
/// assert!(rules.check(&Message::new("")).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rules {
    /// The largest payload, in bytes. Default: 1 MiB.
    pub max_payload_bytes: usize,
    /// Whether a payload whose content type is JSON must be valid JSON. Default: yes.
    pub validate_payload: bool,
    /// Whether header names must be 1 to 128 characters and all headers together at most 64 KiB. Default: yes.
    pub validate_headers: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { max_payload_bytes: 1024 * 1024, validate_payload: true, validate_headers: true }
    }
}

const MAX_HEADER_BYTES: usize = 64 * 1024;

impl Rules {
    /// Sets the largest payload, in bytes.
    pub fn max_payload_bytes(mut self, bytes: usize) -> Self {
        self.max_payload_bytes = bytes;
        self
    }

    /// Switches the check that a JSON payload is valid JSON.
    pub fn validate_payload(mut self, on: bool) -> Self {
        self.validate_payload = on;
        self
    }

    /// Switches the check of header names and sizes.
    pub fn validate_headers(mut self, on: bool) -> Self {
        self.validate_headers = on;
        self
    }

    /// Checks a message.
    ///
    /// # Errors
    /// [`ErrorKind::PayloadTooLarge`], or [`ErrorKind::InvalidMessage`] with the rule that was broken.
    pub fn check(&self, message: &Message) -> Result<(), Error> {
        if message.event_type().is_empty() {
            return Err(invalid("event_type is empty; it must name what happened, as in \"order.created\""));
        }
        check_name("event_type", message.event_type())?;
        check_name("aggregate_type", message.aggregate_type())?;
        check_name("aggregate_id", message.aggregate_id())?;
        if message.aggregate_type().is_empty() && !message.aggregate_id().is_empty() {
            return Err(invalid("aggregate_id is set but aggregate_type is empty; set both, or neither"));
        }
        if let Some(content_type) = message.content_type_str() {
            check_name("content_type", content_type)?;
        }
        if let Some(key) = message.idempotency_key_str() {
            check_idempotency_key(key)?;
        }
        if let Due::After(delay) = message.due()
            && delay > MAX_DELAY
        {
            return Err(invalid("delay is longer than ten years"));
        }
        self.check_headers(message.headers())?;
        self.check_payload(message)
    }

    fn check_headers(&self, headers: &BTreeMap<String, String>) -> Result<(), Error> {
        let mut bytes = 0;
        for (name, value) in headers {
            if name.contains('\0') || value.contains('\0') {
                return Err(invalid(format!(
                    "header {name:?} holds a NUL character, which databases refuse"
                )));
            }
            bytes += name.len() + value.len();
            if self.validate_headers && (name.is_empty() || name.chars().count() > MAX_NAME_CHARS) {
                let rule = format!("header name {name:?} must have 1 to {MAX_NAME_CHARS} characters");
                return Err(invalid(rule));
            }
        }
        if self.validate_headers && bytes > MAX_HEADER_BYTES {
            return Err(invalid(format!("headers have {bytes} bytes, more than {MAX_HEADER_BYTES}")));
        }
        Ok(())
    }

    fn check_payload(&self, message: &Message) -> Result<(), Error> {
        let Some(payload) = message.payload_bytes() else { return Ok(()) };
        if payload.len() > self.max_payload_bytes {
            let text = format!(
                "payload has {} bytes, more than the limit of {} (max_payload_bytes)",
                payload.len(),
                self.max_payload_bytes
            );
            return Err(Error::new(ErrorKind::PayloadTooLarge, text));
        }
        if self.validate_payload && message.content_type_str().is_some_and(is_json) {
            serde_json::from_slice::<IgnoredAny>(payload).map_err(|source| {
                let text = format!(
                    "content type is JSON but the payload is not valid JSON (line {}, column {})",
                    source.line(),
                    source.column()
                );
                invalid(text)
            })?;
        }
        Ok(())
    }
}

fn check_name(field: &str, value: &str) -> Result<(), Error> {
    let length = value.chars().count();
    if length > MAX_NAME_CHARS {
        return Err(invalid(format!("{field} has {length} characters, more than {MAX_NAME_CHARS}")));
    }
    if value.contains('\0') {
        return Err(invalid(format!("{field} holds a NUL character, which databases refuse")));
    }
    Ok(())
}

fn check_idempotency_key(key: &str) -> Result<(), Error> {
    if key.is_empty() || key.len() > MAX_IDEMPOTENCY_KEY_BYTES {
        let text =
            format!("idempotency_key must have 1 to {MAX_IDEMPOTENCY_KEY_BYTES} bytes, not {}", key.len());
        return Err(invalid(text));
    }
    if key.contains('\0') {
        return Err(invalid("idempotency_key holds a NUL character, which databases refuse"));
    }
    Ok(())
}

/// `application/json`, `application/cloudevents+json; charset=utf-8` and their like.
fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let subtype = essence.rsplit('/').next().unwrap_or_default();
    subtype.eq_ignore_ascii_case("json")
        || subtype.len() > 5 && subtype.is_char_boundary(subtype.len() - 5) && {
            subtype[subtype.len() - 5..].eq_ignore_ascii_case("+json")
        }
}

fn invalid(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidMessage, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(message: &Message) -> Option<ErrorKind> {
        Rules::default().check(message).err().map(|error| error.kind())
    }

    #[test]
    fn names_are_counted_in_characters() {
        assert_eq!(kind(&Message::new("ü".repeat(128))), None);
        assert_eq!(kind(&Message::new("x".repeat(129))), Some(ErrorKind::InvalidMessage));
        assert_eq!(kind(&Message::new("")), Some(ErrorKind::InvalidMessage));
        let base = || Message::new("e");
        assert_eq!(kind(&base().aggregate("x".repeat(129), 1)), Some(ErrorKind::InvalidMessage));
        assert_eq!(kind(&base().aggregate("x", "y".repeat(129))), Some(ErrorKind::InvalidMessage));
        assert_eq!(kind(&base().aggregate("", 1)), Some(ErrorKind::InvalidMessage));
        assert_eq!(kind(&base().aggregate("order", "")), None, "a type alone is no key, and allowed");
        assert_eq!(kind(&Message::new("a\0b")), Some(ErrorKind::InvalidMessage));
    }

    #[test]
    fn json_is_checked_where_the_content_type_says_so() {
        let with = |content_type: &str| Message::new("e").payload("{\"a\":").content_type(content_type);
        for content_type in ["application/json", "Application/JSON; charset=utf-8", "application/ld+json"] {
            assert_eq!(kind(&with(content_type)), Some(ErrorKind::InvalidMessage), "{content_type}");
        }
        for content_type in ["text/plain", "application/x-ndjson", "application/jsonish", "é"] {
            assert_eq!(kind(&with(content_type)), None, "{content_type}");
        }
        let lenient = Rules::default().validate_payload(false);
        assert!(lenient.check(&with(crate::message::JSON)).is_ok());
        // Valid JSON that parsers of other languages stumble over stays as it is.
        assert_eq!(
            kind(&Message::new("e").payload(r#"{"a":"\ud800","a":1.0}"#).content_type("application/json")),
            None
        );
    }

    #[test]
    fn a_payload_at_the_limit_passes() {
        let rules = Rules::default().max_payload_bytes(3);
        assert!(rules.check(&Message::new("e").payload("abc")).is_ok());
        let error = rules.check(&Message::new("e").payload("abcd")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PayloadTooLarge);
        assert!(error.to_string().contains("max_payload_bytes"), "{error}");
    }

    #[test]
    fn headers_keys_and_delays_have_limits() {
        let base = || Message::new("e");
        assert_eq!(kind(&base().header("", "x")), Some(ErrorKind::InvalidMessage));
        assert_eq!(kind(&base().header("x", "y".repeat(70_000))), Some(ErrorKind::InvalidMessage));
        assert!(Rules::default().validate_headers(false).check(&base().header("", "x")).is_ok());
        assert_eq!(kind(&base().header("x", "\0")), Some(ErrorKind::InvalidMessage));
        assert_eq!(kind(&base().idempotency_key("")), Some(ErrorKind::InvalidMessage));
        assert_eq!(kind(&base().idempotency_key("k".repeat(256))), Some(ErrorKind::InvalidMessage));
        assert_eq!(kind(&base().delay(Duration::MAX)), Some(ErrorKind::InvalidMessage));
    }
}
