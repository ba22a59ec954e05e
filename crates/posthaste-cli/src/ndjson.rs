//! Messages as newline-delimited JSON: one object a line.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, BufRead};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use posthaste::{JSON, Message, Rules};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::durations;
use crate::failure::Failure;

/// A line, as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    event_type: String,
    aggregate_type: Option<String>,
    aggregate_id: Option<String>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    payload_base64: Option<String>,
    content_type: Option<String>,
    headers: Option<Headers>,
    idempotency_key: Option<String>,
    delay: Option<Delay>,
    id: Option<String>,
}

/// A delay, as text with a unit or as a number of seconds.
#[derive(Deserialize)]
#[serde(untagged, expecting = "delay must be a text such as \"30s\", or a number of seconds")]
enum Delay {
    Text(String),
    Seconds(f64),
}

/// Headers: a flat object of texts, each name once.
#[derive(Debug)]
pub(crate) struct Headers(pub(crate) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = Headers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("headers: a flat object whose values are texts")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Headers, A::Error> {
        let mut headers = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            let HeaderText(value) = map.next_value()?;
            if headers.contains_key(&name) {
                return Err(A::Error::custom(format!("header {name:?} stands there twice")));
            }
            headers.insert(name, value);
        }
        Ok(Headers(headers))
    }
}

/// The value of a header. A type of its own, so that the error says what was expected.
struct HeaderText(String);

impl<'de> Deserialize<'de> for HeaderText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl Visitor<'_> for TextVisitor {
            type Value = HeaderText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text as the value of a header (headers are a flat object of texts)")
            }

            fn visit_str<E>(self, text: &str) -> Result<HeaderText, E> {
                Ok(HeaderText(text.to_owned()))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Makes a message of one line. The error is a text for the user.
pub(crate) fn parse_line(line: &[u8]) -> Result<Message, String> {
    if !line.trim_ascii_start().starts_with(b"{") {
        return Err("not a JSON object".into());
    }
    let line: Line<'_> = serde_json::from_slice(line).map_err(|error| json_error(&error))?;
    let mut message = Message::new(line.event_type);
    if let Some(id) = line.id {
        message = message.with_id(id.parse().map_err(|error: posthaste::Error| error.to_string())?);
    }
    if line.aggregate_type.is_some() || line.aggregate_id.is_some() {
        let id = line.aggregate_id.unwrap_or_default();
        message = message.aggregate(line.aggregate_type.unwrap_or_default(), id);
    }
    message = with_payload(message, line.payload, line.payload_base64)?;
    if let Some(content_type) = line.content_type {
        message = message.content_type(content_type);
    }
    for (name, value) in line.headers.map(|headers| headers.0).unwrap_or_default() {
        message = message.header(name, value);
    }
    if let Some(key) = line.idempotency_key {
        message = message.idempotency_key(key);
    }
    let delay = match line.delay {
        None => return Ok(message),
        Some(Delay::Text(text)) => durations::parse_delay(&text),
        Some(Delay::Seconds(seconds)) => durations::delay_from_seconds(seconds),
    };
    delay.map(|delay| message.delay(delay)).map_err(|error| format!("delay {error}"))
}

fn with_payload(
    message: Message,
    payload: Option<&RawValue>,
    payload_base64: Option<String>,
) -> Result<Message, String> {
    match (payload.map(RawValue::get), payload_base64) {
        (Some(_), Some(_)) => Err("payload and payload_base64 are both there; give one of them".into()),
        (None, None) => Ok(message),
        (None, Some(text)) => {
            let bytes = BASE64_STANDARD
                .decode(text)
                .map_err(|error| format!("payload_base64 is not valid base64: {error}"))?;
            Ok(message.payload(bytes))
        }
        (Some(json), None) if json.starts_with('"') => {
            let text: String =
                serde_json::from_str(json).map_err(|error| format!("payload: {}", json_error(&error)))?;
            Ok(message.payload(text))
        }
        (Some(json), None) if json.starts_with(['{', '[']) => {
            Ok(message.payload(Bytes::copy_from_slice(json.as_bytes())).content_type(JSON))
        }
        (Some(_), None) => Err("payload must be a text, an object, an array or null; to send a number or a \
                                truth value, write it as a text"
            .into()),
    }
}

/// Each message is on one line, so the parser's own line number would only confuse.
fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(text) if error.column() > 0 => format!("{text} (column {})", error.column()),
        Some(text) => text.to_owned(),
        None => text,
    }
}

/// A message, and the line on which it stood where there are lines.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) message: Message,
    pub(crate) line: Option<u64>,
}

/// Reads messages line by line, in bounded memory.
pub(crate) struct Reader<R> {
    input: R,
    rules: Rules,
    buffer: Vec<u8>,
    line: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads from `input` and holds each message to `rules`.
    pub(crate) fn new(input: R, rules: Rules) -> Self {
        Self { input, rules, buffer: Vec::new(), line: 0 }
    }

    fn next_input(&mut self) -> Result<Option<Input>, Failure> {
        loop {
            if !self.read_line()? {
                return Ok(None);
            }
            let mut text = self.buffer.as_slice();
            if self.line == 1 {
                text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
            }
            if text.trim_ascii().is_empty() {
                continue;
            }
            let message = parse_line(text.trim_ascii()).map_err(Failure::bad_input);
            let line = Some(self.line);
            let checked = message.and_then(|message| {
                self.rules.check(&message)?;
                Ok(Some(Input { message, line }))
            });
            return checked.map_err(|failure| failure.at_line(line));
        }
    }

    /// Reads the next line into the buffer; `false` at the end of the input.
    fn read_line(&mut self) -> Result<bool, Failure> {
        // A byte of a payload takes six characters at most (`\u0000`); beside it there are headers and names.
        let limit = self.rules.max_payload_bytes.saturating_mul(6).saturating_add(2 * 1024 * 1024);
        self.buffer.clear();
        self.line += 1;
        let mut limited = io::Read::take(&mut self.input, limit as u64 + 1);
        let read = limited
            .read_until(b'\n', &mut self.buffer)
            .map_err(|error| Failure::failed(format!("the input cannot be read: {error}")))?;
        if read > limit {
            let failure = Failure::bad_input(format!("the line has more than {limit} bytes"));
            return Err(failure.at_line(Some(self.line)));
        }
        Ok(read > 0)
    }
}

impl<R: BufRead> Iterator for Reader<R> {
    type Item = Result<Input, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_input().transpose()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use posthaste::Due;

    use super::*;

    fn parse(line: &str) -> Message {
        parse_line(line.as_bytes()).unwrap()
    }

    fn error(line: &str) -> String {
        parse_line(line.as_bytes()).unwrap_err()
    }

    fn payload(line: &str) -> Option<Bytes> {
        parse(line).payload_bytes().cloned()
    }

    #[test]
    fn every_field_is_taken() {
        let message = parse(
            r#"{"event_type":"order.created","aggregate_type":"order","aggregate_id":"7","payload":"text",
                "content_type":"text/plain","headers":{"tenant":"acme"},"idempotency_key":"k","delay":"30s",
                "id":"01890a5d-ac96-774b-bcce-b302099a8057"}"#,
        );
        assert_eq!(message.event_type(), "order.created");
        assert_eq!((message.aggregate_type(), message.aggregate_id()), ("order", "7"));
        assert_eq!(message.payload_bytes().unwrap().as_ref(), b"text");
        assert_eq!(message.content_type_str(), Some("text/plain"));
        assert_eq!(message.headers()["tenant"], "acme");
        assert_eq!(message.idempotency_key_str(), Some("k"));
        assert_eq!(message.due(), Due::After(Duration::from_secs(30)));
        assert_eq!(message.id().to_string(), "01890a5d-ac96-774b-bcce-b302099a8057");
    }

    #[test]
    fn a_json_payload_keeps_its_text_byte_for_byte() {
        for json in [r#"{"b": 1.0,  "a":1e5, "a":2,"\u00e9":"\/"}"#, "[ 1 , 2 ]", "{}"] {
            let line = format!(r#"{{"event_type":"e","payload":  {json} }}"#);
            assert_eq!(payload(&line).unwrap(), json.as_bytes());
            assert_eq!(parse(&line).content_type_str(), Some("application/json"));
        }
        let own = parse(r#"{"event_type":"e","content_type":"application/x+json","payload":{}}"#);
        assert_eq!(own.content_type_str(), Some("application/x+json"));
    }

    #[test]
    fn a_text_is_the_payload_itself_and_null_is_a_tombstone() {
        assert_eq!(payload(r#"{"event_type":"e","payload":"a\n\u00e9"}"#).unwrap(), "a\né".as_bytes());
        assert_eq!(parse(r#"{"event_type":"e","payload":"{}"}"#).content_type_str(), None);
        assert_eq!(payload(r#"{"event_type":"e","payload":""}"#).unwrap(), b"".as_slice());
        assert_eq!(payload(r#"{"event_type":"e","payload":null}"#), None);
        assert_eq!(payload(r#"{"event_type":"e"}"#), None);
        assert_eq!(payload(r#"{"event_type":"e","payload_base64":"AP8="}"#).unwrap(), b"\x00\xff".as_slice());
    }

    #[test]
    fn a_delay_has_a_unit_or_is_in_seconds() {
        let due = |line| parse(line).due();
        assert_eq!(due(r#"{"event_type":"e","delay":"1m"}"#), Due::After(Duration::from_mins(1)));
        assert_eq!(due(r#"{"event_type":"e","delay":90}"#), Due::After(Duration::from_secs(90)));
        assert_eq!(due(r#"{"event_type":"e","delay":0.5}"#), Due::After(Duration::from_millis(500)));
        assert_eq!(due(r#"{"event_type":"e","delay":null}"#), Due::Now);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("{", "EOF"),
            ("[]", "not a JSON object"),
            (r#"["e","t","1","hello",null,null,null,null,null,null]"#, "not a JSON object"),
            ("7", "not a JSON object"),
            ("{}", "missing field `event_type`"),
            (r#"{"event_type":"e","typo":1}"#, "unknown field `typo`"),
            (r#"{"event_type":"e","event_type":"f"}"#, "duplicate field `event_type`"),
            (r#"{"event_type":"e"} x"#, "trailing characters"),
            (r#"{"event_type":7}"#, "expected a string"),
            (r#"{"event_type":"e","payload":7}"#, "payload must be"),
            (r#"{"event_type":"e","payload":true}"#, "payload must be"),
            (r#"{"event_type":"e","payload":"\ud800"}"#, "payload: "),
            (r#"{"event_type":"e","payload":"x","payload_base64":"AA=="}"#, "both"),
            (r#"{"event_type":"e","payload_base64":"?"}"#, "not valid base64"),
            (r#"{"event_type":"e","headers":{"a":1}}"#, "flat object of texts"),
            (r#"{"event_type":"e","headers":{"a":{"b":"c"}}}"#, "flat object of texts"),
            (r#"{"event_type":"e","headers":["a"]}"#, "flat object"),
            (r#"{"event_type":"e","headers":{"a":"1","a":"2"}}"#, "twice"),
            (r#"{"event_type":"e","delay":"0s"}"#, "delay must be longer than zero"),
            (r#"{"event_type":"e","delay":0}"#, "delay must be longer than zero"),
            (r#"{"event_type":"e","delay":-3}"#, "delay must not be negative"),
            (r#"{"event_type":"e","delay":[]}"#, "delay must be a text"),
            (r#"{"event_type":"e","id":"7"}"#, "not a UUID"),
            (r#"{"event_type":"e","id":"f47ac10b-58cc-4372-a567-0e02b2c3d479"}"#, "version 7"),
        ];
        for (line, part) in cases {
            let error = error(line);
            assert!(error.contains(part), "{line}: {error}");
            assert!(!error.contains("at line"), "{line}: {error}");
        }
    }

    #[test]
    fn the_reader_counts_lines_skips_blank_ones_and_stops_at_the_first_error() {
        let input = "\u{feff}{\"event_type\":\"a\"}\r\n\n  \n{\"event_type\":\"b\"}\n{\"event_type\":\"\"}\n";
        let mut reader = Reader::new(input.as_bytes(), Rules::default());
        let mut next =
            || reader.next().unwrap().map(|input| (input.message.event_type().to_owned(), input.line));
        assert_eq!(next().unwrap(), ("a".to_owned(), Some(1)));
        assert_eq!(next().unwrap(), ("b".to_owned(), Some(4)));
        let failure = reader.next().unwrap().unwrap_err();
        let text = format!("{failure:?}");
        assert!(text.contains("line 5") && text.contains("event_type is empty"), "{text}");
    }

    #[test]
    fn a_line_without_an_end_does_not_fill_the_memory() {
        let endless = io::BufReader::new(io::repeat(b'x'));
        let mut reader = Reader::new(endless, Rules::default().max_payload_bytes(10));
        let failure = reader.next().unwrap().unwrap_err();
        assert!(format!("{failure:?}").contains("the line has more than"), "{failure:?}");
    }

    #[test]
    fn no_damaged_line_panics_and_what_is_taken_can_be_checked() {
        let valid = [
            r#"{"event_type":"order.created","aggregate_type":"order","aggregate_id":"7","payload":{"b":1,"a":1.0,"a":2}}"#,
            r#"{"event_type":"e","payload_base64":"AAECAw==","content_type":"application/octet-stream","delay":"30s"}"#,
            r#"{"event_type":"e","headers":{"a":"\u00e9","b":""},"idempotency_key":"k","delay":0.5,"payload":null}"#,
            r#"{"event_type":"e","id":"0198c7b2-7d3e-7000-8000-000000000000","payload":"text"}"#,
        ];
        let rules = Rules::default();
        posthaste_testkit::damaged(&valid, |line| {
            if let Ok(message) = parse_line(line) {
                let _ = rules.check(&message);
            }
        });
        posthaste_testkit::damaged(&valid, |lines| {
            let reader = Reader::new(lines, Rules::default());
            let _ = reader.take(1_000).count();
        });
    }
}
