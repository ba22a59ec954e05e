//! Relays with two destinations.

use std::sync::Arc;

use posthaste::{Destination, Message, MessageId, Relay, RelayBuilder};
use posthaste_testkit::ScriptedPublisher;

use super::{TappedStore, enqueue, many};

/// Two destinations, each of which keeps a log of its own.
#[derive(Clone, Default)]
pub(crate) struct Two {
    pub(crate) a: ScriptedPublisher,
    pub(crate) b: ScriptedPublisher,
}

impl Two {
    /// A relay that sends `a.*` to `a` and `b.*` to `b`.
    pub(crate) fn relay(&self, store: &TappedStore) -> RelayBuilder {
        self.relay_with(store, |a| a, |b| b)
    }

    /// The same with settings for each.
    pub(crate) fn relay_with(
        &self,
        store: &TappedStore,
        a: impl FnOnce(Destination) -> Destination,
        b: impl FnOnce(Destination) -> Destination,
    ) -> RelayBuilder {
        builder(store)
            .destination(a(Destination::new("a", self.a.clone())))
            .destination(b(Destination::new("b", self.b.clone())))
            .route("a.*", "a")
            .route("b.*", "b")
    }
}

/// A relay that is always the same, without destinations.
pub(crate) fn builder(store: &TappedStore) -> RelayBuilder {
    Relay::builder(Arc::new(store.clone())).name("tested").seed(7)
}

/// A message for `a`.
pub(crate) fn to_a() -> Message {
    Message::new("a.created")
}

/// A message for `b`.
pub(crate) fn to_b() -> Message {
    Message::new("b.created")
}

/// Enqueues so many messages, in one transaction.
pub(crate) fn enqueue_many(
    store: &TappedStore,
    count: usize,
    message: impl Fn(usize) -> Message,
) -> Vec<MessageId> {
    enqueue(store, &many(count, message)).iter().map(posthaste::Receipt::id).collect()
}
