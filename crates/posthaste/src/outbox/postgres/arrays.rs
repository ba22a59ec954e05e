//! Many messages as the values of one statement.
//!
//! Not every driver can bind arrays. So they are written as the texts that PostgreSQL reads arrays from, and the
//! payloads, which must not be blown up by that, lie one behind the other in one value of bytes.

use std::borrow::Cow;

use super::due;
use crate::error::Error;
use crate::message::Message;
use crate::outbox::batch::headers_json;
use crate::outbox::script::Value;
use crate::outbox::trace::TraceContext;

/// The values of `enqueue_all.sql`.
pub(super) fn values<'a>(messages: &'a [Message], trace: &TraceContext) -> Result<Vec<Value<'a>>, Error> {
    let mut columns: [Array; 11] = std::array::from_fn(|_| Array::default());
    let mut payloads = Vec::with_capacity(
        messages.iter().map(|message| message.payload_bytes().map_or(0, bytes::Bytes::len)).sum(),
    );
    let [
        ids,
        event_types,
        aggregate_types,
        aggregate_ids,
        content_types,
        headers,
        delays,
        at,
        keys,
        starts,
        lengths,
    ] = &mut columns;
    for message in messages {
        let (delay, due_at) = due(message.due());
        ids.number(message.id());
        event_types.text(Some(message.event_type()));
        aggregate_types.text(Some(message.aggregate_type()));
        aggregate_ids.text(Some(message.aggregate_id()));
        content_types.text(message.content_type_str());
        headers.text(Some(&headers_json(message, trace)?));
        delays.number(delay);
        at.optional(due_at);
        keys.text(message.idempotency_key_str());
        starts.number(payloads.len() + 1);
        lengths.optional(message.payload_bytes().map(bytes::Bytes::len));
        payloads.extend_from_slice(message.payload_bytes().map_or(&[], |payload| &payload[..]));
    }
    let [
        ids,
        event_types,
        aggregate_types,
        aggregate_ids,
        content_types,
        headers,
        delays,
        at,
        keys,
        starts,
        lengths,
    ] = columns.map(|array| Value::text(array.finish()));
    let payloads = Value::Bytes(Some(Cow::Owned(payloads)));
    Ok(vec![
        ids,
        event_types,
        aggregate_types,
        aggregate_ids,
        payloads,
        content_types,
        headers,
        delays,
        at,
        keys,
        starts,
        lengths,
    ])
}

/// An array as text.
#[derive(Default)]
struct Array(String);

impl Array {
    /// An element that needs no quotes.
    fn number(&mut self, number: impl std::fmt::Display) {
        use std::fmt::Write;
        self.separate();
        // Writing to a string cannot fail.
        let _ = write!(self.0, "{number}");
    }

    fn optional(&mut self, number: Option<impl std::fmt::Display>) {
        match number {
            Some(number) => self.number(number),
            None => self.number("NULL"),
        }
    }

    fn text(&mut self, text: Option<&str>) {
        let Some(text) = text else { return self.number("NULL") };
        self.separate();
        self.0.push('"');
        let mut rest = text;
        while let Some(special) = rest.find(['"', '\\']) {
            self.0.push_str(&rest[..special]);
            self.0.push('\\');
            self.0.push_str(&rest[special..=special]);
            rest = &rest[special + 1..];
        }
        self.0.push_str(rest);
        self.0.push('"');
    }

    fn separate(&mut self) {
        self.0.push(if self.0.is_empty() { '{' } else { ',' });
    }

    fn finish(mut self) -> String {
        self.0.push_str(if self.0.is_empty() { "{}" } else { "}" });
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_quoted() {
        let mut array = Array::default();
        [Some("a"), None, Some(""), Some("NULL"), Some("\"\\{,}'ü\n"), Some("\\\\\"")]
            .into_iter()
            .for_each(|text| array.text(text));
        let expected = "{\"a\",NULL,\"\",\"NULL\",\"\\\"\\\\{,}'ü\n\",\"\\\\\\\\\\\"\"}";
        assert_eq!(array.finish(), expected);
        assert_eq!(Array::default().finish(), "{}");
    }

    #[test]
    fn payloads_lie_behind_one_another() {
        let messages = [Message::new("a").payload("xyz"), Message::new("b"), Message::new("c").payload("é")];
        let values = values(&messages, &TraceContext::default()).unwrap();
        assert_eq!(values[4], Value::bytes("xyzé".as_bytes()));
        assert_eq!((&values[10], &values[11]), (&Value::text("{1,4,4}"), &Value::text("{3,NULL,2}")));
    }
}
