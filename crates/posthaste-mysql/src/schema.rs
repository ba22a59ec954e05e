//! The schema: what it is brought to, and how far it is.
//!
//! DDL here is not part of a transaction. So every statement can be run again, what is missing is found by looking, and a
//! migration is noted only when all of it is done: one that was cut off anywhere is repeated.

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste::dialect::MySqlTable;
use posthaste::{Error, ErrorKind, Migration};

use crate::connection::{Session, Use, first, get};
use crate::error::Failure;
use crate::layout::{self, Found};
use crate::store::{Inner, MySqlStore};
use crate::value::{int, list, text};

const OUTBOX: i64 = 1;
const INBOX: i64 = 2;
/// The newest migration that this version knows.
const NEWEST: i64 = INBOX;
const DOING: &str = "migrating";
const LOOKING: &str = "looking at the schema";
/// How long a migration may take in all: a large table takes long to get an index.
const LONGEST: Duration = Duration::from_hours(24);

/// Every migration of this version.
pub(crate) const ALL: [i64; 2] = [OUTBOX, INBOX];

const SIDE_TABLES: [&str; 5] = ["migrations", "lane", "relay", "key", "inbox"];

/// The ways in which a table can be changed, the gentlest first.
const WAYS: [&str; 3] = ["ALGORITHM=INSTANT", "ALGORITHM=INPLACE, LOCK=NONE", "ALGORITHM=COPY"];

/// How far a schema is.
struct State {
    versions: Vec<i64>,
    outbox: Option<Found>,
}

impl Inner {
    /// All migrations, as they are for these options.
    pub(crate) fn migrations(&self) -> Vec<Migration> {
        let migration = |version, name: &str, sql| Migration { version, name: name.to_owned(), sql };
        let noted = |version: i64, name: &str, sql: String| {
            let note = self.sql.note_migration.bind(&[("version", int(version)), ("name", text(name))]);
            migration(version, name, format!("{sql}\n{note};\n"))
        };
        vec![
            noted(OUTBOX, "outbox", layout::outbox(&self.table, &self.options)),
            noted(INBOX, "inbox", layout::inbox(&self.table)),
        ]
    }

    pub(crate) async fn migrate(&self, wanted: &[i64]) -> Result<Vec<Migration>, Error> {
        let session = self.connections.apart(LONGEST, self.options.migration_timeout).await;
        let mut session = session.map_err(|failure| self.migration_error(failure))?;
        let migrated = self.migrate_in(&mut session, wanted).await;
        // The connection is closed, and with it the lock is given back.
        migrated.map_err(|failure| self.migration_error(failure))
    }

    /// Under a lock of this outbox's, which ends with the connection.
    async fn migrate_in(&self, session: &mut Session, wanted: &[i64]) -> Result<Vec<Migration>, Failure> {
        let name = format!("{}.{}", self.database, self.table.derived(""));
        let seconds = self.options.migration_timeout.as_secs().max(1);
        // A hash, as names of locks are short.
        let lock = format!(
            "SELECT GET_LOCK(CONCAT('posthaste:', LEFT(SHA2({}, 256), 50)), {seconds}) AS locked",
            text(&name).as_sql()
        );
        let locked: Option<i64> = first(&session.rows(&lock).await?, "locked")?;
        if locked != Some(1) {
            let text = "another migration of the same outbox is at it; try again when it is done";
            return Err(Error::new(ErrorKind::Unavailable, text).into());
        }
        let state = self.state(session).await?;
        let mut missing = self.migrations();
        missing.retain(|it| wanted.contains(&it.version) && !state.versions.contains(&it.version));
        for migration in &missing {
            self.apply(session, migration).await?;
            tracing::info!(version = migration.version, name = migration.name, "migration applied");
        }
        Ok(missing)
    }

    async fn apply(&self, session: &mut Session, migration: &Migration) -> Result<(), Failure> {
        let mut statements = layout::statements(&migration.sql);
        let note = statements.pop();
        for statement in statements {
            session.ask(&statement).await?;
        }
        if migration.version == OUTBOX {
            self.complete(session).await?;
        }
        if let Some(note) = note {
            session.ask(&note).await?;
        }
        Ok(())
    }

    /// Adds what an outbox lacks that somebody else made, or a migration that was cut off.
    async fn complete(&self, session: &mut Session) -> Result<(), Failure> {
        let Some(found) = self.found(session).await? else { return Ok(()) };
        found.check(&self.table)?;
        for change in found.changes(self.options.lanes) {
            self.alter(session, &change).await?;
        }
        Ok(())
    }

    /// Makes one change in the gentlest way that the server takes, and says so before it copies the table.
    async fn alter(&self, session: &mut Session, change: &str) -> Result<(), Failure> {
        for way in WAYS {
            let statement = format!("ALTER TABLE {} {change}, {way}", self.table);
            if way == WAYS[2] {
                tracing::warn!(statement, "this copies the whole table; producers wait until it is done");
            } else {
                tracing::info!(statement, "completing the outbox");
            }
            match session.ask(&statement).await {
                // 1845, 1846: not in this way; 1221: not with this statement.
                Err(failure) if way != WAYS[2] && matches!(failure.code(), Some(1845 | 1846 | 1221)) => {}
                // 1060, 1061: it is there already, by a migration that was cut off.
                Err(failure) if matches!(failure.code(), Some(1060 | 1061)) => return Ok(()),
                other => return other.map(|_answers| ()),
            }
        }
        Ok(())
    }

    /// What stands under the outbox's name.
    async fn found(&self, session: &mut Session) -> Result<Option<Found>, Failure> {
        let name = [("database", text(&self.database)), ("table", text(&self.table.derived("")))];
        let mut answers = Vec::new();
        for statement in [&self.sql.table_found, &self.sql.columns_found, &self.sql.indexes_found] {
            answers.push(session.rows(&statement.bind(&name)).await?);
        }
        let Some(table) = answers[0].first() else { return Ok(None) };
        let pairs = |rows: &[mysql_async::Row], second: &str| {
            rows.iter()
                .map(|row| Ok((get(row, "name")?, get(row, second)?)))
                .collect::<Result<Vec<_>, Failure>>()
        };
        Ok(Some(Found {
            engine: get::<Option<String>>(table, "engine")?.unwrap_or_default(),
            copies_for_generated: session.server().is_mariadb
                && get::<Option<bool>>(table, "partitioned")?.unwrap_or_default(),
            columns: pairs(&answers[1], "type")?,
            indexes: pairs(&answers[2], "columns")?,
        }))
    }

    /// The names of the side tables that are there. Each must be of an engine that knows transactions and locks of rows.
    async fn side_tables(&self, session: &mut Session) -> Result<BTreeSet<String>, Failure> {
        let names = SIDE_TABLES.map(|suffix| self.table.derived(suffix));
        let tables = list(names.iter().map(|name| text(name)));
        let found = self.sql.tables_found.bind(&[("database", text(&self.database)), ("tables", tables)]);
        let mut there = BTreeSet::new();
        for row in session.rows(&found).await? {
            let (name, engine): (String, Option<String>) = (get(&row, "name")?, get(&row, "engine")?);
            layout::check_engine(&MySqlTable::quote(&name), engine.as_deref().unwrap_or_default())?;
            there.insert(name);
        }
        Ok(there)
    }

    async fn state(&self, session: &mut Session) -> Result<State, Failure> {
        let names = ["migrations", "inbox"].map(|suffix| self.table.derived(suffix));
        let there = self.side_tables(session).await?;
        let outbox = self.found(session).await?;
        if !there.contains(&names[0]) {
            if there.contains(&names[1]) {
                return Err(self.foreign().into());
            }
            if let Some(found) = &outbox {
                found.check(&self.table)?;
            }
            return Ok(State { versions: Vec::new(), outbox });
        }
        let rows = match session.rows(&self.sql.migrations.text()).await {
            Err(failure) if failure.code() == Some(1054) => return Err(self.foreign().into()),
            rows => rows?,
        };
        let versions: Vec<i64> = rows.iter().map(|row| get(row, "version")).collect::<Result<_, _>>()?;
        check_version(versions.iter().max().copied())
            .or_else(|error| if versions.is_empty() { Ok(()) } else { Err(error) })?;
        if versions.contains(&OUTBOX) && !outbox.as_ref().is_some_and(Found::is_complete) {
            return Err(self.foreign().into());
        }
        Ok(State { versions, outbox })
    }

    /// A table of that name that is no outbox.
    fn foreign(&self) -> Error {
        let text = format!(
            "{} or one of its side tables exists, but was not made by posthaste, or not all of it is there; \
             choose another name",
            self.table
        );
        Error::new(ErrorKind::ForeignTable, text)
    }

    fn migration_error(&self, failure: Failure) -> Error {
        let grants = format!("CREATE, ALTER, INDEX, SELECT and INSERT on the database {}", self.database);
        failure.into_error(DOING, &grants)
    }

    pub(crate) async fn pending_migrations(&self) -> Result<Vec<Migration>, Error> {
        let mut session = self.session(Use::Other, LOOKING).await?;
        let state = self.state(&mut session).await;
        let state = session.done(state).await.map_err(|failure| {
            failure.into_error(LOOKING, &format!("SELECT on {}", self.table.qualified("migrations")))
        })?;
        let mut migrations = self.migrations();
        migrations.retain(|migration| !state.versions.contains(&migration.version));
        Ok(migrations)
    }

    /// What a migration would change about an outbox that is there: the changes themselves.
    pub(crate) async fn changes(&self) -> Result<Vec<String>, Error> {
        let mut session = self.session(Use::Other, LOOKING).await?;
        let state = self.state(&mut session).await;
        let state = session.done(state).await.map_err(|failure| self.error(LOOKING, failure))?;
        let found = state.outbox.filter(|_| !state.versions.contains(&OUTBOX));
        Ok(found.map(|found| found.changes(self.options.lanes)).unwrap_or_default())
    }

    /// Refuses a table that is there and cannot be worked with.
    pub(crate) async fn check_table(&self, session: &mut Session) -> Result<(), Failure> {
        self.side_tables(session).await?;
        let Some(found) = self.found(session).await? else { return Ok(()) };
        Ok(found.check(&self.table)?)
    }
}

impl MySqlStore {
    /// Brings only the inbox up to date, for a service that consumes and has no outbox.
    ///
    /// # Errors
    /// As [`Admin::migrate`](posthaste::Admin::migrate).
    ///
    /// # Cancel safety
    /// A dropped future leaves the migration done in part; the next one completes it.
    pub async fn migrate_inbox(&self) -> Result<Vec<Migration>, Error> {
        self.0.migrate(&[INBOX]).await
    }

    /// What a migration would change about an outbox that is there and was made by somebody else, as parts of
    /// `ALTER TABLE`. Nothing where there is no such table, or nothing is missing.
    ///
    /// Each is done without copying the table where the server can (`ALGORITHM=INSTANT`, then `INPLACE, LOCK=NONE`);
    /// adding an index reads the whole table. A change for which the server copies the table, while producers wait, says so in a
    /// comment (MariaDB does that to partitioned tables), and before it is made a warning is logged.
    ///
    /// # Errors
    /// [`ErrorKind::ForeignTable`] if the table cannot be an outbox, and what the database reports.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn changes_to_adopt(&self) -> Result<Vec<String>, Error> {
        self.0.changes().await
    }
}

/// Checks that the newest migration is one that this version knows.
pub(crate) fn check_version(version: Option<i64>) -> Result<(), Error> {
    match version {
        Some(version) if version > NEWEST => {
            let text = format!(
                "the tables are of schema version {version}, this program knows versions up to {NEWEST}; upgrade it"
            );
            Err(Error::new(ErrorKind::SchemaTooNew, text))
        }
        Some(_) => Ok(()),
        None => {
            Err(Error::new(ErrorKind::NotMigrated, "the outbox has no migrations; run `posthaste migrate`"))
        }
    }
}
