//! A service with sea-orm on PostgreSQL: an order and its event are written in one transaction; a relay in the same
//! process publishes events.

use std::sync::Arc;

use posthaste::{Admin, BoxError, ErrorKind, Message, Outbox, Record, Relay, publish_fn};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use sea_orm::{ActiveModelTrait, ActiveValue::Set, DatabaseConnection, TransactionTrait};

/// The entity of the business.
pub mod orders {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, serde::Serialize)]
    #[sea_orm(table_name = "orders")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: i64,
        pub total: String,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

/// The service.
pub struct Shop {
    db: DatabaseConnection,
    outbox: Outbox,
}

impl Shop {
    /// The service, and the relay that publishes its events.
    ///
    /// # Errors
    /// What the database reports.
    pub async fn open(
        url: &str,
        schema: &str,
        destination: impl Fn(Arc<Record>) + Send + Sync + 'static,
    ) -> Result<(Self, Relay), BoxError> {
        let mut options = sea_orm::ConnectOptions::new(url);
        options.set_schema_search_path(schema);
        let db = sea_orm::Database::connect(options).await?;
        let store = PostgresStore::new(PostgresOptions::new(url).table(format!("{schema}.outbox")))?;
        store.migrate().await?;
        let outbox = store.outbox();
        let publisher = publish_fn(move |record| {
            destination(record); // here the message would go to a broker; `Ok` says that it is there
            async { Ok::<_, BoxError>(()) }
        });
        let relay = Relay::builder(Arc::new(store)).publisher(publisher).build()?;
        Ok((Self { db, outbox }, relay))
    }

    /// Places an order. One that lost against another transaction is tried again from its start.
    ///
    /// # Errors
    /// What the database reports.
    pub async fn place(&self, id: i64, total: &str) -> Result<(), BoxError> {
        loop {
            match self.try_to_place(id, total).await {
                Err(error) if is_conflict(&error) => {}
                done => return done,
            }
        }
    }

    async fn try_to_place(&self, id: i64, total: &str) -> Result<(), BoxError> {
        let tx = self.db.begin().await?;
        let order = orders::ActiveModel { id: Set(id), total: Set(total.to_owned()) }.insert(&tx).await?;
        let message = Message::new("order.created").aggregate("order", id).json(&order)?;
        let receipt = self.outbox.enqueue(&tx, &message).await?;
        tx.commit().await?;
        receipt.wake();
        Ok(())
    }
}

fn is_conflict(error: &BoxError) -> bool {
    error.downcast_ref::<posthaste::Error>().is_some_and(|error| error.kind() == ErrorKind::Conflict)
}
