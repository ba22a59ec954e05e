#![doc = include_str!("../README.md")]

mod admin;
mod connection;
mod database;
mod error;
mod headers;
mod inbox;
mod lease;
mod list;
mod mend;
mod options;
#[cfg(test)]
mod plans;
mod purge;
mod read;
mod schema;
mod settle;
mod sql;
mod stats;
mod store;
mod time;
mod upkeep;
mod watch;

pub use options::{SqliteOptions, Synchronous};
pub use rusqlite;
pub use store::SqliteStore;
pub use watch::fair_busy_timeout;

/// The example of the project's front page.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
mod front_page {}
