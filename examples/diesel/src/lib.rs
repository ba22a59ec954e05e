//! A service with diesel on SQLite: an order and its event are written in one transaction, on a thread that may block; a
//! relay in the same process publishes events.

use std::path::Path;
use std::sync::Arc;

use diesel::prelude::*;
use posthaste::diesel_2::InTransaction;
use posthaste::{Admin, BoxError, Message, Outbox, Record, Relay, publish_fn};
use posthaste_sqlite::{SqliteOptions, SqliteStore};

diesel::table! {
    orders (id) {
        id -> BigInt,
        total -> Text,
    }
}

/// A row of the business.
#[derive(Insertable, serde::Serialize)]
pub struct Order<'a> {
    pub id: i64,
    pub total: &'a str,
}

/// The service: a connection of its own on the file.
pub struct Shop {
    connection: SqliteConnection,
    outbox: Outbox,
}

impl Shop {
    /// The service, and the relay that publishes its events.
    ///
    /// # Errors
    /// What the database reports.
    pub async fn open(
        path: &Path,
        destination: impl Fn(Arc<Record>) + Send + Sync + 'static,
    ) -> Result<(Self, Relay), BoxError> {
        let store = SqliteStore::open(path, SqliteOptions::default().create(true))?;
        store.migrate().await?;
        let outbox = store.outbox();
        let publisher = publish_fn(move |record| {
            destination(record); // here the message would go to a broker; `Ok` says that it is there
            async { Ok::<_, BoxError>(()) }
        });
        let relay = Relay::builder(Arc::new(store)).publisher(publisher).build()?;

        let mut connection = SqliteConnection::establish(path.to_str().ok_or("the path is no text")?)?;
        diesel::sql_query("PRAGMA busy_timeout = 5000").execute(&mut connection)?;
        diesel::sql_query("CREATE TABLE IF NOT EXISTS orders (id BIGINT PRIMARY KEY, total TEXT NOT NULL)")
            .execute(&mut connection)?;
        Ok((Self { connection, outbox }, relay))
    }

    /// Places an order. It blocks: from asynchronous code call it by `spawn_blocking`.
    ///
    /// # Errors
    /// What the database reports.
    pub fn place(&mut self, order: &Order<'_>) -> Result<(), BoxError> {
        let outbox = &self.outbox;
        // `BEGIN IMMEDIATE`: then it cannot fail half-way because another connection wrote meanwhile.
        let receipt = self.connection.immediate_transaction(|connection| {
            diesel::insert_into(orders::table).values(order).execute(connection)?;
            let message = Message::new("order.created").aggregate("order", order.id).json(order)?;
            Ok::<_, BoxError>(outbox.enqueue(InTransaction(connection), &message)?)
        })?;
        receipt.wake();
        Ok(())
    }
}
