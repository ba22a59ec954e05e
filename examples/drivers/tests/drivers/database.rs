//! A database for each test, and what is in it: looked at through a connection that has nothing to do with the driver
//! under test.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use mysql_async::prelude::Queryable;
use posthaste::dialect::SqliteTable;
use posthaste::{Admin, Message, Outbox};
use posthaste_mysql::{MySqlOptions, MySqlStore, Payload};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinHandle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    MySql,
    Sqlite,
}

/// A schema in PostgreSQL, a database in MySQL, or a file.
pub struct Database {
    pub kind: Kind,
    pub name: String,
    pub url: String,
    pub outbox: Outbox,
    pub inbox: posthaste::Inbox,
    pub elsewhere: Mutex<Option<JoinHandle<()>>>,
    _folder: Option<tempfile::TempDir>,
}

pub fn postgres_url() -> String {
    std::env::var("POSTHASTE_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned())
}

/// The server, without a database.
fn mysql_url() -> String {
    let url =
        std::env::var("POSTHASTE_TEST_MARIADB").unwrap_or_else(|_| "mysql://root@127.0.0.1:3306".to_owned());
    let path = url.find("://").and_then(|at| url[at + 3..].find('/').map(|slash| at + 3 + slash));
    path.map_or(url.clone(), |slash| url[..slash].to_owned())
}

fn unique_name() -> String {
    static COUNTER: AtomicU32 = AtomicU32::new(0);
    format!("ph_drivers_{}_{}", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed))
}

impl Database {
    pub async fn new(kind: Kind) -> Self {
        let name = unique_name();
        match kind {
            Kind::Postgres => Self::postgres(name).await,
            Kind::MySql => Self::mysql(name).await,
            Kind::Sqlite => Self::sqlite(name),
        }
    }

    fn with(kind: Kind, name: String, url: String, table: &str, folder: Option<tempfile::TempDir>) -> Self {
        let (outbox, inbox) = (Outbox::new(table).unwrap(), posthaste::Inbox::new(table).unwrap());
        Self { kind, name, url, outbox, inbox, elsewhere: Mutex::default(), _folder: folder }
    }

    async fn postgres(name: String) -> Self {
        let url = postgres_url();
        let client = postgres_client(&url).await;
        client
            .batch_execute(&format!(
                "DROP SCHEMA IF EXISTS {name} CASCADE; CREATE SCHEMA {name};
                 CREATE TABLE {name}.orders (id bigint PRIMARY KEY)"
            ))
            .await
            .unwrap();
        let table = format!("{name}.outbox");
        let mut options = PostgresOptions::new(&url);
        options.table.clone_from(&table);
        PostgresStore::new(options).unwrap().migrate().await.unwrap();
        Self::with(Kind::Postgres, name, url, &table, None)
    }

    async fn mysql(name: String) -> Self {
        let server = mysql_async::Pool::new(mysql_url().as_str());
        let mut connection = server.get_conn().await.unwrap();
        for statement in [
            format!("DROP DATABASE IF EXISTS {name}"),
            format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"),
            format!("USE {name}"),
            "CREATE TABLE orders (id BIGINT PRIMARY KEY)".to_owned(),
        ] {
            connection.query_drop(statement).await.unwrap();
        }
        drop(connection);
        server.disconnect().await.unwrap();
        let url = format!("{}/{name}", mysql_url());
        let options = MySqlOptions::new(&url).payload(Payload::Binary);
        MySqlStore::new(options).unwrap().migrate().await.unwrap();
        Self::with(Kind::MySql, name, url, "outbox", None)
    }

    fn sqlite(name: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("outbox.db");
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE orders (id INTEGER PRIMARY KEY)")
            .unwrap();
        let table = SqliteTable::new("outbox").unwrap();
        for migration in [
            include_str!("../../../../crates/posthaste-sqlite/migrations/0001_create_outbox.sql"),
            include_str!("../../../../crates/posthaste-sqlite/migrations/0002_inbox.sql"),
        ] {
            connection.execute_batch(&table.fill_names(migration)).unwrap();
        }
        let url = path.to_str().unwrap().to_owned();
        Self::with(Kind::Sqlite, name, url, "outbox", Some(folder))
    }

    /// The table of the business.
    pub fn orders(&self) -> String {
        if self.kind == Kind::Postgres { format!("{}.orders", self.name) } else { "orders".to_owned() }
    }

    /// The event types of what was committed, in their order; and how many orders were.
    pub async fn committed(&self) -> (Vec<String>, i64) {
        let (messages, orders) = match self.kind {
            Kind::Postgres => {
                (format!("SELECT event_type FROM {}.outbox ORDER BY seq", self.name), self.orders())
            }
            Kind::MySql => {
                ("SELECT event_type FROM outbox ORDER BY created_at, id".to_owned(), self.orders())
            }
            Kind::Sqlite => ("SELECT event_type FROM outbox ORDER BY seq".to_owned(), self.orders()),
        };
        (self.texts(&messages).await, self.number(&format!("SELECT count(*) FROM {orders}")).await)
    }

    pub async fn texts(&self, sql: &str) -> Vec<String> {
        match self.kind {
            Kind::Postgres => {
                let rows = postgres_client(&self.url).await.query(sql, &[]).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
            Kind::MySql => self.mysql_connection().await.query(sql).await.unwrap(),
            Kind::Sqlite => {
                let connection = rusqlite::Connection::open(&self.url).unwrap();
                let mut statement = connection.prepare(sql).unwrap();
                let rows = statement.query_map([], |row| row.get(0)).unwrap();
                rows.map(Result::unwrap).collect()
            }
        }
    }

    pub async fn number(&self, sql: &str) -> i64 {
        match self.kind {
            Kind::Postgres => postgres_client(&self.url).await.query_one(sql, &[]).await.unwrap().get(0),
            Kind::MySql => self.mysql_connection().await.query_first(sql).await.unwrap().unwrap(),
            Kind::Sqlite => {
                let connection = rusqlite::Connection::open(&self.url).unwrap();
                connection.query_row(sql, [], |row| row.get(0)).unwrap()
            }
        }
    }

    /// Enqueues and commits a message through a connection of its own.
    pub async fn commit_elsewhere(&self, message: &Message) {
        match self.kind {
            Kind::Postgres => {
                let mut client = postgres_client(&self.url).await;
                let tx = client.transaction().await.unwrap();
                self.outbox.enqueue(&tx, message).await.unwrap();
                tx.commit().await.unwrap();
            }
            Kind::MySql => {
                let mut connection = self.mysql_connection().await;
                let mut tx = connection.start_transaction(mysql_async::TxOpts::default()).await.unwrap();
                self.outbox.enqueue(&mut tx, message).await.unwrap();
                tx.commit().await.unwrap();
            }
            Kind::Sqlite => {
                // The version of rusqlite may be one without an adapter.
                let connection = rusqlite::Connection::open(&self.url).unwrap();
                connection
                    .execute("INSERT INTO outbox (event_type) VALUES (?1)", [message.event_type()])
                    .unwrap();
            }
        }
    }

    pub async fn mysql_connection(&self) -> mysql_async::Conn {
        mysql_async::Conn::from_url(&self.url).await.unwrap()
    }
}

impl Drop for Database {
    /// Best effort, on a thread with a runtime of its own.
    fn drop(&mut self) {
        let (kind, name, url) = (self.kind, self.name.clone(), self.url.clone());
        let clean = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                match kind {
                    Kind::Postgres => {
                        let client = postgres_client(&url).await;
                        let drop = format!("SET lock_timeout = '5s'; DROP SCHEMA IF EXISTS {name} CASCADE");
                        let _ = client.batch_execute(&drop).await;
                    }
                    Kind::MySql => {
                        if let Ok(mut connection) = mysql_async::Conn::from_url(&url).await {
                            let _ = connection.query_drop("SET lock_wait_timeout = 5").await;
                            let _ = connection.query_drop(format!("DROP DATABASE IF EXISTS {name}")).await;
                        }
                    }
                    Kind::Sqlite => {}
                }
            });
        };
        let _ = std::thread::spawn(clean).join();
    }
}

pub async fn postgres_client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
