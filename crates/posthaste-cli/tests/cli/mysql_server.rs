//! A database on a MySQL or MariaDB server, for a test alone.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error, Opts, OptsBuilder, Row, Value};

/// The two kinds of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    MySql,
    MariaDb,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::MySql, Kind::MariaDb];

impl Kind {
    /// Where the server is; `ci/mysql-server` and `ci/mariadb-server` start them.
    fn server_url(self) -> String {
        let (variable, otherwise) = match self {
            Self::MySql => ("POSTHASTE_TEST_MYSQL", "mysql://root@127.0.0.1:33069/mysql"),
            Self::MariaDb => ("POSTHASTE_TEST_MARIADB", "mysql://root@127.0.0.1:3306/mysql"),
        };
        std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
    }

    fn opts(self) -> Opts {
        let opts = Opts::from_url(&self.server_url()).unwrap();
        OptsBuilder::from_opts(opts).prefer_socket(false).into()
    }
}

/// A database, and maybe a user of the same name, that are dropped at the end of the test.
pub(crate) struct OwnDatabase {
    kind: Kind,
    pub(crate) name: String,
}

impl OwnDatabase {
    pub(crate) fn new(kind: Kind) -> Self {
        let name = format!("pt{}", &uuid::Uuid::new_v4().simple().to_string()[..24]);
        let created = execute(kind, &format!("CREATE DATABASE {name} DEFAULT CHARACTER SET utf8mb4"));
        created.unwrap_or_else(|error| panic!("no server at {}: {error}", kind.server_url()));
        Self { kind, name }
    }

    pub(crate) fn url(&self) -> String {
        let url = self.kind.server_url();
        let (server, _) = url.rsplit_once('/').unwrap();
        format!("{server}/{}", self.name)
    }

    /// A user with rights on the outbox, and the URL with which it connects.
    pub(crate) fn user(&self, rights: &str) -> String {
        let name = &self.name;
        self.sql(&format!("CREATE USER {name}@'%' IDENTIFIED BY 'x'"));
        self.sql(&format!("GRANT {rights} ON {{}}.outbox TO {name}@'%'"));
        let opts = self.kind.opts();
        format!("mysql://{name}:x@{}:{}/{name}", opts.ip_or_hostname(), opts.tcp_port())
    }

    /// Runs a statement in which `{}` stands for the database's name, and gives the first value of its last row.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap()
    }

    /// As `sql`, for a statement that may fail.
    pub(crate) fn try_sql(&self, sql: &str) -> Result<String, Error> {
        execute(self.kind, &sql.replace("{}", &self.name))
    }
}

impl Drop for OwnDatabase {
    fn drop(&mut self) {
        for drop in [format!("DROP DATABASE {}", self.name), format!("DROP USER IF EXISTS {}@'%'", self.name)]
        {
            if let Err(error) = execute(self.kind, &drop) {
                eprintln!("the database of a test could not be dropped: {error}");
            }
        }
    }
}

fn execute(kind: Kind, sql: &str) -> Result<String, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut conn = Conn::new(kind.opts()).await?;
        let rows: Vec<Row> = conn.query(sql).await?;
        conn.disconnect().await?;
        let value = rows.last().and_then(|row| row.as_ref(0)).cloned();
        Ok(match value {
            Some(Value::Bytes(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        })
    })
}
