//! A schema for each test on a real server.
#![allow(
    dead_code,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "each test binary uses its own part; a test may panic"
)]

pub mod cluster;
pub mod cutter;
pub mod producers;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{
    Admin, DueRecords, Error, Keys, Lane, Message, MessageId, ReadRequest, Receipt, Scan, Store,
};
use posthaste_postgres::{Partition, PostgresOptions, PostgresStore};
use posthaste_testkit::{FaultProxy, FixtureTransaction, Payloads, StoreFixture};
use tokio_postgres::{Client, NoTls};

/// Where the server is; override with `POSTHASTE_TEST_POSTGRES`.
pub fn server_url() -> String {
    std::env::var("POSTHASTE_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".to_owned())
}

/// The server as seen by a role that needs no password.
pub fn url_as(role: &str) -> String {
    format!("postgres://{role}@{}/{}", address(), server().get_dbname().unwrap_or("postgres"))
}

/// The server's host and port.
pub fn address() -> String {
    address_of(&server_url())
}

/// The host and port in a URL.
pub fn address_of(url: &str) -> String {
    let server: tokio_postgres::Config = url.parse().unwrap();
    let host = match server.get_hosts().first() {
        Some(tokio_postgres::config::Host::Tcp(host)) => host.clone(),
        other => panic!("the tests need a server reached by TCP, not {other:?}"),
    };
    format!("{host}:{}", server.get_ports().first().copied().unwrap_or(5432))
}

/// The server by way of a proxy before it.
pub fn url_by(proxy: &FaultProxy) -> String {
    url_as("postgres").replace(&address(), &proxy.address().to_string()) + "?sslmode=disable"
}

fn server() -> tokio_postgres::Config {
    server_url().parse().unwrap()
}

/// Where the pooler is, if there is one.
pub fn pooler_url() -> Option<String> {
    std::env::var("POSTHASTE_TEST_POSTGRES_POOLER").ok().filter(|url| !url.is_empty())
}

/// A connection of the test's own, or `None`, loudly, where there is no server and it is not required (`CI`).
pub async fn client() -> Option<Client> {
    match tokio_postgres::connect(&server_url(), NoTls).await {
        Ok((client, connection)) => {
            tokio::spawn(connection);
            Some(client)
        }
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: no PostgreSQL at {}: {error}", server_url());
            None
        }
        Err(error) => panic!("no PostgreSQL at {}: {error}", server_url()),
    }
}

/// A schema that is dropped at the end of the test.
pub struct Schema {
    pub name: String,
    pub client: Client,
}

impl Schema {
    pub async fn new() -> Option<Self> {
        let name = format!("posthaste_test_{}", uuid::Uuid::new_v4().simple());
        let client = client().await?;
        client.batch_execute(&format!("CREATE SCHEMA \"{name}\"")).await.unwrap();
        Some(Self { name, client })
    }

    pub fn table(&self) -> String {
        format!("{}.outbox", self.name)
    }

    pub fn options(&self) -> PostgresOptions {
        PostgresOptions::new(server_url()).table(self.table()).connections(2)
    }

    /// A value from the first row of a statement, in which `outbox` stands for the table.
    pub async fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, sql: &str) -> T {
        self.client.query_one(&self.named(sql), &[]).await.unwrap().get(0)
    }

    pub async fn execute(&self, sql: &str) {
        self.client.batch_execute(&self.named(sql)).await.unwrap();
    }

    /// `{}` in a statement stands for the schema's name and a dot.
    pub fn named(&self, sql: &str) -> String {
        sql.replace("{}", &format!("\"{}\".", self.name))
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let drop = format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.name);
        let url = server_url();
        // A thread of its own: the test's runtime may be at its end.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
                tokio::spawn(connection);
                // Whoever still holds a lock here belongs to a test that failed.
                client.batch_execute("SET lock_timeout = '10s'").await.unwrap();
                client.batch_execute(&drop).await
            })
        });
        if let Ok(Err(error)) = dropped.join() {
            eprintln!("the schema of a test could not be dropped: {error}");
        }
    }
}

/// The fixture of the conformance suite.
pub struct PostgresFixture {
    pub schema: Schema,
    pub store: PostgresStore,
    /// Where the store connects: the server itself, or a pooler before it.
    url: String,
}

impl PostgresFixture {
    pub async fn with(options: impl FnOnce(PostgresOptions) -> PostgresOptions) -> Option<Self> {
        Self::at(server_url(), options).await
    }

    pub async fn at(url: String, options: impl FnOnce(PostgresOptions) -> PostgresOptions) -> Option<Self> {
        let schema = Schema::new().await?;
        let mut given = options(schema.options());
        given.url.clone_from(&url);
        let store = PostgresStore::new(given).unwrap();
        Some(Self { schema, store, url })
    }

    /// Migrated, and connected to the server itself.
    pub async fn direct(options: impl FnOnce(PostgresOptions) -> PostgresOptions) -> Option<Self> {
        Self::migrated(options).await
    }

    pub async fn migrated(options: impl FnOnce(PostgresOptions) -> PostgresOptions) -> Option<Self> {
        let fixture = Self::with(options).await?;
        fixture.store.migrate().await.unwrap();
        Some(fixture)
    }
}

#[async_trait]
impl StoreFixture for PostgresFixture {
    async fn new() -> Option<Self> {
        Self::migrated(|options| options).await
    }

    async fn unmigrated() -> Option<Self> {
        Self::with(|options| options).await
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    fn admin(&self) -> Arc<dyn Admin> {
        Arc::new(self.store.clone())
    }

    async fn second(&self) -> Arc<dyn Store> {
        let mut options = self.schema.options();
        options.url.clone_from(&self.url);
        Arc::new(PostgresStore::new(options).unwrap())
    }

    fn lanes(&self) -> u16 {
        64
    }

    fn concurrent_transactions(&self) -> bool {
        true
    }

    fn payloads(&self) -> Payloads {
        Payloads::AnyBytes
    }

    /// Shifts every stored time back.
    async fn advance(&self, by: Duration) {
        let columns = [
            ("outbox", &["created_at", "next_attempt_at", "processed_at"][..]),
            ("outbox_relay", &["leased_until", "started_at"]),
            ("outbox_lane", &["leased_until"]),
            ("outbox_key", &["created_at"]),
            ("outbox_inbox", &["seen_at"]),
        ];
        for (table, columns) in columns {
            let sets: Vec<_> = columns
                .iter()
                .map(|column| format!("{column} = {column} - {} * interval '1 microsecond'", by.as_micros()))
                .collect();
            self.schema.execute(&format!("UPDATE {{}}{table} SET {}", sets.join(", "))).await;
        }
    }

    async fn begin(&self) -> Box<dyn FixtureTransaction> {
        Box::new(Transaction::begin(&self.url, self.store.outbox()).await)
    }
}

/// A producer's transaction. The driver's borrows from its connection, so both live on a task.
pub struct Transaction {
    requests: tokio::sync::mpsc::Sender<Request>,
}

enum Request {
    One(Message, tokio::sync::oneshot::Sender<Result<MessageId, Error>>),
    Many(Vec<Message>, tokio::sync::oneshot::Sender<Result<Vec<MessageId>, Error>>),
    End { commit: bool, done: tokio::sync::oneshot::Sender<()> },
}

impl Transaction {
    async fn begin(url: &str, outbox: posthaste::Outbox) -> Self {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let (requests, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(serve(outbox, client, receiver));
        Self { requests }
    }

    async fn ask<T>(&self, request: impl FnOnce(tokio::sync::oneshot::Sender<T>) -> Request) -> T {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        self.requests.send(request(sender)).await.ok().unwrap();
        receiver.await.unwrap()
    }
}

async fn serve(
    outbox: posthaste::Outbox,
    mut client: Client,
    mut requests: tokio::sync::mpsc::Receiver<Request>,
) {
    let tx = client.transaction().await.unwrap();
    while let Some(request) = requests.recv().await {
        match request {
            Request::One(message, done) => {
                let _ = done.send(outbox.enqueue(&tx, &message).await.map(|receipt| receipt.id()));
            }
            Request::Many(messages, done) => {
                let receipts = outbox.enqueue_all(&tx, &messages).await;
                let ids = |receipts: Vec<Receipt>| receipts.iter().map(Receipt::id).collect();
                let _ = done.send(receipts.map(ids));
            }
            Request::End { commit, done } => {
                if commit {
                    tx.commit().await.unwrap();
                } else {
                    tx.rollback().await.unwrap();
                }
                let _ = done.send(());
                return;
            }
        }
    }
}

#[async_trait]
impl FixtureTransaction for Transaction {
    async fn enqueue(&mut self, message: &Message) -> Result<MessageId, Error> {
        self.ask(|done| Request::One(message.clone(), done)).await
    }

    async fn enqueue_all(&mut self, messages: &[Message]) -> Result<Vec<MessageId>, Error> {
        self.ask(|done| Request::Many(messages.to_vec(), done)).await
    }

    async fn commit(self: Box<Self>) {
        self.ask(|done| Request::End { commit: true, done }).await;
    }

    async fn rollback(self: Box<Self>) {
        self.ask(|done| Request::End { commit: false, done }).await;
    }
}

/// Asks until something is so, for a minute: machines are busy. Each question is a round trip, so it is no busy loop.
pub async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(tokio::time::Instant::now() < deadline, "{what}: not in a minute");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Everything that is ready or due.
pub fn all_lanes() -> ReadRequest {
    let scan = |lane| Scan { lane: Lane(lane), after: None, until: None, due: DueRecords::All };
    ReadRequest {
        scans: (0..64).map(scan).collect(),
        keys: Keys::Except(Vec::new()),
        in_hand: Vec::new(),
        max_rows: 1_000,
        max_per_key: 1_000,
        max_bytes: 1 << 24,
        max_scanned: 1_000,
    }
}

/// The same on a partitioned outbox.
pub struct PartitionedFixture(PostgresFixture);

#[async_trait]
impl StoreFixture for PartitionedFixture {
    async fn new() -> Option<Self> {
        PostgresFixture::migrated(|options| options.partition(Partition::Month)).await.map(Self)
    }

    async fn unmigrated() -> Option<Self> {
        PostgresFixture::with(|options| options.partition(Partition::Month)).await.map(Self)
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    fn admin(&self) -> Arc<dyn Admin> {
        self.0.admin()
    }

    async fn second(&self) -> Arc<dyn Store> {
        self.0.second().await
    }

    fn lanes(&self) -> u16 {
        64
    }

    fn concurrent_transactions(&self) -> bool {
        true
    }

    fn payloads(&self) -> Payloads {
        Payloads::AnyBytes
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await;
    }

    async fn begin(&self) -> Box<dyn FixtureTransaction> {
        self.0.begin().await
    }
}

/// The same behind a pooler in transaction mode.
pub struct PooledFixture(PostgresFixture);

#[async_trait]
impl StoreFixture for PooledFixture {
    fn payloads(&self) -> Payloads {
        Payloads::AnyBytes
    }

    async fn new() -> Option<Self> {
        let fixture = Self::unmigrated().await?;
        fixture.0.store.migrate().await.unwrap();
        Some(fixture)
    }

    async fn unmigrated() -> Option<Self> {
        let Some(pooler) = pooler_url() else {
            assert!(std::env::var_os("CI").is_none(), "no pooler: POSTHASTE_TEST_POSTGRES_POOLER is not set");
            eprintln!("SKIPPED: no pooler (POSTHASTE_TEST_POSTGRES_POOLER)");
            return None;
        };
        PostgresFixture::at(pooler, |options| options).await.map(Self)
    }

    fn store(&self) -> Arc<dyn Store> {
        self.0.store()
    }

    fn admin(&self) -> Arc<dyn Admin> {
        self.0.admin()
    }

    async fn second(&self) -> Arc<dyn Store> {
        self.0.second().await
    }

    fn lanes(&self) -> u16 {
        64
    }

    fn concurrent_transactions(&self) -> bool {
        true
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await;
    }

    async fn begin(&self) -> Box<dyn FixtureTransaction> {
        self.0.begin().await
    }
}
