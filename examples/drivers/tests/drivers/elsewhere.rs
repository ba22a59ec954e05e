//! What another connection does meanwhile.

use std::time::Duration;

use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use posthaste::{Inbox, Message, Outbox};
use tokio::sync::oneshot;

use crate::database::{Database, Kind, postgres_client};

#[derive(Debug, Clone)]
pub enum Elsewhere {
    /// It enqueues and commits.
    Commit(Message),
    /// It enqueues, and then waits for the order 1, which the transaction under test has; when it has it, it commits. The
    /// server will rather end the other one than this one.
    Entangle(Message),
    /// It notes a message in the inbox, waits until the transaction under test waits for it, and commits or rolls back.
    Note(&'static str, bool),
}

impl Database {
    pub async fn elsewhere(&self, what: &Elsewhere) {
        match what {
            Elsewhere::Commit(message) => self.commit_elsewhere(message).await,
            Elsewhere::Entangle(message) => self.entangle(message.clone()).await,
            Elsewhere::Note(id, commit) => self.note(id, *commit).await,
        }
    }

    /// Waits until the other connection is through.
    pub async fn over_there(&self) {
        let running = self.elsewhere.lock().unwrap().take();
        running.expect("there is one").await.unwrap();
    }

    async fn entangle(&self, message: Message) {
        let (told, entangled) = oneshot::channel();
        let (outbox, orders) = (self.outbox.clone(), self.orders());
        let running = match self.kind {
            Kind::Postgres => {
                let client = postgres_client(&self.url).await;
                tokio::spawn(entangle_postgres(client, outbox, orders, message, told))
            }
            Kind::MySql => {
                let connection = self.mysql_connection().await;
                tokio::spawn(entangle_mysql(connection, outbox, orders, message, told))
            }
            Kind::Sqlite => unreachable!("it has one writer"),
        };
        *self.elsewhere.lock().unwrap() = Some(running);
        entangled.await.unwrap();
        match self.kind {
            Kind::MySql => until_mysql_waits(&mut self.mysql_connection().await, &self.name).await,
            _ => until_postgres_waits(&postgres_client(&self.url).await, &self.name).await,
        }
    }

    async fn note(&self, id: &'static str, commit: bool) {
        let (told, noted) = oneshot::channel();
        let (inbox, name) = (self.inbox.clone(), self.name.clone());
        let running = match self.kind {
            Kind::Postgres => {
                let (client, watch) = (postgres_client(&self.url).await, postgres_client(&self.url).await);
                tokio::spawn(note_postgres(client, watch, inbox, name, (id, commit), told))
            }
            Kind::MySql => {
                let (connection, watch) = (self.mysql_connection().await, self.mysql_connection().await);
                tokio::spawn(note_mysql(connection, watch, inbox, name, (id, commit), told))
            }
            Kind::Sqlite => unreachable!("it has one writer"),
        };
        *self.elsewhere.lock().unwrap() = Some(running);
        noted.await.unwrap();
    }
}

/// Waits until a statement that names a schema waits for a lock.
async fn until_postgres_waits(watch: &tokio_postgres::Client, schema: &str) {
    let waits = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%{schema}%'"
    );
    while watch.query_one(&waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a transaction waits for the lock of a row in a database. That is asked of the engine's status: `innodb_trx` is
/// a copy, which is not renewed as long as anybody asks often enough.
async fn until_mysql_waits(watch: &mut mysql_async::Conn, database: &str) {
    let of_database = format!("of table `{database}`.");
    loop {
        // Statements in it are as their clients sent them, in whatever bytes.
        let status = watch.query_first("SHOW ENGINE INNODB STATUS").await.unwrap();
        let (_, _, status): (Vec<u8>, Vec<u8>, Vec<u8>) = status.expect("it has one row");
        let status = String::from_utf8_lossy(&status);
        let waits =
            |transaction: &str| transaction.contains("\nLOCK WAIT ") && transaction.contains(&of_database);
        if status.split("---TRANSACTION ").skip(1).any(waits) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn entangle_postgres(
    mut client: tokio_postgres::Client,
    outbox: Outbox,
    orders: String,
    message: Message,
    told: oneshot::Sender<()>,
) {
    let tx = client.transaction().await.unwrap();
    tx.batch_execute("SET LOCAL deadlock_timeout = '1h'").await.unwrap();
    outbox.enqueue(&tx, &message).await.unwrap();
    told.send(()).unwrap();
    tx.batch_execute(&format!("INSERT INTO {orders} VALUES (1)")).await.unwrap();
    tx.commit().await.unwrap();
}

async fn entangle_mysql(
    mut connection: mysql_async::Conn,
    outbox: Outbox,
    orders: String,
    message: Message,
    told: oneshot::Sender<()>,
) {
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    // The server ends the transaction that wrote less.
    for order in 2..20 {
        tx.query_drop(format!("INSERT INTO {orders} VALUES ({order})")).await.unwrap();
    }
    outbox.enqueue(&mut tx, &message).await.unwrap();
    told.send(()).unwrap();
    tx.query_drop(format!("INSERT INTO {orders} VALUES (1)")).await.unwrap();
    tx.commit().await.unwrap();
}

async fn note_postgres(
    mut client: tokio_postgres::Client,
    watch: tokio_postgres::Client,
    inbox: Inbox,
    schema: String,
    (id, commit): (&str, bool),
    told: oneshot::Sender<()>,
) {
    let tx = client.transaction().await.unwrap();
    assert!(inbox.first_time(&tx, "consumer", id).await.unwrap());
    told.send(()).unwrap();
    until_postgres_waits(&watch, &schema).await;
    if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
}

async fn note_mysql(
    mut connection: mysql_async::Conn,
    mut watch: mysql_async::Conn,
    inbox: Inbox,
    database: String,
    (id, commit): (&str, bool),
    told: oneshot::Sender<()>,
) {
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    assert!(inbox.first_time(&mut tx, "consumer", id).await.unwrap());
    told.send(()).unwrap();
    until_mysql_waits(&mut watch, &database).await;
    if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
}
