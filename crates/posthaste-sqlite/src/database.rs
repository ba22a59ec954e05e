//! An open database, and its two kinds of transactions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use posthaste::{Error, ErrorKind};
use rusqlite::{Connection, OpenFlags, Params, Row, Transaction, TransactionBehavior, ffi};

use crate::options::{SqliteOptions, Synchronous};
use crate::sql::Sql;
use crate::watch::{Watch, pause, real_now};
use crate::{error, schema, time};

/// More than this crate has statements, so that none is prepared twice.
#[cfg(feature = "cache")]
const STATEMENTS: usize = 64;
/// The page cache, in KiB.
const CACHE_KIB: u32 = 16 * 1024;
/// How long to wait for others before something that can as well be done another time.
const SHORT_WAIT: Duration = Duration::from_millis(250);

/// How long to wait for one's turn to empty the write-ahead log.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to leave a write-ahead log alone that readers did not let go of.
const LEAVE_LOG_ALONE: Duration = Duration::from_secs(10);

/// Where the database is, and how to use it.
#[derive(Debug)]
pub(crate) struct Settings {
    /// Absolute, so that SQLite sees neither a URI nor `:memory:` in it.
    pub(crate) path: PathBuf,
    pub(crate) options: SqliteOptions,
    pub(crate) sql: Arc<Sql>,
}

/// An open database.
pub(crate) struct Database {
    connection: Connection,
    /// Which file was opened.
    file: Option<Identity>,
    settings: Arc<Settings>,
    watch: Watch,
    /// Whether the journal's mode was looked at.
    journal_checked: bool,
    /// Until when the write-ahead log may grow, since readers would not let it be emptied.
    log_left_alone_until: Option<Instant>,
    /// Opened without locks, which is good for one operation only.
    unlocked: bool,
    /// Behind which row the next look for due rows starts, if the last one did not come to the end.
    pub(crate) due_from: Option<DuePlace>,
    /// Behind which position the next look for rows to purge starts.
    pub(crate) purge_from: i64,
}

/// A row among those that wait: the time it waits for, and its position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DuePlace {
    pub(crate) at: i64,
    pub(crate) seq: i64,
}

impl Database {
    pub(crate) fn open(settings: Arc<Settings>, asked: Instant) -> Result<Self, Error> {
        let path = settings.path.as_path();
        if path.is_dir() {
            let text = format!("opening {}: it is a directory, not a database file", path.display());
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let options = &settings.options;
        let watch = Watch::new(options.time_limit, options.busy_timeout);
        watch.start(asked);
        let before = identity(path);
        let opened = connect(path, flags(options), options, &watch);
        let (connection, unlocked) = match opened {
            Ok(connection) => (connection, false),
            Err(source) => match connect_unlocked(path, options, &watch, &source) {
                Some(connection) => (connection, true),
                None => return Err(error::opening(path, source)),
            },
        };
        // Where it was replaced just now, nobody knows which one was opened.
        let file = identity(path).filter(|file| before.is_none_or(|before| before == *file));
        Ok(Self {
            connection,
            file,
            settings,
            watch,
            journal_checked: false,
            log_left_alone_until: None,
            unlocked,
            due_from: None,
            purge_from: i64::MIN,
        })
    }

    /// Whether it must be opened anew: its file was moved, deleted or replaced.
    pub(crate) fn is_stale(&self) -> bool {
        self.unlocked || (cfg!(unix) && self.file != identity(&self.settings.path))
    }

    pub(crate) fn watch(&self) -> &Watch {
        &self.watch
    }

    pub(crate) fn sql(&self) -> &Sql {
        &self.settings.sql
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Runs a transaction that reads one snapshot. It is over when the call is.
    pub(crate) fn read<T>(
        &mut self,
        doing: &'static str,
        step: impl FnOnce(&Step<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.transaction(TransactionBehavior::Deferred, doing, step)
    }

    /// Runs a transaction that writes. It takes the write lock at once, since a transaction that reads first and
    /// writes later fails where another one wrote in between.
    pub(crate) fn write<T>(
        &mut self,
        doing: &'static str,
        step: impl FnOnce(&Step<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        self.refuse_if_read_only(doing)?;
        let value = self.transaction(TransactionBehavior::Immediate, doing, step)?;
        if !self.journal_checked {
            self.use_write_ahead_log();
        }
        if self.log_left_alone_until.is_none_or(|until| real_now() >= until) {
            self.truncate_write_ahead_log();
        }
        Ok(value)
    }

    /// SQLite itself would complain only where something is really written.
    fn refuse_if_read_only(&self, doing: &str) -> Result<(), Error> {
        match self.connection.is_readonly(rusqlite::MAIN_DB) {
            Ok(true) => {
                let path = self.settings.path.display();
                let text = format!("{doing}: the database file {path} cannot be written to");
                Err(Error::new(ErrorKind::ReadOnly, text))
            }
            Ok(false) => Ok(()),
            Err(source) => Err(error::map(doing, source)),
        }
    }

    fn transaction<T>(
        &mut self,
        behavior: TransactionBehavior,
        doing: &'static str,
        step: impl FnOnce(&Step<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, Error> {
        let Self { connection, settings, .. } = self;
        let failed = |source| error::map(doing, source);
        let transaction = connection.transaction_with_behavior(behavior).map_err(failed)?;
        schema::check(&transaction, &settings.sql)?;
        let now = settings.options.clock.now();
        let step_now = Step { transaction: &transaction, sql: &settings.sql, now: time::Now::new(now) };
        let result = step(&step_now).map_err(failed);
        let result = result.and_then(|value| transaction.commit().map_err(failed).map(|()| value));
        result.map_err(|error| schema::explain(&self.connection, &self.settings.sql, error))
    }

    /// Runs a transaction that writes, whatever the schema is.
    pub(crate) fn exclusively<T>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&Transaction<'_>, &Sql) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.refuse_if_read_only(doing)?;
        let failed = |source| error::map(doing, source);
        // The mode is looked at again with the next write: others may have been in the way.
        self.journal_checked = false;
        let behavior = TransactionBehavior::Immediate;
        let transaction = self.connection.transaction_with_behavior(behavior).map_err(failed)?;
        let value = work(&transaction, &self.settings.sql)?;
        transaction.commit().map_err(failed)?;
        Ok(value)
    }

    /// Switches the database to a write-ahead log, so that producers, readers and the relay do not wait for each
    /// other's reads. It stays so. Where somebody is in the way, the database works on as it is.
    pub(crate) fn use_write_ahead_log(&mut self) {
        self.journal_checked = true;
        let pragma =
            |sql| move |connection: &Connection| connection.query_row(sql, [], |row| row.get::<_, String>(0));
        if pragma("PRAGMA main.journal_mode")(&self.connection).is_ok_and(|mode| mode == "wal") {
            return;
        }
        if let Err(error) = self.without_patience(pragma("PRAGMA main.journal_mode = WAL")) {
            tracing::warn!(%error, "the database was left without a write-ahead log");
        }
    }

    /// Does what can as well be done another time, and keeps others waiting while it waits itself.
    fn without_patience<T>(&self, work: impl FnOnce(&Connection) -> T) -> T {
        self.watch.wait_for_locks(SHORT_WAIT);
        let value = work(&self.connection);
        self.watch.wait_for_locks(self.settings.options.busy_timeout);
        value
    }

    /// Empties the write-ahead log if its file is larger than the limit, and nobody reads from it.
    ///
    /// SQLite's automatic checkpoints do not keep it small where several connections write without a break: one
    /// always adds to the log while another one copies from it (measured: 5 GB in 20 s). This one keeps writers out
    /// until it is done, so it is left alone for a while after readers did not let it.
    pub(crate) fn truncate_write_ahead_log(&mut self) {
        let size = file_size(&beside(&self.settings.path, "-wal"));
        if size <= self.settings.options.wal_limit {
            return;
        }
        let end = real_now() + PATIENCE;
        let mut tried = self.without_patience(checkpoint);
        // There can be only one at a time, and SQLite does not wait for its turn.
        while matches!(tried, Ok(Checkpoint::OthersAreAtIt)) && real_now() < end {
            pause(0);
            tried = self.without_patience(checkpoint);
        }
        let is_done = matches!(tried, Ok(Checkpoint::Done));
        self.log_left_alone_until = (!is_done).then(|| real_now() + LEAVE_LOG_ALONE);
        if !is_done {
            tracing::warn!(size, "the write-ahead log is over its limit, but in use: {tried:?}");
        }
    }
}

#[derive(Debug)]
enum Checkpoint {
    Done,
    /// Somebody reads from the log, and it must stay.
    IsRead,
    /// Another connection is copying from it.
    OthersAreAtIt,
}

fn checkpoint(connection: &Connection) -> rusqlite::Result<Checkpoint> {
    connection.query_row("PRAGMA main.wal_checkpoint(TRUNCATE)", [], |row| {
        Ok(match (row.get(0)?, row.get::<_, i64>(1)?) {
            (false, _) => Checkpoint::Done,
            (true, ..0) => Checkpoint::OthersAreAtIt,
            (true, _) => Checkpoint::IsRead,
        })
    })
}

#[cfg(feature = "cache")]
pub(crate) type Statement<'a> = rusqlite::CachedStatement<'a>;
#[cfg(not(feature = "cache"))]
pub(crate) type Statement<'a> = rusqlite::Statement<'a>;

/// Prepares a statement, or takes one that was kept.
pub(crate) fn prepare<'a>(connection: &'a Connection, sql: &str) -> rusqlite::Result<Statement<'a>> {
    #[cfg(feature = "cache")]
    return connection.prepare_cached(sql);
    #[cfg(not(feature = "cache"))]
    connection.prepare(sql)
}

/// A transaction, and what a step of the work needs in it.
pub(crate) struct Step<'a> {
    transaction: &'a Transaction<'a>,
    pub(crate) sql: &'a Sql,
    /// The time after the transaction began.
    pub(crate) now: time::Now,
}

impl<'a> Step<'a> {
    pub(crate) fn prepare(&self, sql: &str) -> rusqlite::Result<Statement<'a>> {
        prepare(self.transaction, sql)
    }

    /// Runs a statement, and says how many rows it changed.
    pub(crate) fn execute(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.prepare(sql)?.execute(params)
    }

    /// The first row, or `None`.
    pub(crate) fn first<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        let mut statement = self.prepare(sql)?;
        let mut rows = statement.query(params)?;
        rows.next()?.map(read).transpose()
    }
}

fn flags(options: &SqliteOptions) -> OpenFlags {
    let mut flags = OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if options.read_only {
        return flags | OpenFlags::SQLITE_OPEN_READ_ONLY;
    }
    flags |= OpenFlags::SQLITE_OPEN_READ_WRITE;
    if options.create { flags | OpenFlags::SQLITE_OPEN_CREATE } else { flags }
}

fn connect(
    path: &Path,
    flags: OpenFlags,
    options: &SqliteOptions,
    watch: &Watch,
) -> rusqlite::Result<Connection> {
    let mut connection = Connection::open_with_flags(path, flags)?;
    #[cfg(feature = "cache")]
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    watch.install(&mut connection)?;
    let synchronous = match options.synchronous {
        Synchronous::Normal => "NORMAL",
        Synchronous::Full => "FULL",
    };
    connection.execute_batch(&format!(
        "PRAGMA main.synchronous = {synchronous}; PRAGMA main.cache_size = -{CACHE_KIB}; \
         PRAGMA main.journal_size_limit = {limit}; PRAGMA main.schema_version",
        limit = i64::try_from(options.wal_limit).unwrap_or(i64::MAX),
    ))?;
    Ok(connection)
}

/// A write-ahead log needs shared memory beside the file. Where this user may not create it, and there is no log
/// that might hold anything, the file alone can be read as it stands.
fn connect_unlocked(
    path: &Path,
    options: &SqliteOptions,
    watch: &Watch,
    source: &rusqlite::Error,
) -> Option<Connection> {
    let code = error::extended_code(source)? & 0xff;
    let lacks_shared_memory = matches!(code, ffi::SQLITE_CANTOPEN | ffi::SQLITE_READONLY);
    if !lacks_shared_memory || file_size(&beside(path, "-wal")) > 0 || std::fs::File::open(path).is_err() {
        return None;
    }
    let name: String = path.to_str()?.chars().fold(String::new(), |mut name, char| {
        match char {
            '%' => name.push_str("%25"),
            '?' => name.push_str("%3f"),
            '#' => name.push_str("%23"),
            other => name.push(other),
        }
        name
    });
    let uri = PathBuf::from(format!("file:{name}?immutable=1"));
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    connect(&uri, flags, options, watch).ok()
}

/// A file that SQLite keeps beside the database.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn file_size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |file| file.len())
}

/// What tells a file from another one at the same path. (SQLite can be asked, but rusqlite passes that on only since
/// 0.42.)
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// An open file cannot be replaced there.
#[cfg(not(unix))]
fn identity(_: &Path) -> Option<Identity> {
    None
}
