//! What a producer enqueues.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::Serialize;

use crate::error::{Error, ErrorKind};
use crate::id::MessageId;

/// The content type that [`Message::json`] sets.
pub const JSON: &str = "application/json";

/// A message to enqueue.
///
/// Only the event type is required; it is the default routing key, subject or topic. Messages with the same
/// aggregate (type and id: the *key*) are published in the order in which they were enqueued; messages without
/// one have no order. A message without a payload is a tombstone, which is not the same as an empty payload.
///
/// ```
/// use std::time::Duration;
/// use posthaste::Message;
///
/// # fn main() -> Result<(), posthaste::Error> {
/// let order = serde_json::json!({ "id": 7, "total": "12.50" });
/// let message = Message::new("order.created")
///     .aggregate("order", "7")
///     .json(&order)?
///     .header("tenant", "acme")
///     .delay(Duration::from_secs(30));
/// assert_eq!(message.event_type(), "order.created");
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    id: MessageId,
    event_type: String,
    aggregate_type: String,
    aggregate_id: String,
    payload: Option<Bytes>,
    content_type: Option<String>,
    headers: BTreeMap<String, String>,
    idempotency_key: Option<String>,
    due: Due,
}

/// When a message may be published for the first time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Due {
    /// As soon as its transaction has committed.
    #[default]
    Now,
    /// So long after it was enqueued, by the database's clock.
    After(Duration),
    /// Not before this time, by the database's clock.
    At(SystemTime),
}

impl Message {
    /// A message of this event type, with a new id and nothing else. The rules are checked at enqueue.
    pub fn new(event_type: impl Into<String>) -> Self {
        Self {
            id: MessageId::generate(),
            event_type: event_type.into(),
            aggregate_type: String::new(),
            aggregate_id: String::new(),
            payload: None,
            content_type: None,
            headers: BTreeMap::new(),
            idempotency_key: None,
            due: Due::Now,
        }
    }

    /// Sets the id, instead of the one made for it.
    pub fn with_id(mut self, id: MessageId) -> Self {
        self.id = id;
        self
    }

    /// Sets the aggregate: the key whose order is kept. An empty id means no key and no order.
    #[expect(clippy::needless_pass_by_value, reason = "so that ids of any type can be given as they are")]
    pub fn aggregate(mut self, aggregate_type: impl Into<String>, aggregate_id: impl ToString) -> Self {
        self.aggregate_type = aggregate_type.into();
        self.aggregate_id = aggregate_id.to_string();
        self
    }

    /// Sets the payload to the JSON text of `value`, and the content type to `application/json`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMessage`] if `value` cannot be written as JSON (a map with keys that are no strings,
    /// or a `Serialize` that fails).
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Result<Self, Error> {
        let text = serde_json::to_vec(value).map_err(|source| {
            Error::new(ErrorKind::InvalidMessage, "the payload cannot be written as JSON").with_source(source)
        })?;
        Ok(self.payload(text).content_type(JSON))
    }

    /// Sets the payload to a text, and the content type to `text/plain; charset=utf-8`.
    pub fn text(self, text: impl Into<String>) -> Self {
        self.payload(text.into()).content_type("text/plain; charset=utf-8")
    }

    /// Sets the payload to bytes, and the content type to `application/octet-stream`.
    pub fn bytes(self, bytes: impl Into<Bytes>) -> Self {
        self.payload(bytes).content_type("application/octet-stream")
    }

    /// Sets the payload to bytes, which nobody parses or changes on their way, and leaves the content type alone.
    pub fn payload(mut self, payload: impl Into<Bytes>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// Sets the content type (a MIME type).
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.content_type = Some(content_type.into());
        self
    }

    /// Adds a header, replacing one of the same name.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets the idempotency key: published as the broker's message id instead of the id, and enqueued once only.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Publishes the message no earlier than `delay` after it was enqueued. Later messages of its key wait for it.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.due = if delay.is_zero() { Due::Now } else { Due::After(delay) };
        self
    }

    /// Publishes the message no earlier than `at`. Later messages of its key wait for it.
    pub fn available_at(mut self, at: SystemTime) -> Self {
        self.due = Due::At(at);
        self
    }

    /// The id.
    pub fn id(&self) -> MessageId {
        self.id
    }

    pub(crate) fn id_ref(&self) -> &MessageId {
        &self.id
    }

    /// The event type.
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    /// The type of the aggregate, or an empty text.
    pub fn aggregate_type(&self) -> &str {
        &self.aggregate_type
    }

    /// The id of the aggregate, or an empty text where the message has no key.
    pub fn aggregate_id(&self) -> &str {
        &self.aggregate_id
    }

    /// The payload, or `None` for a tombstone.
    pub fn payload_bytes(&self) -> Option<&Bytes> {
        self.payload.as_ref()
    }

    /// The content type, if set.
    pub fn content_type_str(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The headers.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }

    /// The idempotency key, if set.
    pub fn idempotency_key_str(&self) -> Option<&str> {
        self.idempotency_key.as_deref()
    }

    /// When it may be published for the first time.
    pub fn due(&self) -> Due {
        self.due
    }
}
