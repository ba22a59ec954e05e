//! MySQL and MariaDB for [Posthaste](posthaste): [`MySqlStore`] is what a relay and an operator work with. Producers and
//! consumers use [`posthaste::Outbox`] and [`posthaste::Inbox`] with the driver that they have.
//!
//! MySQL 8.0 and later, MariaDB 10.6 and later, on `InnoDB`. The way of a message through this crate: the core's
//! `outbox/mysql/` → `read.rs` → `sql/page.sql` → the relay → `settle.rs` → `sql/settle_processed.sql`.

mod admin;
mod cleanup;
mod connection;
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
mod target;
mod upkeep;
mod value;

pub use cleanup::{Cleanup, CleanupReport};
pub use options::{MySqlOptions, Partition, Payload};

pub use partitions::{PartitionPlan, PartitionReport};
pub use store::MySqlStore;
