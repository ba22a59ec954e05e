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
        let (told, waits) = oneshot::channel();
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
        let waits = waits.await.unwrap();
        while self.number(&waits).await == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
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

/// Tells by what query it is seen that it waits.
async fn entangle_postgres(
    mut client: tokio_postgres::Client,
    outbox: Outbox,
    orders: String,
    message: Message,
    told: oneshot::Sender<String>,
) {
    let tx = client.transaction().await.unwrap();
    tx.batch_execute("SET LOCAL deadlock_timeout = '1h'").await.unwrap();
    outbox.enqueue(&tx, &message).await.unwrap();
    let id: i32 = tx.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pid =";
    told.send(format!("{waits} {id}")).unwrap();
    tx.batch_execute(&format!("INSERT INTO {orders} VALUES (1)")).await.unwrap();
    tx.commit().await.unwrap();
}

async fn entangle_mysql(
    mut connection: mysql_async::Conn,
    outbox: Outbox,
    orders: String,
    message: Message,
    told: oneshot::Sender<String>,
) {
    let id = connection.id();
    let mut tx = connection.start_transaction(TxOpts::default()).await.unwrap();
    // The server ends the transaction that wrote less.
    for order in 2..20 {
        tx.query_drop(format!("INSERT INTO {orders} VALUES ({order})")).await.unwrap();
    }
    outbox.enqueue(&mut tx, &message).await.unwrap();
    let waits = "SELECT count(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
    told.send(format!("{waits} AND trx_mysql_thread_id = {id}")).unwrap();
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
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE";
    let waits = format!("{waits} '%\"{schema}\".%'");
    while watch.query_one(&waits, &[]).await.unwrap().get::<_, i64>(0) == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
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
    let waits = format!(
        "SELECT count(*) FROM information_schema.innodb_trx AS trx
         JOIN information_schema.processlist AS process ON process.id = trx.trx_mysql_thread_id
         WHERE trx.trx_state = 'LOCK WAIT' AND process.db = '{database}'"
    );
    while watch.query_first::<i64, _>(&waits).await.unwrap() == Some(0) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
}
