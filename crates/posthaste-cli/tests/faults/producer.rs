//! A producer: transactions that enqueue, on any of the databases, and end in all ways.

use mysql_async::prelude::Queryable;
use posthaste::{Error, ErrorKind, Message, Outbox};
use tokio::runtime::Runtime;

use crate::support::Bed;

/// How a transaction ended that did not end as it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It lost against another one (deadlock, serialization failure, lock wait), and is undone.
    Conflict,
    /// The connection broke.
    Broken,
}

/// A connection of a producer's own.
pub(crate) struct Producer {
    runtime: Runtime,
    session: Session,
    outbox: Outbox,
    /// What stands before the names of tables.
    prefix: String,
}

enum Session {
    Sqlite(Box<rusqlite::Connection>),
    Postgres(tokio_postgres::Client),
    MySql(Box<mysql_async::Conn>),
}

impl Producer {
    pub(crate) fn new(bed: &Bed) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let (session, prefix) = runtime.block_on(connect(bed));
        let outbox = Outbox::new(&format!("{prefix}outbox")).unwrap();
        Self { runtime, session, outbox, prefix }
    }

    /// Begins a transaction with SQL of the database (`BEGIN …`).
    pub(crate) fn begin(&mut self, serializable: bool) -> Result<(), Ended> {
        match (&self.session, serializable) {
            (Session::Sqlite(_), _) => self.execute("BEGIN IMMEDIATE"),
            (Session::Postgres(_), false) => self.execute("BEGIN"),
            (Session::Postgres(_), true) => self.execute("BEGIN ISOLATION LEVEL SERIALIZABLE"),
            (Session::MySql(_), _) => {
                let level = if serializable { "SERIALIZABLE" } else { "READ COMMITTED" };
                self.execute(&format!("SET TRANSACTION ISOLATION LEVEL {level}"))?;
                self.execute("START TRANSACTION")
            }
        }
    }

    /// Enqueues in the transaction.
    pub(crate) fn enqueue(&mut self, messages: &[Message]) -> Result<(), Ended> {
        let Self { runtime, session, outbox, .. } = self;
        let enqueued = match session {
            Session::Sqlite(connection) => {
                outbox.enqueue_all(posthaste::rusqlite::InTransaction(connection), messages)
            }
            Session::Postgres(client) => runtime
                .block_on(outbox.enqueue_all(posthaste::tokio_postgres_0_7::InTransaction(client), messages)),
            Session::MySql(conn) => runtime
                .block_on(outbox.enqueue_all(posthaste::mysql_async_0_37::InTransaction(conn), messages)),
        };
        enqueued.map(|_| ()).map_err(|error| ended_by(&error))
    }

    /// Runs a statement without parameters, in which `{}` stands before the names of tables.
    pub(crate) fn execute(&mut self, sql: &str) -> Result<(), Ended> {
        let sql = &sql.replace("{}", &self.prefix);
        match &mut self.session {
            Session::Sqlite(connection) => connection.execute_batch(sql).map_err(|error| {
                assert!(
                    matches!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::DatabaseBusy)),
                    "{sql}: {error}"
                );
                Ended::Conflict
            }),
            Session::Postgres(client) => self.runtime.block_on(client.batch_execute(sql)).map_err(|error| {
                match error.code().map(tokio_postgres::error::SqlState::code) {
                    Some("40001" | "40P01") => Ended::Conflict,
                    Some(code) if !code.starts_with("57") && !code.starts_with("25") => {
                        panic!("{sql}: {error:?}")
                    }
                    _ => Ended::Broken,
                }
            }),
            Session::MySql(conn) => {
                self.runtime.block_on(conn.query_drop(sql)).map_err(|error| match error {
                    mysql_async::Error::Server(error) if [1205, 1213, 1020].contains(&error.code) => {
                        Ended::Conflict
                    }
                    mysql_async::Error::Server(error)
                        if error.code < 2000 && ![1053, 1317, 1927].contains(&error.code) =>
                    {
                        panic!("{sql}: {error:?}")
                    }
                    _ => Ended::Broken,
                })
            }
        }
    }

    pub(crate) fn commit(&mut self) -> Result<(), Ended> {
        self.execute("COMMIT")
    }

    pub(crate) fn roll_back(&mut self) -> Result<(), Ended> {
        match &self.session {
            // It was refused before it began.
            Session::Sqlite(connection) if connection.is_autocommit() => Ok(()),
            _ => self.execute("ROLLBACK"),
        }
    }

    /// The number that a query gives.
    pub(crate) fn number(&mut self, sql: &str) -> i64 {
        let sql = &sql.replace("{}", &self.prefix);
        match &mut self.session {
            Session::Sqlite(connection) => connection.query_row(sql, [], |row| row.get(0)).unwrap(),
            Session::Postgres(client) => self.runtime.block_on(client.query_one(sql, &[])).unwrap().get(0),
            Session::MySql(conn) => self.runtime.block_on(conn.query_first(sql)).unwrap().unwrap(),
        }
    }

    /// Enqueues and commits, without anybody in the way.
    pub(crate) fn place(&mut self, messages: &[Message]) {
        self.begin(false).unwrap();
        self.enqueue(messages).unwrap();
        self.commit().unwrap();
    }
}

fn ended_by(error: &Error) -> Ended {
    match error.kind() {
        ErrorKind::Conflict => Ended::Conflict,
        ErrorKind::Unavailable => Ended::Broken,
        _ => panic!("{error:?}"),
    }
}

/// A connection, and what stands before the names of tables on it.
async fn connect(bed: &Bed) -> (Session, String) {
    let url = bed.url();
    if url.starts_with("sqlite:") {
        let mut connection = rusqlite::Connection::open(bed.database()).unwrap();
        posthaste_sqlite::fair_busy_timeout(&mut connection, std::time::Duration::from_secs(30)).unwrap();
        (Session::Sqlite(Box::new(connection)), String::new())
    } else if url.starts_with("postgres:") {
        let server = crate::server::server_url();
        let (client, connection) = tokio_postgres::connect(&server, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        let named = format!("SET application_name = '{}'", bed.schema().name);
        client.batch_execute(&named).await.unwrap();
        (Session::Postgres(client), format!("{}.", bed.schema().name))
    } else {
        let opts = mysql_async::Opts::from_url(&url).unwrap();
        let opts = mysql_async::OptsBuilder::from_opts(opts).prefer_socket(false);
        let mut conn = mysql_async::Conn::new(opts).await.unwrap();
        conn.query_drop("SET innodb_lock_wait_timeout = 10").await.unwrap();
        (Session::MySql(Box::new(conn)), String::new())
    }
}

/// Messages of a key, whose payload says which in the key each is.
pub(crate) fn messages(key: &str, numbers: std::ops::Range<usize>) -> Vec<Message> {
    numbers.map(|number| Message::new("e").aggregate("k", key).payload(number.to_string())).collect()
}
