//! PostgreSQL for [Posthaste](posthaste): [`PostgresStore`] is what a relay and an operator work with. Producers and
//! consumers use [`posthaste::Outbox`] and [`posthaste::Inbox`] with the driver that they have.
//!
//! PostgreSQL 13 and later; no extension, no superuser. The way of a message through this crate: the core's
//! `outbox/postgres/` → `read.rs` → `sql/fetch.sql` → the relay → `settle.rs` → `sql/settle.sql`.

mod admin;
mod connection;
mod direct;
mod error;
mod firm;
mod inbox;
mod lease;
mod options;
mod partitions;
mod places;
#[cfg(test)]
mod plans;
mod read;
mod schema;
mod settle;
mod sql;
mod store;
mod target;
mod tls;
mod upkeep;
mod value;
mod wake;

pub use options::{Partition, PostgresOptions};
pub use partitions::{PartitionPlan, PartitionReport};
pub use store::PostgresStore;
