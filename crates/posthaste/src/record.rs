//! A stored message as the relay reads it.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use bytes::Bytes;

use crate::id::MessageId;

/// A stored message, as it is handed to a [`Publisher`](crate::Publisher).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The id, the same on every attempt.
    pub id: MessageId,
    /// The lane it lies in.
    pub lane: Lane,
    /// Where it stands in its lane.
    pub position: Position,
    /// What happened; the default routing key, subject or topic.
    pub event_type: String,
    /// The aggregate it belongs to; where its id is not empty, the key whose order is kept.
    pub aggregate: Key,
    /// The payload as it was enqueued, byte for byte; `None` is a tombstone.
    pub payload: Option<Bytes>,
    /// The content type, if the producer set one.
    pub content_type: Option<String>,
    /// The headers.
    pub headers: BTreeMap<String, String>,
    /// Published as the broker's message id instead of the id, if set.
    pub idempotency_key: Option<String>,
    /// How many attempts failed before this one.
    pub attempts: u32,
    /// When it was enqueued, by the database's clock.
    pub enqueued_at: SystemTime,
    /// Whether it waited for a delay or a backoff. While it is stored, later records of its key are not read.
    pub held_back: bool,
}

impl Record {
    /// The number of this attempt; the first is 1.
    pub fn attempt(&self) -> u32 {
        self.attempts.saturating_add(1)
    }

    /// What a broker should take as the message's id: the idempotency key, or else the id.
    pub fn message_id(&self) -> String {
        self.idempotency_key.clone().unwrap_or_else(|| self.id.to_string())
    }

    /// The key whose order is kept, or `None` where the aggregate has no id.
    pub fn key(&self) -> Option<&Key> {
        (!self.aggregate.aggregate_id().is_empty()).then_some(&self.aggregate)
    }

    /// About how many bytes of memory it takes.
    pub fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len() + 64).sum();
        size_of::<Self>() + self.payload.as_ref().map_or(0, Bytes::len) + self.event_type.len() + headers
    }
}

/// The aggregate of a message, as type and id: what its order is kept by. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Arc<(Box<str>, Box<str>)>);

impl Key {
    /// An aggregate. Both parts may be empty; one with an empty id orders nothing.
    pub fn new(aggregate_type: &str, aggregate_id: &str) -> Self {
        static NONE: LazyLock<Key> = LazyLock::new(|| Key(Arc::new((Box::from(""), Box::from("")))));
        if aggregate_type.is_empty() && aggregate_id.is_empty() {
            return NONE.clone();
        }
        Self(Arc::new((aggregate_type.into(), aggregate_id.into())))
    }

    /// The type of the aggregate, or an empty text.
    pub fn aggregate_type(&self) -> &str {
        &self.0.0
    }

    /// The id of the aggregate, or an empty text.
    pub fn aggregate_id(&self) -> &str {
        &self.0.1
    }
}

/// One of the fixed slices of the table. Each key always falls into the same lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u16);

/// Where a record stands in its lane: records of one key are published in rising order.
///
/// Stores with a sequence use [`Position::from_sequence`]; stores that order by time and then id use both parts.
/// It is unique within a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The first thing to order by.
    pub major: i64,
    /// What decides where `major` is equal.
    pub minor: u128,
}

impl Position {
    /// Before every record.
    pub const START: Self = Self { major: i64::MIN, minor: 0 };

    /// The position of a record in a store that numbers its records.
    pub fn from_sequence(sequence: i64) -> Self {
        Self { major: sequence, minor: 0 }
    }
}
