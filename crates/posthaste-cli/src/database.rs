//! The database that a command works on. A new kind of database is added here, and nowhere else: its scheme in
//! `url.rs`, its file beside `sqlite.rs`, and an arm in [`Target::open`] and [`Target::migrations`].

mod sqlite;
mod url;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste::{Admin, Error, ErrorKind, Message, Migration, RelayId, Rules, Store};

use self::url::DatabaseUrl;
pub(crate) use self::url::{has_password, redact};
use crate::failure::Failure;

/// Which outbox is meant.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) url: Option<String>,
    pub(crate) table: String,
}

/// An open database.
pub(crate) struct Database {
    /// What the relay works on.
    pub(crate) store: Arc<dyn Store>,
    /// What operators work on.
    pub(crate) admin: Arc<dyn Admin>,
    /// What producers work on.
    pub(crate) producer: Box<dyn Producer>,
}

/// The producer's side of a database: a transaction that enqueues.
#[async_trait]
pub(crate) trait Producer: Send + Sync {
    /// Enqueues messages in one transaction, and returns how many there were. Takes them one by one, so that
    /// after an error the caller can tell which one it was: the last one taken. Then nothing is enqueued.
    async fn enqueue_all(&self, messages: &mut Messages<'_>, rules: &Rules) -> Result<u64, Failure>;
}

/// Messages as they are read from somewhere.
pub(crate) type Messages<'a> = dyn Iterator<Item = Result<Message, Failure>> + Send + 'a;

impl Database {
    /// Finds out whether this user may write, without changing anything.
    pub(crate) async fn check_writable(&self) -> Result<(), Failure> {
        // A relay that does not exist has nothing to give back; but to find out, a write is begun.
        Ok(self.store.leave(RelayId::random()).await?)
    }
}

impl Target {
    /// Opens a database whose tables are up to date.
    pub(crate) async fn open(&self) -> Result<Database, Failure> {
        let database = self.connect(false)?;
        match database.admin.pending_migrations().await?.as_slice() {
            [] => Ok(database),
            pending => Err(not_migrated(&self.table, pending).into()),
        }
    }

    /// Opens a database in whatever state it is.
    pub(crate) fn open_any(&self) -> Result<Database, Failure> {
        self.connect(false)
    }

    /// Opens a database in whatever state it is, and makes its file where there is none.
    pub(crate) fn open_or_create(&self) -> Result<Database, Failure> {
        self.connect(true)
    }

    /// All migrations, without a database.
    pub(crate) fn migrations(&self) -> Result<Vec<Migration>, Failure> {
        match self.url.as_deref().map(DatabaseUrl::parse).transpose()? {
            None | Some(DatabaseUrl::Sqlite(_)) => sqlite::migrations(&self.table),
        }
    }

    fn connect(&self, create: bool) -> Result<Database, Failure> {
        let Some(url) = self.url.as_deref() else {
            return Err(Failure::bad_input("no database is named")
                .hint("set POSTHASTE_DATABASE_URL or --database-url, for example to sqlite:outbox.db"));
        };
        match DatabaseUrl::parse(url)? {
            DatabaseUrl::Sqlite(path) => sqlite::open(&path, &self.table, create),
        }
    }
}

fn not_migrated(table: &str, pending: &[Migration]) -> Error {
    let text = if pending.iter().any(|migration| migration.version == 1) {
        format!("there is no outbox table {table:?} in this database")
    } else {
        format!("the outbox table {table:?} is older than this program")
    };
    Error::new(ErrorKind::NotMigrated, text)
}
