//! A database for each test on a real server.
#![allow(
    dead_code,
    clippy::unwrap_used,
    missing_docs,
    unreachable_pub,
    reason = "each test binary uses its own part; a test may panic"
)]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::prelude::{FromValue, Queryable};
use mysql_async::{Conn, Opts, OptsBuilder, TxOpts};
use posthaste::{
    Admin, DueRecords, Error, Keys, Lane, Message, MessageId, Outbox, ReadRequest, Receipt, Scan, Store,
};
use posthaste_mysql::{MySqlOptions, MySqlStore, Partition, Payload};
use posthaste_testkit::{FixtureTransaction, Payloads, StoreFixture};
use tokio::sync::{mpsc, oneshot};

/// The two kinds of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    MySql,
    MariaDb,
}

pub const SERVERS: [Server; 2] = [Server::MySql, Server::MariaDb];

impl Server {
    /// Where it is; `ci/mysql-server` and `ci/mariadb-server` start them.
    pub fn url(self) -> String {
        let (variable, otherwise) = match self {
            Self::MySql => ("POSTHASTE_TEST_MYSQL", "mysql://root@127.0.0.1:33069/mysql"),
            Self::MariaDb => ("POSTHASTE_TEST_MARIADB", "mysql://root@127.0.0.1:3306/mysql"),
        };
        std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned())
    }

    pub fn opts(self) -> Opts {
        let opts = Opts::from_url(&self.url()).unwrap();
        OptsBuilder::from_opts(opts).prefer_socket(false).into()
    }

    /// The same server with another database, and perhaps as somebody else.
    pub fn url_of(self, database: &str, user: Option<&str>) -> String {
        let opts = self.opts();
        let own = match opts.pass() {
            Some(pass) => format!("{}:{pass}", opts.user().unwrap_or("root")),
            None => opts.user().unwrap_or("root").to_owned(),
        };
        let user = user.unwrap_or(&own);
        format!("mysql://{user}@{}/{database}", self.address())
    }

    pub fn address(self) -> String {
        let opts = self.opts();
        format!("{}:{}", opts.ip_or_hostname(), opts.tcp_port())
    }
}

/// A connection of the test's own. A missing server is a failure.
pub async fn connect(opts: Opts) -> Conn {
    let mut tries = 0;
    loop {
        match Conn::new(opts.clone()).await {
            Ok(conn) => return conn,
            // Many tests at once: the server takes only so many connections.
            Err(mysql_async::Error::Server(error)) if error.code == 1040 && tries < 500 => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            Err(error) => panic!("no server at {}:{}: {error}", opts.ip_or_hostname(), opts.tcp_port()),
        }
    }
}

/// A database that is dropped at the end of the test.
pub struct Database {
    pub server: Server,
    pub name: String,
    conn: tokio::sync::Mutex<Conn>,
}

impl Database {
    pub async fn new(server: Server) -> Self {
        let name = format!("posthaste_test_{}", uuid::Uuid::new_v4().simple());
        let mut conn = connect(server.opts()).await;
        conn.query_drop(format!("CREATE DATABASE {name} DEFAULT CHARACTER SET utf8mb4")).await.unwrap();
        conn.query_drop(format!("USE {name}")).await.unwrap();
        conn.query_drop("SET time_zone = '+00:00', innodb_lock_wait_timeout = 20").await.unwrap();
        Self { server, name, conn: tokio::sync::Mutex::new(conn) }
    }

    pub fn url(&self) -> String {
        self.server.url_of(&self.name, None)
    }

    pub fn options(&self) -> MySqlOptions {
        MySqlOptions::new(self.url()).connections(2).payload(Payload::Binary)
    }

    pub async fn execute(&self, sql: &str) {
        let done = self.conn.lock().await.query_drop(sql).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The first value of the first row.
    pub async fn value<T: FromValue + Send + 'static>(&self, sql: &str) -> T {
        let row: mysql_async::Row = self.conn.lock().await.query_first(sql).await.unwrap().unwrap();
        let mut row = row;
        row.take(0).unwrap()
    }

    /// The first values of all rows.
    pub async fn values<T: FromValue + Send + 'static>(&self, sql: &str) -> Vec<T> {
        let rows: Vec<mysql_async::Row> = self.conn.lock().await.query(sql).await.unwrap();
        rows.into_iter().map(|mut row| row.take(0).unwrap()).collect()
    }

    /// A new connection to the database.
    pub async fn client(&self) -> Conn {
        let opts = OptsBuilder::from_opts(Opts::from_url(&self.url()).unwrap()).prefer_socket(false);
        connect(opts.into()).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (opts, name) = (self.server.opts(), self.name.clone());
        // A thread of its own: the test's runtime may be at its end.
        let dropped = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut conn = connect(opts).await;
                // Whoever still holds a lock here belongs to a test that failed.
                conn.query_drop("SET lock_wait_timeout = 10").await?;
                conn.query_drop(format!("DROP DATABASE {name}")).await
            })
        });
        if let Ok(Err(error)) = dropped.join() {
            eprintln!("the database of a test could not be dropped: {error}");
        }
    }
}

/// The fixture of the conformance suite.
pub struct Fixture {
    pub database: Database,
    pub store: MySqlStore,
    options: MySqlOptions,
}

impl Fixture {
    pub async fn with(server: Server, options: impl FnOnce(MySqlOptions) -> MySqlOptions) -> Self {
        let database = Database::new(server).await;
        let options = options(database.options());
        let store = MySqlStore::new(options.clone()).unwrap();
        Self { database, store, options }
    }

    pub async fn migrated(server: Server, options: impl FnOnce(MySqlOptions) -> MySqlOptions) -> Self {
        let fixture = Self::with(server, options).await;
        fixture.store.migrate().await.unwrap();
        fixture
    }

    /// Shifts every stored time back.
    pub async fn advance(&self, by: Duration) {
        let columns = [
            ("outbox", &["created_at", "next_attempt_at", "processed_at", "updated_at"][..]),
            ("outbox_relay", &["leased_until", "started_at"]),
            ("outbox_lane", &["leased_until"]),
            ("outbox_key", &["created_at"]),
            ("outbox_inbox", &["seen_at"]),
        ];
        for (table, columns) in columns {
            let set =
                |column: &&str| format!("{column} = {column} - INTERVAL {} MICROSECOND", by.as_micros());
            let sets: Vec<_> = columns.iter().map(set).collect();
            self.database.execute(&format!("UPDATE {table} SET {}", sets.join(", "))).await;
        }
    }
}

/// The suite's fixture on one kind of server, with one layout.
pub struct On<const MARIADB: bool, const BINARY: bool, const PARTITIONED: bool = false>(pub Fixture);

impl<const MARIADB: bool, const BINARY: bool, const PARTITIONED: bool> On<MARIADB, BINARY, PARTITIONED> {
    fn server() -> Server {
        if MARIADB { Server::MariaDb } else { Server::MySql }
    }

    fn options(options: MySqlOptions) -> MySqlOptions {
        let options = options.payload(if BINARY { Payload::Binary } else { Payload::Json });
        if PARTITIONED { options.partition(Partition::Month) } else { options }
    }
}

#[async_trait]
impl<const MARIADB: bool, const BINARY: bool, const PARTITIONED: bool> StoreFixture
    for On<MARIADB, BINARY, PARTITIONED>
{
    async fn new() -> Option<Self> {
        Some(Self(Fixture::migrated(Self::server(), Self::options).await))
    }

    async fn unmigrated() -> Option<Self> {
        Some(Self(Fixture::with(Self::server(), Self::options).await))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.0.store.clone())
    }

    fn admin(&self) -> Arc<dyn Admin> {
        Arc::new(self.0.store.clone())
    }

    async fn second(&self) -> Arc<dyn Store> {
        Arc::new(MySqlStore::new(self.0.options.clone()).unwrap())
    }

    fn lanes(&self) -> u16 {
        64
    }

    fn concurrent_transactions(&self) -> bool {
        true
    }

    fn payloads(&self) -> Payloads {
        if BINARY { Payloads::AnyBytes } else { Payloads::Json }
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await;
    }

    async fn begin(&self) -> Box<dyn FixtureTransaction> {
        Box::new(Transaction::begin(self.0.store.outbox(), self.0.database.client().await))
    }
}

/// A producer's transaction. The driver's borrows from its connection, so both live on a task.
pub struct Transaction {
    requests: mpsc::Sender<Request>,
}

enum Request {
    One(Box<Message>, oneshot::Sender<Result<MessageId, Error>>),
    Many(Vec<Message>, oneshot::Sender<Result<Vec<MessageId>, Error>>),
    End { commit: bool, done: oneshot::Sender<()> },
}

impl Transaction {
    pub fn begin(outbox: Outbox, conn: Conn) -> Self {
        let (requests, receiver) = mpsc::channel(1);
        tokio::spawn(serve(outbox, conn, receiver));
        Self { requests }
    }

    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> Request) -> T {
        let (answer, answered) = oneshot::channel();
        self.requests.send(request(answer)).await.unwrap_or_else(|_| panic!("the transaction is gone"));
        answered.await.unwrap()
    }
}

async fn serve(outbox: Outbox, mut conn: Conn, mut requests: mpsc::Receiver<Request>) {
    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
    while let Some(request) = requests.recv().await {
        match request {
            Request::One(message, answer) => {
                let enqueued = outbox.enqueue(&mut tx, &message).await;
                let _ = answer.send(enqueued.map(|receipt| receipt.id()));
            }
            Request::Many(messages, answer) => {
                let enqueued = outbox.enqueue_all(&mut tx, &messages).await;
                let _ = answer.send(enqueued.map(|receipts| receipts.iter().map(Receipt::id).collect()));
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
    let _ = tx.rollback().await;
}

#[async_trait]
impl FixtureTransaction for Transaction {
    async fn enqueue(&mut self, message: &Message) -> Result<MessageId, Error> {
        let message = Box::new(message.clone());
        self.ask(|answer| Request::One(message, answer)).await
    }

    async fn enqueue_all(&mut self, messages: &[Message]) -> Result<Vec<MessageId>, Error> {
        let messages = messages.to_vec();
        self.ask(|answer| Request::Many(messages, answer)).await
    }

    async fn commit(self: Box<Self>) {
        self.ask(|done| Request::End { commit: true, done }).await;
    }

    async fn rollback(self: Box<Self>) {
        self.ask(|done| Request::End { commit: false, done }).await;
    }
}

/// Enqueues messages in one call and one transaction of their own.
pub async fn enqueue(database: &Database, outbox: &Outbox, messages: &[Message]) {
    let mut conn = database.client().await;
    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
    outbox.enqueue_all(&mut tx, messages).await.unwrap();
    tx.commit().await.unwrap();
}

/// A request for everything that can be read.
pub fn everything() -> ReadRequest {
    let scan = |lane| Scan { lane: Lane(lane), after: None, until: None, due: DueRecords::All };
    ReadRequest {
        scans: (0..64).map(scan).collect(),
        keys: Keys::Except(Vec::new()),
        in_hand: Vec::new(),
        max_rows: 100_000,
        max_per_key: 100_000,
        max_bytes: 1 << 30,
        max_scanned: 100_000,
    }
}
