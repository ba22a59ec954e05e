//! A database of its own on MySQL or MariaDB.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, IsolationLevel, Row, Statement, TxOpts, Value};
use posthaste::{Admin, Message, Outbox, Store};
use posthaste_mysql::{MySqlOptions, MySqlStore, Partition, Payload};
use tokio::sync::Mutex;

use super::super::gauge::cpu_of_family;
use super::super::load::Load;
use super::{Count, Counters, Ground, Hand, Way, failed};
use crate::database::{Every, Layout};
use crate::failure::Failure;

pub(super) struct MySqlGround {
    name: String,
    options: MySqlOptions,
    conn: Mutex<Conn>,
    /// The server's process, if it runs on this machine.
    server: Option<u32>,
}

impl MySqlGround {
    pub(super) async fn make(url: &str, name: String, load: &Load) -> Result<Self, Failure> {
        let mut conn = MySqlStore::new(MySqlOptions::new(url))?.client().await?;
        let server = process(&mut conn).await;
        let mut options = MySqlOptions::new(with_database(url, &name));
        options.payload = match load.layout {
            Some(Layout::Binary) => Payload::Binary,
            Some(Layout::Json) | None => Payload::Json,
        };
        options.partition = load.partition.map(|every| match every {
            Every::Day => Partition::Day,
            Every::Month => Partition::Month,
        });
        let create = format!("CREATE DATABASE {name} DEFAULT CHARACTER SET utf8mb4");
        conn.query_drop(create).await.map_err(failed)?;
        let ground = Self { name, options, conn: Mutex::new(conn), server };
        let made = ground.fill(load).await;
        if made.is_err() {
            ground.remove().await?;
        }
        made.map(|()| ground)
    }

    async fn fill(&self, load: &Load) -> Result<(), Failure> {
        MySqlStore::new(self.options.clone())?.migrate().await?;
        let payload = if load.layout == Some(Layout::Binary) { "LONGBLOB" } else { "JSON" };
        self.run(&format!(
            "CREATE TABLE {}.bare (id BINARY(16) NOT NULL PRIMARY KEY, aggregate_type VARCHAR(128) NOT NULL, \
             aggregate_id VARCHAR(128) NOT NULL, event_type VARCHAR(128) NOT NULL, payload {payload} NOT NULL, \
             content_type VARCHAR(128) NULL, created_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)) \
             ENGINE=InnoDB",
            self.name
        ))
        .await
    }

    async fn run(&self, sql: &str) -> Result<(), Failure> {
        self.conn.lock().await.query_drop(sql).await.map_err(failed)
    }

    /// A counter of the whole server.
    async fn status(&self, name: &str) -> Result<Option<u64>, Failure> {
        let sql = format!("SHOW GLOBAL STATUS LIKE '{name}'");
        let row: Option<(String, String)> = self.conn.lock().await.query_first(sql).await.map_err(failed)?;
        Ok(row.and_then(|(_, value)| value.parse().ok()))
    }

    /// Of counters that not every server has, the first one that is there.
    async fn one_of(&self, names: [&str; 2]) -> Result<Option<u64>, Failure> {
        for name in names {
            if let Some(count) = self.status(name).await? {
                return Ok(Some(count));
            }
        }
        Ok(None)
    }

    /// Statements of sessions in our own database, where the server keeps count of them.
    async fn statements(&self) -> Result<Option<u64>, Failure> {
        let sql = format!(
            "SELECT CAST(SUM(count_star) AS UNSIGNED) FROM performance_schema.events_statements_summary_by_digest \
             WHERE schema_name = '{}' AND @@performance_schema = 1",
            self.name
        );
        let row: Option<Row> = self.conn.lock().await.query_first(sql).await.map_err(failed)?;
        Ok(row.and_then(|row| row.get_opt::<Option<u64>, _>(0)?.ok()?))
    }
}

/// The server's process; it wrote its number into a file.
async fn process(conn: &mut Conn) -> Option<u32> {
    let path: Option<String> = conn.query_first("SELECT @@pid_file").await.ok()?;
    let relative = std::path::PathBuf::from(path?);
    let path = if relative.is_absolute() {
        relative
    } else {
        let data: Option<String> = conn.query_first("SELECT @@datadir").await.ok()?;
        std::path::PathBuf::from(data?).join(relative)
    };
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The same URL with another database.
fn with_database(url: &str, name: &str) -> String {
    let (url, parameters) = url.split_once('?').map_or((url, None), |(url, rest)| (url, Some(rest)));
    let host = url.find("://").map_or(0, |at| at + 3);
    let server = url[host..].rfind('/').map_or(url, |at| &url[..host + at]);
    match parameters {
        Some(parameters) => format!("{server}/{name}?{parameters}"),
        None => format!("{server}/{name}"),
    }
}

#[async_trait]
impl Ground for MySqlGround {
    fn name(&self) -> &str {
        &self.name
    }

    async fn server(&self) -> Result<String, Failure> {
        let sql = "SELECT VERSION()";
        let version: Option<String> = self.conn.lock().await.query_first(sql).await.map_err(failed)?;
        let version = version.unwrap_or_default();
        let kind = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
        Ok(format!("{kind} {}", version.split('-').next().unwrap_or_default()))
    }

    fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        Ok(Arc::new(MySqlStore::new(self.options.clone())?))
    }

    async fn hand(&self, way: Way) -> Result<Box<dyn Hand>, Failure> {
        let store = MySqlStore::new(self.options.clone())?;
        let mut conn = store.client().await?;
        let bare = match way {
            Way::Outbox => None,
            Way::Bare => {
                let columns = "id, aggregate_type, aggregate_id, event_type, payload, content_type";
                let sql = format!("INSERT INTO {}.bare ({columns}) VALUES (?, ?, ?, ?, ?, ?)", self.name);
                Some(conn.prep(sql).await.map_err(failed)?)
            }
        };
        Ok(Box::new(MySqlHand { conn, outbox: store.outbox(), bare }))
    }

    async fn empty(&self) -> Result<(), Failure> {
        self.run(&format!("TRUNCATE {}.outbox", self.name)).await?;
        self.run(&format!("TRUNCATE {}.bare", self.name)).await
    }

    async fn tidy(&self, _much: bool) -> Result<(), Failure> {
        self.run(&format!("ANALYZE TABLE {}.outbox", self.name)).await
    }

    async fn mark(&self, rows: u32, delete: bool) -> Result<u64, Failure> {
        let table = format!("{}.outbox", self.name);
        let sql = if delete {
            format!("DELETE FROM {table} WHERE status = 0 ORDER BY id LIMIT {rows}")
        } else {
            format!(
                "UPDATE {table} SET status = 1, processed_at = NOW(6) WHERE status = 0 ORDER BY id LIMIT {rows}"
            )
        };
        let mut conn = self.conn.lock().await;
        conn.query_drop(sql).await.map_err(failed)?;
        Ok(conn.affected_rows())
    }

    async fn count(&self) -> Result<Count, Failure> {
        let sql = format!(
            "SELECT CAST(COALESCE(SUM(status = 0), 0) AS UNSIGNED), CAST(COALESCE(SUM(status = 1), 0) AS UNSIGNED) \
             FROM {}.outbox",
            self.name
        );
        let row: Option<(u64, u64)> = self.conn.lock().await.query_first(sql).await.map_err(failed)?;
        let (pending, processed) = row.unwrap_or_default();
        Ok(Count { pending, processed })
    }

    async fn counters(&self, _rows_written: u64) -> Result<Counters, Failure> {
        let [updated, deleted] = [
            self.one_of(["Innodb_rows_updated", "Handler_update"]).await?,
            self.one_of(["Innodb_rows_deleted", "Handler_delete"]).await?,
        ];
        let family = |name| self.server.and_then(|server| cpu_of_family(server, name));
        Ok(Counters {
            cpu: family("mysqld").or_else(|| family("mariadbd")),
            log_bytes: self.status("Innodb_os_log_written").await?,
            statements: self.statements().await?,
            transactions: None,
            dead_rows: updated.zip(deleted).map(|(updated, deleted)| updated + deleted),
        })
    }

    async fn hold_snapshot(&self) -> Result<Box<dyn Any + Send>, Failure> {
        let mut conn = MySqlStore::new(self.options.clone())?.client().await?;
        let begin =
            ["SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"];
        for sql in begin {
            conn.query_drop(sql).await.map_err(failed)?;
        }
        Ok(Box::new(conn))
    }

    async fn remove(&self) -> Result<(), Failure> {
        self.run(&format!("DROP DATABASE IF EXISTS {}", self.name)).await
    }
}

struct MySqlHand {
    conn: Conn,
    outbox: Outbox,
    bare: Option<Statement>,
}

#[async_trait]
impl Hand for MySqlHand {
    async fn put(&mut self, messages: &[Message]) -> Result<(), Failure> {
        let mut options = TxOpts::default();
        options.with_isolation_level(IsolationLevel::ReadCommitted);
        let mut tx = self.conn.start_transaction(options).await.map_err(failed)?;
        match (&self.bare, messages) {
            (None, [message]) => self.outbox.enqueue(&mut tx, message).await.map(drop)?,
            (None, _) => self.outbox.enqueue_all(&mut tx, messages).await.map(drop)?,
            (Some(statement), _) => {
                for message in messages {
                    tx.exec_drop(statement, values(message)).await.map_err(failed)?;
                }
            }
        }
        tx.commit().await.map_err(failed)
    }
}

fn values(message: &Message) -> Vec<Value> {
    let payload = message.payload_bytes().map_or(&[][..], AsRef::<[u8]>::as_ref);
    vec![
        Value::from(message.id().as_uuid().as_bytes().as_slice()),
        Value::from(message.aggregate_type()),
        Value::from(message.aggregate_id()),
        Value::from(message.event_type()),
        Value::from(payload),
        Value::from(message.content_type_str()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_database_in_the_url_is_replaced() {
        let cases = [
            ("mysql://h/d", "mysql://h/x"),
            ("mysql://u:p@h:1/d?ssl-mode=DISABLED", "mysql://u:p@h:1/x?ssl-mode=DISABLED"),
            ("mysql://h", "mysql://h/x"),
        ];
        for (url, other) in cases {
            assert_eq!(with_database(url, "x"), other);
        }
    }
}
