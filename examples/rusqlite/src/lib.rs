//! A program with rusqlite, and no asynchronous code but the relay, which has a thread and a runtime of its own.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use posthaste::{Admin, BoxError, Message, Outbox, Record, Relay, RelayHandle, Summary, publish_fn};
use posthaste_sqlite::{SqliteOptions, SqliteStore, fair_busy_timeout};
use rusqlite::{Connection, TransactionBehavior};

/// The program.
pub struct Shop {
    connection: Connection,
    outbox: Outbox,
    handle: RelayHandle,
    relay: JoinHandle<Result<Summary, posthaste::Error>>,
}

impl Shop {
    /// Opens the file, makes its tables, and starts the relay.
    ///
    /// # Errors
    /// What the database reports.
    pub fn open(
        path: &Path,
        destination: impl Fn(Arc<Record>) + Send + Sync + 'static,
    ) -> Result<Self, BoxError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = SqliteStore::open(path, SqliteOptions::default().create(true))?;
        runtime.block_on(store.migrate())?;
        let outbox = store.outbox();
        let publisher = publish_fn(move |record| {
            destination(record); // here the message would go to a broker; `Ok` says that it is there
            async { Ok::<_, BoxError>(()) }
        });
        let relay = Relay::builder(Arc::new(store)).publisher(publisher).build()?;
        let handle = relay.handle();
        let relay = std::thread::spawn(move || runtime.block_on(relay.run_until(std::future::pending())));

        let mut connection = Connection::open(path)?;
        fair_busy_timeout(&mut connection, std::time::Duration::from_secs(5))?;
        connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, total TEXT NOT NULL)",
        )?;
        Ok(Self { connection, outbox, handle, relay })
    }

    /// Places an order, and says its number.
    ///
    /// # Errors
    /// What the database reports.
    pub fn place(&mut self, total: &str) -> Result<i64, BoxError> {
        let tx = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        tx.execute("INSERT INTO orders (total) VALUES (?1)", [total])?;
        let id = tx.last_insert_rowid();
        let order = serde_json::json!({ "id": id, "total": total });
        let message = Message::new("order.created").aggregate("order", id).json(&order)?;
        let receipt = self.outbox.enqueue(&tx, &message)?;
        tx.commit()?;
        receipt.wake();
        Ok(id)
    }

    /// Stops the relay; what is in flight is finished.
    ///
    /// # Errors
    /// What ended the relay before.
    pub fn close(self) -> Result<Summary, BoxError> {
        self.handle.stop();
        Ok(self.relay.join().map_err(|_| "the relay panicked")??)
    }
}
