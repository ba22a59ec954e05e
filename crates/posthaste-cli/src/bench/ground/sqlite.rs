//! A file of its own.

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Admin, Message, Outbox, Store};
use posthaste_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::task::block_in_place;

use super::{Count, Counters, Ground, Hand, Way};
use crate::failure::Failure;

/// How long to wait for another writer.
const BUSY: Duration = Duration::from_secs(60);
/// What a bare row holds.
const BARE: &str = "CREATE TABLE bare (id BLOB NOT NULL PRIMARY KEY, event_type TEXT NOT NULL, aggregate_type TEXT NOT NULL, \
                    aggregate_id TEXT NOT NULL, created_at INTEGER NOT NULL, content_type TEXT, payload BLOB)";
const INSERT: &str = "INSERT INTO bare (id, event_type, aggregate_type, aggregate_id, created_at, content_type, payload) \
                      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";

pub(super) struct SqliteGround {
    path: PathBuf,
    name: String,
    outbox: Outbox,
    connection: Mutex<Connection>,
}

impl SqliteGround {
    /// Makes the file. One that is there is somebody's, and is left alone.
    pub(super) async fn make(path: PathBuf) -> Result<Self, Failure> {
        if path.exists() {
            let text = format!("{} is there already, and may be somebody's outbox", path.display());
            return Err(Failure::bad_input(text).hint(
                "name a file that is not there; it is made for the benchmark, and removed afterwards",
            ));
        }
        let made = Self::fill(&path).await;
        if made.is_err() {
            remove(&path)?;
        }
        made
    }

    async fn fill(path: &Path) -> Result<Self, Failure> {
        let store = SqliteStore::open(path, SqliteOptions::default().create(true))?;
        store.migrate().await?;
        let connection = connect(path)?;
        connection.execute_batch(BARE).map_err(super::failed)?;
        let name = path.display().to_string();
        Ok(Self { path: path.to_owned(), name, outbox: store.outbox(), connection: Mutex::new(connection) })
    }

    fn with<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Failure> {
        block_in_place(|| work(&self.connection.lock().unwrap_or_else(PoisonError::into_inner)))
            .map_err(super::failed)
    }
}

/// A connection as a careful application would open it.
fn connect(path: &Path) -> Result<Connection, Failure> {
    let open = || {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(connection)
    };
    open().map_err(|error: rusqlite::Error| super::failed(error))
}

fn remove(path: &Path) -> Result<(), Failure> {
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(suffix);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(super::failed(error)),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[async_trait]
impl Ground for SqliteGround {
    fn name(&self) -> &str {
        &self.name
    }

    async fn server(&self) -> Result<String, Failure> {
        Ok(format!("SQLite {}", rusqlite::version()))
    }

    fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        Ok(Arc::new(SqliteStore::open(&self.path, SqliteOptions::default())?))
    }

    async fn hand(&self, way: Way) -> Result<Box<dyn Hand>, Failure> {
        Ok(Box::new(SqliteHand { connection: connect(&self.path)?, outbox: self.outbox.clone(), way }))
    }

    async fn empty(&self) -> Result<(), Failure> {
        self.with(|connection| {
            connection.execute_batch("DELETE FROM outbox; DELETE FROM bare; PRAGMA wal_checkpoint(TRUNCATE)")
        })
    }

    async fn tidy(&self, _much: bool) -> Result<(), Failure> {
        self.with(|connection| connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)"))
    }

    async fn mark(&self, rows: u32, delete: bool) -> Result<u64, Failure> {
        let pick = "(SELECT seq FROM outbox WHERE status = 0 AND next_attempt_at IS NULL LIMIT ?1)";
        let statement = if delete {
            format!("DELETE FROM outbox WHERE seq IN {pick}")
        } else {
            format!("UPDATE outbox SET status = 1, status_at = created_at WHERE seq IN {pick}")
        };
        self.with(|connection| Ok(connection.prepare_cached(&statement)?.execute([rows])? as u64))
    }

    async fn count(&self) -> Result<Count, Failure> {
        let sql = "SELECT count(*) FILTER (WHERE status = 0), count(*) FILTER (WHERE status = 1) FROM outbox";
        let (pending, processed) = self.with(|connection| {
            connection.query_row(sql, [], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?)))
        })?;
        Ok(Count { pending: pending.into(), processed: processed.into() })
    }

    /// SQLite is part of this process, and keeps no counts.
    async fn counters(&self, _rows_written: u64) -> Result<Counters, Failure> {
        Ok(Counters::default())
    }

    async fn hold_snapshot(&self) -> Result<Box<dyn Any + Send>, Failure> {
        let connection = connect(&self.path)?;
        let begin = "BEGIN; SELECT count(*) FROM bare";
        block_in_place(|| connection.execute_batch(begin)).map_err(super::failed)?;
        Ok(Box::new(connection))
    }

    async fn remove(&self) -> Result<(), Failure> {
        remove(&self.path)
    }
}

struct SqliteHand {
    connection: Connection,
    outbox: Outbox,
    way: Way,
}

#[async_trait]
impl Hand for SqliteHand {
    async fn put(&mut self, messages: &[Message]) -> Result<(), Failure> {
        block_in_place(|| {
            let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate);
            let tx = tx.map_err(super::failed)?;
            match (self.way, messages) {
                (Way::Outbox, [message]) => self.outbox.enqueue(&tx, message).map(drop)?,
                (Way::Outbox, _) => self.outbox.enqueue_all(&tx, messages).map(drop)?,
                (Way::Bare, _) => {
                    messages.iter().try_for_each(|message| insert(&tx, message)).map_err(super::failed)?;
                }
            }
            tx.commit().map_err(super::failed)
        })
    }
}

fn insert(connection: &Connection, message: &Message) -> rusqlite::Result<()> {
    connection
        .prepare_cached(INSERT)?
        .execute(params![
            message.id().as_uuid().as_bytes(),
            message.event_type(),
            message.aggregate_type(),
            message.aggregate_id(),
            1_700_000_000_000_i64,
            message.content_type_str(),
            message.payload_bytes().map(AsRef::<[u8]>::as_ref),
        ])
        .map(drop)
}
