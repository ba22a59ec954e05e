//! What a store has to bring along to be put through the conformance suite.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Admin, Error, Message, MessageId, Store};

/// A database for one test, with the store to be tested on top.
///
/// `store_conformance!` makes a fixture for every behaviour, so each test has a database (or schema, or table) of
/// its own.
#[async_trait]
pub trait StoreFixture: Send + Sync + 'static {
    /// An empty outbox with its schema up to date, the default [`Rules`](posthaste::Rules), and no relays.
    ///
    /// `None` skips the test: say loudly why (a server that is not there), and panic instead where skipping is
    /// not wanted.
    async fn new() -> Option<Self>
    where
        Self: Sized;

    /// As [`new`](Self::new), but with a schema that was never migrated.
    async fn unmigrated() -> Option<Self>
    where
        Self: Sized;

    /// The store under test; the same one every time.
    fn store(&self) -> Arc<dyn Store>;

    /// The operator's side of it.
    fn admin(&self) -> Arc<dyn Admin>;

    /// Another, independent store on the same database, with connections of its own, as a second process would
    /// have.
    async fn second(&self) -> Arc<dyn Store>;

    /// How many lanes the outbox has.
    fn lanes(&self) -> u16;

    /// Whether two transactions can be open at once and both enqueue, so that the later one commits first.
    fn concurrent_transactions(&self) -> bool;

    /// Which payloads the outbox takes.
    fn payloads(&self) -> Payloads;

    /// Moves time forward, as the database judges it: by a manual clock, or by shifting every stored time back.
    async fn advance(&self, by: Duration);

    /// Begins a producer's transaction. It is rolled back when it is dropped.
    async fn begin(&self) -> Box<dyn FixtureTransaction>;
}

/// Which payloads an outbox takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payloads {
    /// All bytes, which come out as they went in.
    AnyBytes,
    /// JSON only, which comes out as the same JSON, perhaps written in another way.
    Json,
}

/// A producer's transaction: the store's own way to enqueue, on a connection of the fixture's.
#[async_trait]
pub trait FixtureTransaction: Send {
    /// Enqueues one message.
    async fn enqueue(&mut self, message: &Message) -> Result<MessageId, Error>;

    /// Enqueues many messages in one call, in the order given; all or, on an error, none. The ids come back in
    /// that order.
    async fn enqueue_all(&mut self, messages: &[Message]) -> Result<Vec<MessageId>, Error>;

    /// Commits.
    async fn commit(self: Box<Self>);

    /// Rolls back.
    async fn rollback(self: Box<Self>);
}
