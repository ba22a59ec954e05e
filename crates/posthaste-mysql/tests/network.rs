//! The network matrix on MySQL and MariaDB.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::{Conn, Opts, OptsBuilder, TxOpts};
use posthaste::{Admin, Error, ErrorKind, Message, Store};
use posthaste_mysql::MySqlStore;
use posthaste_testkit::FaultProxy;
use posthaste_testkit::network::NetworkFixture;
use support::{Database, Server};

struct Fixture<const MARIADB: bool> {
    database: Database,
    proxy: FaultProxy,
    store: MySqlStore,
    limit: Duration,
}

#[async_trait]
impl<const MARIADB: bool> NetworkFixture for Fixture<MARIADB> {
    async fn new(limit: Duration) -> Option<Self> {
        let server = if MARIADB { Server::MariaDb } else { Server::MySql };
        let database = Database::new(server).await;
        let proxy = FaultProxy::start(server.address());
        MySqlStore::new(database.options()).unwrap().migrate().await.unwrap();
        let mut options =
            database.options().connect_timeout(limit).statement_timeout(limit).migration_timeout(limit);
        options.url = options.url.replace(&server.address(), &proxy.address().to_string());
        let store = MySqlStore::new(options).unwrap();
        Some(Self { database, proxy, store, limit })
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
        2
    }

    async fn sessions(&self) -> usize {
        let sql = "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()";
        self.database.value(sql).await
    }

    async fn produce(&self) -> Result<(), Error> {
        let produced = tokio::time::timeout(self.limit * 3, self.place());
        produced.await.unwrap_or_else(|_| Err(Error::new(ErrorKind::Unavailable, "the producer gave up")))
    }

    fn is_woken(&self) -> bool {
        false
    }

    async fn ring(&self) {
        unreachable!("nobody is woken");
    }
}

impl<const MARIADB: bool> Fixture<MARIADB> {
    async fn place(&self) -> Result<(), Error> {
        let opts = Opts::from_url(&self.database.url()).unwrap();
        let opts = OptsBuilder::from_opts(opts).tcp_port(self.proxy.address().port()).prefer_socket(false);
        let mut conn = Conn::new(opts).await.map_err(broken)?;
        let mut tx = conn.start_transaction(TxOpts::default()).await.map_err(broken)?;
        self.store.outbox().enqueue(&mut tx, &Message::new("e").aggregate("k", 1)).await?;
        tx.commit().await.map_err(broken)?;
        conn.disconnect().await.map_err(broken)
    }
}

fn broken(error: mysql_async::Error) -> Error {
    assert!(!matches!(error, mysql_async::Error::Server(_)), "{error:?}");
    Error::new(ErrorKind::Unavailable, "the producer's connection broke").with_source(error)
}

mod on_mysql {
    use super::Fixture;

    posthaste_testkit::network_matrix!(Fixture<false>);
}

mod on_mariadb {
    use super::Fixture;

    posthaste_testkit::network_matrix!(Fixture<true>);
}
