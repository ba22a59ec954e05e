//! The schema: what it should be, what it is, and how to get there.

use posthaste::{Error, ErrorKind, Migration};
use rusqlite::Connection;

use crate::database::{Database, prepare};
use crate::error;
use crate::sql::Sql;
use posthaste::dialect::SqliteTable as TableName;

/// The version that this crate works with.
pub(crate) const VERSION: i64 = posthaste::dialect::SQLITE_SCHEMA;

const FIRST: i64 = 1;

const MIGRATIONS: &[(i64, &str, &str)] = &[
    (FIRST, "create outbox", include_str!("../migrations/0001_create_outbox.sql")),
    (VERSION, "inbox", include_str!("../migrations/0002_inbox.sql")),
];

/// The names beside the outbox itself that the migrations take.
const SUFFIXES: &[&str] =
    &["migrations", "id", "ready", "waiting", "held", "dead", "key", "relay", "lane", "inbox"];

/// All migrations, with the table's name filled in.
pub(crate) fn migrations(table: &TableName) -> Vec<Migration> {
    let migration = |&(version, name, sql): &(i64, &str, &str)| Migration {
        version,
        name: name.to_owned(),
        sql: table.fill_names(sql),
    };
    MIGRATIONS.iter().map(migration).collect()
}

/// Says whether this crate can work with the schema.
pub(crate) fn check(connection: &Connection, sql: &Sql) -> Result<(), Error> {
    match version(connection, sql)? {
        Some(VERSION) => Ok(()),
        Some(_) => Err(not_migrated(sql, "is older than this version needs")),
        None => Err(not_migrated(sql, "does not exist")),
    }
}

/// The migrations that are not applied yet.
pub(crate) fn pending(connection: &Connection, sql: &Sql) -> Result<Vec<Migration>, Error> {
    let version = version(connection, sql)?.unwrap_or(0);
    Ok(migrations(&sql.table).into_iter().filter(|migration| migration.version > version).collect())
}

/// Brings the schema up to date, in one transaction.
pub(crate) fn migrate(database: &mut Database) -> Result<Vec<Migration>, Error> {
    if pending(database.connection(), database.sql())?.is_empty() {
        return Ok(Vec::new());
    }
    database.watch().no_time_limit();
    database.use_write_ahead_log();
    database.exclusively("migrating", |transaction, sql| {
        // Others may have been at it meanwhile.
        let pending = pending(transaction, sql)?;
        if pending.first().is_some_and(|first| first.version == FIRST) {
            refuse_taken_names(transaction, sql)?;
        }
        for migration in &pending {
            transaction.execute_batch(&migration.sql).map_err(|source| error::map("migrating", source))?;
        }
        Ok(pending)
    })
}

/// Replaces an error that comes from a missing table by one that says so.
pub(crate) fn explain(connection: &Connection, sql: &Sql, error: Error) -> Error {
    if !error::is_about_the_schema(&error) {
        return error;
    }
    if let Err(reason) = check(connection, sql) {
        return reason;
    }
    match find(connection, sql, sql.table.as_str()) {
        Ok(None) => not_migrated(sql, "does not exist any more, although its side tables do"),
        _ => error,
    }
}

/// The version of the schema, or `None` where there is none.
fn version(connection: &Connection, sql: &Sql) -> Result<Option<i64>, Error> {
    match ask_version(connection, sql) {
        Err(error) if error::is_about_the_schema(&error) => {}
        answer => return answer.map(Some),
    }
    for name in [sql.table.derived("migrations"), sql.table.as_str().to_owned()] {
        if find(connection, sql, &name)?.is_some() {
            // Somebody may have migrated it between the two looks.
            return match ask_version(connection, sql) {
                Err(error) if error::is_about_the_schema(&error) => Err(foreign(&name)),
                answer => answer.map(Some),
            };
        }
    }
    Ok(None)
}

fn ask_version(connection: &Connection, sql: &Sql) -> Result<i64, Error> {
    let asked = prepare(connection, &sql.version)
        .and_then(|mut statement| statement.query_row([], |row| row.get::<_, Option<i64>>(0)));
    match asked.map_err(|source| error::map("looking at the schema", source))? {
        Some(version) if version > VERSION => Err(Error::new(
            ErrorKind::SchemaTooNew,
            format!(
                "the schema of {:?} has version {version}, and this program knows {VERSION}: upgrade this program",
                sql.table.as_str()
            ),
        )),
        Some(version) => Ok(version),
        None => Err(foreign(&sql.table.derived("migrations"))),
    }
}

fn refuse_taken_names(connection: &Connection, sql: &Sql) -> Result<(), Error> {
    for suffix in SUFFIXES {
        let name = sql.table.derived(suffix);
        if find(connection, sql, &name)?.is_some() {
            return Err(foreign(&name));
        }
    }
    Ok(())
}

/// The table or index of a name, if there is one.
fn find(connection: &Connection, sql: &Sql, name: &str) -> Result<Option<String>, Error> {
    let found = prepare(connection, &sql.tables).and_then(|mut statement| {
        let mut rows = statement.query([name])?;
        rows.next()?.map(|row| row.get(0)).transpose()
    });
    found.map_err(|source| error::map("looking at the schema", source))
}

fn foreign(name: &str) -> Error {
    let text =
        format!("{name:?} exists, but it is not part of a Posthaste outbox; choose another table name");
    Error::new(ErrorKind::ForeignTable, text)
}

fn not_migrated(sql: &Sql, what: &str) -> Error {
    let text = format!("the outbox {:?} {what}; run `posthaste migrate`", sql.table.as_str());
    Error::new(ErrorKind::NotMigrated, text)
}
