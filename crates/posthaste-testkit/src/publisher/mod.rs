//! The contract of [`Publisher`](posthaste::Publisher), as tests.
//!
//! [`publisher_conformance!`](crate::publisher_conformance) runs every behaviour on a fixture of its own. A
//! behaviour is a function, named after what it asserts, that takes the fixture; each can be called by itself, too.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "a behaviour is named after what it asserts")]

pub mod delivery;
pub mod failure;
mod fixture;
mod memory;
mod suite;
mod support;

pub use fixture::{Arrival, Capabilities, Outage, PublisherFixture};
pub use memory::{MemoryDestination, MemoryDestinationFixture};
#[doc(hidden)]
pub use suite::run;
#[cfg(test)]
pub(crate) use support::record;
