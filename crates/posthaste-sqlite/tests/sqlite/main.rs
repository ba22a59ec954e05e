//! What SQLite brings with it, beside what every store promises.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic")]

mod enqueue;
mod files;
mod locks;
mod names;
mod plain_sql;
mod purge;
mod read;
mod schema;
mod support;
