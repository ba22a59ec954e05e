//! Where a run works: a schema, a database or a file of its own, which is new when it begins and gone when it ends.

mod mysql;
mod postgres;
mod sqlite;

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use posthaste::{Message, Store};

use super::gauge::Counters;
use super::load::Load;
use crate::database::{DatabaseUrl, Target};
use crate::failure::Failure;

/// A place to measure in.
#[async_trait]
pub(super) trait Ground: Send + Sync {
    /// The name of what was made for it.
    fn name(&self) -> &str;

    /// The kind of database and its version.
    async fn server(&self) -> Result<String, Failure>;

    /// The outbox as a relay sees it, with connections of its own.
    fn store(&self) -> Result<Arc<dyn Store>, Failure>;

    /// A connection that writes messages.
    async fn hand(&self, way: Way) -> Result<Box<dyn Hand>, Failure>;

    /// Forgets all messages.
    async fn empty(&self) -> Result<(), Failure>;

    /// Lets the server do now what it would do some time: statistics, clearing away, and where there is much to write,
    /// a checkpoint.
    async fn tidy(&self, much: bool) -> Result<(), Failure>;

    /// Marks (or deletes) up to so many pending rows in one statement on the server, and says how many there were.
    async fn mark(&self, rows: u32, delete: bool) -> Result<u64, Failure>;

    /// How many messages are pending and how many are processed.
    async fn count(&self) -> Result<Count, Failure>;

    /// What the server tells, once it knows that so many rows were written.
    async fn counters(&self, rows_written: u64) -> Result<Counters, Failure>;

    /// Opens a transaction that sees what is there now, until what it gives is dropped.
    async fn hold_snapshot(&self) -> Result<Box<dyn Any + Send>, Failure>;

    /// Removes what was made.
    async fn remove(&self) -> Result<(), Failure>;
}

/// What is in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) pending: u64,
    pub(super) processed: u64,
}

/// How a message is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Into the outbox, as a service does.
    Outbox,
    /// The same values into a table that has them and a primary key, by prepared single-row INSERTs.
    Bare,
}

/// A connection that writes messages.
#[async_trait]
pub(super) trait Hand: Send {
    /// Writes messages in one transaction.
    async fn put(&mut self, messages: &[Message]) -> Result<(), Failure>;
}

/// Makes a place beside what the database holds, whatever that is.
pub(super) async fn make(target: &Target, load: &Load) -> Result<Arc<dyn Ground>, Failure> {
    let Some(url) = target.url.as_deref() else {
        return Err(Failure::bad_input("no database is named")
            .hint("set POSTHASTE_DATABASE_URL or --database-url, for example to sqlite:bench.db"));
    };
    if target.table != "outbox" {
        return Err(Failure::bad_input("bench works on no table of yours")
            .hint("leave --table out; it makes a schema, a database or a file of its own, and removes it"));
    }
    let name = format!("posthaste_bench_{}", &uuid::Uuid::new_v4().simple().to_string()[..16]);
    match DatabaseUrl::parse(url)? {
        DatabaseUrl::Sqlite(path) => {
            refuse(load.partition.is_some(), "--partition")?;
            refuse(load.layout.is_some(), "--layout")?;
            Ok(Arc::new(sqlite::SqliteGround::make(path).await?))
        }
        DatabaseUrl::Postgres(url) => {
            refuse(load.layout.is_some(), "--layout")?;
            Ok(Arc::new(postgres::PostgresGround::make(&url, name, load).await?))
        }
        DatabaseUrl::MySql(url) => Ok(Arc::new(mysql::MySqlGround::make(&url, name, load).await?)),
    }
}

fn refuse(is_set: bool, option: &str) -> Result<(), Failure> {
    if is_set {
        return Err(Failure::bad_input(format!("this kind of database has no {option}")));
    }
    Ok(())
}

/// Says what of the benchmark's own work the database did not do.
fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::failed(format!("the benchmark's own work failed: {error}"))
}
