//! Relays of the real binary that are killed, frozen and cut off, on every database: what is lost, published although it
//! was rolled back, published twice or out of order is counted against what is allowed.
//!
//! What `./test` runs is bounded; `./test --faults` runs all of it (docs/reliability-matrices.md).
#![allow(clippy::unwrap_used, reason = "all of it is tests")]

mod broker;
mod cell;
mod crash_matrix;
#[path = "../cli/mysql_server.rs"]
#[allow(dead_code, reason = "it is shared, and used in part")]
mod mysql_server;
mod outage;
mod producer;
mod relays;
mod report;
#[path = "../cli/server.rs"]
#[allow(dead_code, reason = "it is shared, and used in part")]
mod server;
mod soak;
mod stores;
#[path = "../cli/support.rs"]
#[allow(dead_code, reason = "it is shared, and used in part")]
mod support;
