//! The database that a command works on. A new kind of database is added here, and nowhere else: its scheme in
//! `url.rs`, its file beside `sqlite.rs`, and an arm in [`Target::open`] and [`Target::migrations`].

mod extras;
mod mysql;
mod postgres;
mod settings;
mod sqlite;
mod url;

use std::sync::Arc;

use async_trait::async_trait;
use posthaste::{Admin, Error, ErrorKind, Migration, RelayId, Rules, Store};

pub(crate) use self::extras::{CleanupDone, CleanupWork, Extras, Keep, PartitionsDone, PartitionsWork};
use self::settings::Kind;
pub(crate) use self::settings::{Every, Layout, ListenArgs, SchemaArgs, Settings};
pub(crate) use self::url::{DatabaseUrl, has_password, redact};
use crate::failure::Failure;
use crate::ndjson::Input;

/// Which outbox is meant.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) url: Option<String>,
    pub(crate) table: String,
    pub(crate) settings: Settings,
}

/// An open database.
pub(crate) struct Database {
    /// What the relay works on.
    pub(crate) store: Arc<dyn Store>,
    /// What operators work on.
    pub(crate) admin: Arc<dyn Admin>,
    /// What producers work on.
    pub(crate) producer: Box<dyn Producer>,
    /// What not every kind of database has.
    pub(crate) extras: Option<Box<dyn Extras>>,
}

/// The producer's side of a database: a transaction that enqueues.
#[async_trait]
pub(crate) trait Producer: Send + Sync {
    /// Enqueues messages in one transaction, and returns how many there were. After an error, which names the
    /// message's place, nothing is enqueued.
    async fn enqueue_all(&self, inputs: &mut Inputs<'_>, rules: &Rules) -> Result<u64, Failure>;
}

/// Messages as they are read from somewhere.
pub(crate) type Inputs<'a> = dyn Iterator<Item = Result<Input, Failure>> + Send + 'a;

impl Database {
    /// Finds out whether this user may write, without changing anything.
    pub(crate) async fn check_writable(&self) -> Result<(), Failure> {
        // A relay that does not exist has nothing to give back; but to find out, a write is begun.
        match self.store.leave(RelayId::random()).await {
            Err(error) if may_go_away(error.kind()) => Ok(()),
            result => Ok(result?),
        }
    }
}

/// Whether trouble may go away by itself, so that a relay waits for its end.
fn may_go_away(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Conflict | ErrorKind::Database)
}

impl Target {
    /// Opens a database whose tables are up to date.
    pub(crate) async fn open(&self) -> Result<Database, Failure> {
        let database = self.connect(false)?;
        self.check_migrated(&database).await?;
        Ok(database)
    }

    /// As [`open`](Self::open), for a producer. It may not be allowed to look how far the tables are; then enqueueing
    /// finds out.
    pub(crate) async fn open_to_enqueue(&self) -> Result<Database, Failure> {
        let database = self.connect(false)?;
        match self.check_migrated(&database).await {
            Err(error) if error.kind() != ErrorKind::PermissionDenied => Err(error.into()),
            Ok(()) | Err(_) => Ok(database),
        }
    }

    async fn check_migrated(&self, database: &Database) -> Result<(), Error> {
        match database.admin.pending_migrations().await?.as_slice() {
            [] => Ok(()),
            pending => Err(not_migrated(&self.table, pending)),
        }
    }

    /// The same outbox, with settings.
    pub(crate) fn with(&self, settings: Settings) -> Self {
        Self { settings, ..self.clone() }
    }

    /// Opens a database in whatever state it is.
    pub(crate) fn open_any(&self) -> Result<Database, Failure> {
        self.connect(false)
    }

    /// Opens a database in whatever state it is, and makes its file where there is none.
    pub(crate) fn open_or_create(&self) -> Result<Database, Failure> {
        self.connect(true)
    }

    /// Whether its URL, its table and its settings make sense, without a look at the database.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        self.named()?;
        self.migrations().map(|_| ())
    }

    /// All migrations, without a database.
    pub(crate) fn migrations(&self) -> Result<Vec<Migration>, Failure> {
        match self.url.as_deref().map(DatabaseUrl::parse).transpose()? {
            None | Some(DatabaseUrl::Sqlite(_)) => {
                self.settings.refuse(Kind::Sqlite)?;
                sqlite::migrations(&self.table)
            }
            Some(DatabaseUrl::Postgres(url)) => {
                self.settings.refuse(Kind::Postgres)?;
                postgres::migrations(&url, &self.table, &self.settings)
            }
            Some(DatabaseUrl::MySql(url)) => {
                self.settings.refuse(Kind::MySql)?;
                mysql::migrations(&url, &self.table, &self.settings)
            }
        }
    }

    fn named(&self) -> Result<&str, Failure> {
        self.url.as_deref().ok_or_else(|| {
            Failure::bad_input("no database is named").hint(
                "set POSTHASTE_DATABASE_URL or --database-url, for example to sqlite:outbox.db, \
                 postgres://user@host/database or mysql://user@host/database",
            )
        })
    }

    fn connect(&self, create: bool) -> Result<Database, Failure> {
        match DatabaseUrl::parse(self.named()?)? {
            DatabaseUrl::Sqlite(path) => {
                self.settings.refuse(Kind::Sqlite)?;
                sqlite::open(&path, &self.table, create)
            }
            DatabaseUrl::Postgres(url) => {
                self.settings.refuse(Kind::Postgres)?;
                postgres::open(&url, &self.table, &self.settings)
            }
            DatabaseUrl::MySql(url) => {
                self.settings.refuse(Kind::MySql)?;
                mysql::open(&url, &self.table, &self.settings)
            }
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
