//! PostgreSQL for [Posthaste](posthaste): [`PostgresOutbox`] enqueues in the caller's own `tokio_postgres` transaction,
//! [`PostgresStore`] is what a relay and an operator work with, [`PostgresInbox`] tells a consumer what it has seen.
//!
//! PostgreSQL 13 and later; no extension, no superuser. The way of a message through this crate: `enqueue.rs` →
//! `sql/enqueue.sql` → `read.rs` → `sql/fetch.sql` → the relay → `settle.rs` → `sql/settle.sql`.

mod admin;
mod connection;
mod direct;
mod enqueue;
mod error;
mod firm;
mod inbox;
mod lease;
mod options;
mod partitions;
#[cfg(test)]
mod plans;
mod read;
mod schema;
mod settle;
mod sql;
mod store;
mod table;
mod target;
mod tls;
mod upkeep;
mod value;
mod wake;

pub use enqueue::{PostgresOutbox, PreparedEnqueue};
pub use inbox::PostgresInbox;
pub use options::{Partition, PostgresOptions};
pub use partitions::{PartitionPlan, PartitionReport};
pub use store::PostgresStore;
