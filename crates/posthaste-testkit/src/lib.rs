//! Conformance suites and test doubles for Posthaste.
//!
//! - [`store_conformance!`]: the contract of a store, as one named test for every behaviour. A store adapter brings a
//!   [`StoreFixture`]; [`MemoryFixture`] is the one of `MemoryStore`.
//! - [`publisher_conformance!`]: the same for publishers and [`PublisherFixture`], with [`MemoryDestination`] as the
//!   destination to compare with.
//! - [`ScriptedPublisher`], [`RecordingPublisher`], [`Gate`]: publishers that do what a test says and keep a record of
//!   it. They signal; nothing has to sleep.
//! - [`InvariantChecker`]: whether what was published is what was promised.
//! - [`FaultProxy`]: a TCP proxy that does to connections what networks do; [`network_matrix!`]: every operation of a store
//!   behind it.
//! - [`damaged`]: input that is nearly right, for tests of what is parsed.
//! - [`simulation`]: many relays on one store, under faults, on virtual time.

mod clock;
mod damage;
pub mod doubles;
mod invariants;
#[cfg(unix)]
pub mod network;
#[cfg(unix)]
mod proxy;
pub mod publisher;
mod run;
pub mod simulation;
pub mod store;

pub use clock::VirtualClock;
pub use damage::{damaged, damaged_text};
pub use doubles::{Call, End, Gate, PublishLog, RecordingPublisher, ScriptedPublisher, Step};
pub use invariants::{Disorder, InvariantChecker, Violations};
#[cfg(unix)]
pub use proxy::{Fault, FaultProxy};
pub use publisher::{
    Arrival, Capabilities, MemoryDestination, MemoryDestinationFixture, Outage, PublisherFixture,
};
pub use store::{FixtureTransaction, MemoryFixture, Payloads, StoreFixture};
