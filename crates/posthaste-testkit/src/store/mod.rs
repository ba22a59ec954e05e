//! The contract of [`Store`](posthaste::Store) and [`Admin`](posthaste::Admin), as tests.
//!
//! [`store_conformance!`](crate::store_conformance) runs every behaviour on a fixture of its own. A behaviour is a
//! function, named after what it asserts, that takes the fixture; each can be called by itself, too.
#![allow(missing_docs, clippy::missing_panics_doc, reason = "a behaviour is named after what it asserts")]

pub mod admin;
pub mod content;
pub mod enqueue;
pub mod fence;
pub mod firm;
mod fixture;
pub mod held_back;
pub mod lease;
mod memory;
pub mod mend;
pub mod order;
pub mod per_key;
pub mod read;
pub mod schema;
pub mod settle;
pub mod stats;
mod suite;
mod support;
pub mod together;
pub mod upkeep;

pub use fixture::{FixtureTransaction, Payloads, StoreFixture};
pub use memory::MemoryFixture;
#[doc(hidden)]
pub use suite::run;
