//! The network matrix on PostgreSQL.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Admin, Error, ErrorKind, Message, Store};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use posthaste_testkit::network::NetworkFixture;
use posthaste_testkit::{FaultProxy, network_matrix};
use support::Schema;
use tokio_postgres::{Client, NoTls};

struct Fixture {
    schema: Schema,
    proxy: FaultProxy,
    store: PostgresStore,
    limit: Duration,
    /// A producer's connection that nothing happens to.
    producer: tokio::sync::Mutex<Client>,
}

#[async_trait]
impl NetworkFixture for Fixture {
    async fn new(limit: Duration) -> Option<Self> {
        let schema = Schema::new().await?;
        let proxy = FaultProxy::start(support::address());
        PostgresStore::new(schema.options()).unwrap().migrate().await.unwrap();
        let url = format!("{}&application_name={}", support::url_by(&proxy), schema.name);
        let options = PostgresOptions::new(url)
            .table(schema.table())
            .connections(2)
            .connect_timeout(limit)
            .statement_timeout(limit)
            .migration_timeout(limit);
        let store = PostgresStore::new(options).unwrap();
        let producer = tokio::sync::Mutex::new(support::client().await?);
        Some(Self { schema, proxy, store, limit, producer })
    }

    fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn admin(&self) -> Arc<dyn Admin> {
        Arc::new(self.store.clone())
    }

    fn connections(&self) -> usize {
        3
    }

    async fn sessions(&self) -> usize {
        let sql =
            format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'", self.schema.name);
        usize::try_from(self.schema.value::<i64>(&sql).await).unwrap()
    }

    async fn produce(&self) -> Result<(), Error> {
        let produced = tokio::time::timeout(self.limit * 3, async {
            let (mut client, connection) =
                tokio_postgres::connect(&support::url_by(&self.proxy), NoTls).await.map_err(broken)?;
            tokio::spawn(connection);
            place(&mut client, &self.store).await
        });
        produced.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the producer gave up")))
    }

    fn is_woken(&self) -> bool {
        true
    }

    async fn ring(&self) {
        place(&mut *self.producer.lock().await, &self.store).await.unwrap();
    }
}

async fn place(client: &mut Client, store: &PostgresStore) -> Result<(), Error> {
    let tx = client.transaction().await.map_err(broken)?;
    store.outbox().enqueue(&tx, &Message::new("e").aggregate("k", 1)).await?;
    tx.commit().await.map_err(broken)
}

fn broken(error: tokio_postgres::Error) -> Error {
    assert!(error.as_db_error().is_none(), "{error:?}");
    Error::new(ErrorKind::Unavailable, "the producer's connection broke").with_source(error)
}

network_matrix!(Fixture);
