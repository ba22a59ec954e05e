//! The databases on which the faults are tried.

use std::net::SocketAddr;

use crate::mysql_server::Kind;
use crate::support::Bed;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
    MySql,
    MariaDb,
}

impl Database {
    /// An outbox of its own for each use. A missing server is a failure.
    pub(crate) fn bed(self) -> Bed {
        match self {
            Self::Sqlite => Bed::new(),
            Self::Postgres => Bed::on_postgres().expect("a PostgreSQL server"),
            Self::MySql => Bed::on_mysql(Kind::MySql),
            Self::MariaDb => Bed::on_mysql(Kind::MariaDb),
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MySQL",
            Self::MariaDb => "MariaDB",
        }
    }
}

/// Where the server of an outbox is.
pub(crate) fn address(bed: &Bed) -> String {
    let url = bed.url();
    let authority = url.split("://").nth(1).unwrap();
    authority.split(['/', '?']).next().unwrap().rsplit('@').next().unwrap().to_owned()
}

/// The outbox by way of a proxy, on connections that can be told from others.
pub(crate) fn url_by(bed: &Bed, proxy: SocketAddr) -> String {
    url_as(bed).replace(&address(bed), &proxy.to_string())
}

/// The outbox, on connections that can be told from others.
pub(crate) fn url_as(bed: &Bed) -> String {
    let url = bed.url();
    if url.starts_with("postgres:") { format!("{url}&application_name={}", bed.schema().name) } else { url }
}

/// How many sessions the server has for relays and producers of this outbox.
pub(crate) fn sessions(bed: &Bed, database: Database) -> usize {
    let count = match database {
        Database::Sqlite => return 0,
        Database::Postgres => {
            bed.schema().sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'")
        }
        Database::MySql | Database::MariaDb => {
            bed.mysql().sql("SELECT count(*) FROM information_schema.processlist WHERE db = '{}'")
        }
    };
    count.parse().unwrap()
}

/// Cuts a session off, whoever it belongs to. Says whether there was one.
pub(crate) fn cut_a_session(bed: &Bed, database: Database) -> bool {
    match database {
        Database::Sqlite => false,
        Database::Postgres => {
            let sql = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity \
                       WHERE application_name = '{}' ORDER BY random() LIMIT 1) one";
            bed.schema().sql(sql) != "0"
        }
        Database::MySql | Database::MariaDb => {
            let sql = "SELECT id FROM information_schema.processlist WHERE db = '{}' ORDER BY rand() LIMIT 1";
            let session = bed.mysql().sql(sql);
            // It may have gone by itself in the meantime.
            !session.is_empty() && bed.mysql().try_sql(&format!("KILL {session}")).is_ok()
        }
    }
}

/// How much room the outbox takes, in bytes.
pub(crate) fn size(bed: &Bed, database: Database) -> u64 {
    let size = match database {
        Database::Sqlite => {
            let length = |suffix: &str| {
                let path = format!("{}{suffix}", bed.database().display());
                std::fs::metadata(path).map_or(0, |metadata| metadata.len())
            };
            return length("") + length("-wal");
        }
        Database::Postgres => bed.schema().sql(
            "SELECT COALESCE(sum(pg_total_relation_size(oid)), 0) FROM pg_class \
             WHERE relnamespace = '{}'::regnamespace AND relkind = 'r' AND relname LIKE 'outbox%'",
        ),
        Database::MySql => bed.mysql().sql(
            "SELECT COALESCE(sum(file_size), 0) FROM information_schema.innodb_tablespaces \
             WHERE name LIKE '{}/outbox%'",
        ),
        Database::MariaDb => bed.mysql().sql(
            "SELECT COALESCE(sum(file_size), 0) FROM information_schema.innodb_sys_tablespaces \
             WHERE name LIKE '{}/outbox%'",
        ),
    };
    size.parse().unwrap()
}

/// Whether somebody is in the middle of writing to the file of a `SQLite` database.
pub(crate) fn is_locked(bed: &Bed) -> bool {
    let connection = rusqlite::Connection::open(bed.database()).unwrap();
    connection.busy_timeout(std::time::Duration::ZERO).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_err()
}
