//! The template of a routing key.

use posthaste::{Error, ErrorKind, Record};

/// A routing key with fields to fill in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoutingKey(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    EventType,
    AggregateType,
    AggregateId,
    Header(String),
}

/// A record has no header of this name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoHeader<'a>(pub(crate) &'a str);

const FIELDS: &str = "event_type, aggregate_type, aggregate_id and header.NAME";

impl RoutingKey {
    pub(crate) fn parse(template: &str) -> Result<Self, Error> {
        let (mut parts, mut text, mut rest) = (Vec::new(), String::new(), template);
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            let brace = &rest[at..=at];
            rest = &rest[at + 1..];
            if let Some(behind) = rest.strip_prefix(brace) {
                text.push_str(brace);
                rest = behind;
                continue;
            }
            let Some((field, behind)) = rest.split_once('}').filter(|_| brace == "{") else {
                let text = format!(
                    "routing_key {template:?} has a single {brace:?}; write {{{{ or }}}} for a brace in the key"
                );
                return Err(Error::new(ErrorKind::InvalidInput, text));
            };
            if !text.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut text)));
            }
            parts.push(Part::field(field, template)?);
            rest = behind;
        }
        text.push_str(rest);
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Self(parts))
    }

    pub(crate) fn fill_in(&self, record: &Record) -> Result<String, NoHeader<'_>> {
        let mut key = String::new();
        for part in &self.0 {
            key.push_str(match part {
                Part::Text(text) => text,
                Part::EventType => &record.event_type,
                Part::AggregateType => record.aggregate.aggregate_type(),
                Part::AggregateId => record.aggregate.aggregate_id(),
                Part::Header(name) => record.headers.get(name).ok_or(NoHeader(name))?,
            });
        }
        Ok(key)
    }
}

impl Part {
    fn field(name: &str, template: &str) -> Result<Self, Error> {
        Ok(match name {
            "event_type" => Self::EventType,
            "aggregate_type" => Self::AggregateType,
            "aggregate_id" => Self::AggregateId,
            _ => match name.strip_prefix("header.") {
                Some(header) if !header.is_empty() => Self::Header(header.to_owned()),
                _ => {
                    let text =
                        format!("routing_key {template:?} has an unknown field {name:?}; known are {FIELDS}");
                    return Err(Error::new(ErrorKind::InvalidInput, text));
                }
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::UNIX_EPOCH;

    use posthaste::{Key, Lane, MessageId, Position};
    use proptest::prelude::*;

    use super::*;

    fn record() -> Record {
        Record {
            id: MessageId::generate(),
            lane: Lane(0),
            position: Position::from_sequence(1),
            event_type: "order.created".into(),
            aggregate: Key::new("order", "7"),
            payload: None,
            content_type: None,
            headers: BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]),
            idempotency_key: None,
            attempts: 0,
            enqueued_at: UNIX_EPOCH,
            held_back: false,
        }
    }

    #[test]
    fn fields_are_filled_in() {
        let cases = [
            ("{event_type}", "order.created"),
            ("{aggregate_type}.{aggregate_id}", "order.7"),
            ("eu.{header.tenant}.{event_type}.x", "eu.acme.order.created.x"),
            ("{{{aggregate_id}}}", "{7}"),
            ("a}}b{{", "a}b{"),
            ("plain", "plain"),
            ("", ""),
        ];
        for (template, key) in cases {
            let filled = RoutingKey::parse(template).unwrap();
            let filled = filled.fill_in(&record()).unwrap();
            assert_eq!(filled, key, "{template}");
        }
    }

    #[test]
    fn unknown_fields_and_single_braces_are_named() {
        let cases = [
            ("{evnt_type}", "\"evnt_type\""),
            ("{}", "unknown field \"\""),
            ("{header.}", "\"header.\""),
            ("a{event_type", "single \"{\""),
            ("a}b", "single \"}\""),
        ];
        for (template, said) in cases {
            let error = RoutingKey::parse(template).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(said), "{template}: {error}");
        }
    }

    #[test]
    fn a_header_that_is_missing_is_named() {
        let key = RoutingKey::parse("{header.region}").unwrap();
        assert_eq!(key.fill_in(&record()), Err(NoHeader("region")));
    }

    proptest! {
        #[test]
        fn any_text_can_be_written(text in ".*") {
            let template = text.replace('{', "{{").replace('}', "}}");
            let key = RoutingKey::parse(&template).unwrap();
            prop_assert_eq!(key.fill_in(&record()), Ok(text));
        }

        #[test]
        fn no_template_panics(template in "[{}a-z._]*") {
            let _ = RoutingKey::parse(&template);
        }
    }

    #[test]
    fn no_damaged_template_panics_and_what_is_taken_can_be_filled_in() {
        let record = record();
        posthaste_testkit::damaged_text(
            &["{aggregate_type}.{event_type}", "a{{b}}c{header.tenant}"],
            |template| {
                if let Ok(key) = RoutingKey::parse(template) {
                    let _ = key.fill_in(&record);
                }
            },
        );
    }
}
