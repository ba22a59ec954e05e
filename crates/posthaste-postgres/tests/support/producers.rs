//! Producers that go on while their server comes and goes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste::{Message, MessageId, Outbox};
use posthaste_testkit::InvariantChecker;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

/// What was committed, rolled back and published.
pub type Checker = Arc<Mutex<InvariantChecker>>;

/// Commits `count` messages of a key of its own, one transaction each, every fourth of them after one that is rolled
/// back. When the connection breaks it connects again, and looks whether its last COMMIT took effect.
pub fn produce(url: String, table: String, key: usize, count: usize, checker: Checker) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut producer =
            Producer { url, outbox: Arc::new(Outbox::new(&table).unwrap()), table, client: None };
        for number in 0..count {
            let message = Message::new("e").aggregate("k", key).payload(number.to_string());
            if number % 4 == 3 {
                let undone = Message::new("undone").aggregate("k", key);
                checker.lock().unwrap().rolled_back(&undone);
                producer.roll_back(&undone).await;
            }
            producer.commit(&message).await;
            checker.lock().unwrap().committed(&message);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
}

struct Producer {
    url: String,
    table: String,
    outbox: Arc<Outbox>,
    client: Option<Client>,
}

impl Producer {
    async fn commit(&mut self, message: &Message) {
        let mut tried = false;
        loop {
            if tried && self.is_there(message.id()).await {
                return;
            }
            tried = true;
            if self.try_to_commit(message).await.is_some() {
                return;
            }
            self.client = None;
        }
    }

    async fn try_to_commit(&mut self, message: &Message) -> Option<()> {
        let outbox = self.outbox.clone();
        let tx = self.client().await.transaction().await.ok()?;
        outbox.enqueue(&tx, message).await.ok()?;
        tx.commit().await.ok()
    }

    async fn roll_back(&mut self, message: &Message) {
        let outbox = self.outbox.clone();
        if let Ok(tx) = self.client().await.transaction().await
            && outbox.enqueue(&tx, message).await.is_ok()
        {
            let _ = tx.rollback().await;
        }
    }

    async fn is_there(&mut self, id: MessageId) -> bool {
        let sql = format!("SELECT count(*) FROM {} WHERE id = $1", self.table);
        loop {
            match self.client().await.query_one(&sql, &[id.as_uuid()]).await {
                Ok(row) => return row.get::<_, i64>(0) > 0,
                Err(_) => self.client = None,
            }
        }
    }

    async fn client(&mut self) -> &mut Client {
        if self.client.as_ref().is_none_or(Client::is_closed) {
            self.client = Some(connect(&self.url).await);
        }
        self.client.as_mut().unwrap()
    }
}

/// Connects, as soon as it is possible.
pub async fn connect(url: &str) -> Client {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        match tokio::time::timeout(Duration::from_secs(2), tokio_postgres::connect(url, NoTls)).await {
            Ok(Ok((client, connection))) => {
                tokio::spawn(connection);
                return client;
            }
            failed => assert!(
                tokio::time::Instant::now() < deadline,
                "{url}: {:?}",
                failed.map(|result| result.map(|_| ()))
            ),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
