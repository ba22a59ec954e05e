//! MySQL and MariaDB for [Posthaste](posthaste): [`MySqlOutbox`] enqueues in the caller's own `mysql_async` transaction,
//! [`MySqlStore`] is what a relay and an operator work with, [`MySqlInbox`] tells a consumer what it has seen.
//!
//! MySQL 8.0 and later, MariaDB 10.6 and later, on `InnoDB`. The way of a message through this crate: `enqueue.rs` →
//! `sql/enqueue.sql` → `read.rs` → `sql/page.sql` → the relay → `settle.rs` → `sql/settle_processed.sql`.

mod admin;
mod cleanup;
mod connection;
mod enqueue;
mod error;
mod inbox;
mod layout;
mod lease;
mod mend;
mod options;
mod page;
mod partitions;
#[cfg(test)]
mod plans;
mod read;
mod row;
mod schema;
mod settle;
mod sql;
mod store;
mod table;
mod target;
mod upkeep;
mod value;

pub use cleanup::{Cleanup, CleanupReport};
pub use enqueue::MySqlOutbox;
pub use inbox::MySqlInbox;
pub use options::{MySqlOptions, Partition, Payload};

pub use partitions::{PartitionPlan, PartitionReport};
pub use store::MySqlStore;
