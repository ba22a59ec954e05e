//! `sqlite:` is a file, and the producer's transaction on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Admin, Error, ErrorKind, Migration, Outbox, Rules, Store};
use posthaste_sqlite::{SqliteOptions, SqliteStore};
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::{Database, Inputs, Producer};
use crate::failure::Failure;
use crate::ndjson::Input;

/// How long to wait for another writer.
const BUSY: Duration = Duration::from_secs(30);

pub(super) fn open(path: &Path, table: &str, create: bool) -> Result<Database, Failure> {
    let store = SqliteStore::open(path, SqliteOptions::default().table(table).create(create))?;
    if !create && !path.exists() {
        let text = format!("there is no database file {}", path.display());
        return Err(Error::new(ErrorKind::NotMigrated, text).into());
    }
    let producer = SqliteProducer { path: path.to_owned(), outbox: store.outbox() };
    let store: Arc<SqliteStore> = Arc::new(store);
    Ok(Database {
        admin: store.clone() as Arc<dyn Admin>,
        store: store as Arc<dyn Store>,
        producer: Box::new(producer),
        extras: None,
    })
}

pub(super) fn migrations(table: &str) -> Result<Vec<Migration>, Failure> {
    // The file is not opened before the first operation.
    let store = SqliteStore::open("outbox.db", SqliteOptions::default().table(table))?;
    Ok(store.migration_sql())
}

struct SqliteProducer {
    path: PathBuf,
    outbox: Outbox,
}

#[async_trait]
impl Producer for SqliteProducer {
    async fn enqueue_all(&self, inputs: &mut Inputs<'_>, rules: &Rules) -> Result<u64, Failure> {
        tokio::task::block_in_place(|| self.enqueue_blocking(inputs, rules))
    }
}

impl SqliteProducer {
    fn enqueue_blocking(&self, inputs: &mut Inputs<'_>, rules: &Rules) -> Result<u64, Failure> {
        let outbox = self.outbox.clone().with_rules(rules.clone());
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&self.path, flags).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        let mut count = 0;
        for input in inputs {
            let Input { message, line } = input?;
            outbox.enqueue(&tx, &message).map_err(|error| Failure::from(error).at_line(line))?;
            count += 1;
        }
        tx.commit().map_err(failed)?;
        Ok(count)
    }
}

/// What the driver reports, by its result code.
fn failed(error: rusqlite::Error) -> Failure {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly) => ErrorKind::ReadOnly,
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            ErrorKind::PermissionDenied
        }
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "the messages cannot be written").with_source(error).into()
}
