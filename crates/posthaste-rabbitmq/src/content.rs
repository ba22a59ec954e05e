//! A record as AMQP has it.

use std::time::UNIX_EPOCH;

use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, ShortString};
use posthaste::{MessageId, PublishError, Record};

use crate::routing_key::{NoHeader, RoutingKey};

/// The number of the attempt.
const ATTEMPT: &str = "x-outbox-attempt";
/// The type of the aggregate, a slash, and its id.
const AGGREGATE_KEY: &str = "x-outbox-aggregate-key";
/// The type of the aggregate, which says where its id begins.
const AGGREGATE_TYPE: &str = "x-outbox-aggregate-type";

const TRANSIENT: u8 = 1;
const PERSISTENT: u8 = 2;

/// What is published of a record.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) id: MessageId,
    pub(crate) message_id: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) properties: BasicProperties,
    pub(crate) payload: Bytes,
    /// About how many bytes the frame takes that holds the properties, never too few.
    pub(crate) properties_size: usize,
}

impl Content {
    /// Refuses what AMQP has no room for, before it comes near the connection.
    pub(crate) fn of(
        record: &Record,
        routing_key: &RoutingKey,
        persistent: bool,
    ) -> Result<Self, PublishError> {
        let key = routing_key.fill_in(record).map_err(|NoHeader(name)| {
            PublishError::rejected(format!("no header {name:?}, which the routing key needs"))
        })?;
        let message_id = short("message id", record.message_id())?;
        let mut properties = BasicProperties::default()
            .with_message_id(message_id.clone())
            .with_type(short("event type", record.event_type.clone())?)
            .with_delivery_mode(if persistent { PERSISTENT } else { TRANSIENT })
            .with_headers(headers(record)?);
        if let Some(content_type) = &record.content_type {
            properties = properties.with_content_type(short("content type", content_type.clone())?);
        }
        if let Ok(since_1970) = record.enqueued_at.duration_since(UNIX_EPOCH) {
            properties = properties.with_timestamp(since_1970.as_secs());
        }
        Ok(Self {
            id: record.id,
            message_id,
            routing_key: short("routing key", key)?,
            properties,
            payload: record.payload.clone().unwrap_or_default(),
            properties_size: properties_size(record),
        })
    }
}

fn headers(record: &Record) -> Result<FieldTable, PublishError> {
    let mut table = FieldTable::default();
    for (name, value) in &record.headers {
        match name.as_str() {
            ATTEMPT | AGGREGATE_KEY | AGGREGATE_TYPE => {
                return Err(PublishError::rejected(format!("header {name} is reserved")));
            }
            // RabbitMQ takes these for lists of further routing keys, and closes the channel where they are not.
            "CC" | "BCC" => {
                return Err(PublishError::rejected(format!("header {name} must be a list for RabbitMQ")));
            }
            _ => {}
        }
        table.insert(short("header name", name.clone())?, long(value));
    }
    table.insert(ATTEMPT.into(), AMQPValue::LongLongInt(record.attempt().into()));
    if let Some(key) = record.key() {
        let (kind, id) = (key.aggregate_type(), key.aggregate_id());
        table.insert(AGGREGATE_KEY.into(), long(&format!("{kind}/{id}")));
        table.insert(AGGREGATE_TYPE.into(), long(kind));
    }
    Ok(table)
}

/// Header values are long strings: short ones make RabbitMQ close the connection.
fn long(text: &str) -> AMQPValue {
    AMQPValue::LongString(text.into())
}

/// AMQP counts the length of a name in one byte.
fn short(what: &str, text: String) -> Result<ShortString, PublishError> {
    let bytes = text.len();
    ShortString::try_new(text).map_err(|_| {
        PublishError::rejected(format!("{what} has {bytes} bytes, more than the 255 that AMQP has room for"))
    })
}

fn properties_size(record: &Record) -> usize {
    let headers: usize = record.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    // Names have at most 255 bytes each, and there are a few.
    headers + 4 * 256 + 2 * (record.aggregate.aggregate_type().len() + record.aggregate.aggregate_id().len())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::{Duration, UNIX_EPOCH};

    use posthaste::{FailureClass, Key, Lane, Position};

    use super::*;

    fn record() -> Record {
        Record {
            id: MessageId::generate(),
            lane: Lane(0),
            position: Position::from_sequence(1),
            event_type: "order.created".into(),
            aggregate: Key::new("order", "7"),
            payload: Some(Bytes::from_static(b"\0\xff")),
            content_type: Some("application/json".into()),
            headers: BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]),
            idempotency_key: None,
            attempts: 2,
            enqueued_at: UNIX_EPOCH + Duration::from_millis(1_767_225_600_999),
            held_back: false,
        }
    }

    fn content(record: &Record) -> Result<Content, PublishError> {
        Content::of(record, &RoutingKey::parse("{event_type}").unwrap(), true)
    }

    fn refusal(record: &Record) -> String {
        let error = content(record).unwrap_err();
        assert_eq!(error.class(), FailureClass::Rejected, "{error:?}");
        error.reason().to_owned()
    }

    #[test]
    fn a_record_has_its_place_in_amqp() {
        let record = record();
        let content = content(&record).unwrap();
        let properties = &content.properties;
        assert_eq!(content.routing_key.as_str(), "order.created");
        assert_eq!(properties.message_id().as_ref().unwrap().as_str(), record.id.to_string());
        assert_eq!(properties.kind().as_ref().unwrap().as_str(), "order.created");
        assert_eq!(properties.content_type().as_ref().unwrap().as_str(), "application/json");
        assert_eq!(*properties.timestamp(), Some(1_767_225_600));
        assert_eq!(*properties.delivery_mode(), Some(2));
        let headers = properties.headers().as_ref().unwrap().inner();
        assert_eq!(headers["tenant"], long("acme"));
        assert_eq!(headers[ATTEMPT], AMQPValue::LongLongInt(3));
        assert_eq!(headers[AGGREGATE_KEY], long("order/7"));
        assert_eq!(headers[AGGREGATE_TYPE], long("order"));
        assert_eq!(&content.payload[..], b"\0\xff");
    }

    #[test]
    fn a_record_without_a_key_has_no_key_headers() {
        let keyless = Record { aggregate: Key::new("", ""), ..record() };
        let content = content(&keyless).unwrap();
        let headers = content.properties.headers().as_ref().unwrap();
        assert!(!headers.contains_key(AGGREGATE_KEY) && !headers.contains_key(AGGREGATE_TYPE));
    }

    #[test]
    fn names_are_counted_in_bytes() {
        let fits = "ä".repeat(127);
        assert!(content(&Record { event_type: fits, ..record() }).is_ok());
        let long = "€".repeat(86);
        assert!(refusal(&Record { event_type: long.clone(), ..record() }).contains("258 bytes"));
        assert!(
            refusal(&Record { content_type: Some(long.clone()), ..record() }).starts_with("content type")
        );
        assert!(
            refusal(&Record { idempotency_key: Some(long.clone()), ..record() }).starts_with("message id")
        );
        let headers = BTreeMap::from([(long, "x".to_owned())]);
        assert!(refusal(&Record { headers, ..record() }).starts_with("header name"));
        let by_id = RoutingKey::parse("{aggregate_type}.{aggregate_id}").unwrap();
        let wide = Record { aggregate: Key::new(&"x".repeat(128), &"y".repeat(128)), ..record() };
        let error = Content::of(&wide, &by_id, true).unwrap_err();
        assert!(error.reason().starts_with("routing key has 257 bytes"), "{error}");
    }

    #[test]
    fn headers_that_mean_something_else_to_the_broker_are_refused() {
        for name in ["CC", "BCC", ATTEMPT, AGGREGATE_KEY, AGGREGATE_TYPE] {
            let headers = BTreeMap::from([(name.to_owned(), "a secret".to_owned())]);
            let reason = refusal(&Record { headers, ..record() });
            assert!(reason.contains(name) && !reason.contains("secret"), "{reason}");
        }
    }
}
