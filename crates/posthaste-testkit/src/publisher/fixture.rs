//! What a publisher has to bring along to be put through the conformance suite.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use posthaste::{Key, Publisher, Record};

/// A destination for one test (a queue, topic or stream of its own), with the publisher to be tested on top.
#[async_trait]
pub trait PublisherFixture: Send + Sync + 'static {
    /// A destination that is up and empty.
    ///
    /// `None` skips the test: say loudly why (a broker that is not there), and panic instead where skipping is
    /// not wanted.
    async fn new() -> Option<Self>
    where
        Self: Sized;

    /// The publisher under test; the same one every time.
    fn publisher(&self) -> Arc<dyn Publisher>;

    /// What the destination can carry.
    fn capabilities(&self) -> Capabilities;

    /// The longest that one publish may take, whatever the destination does. Twice as long is waited for, and for
    /// many at once no longer than for one.
    fn time_limit(&self) -> Duration;

    /// Everything that the destination took responsibility for since the fixture was made, in the order in which
    /// it arrived. Asking for it takes nothing away.
    async fn arrived(&self) -> Vec<Arrival>;

    /// Makes the destination unavailable to the publisher.
    async fn break_down(&self, outage: Outage);

    /// Makes the destination available again.
    async fn heal(&self);

    /// Sees to it that the destination refuses this record, however often it is tried, and no other: by changing the
    /// record (too large, unroutable) or by preparing the destination.
    async fn spoil(&self, record: Record) -> Record;
}

/// A way of being unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outage {
    /// Connections are closed, and new ones refused.
    Refusing,
    /// Connections stay as they are, but nothing is answered any more: a broken network, a frozen broker.
    Silent,
}

impl Outage {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Refusing, Self::Silent];
}

/// What a destination can carry besides payloads. What it cannot carry is documented by its adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each stands for itself")]
pub struct Capabilities {
    /// The message id.
    pub message_id: bool,
    /// The event type, as routing key, subject or otherwise.
    pub event_type: bool,
    /// The key.
    pub key: bool,
    /// The content type.
    pub content_type: bool,
    /// Headers.
    pub headers: bool,
    /// A tombstone as something else than an empty payload.
    pub tombstones: bool,
    /// The order of arrival within a key.
    pub order: bool,
    /// Payloads of half a mebibyte.
    pub large_payloads: bool,
}

impl Capabilities {
    /// A destination that can carry everything.
    pub const ALL: Self = Self {
        message_id: true,
        event_type: true,
        key: true,
        content_type: true,
        headers: true,
        tombstones: true,
        order: true,
        large_payloads: true,
    };
}

/// A record as it arrived at the destination. What the destination cannot carry stays `None`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arrival {
    /// The broker's message id.
    pub message_id: Option<String>,
    /// The event type.
    pub event_type: Option<String>,
    /// The key.
    pub key: Option<Key>,
    /// The payload; `None` is a tombstone.
    pub payload: Option<Bytes>,
    /// The content type.
    pub content_type: Option<String>,
    /// The record's headers, without those that the adapter or the destination adds.
    pub headers: BTreeMap<String, String>,
}
