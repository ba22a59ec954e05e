//! Trouble that takes a server of the test's own: one that becomes read-only, restarts, or takes only small packets.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, TxOpts};
use posthaste::{Admin, ErrorKind, LeaseRequest, Message, RelayId, Store};
use posthaste_mysql::{MySqlOptions, MySqlStore, Payload};
use support::everything;
use tokio::time::Instant;

/// A server that ends with the test.
struct OwnServer {
    folder: std::path::PathBuf,
    port: u16,
    child: Child,
}

impl OwnServer {
    fn start(name: &str, flags: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("posthaste-{name}-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let child = Self::spawn(&folder, port, flags);
        Self { folder, port, child }
    }

    fn spawn(folder: &Path, port: u16, flags: &[&str]) -> Child {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/mysql-server");
        Command::new(script)
            .arg("run")
            .arg(port.to_string())
            .arg(folder)
            .args(["--innodb-buffer-pool-size=64M", "--performance-schema=OFF"])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("log")).unwrap())
            .spawn()
            .unwrap()
    }

    fn restart(&mut self, flags: &[&str]) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Self::spawn(&self.folder, self.port, flags);
    }

    fn url(&self, database: &str) -> String {
        format!("mysql://root@127.0.0.1:{}/{database}", self.port)
    }

    /// Waits until it answers.
    async fn client(&self) -> Conn {
        let opts = OptsBuilder::from_opts(Opts::from_url(&self.url("mysql")).unwrap()).prefer_socket(false);
        let opts: Opts = opts.into();
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            match Conn::new(opts.clone()).await {
                Ok(conn) => return conn,
                Err(error) => {
                    let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                    assert!(Instant::now() < deadline, "the server does not answer: {error}\n{log}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn migrated(server: &OwnServer) -> MySqlStore {
    server.client().await.query_drop("CREATE DATABASE IF NOT EXISTS d").await.unwrap();
    let options = MySqlOptions::new(server.url("d")).payload(Payload::Binary);
    let store = MySqlStore::new(options).unwrap();
    store.migrate().await.unwrap();
    store
}

fn lease(relay: RelayId) -> LeaseRequest {
    LeaseRequest { relay, name: "own".into(), duration: Duration::from_secs(60), give_back: Vec::new() }
}

#[tokio::test]
async fn a_server_that_becomes_read_only_or_restarts_is_ridden_out() {
    // Defaults under which a session that does not say otherwise never sees what is committed after its first look.
    let defaults = ["--autocommit=0", "--transaction-isolation=REPEATABLE-READ"];
    let mut server = OwnServer::start("restart", &defaults);
    let store = migrated(&server).await;
    let me = RelayId::random();
    assert_eq!(store.lease(&lease(me)).await.unwrap().lanes.len(), 64);
    for seen in 0..4 {
        assert_eq!(store.read(&everything()).await.unwrap().records.len(), seen, "no snapshot is kept");
        let mut producer = store.client().await.unwrap();
        let mut tx = producer.start_transaction(TxOpts::default()).await.unwrap();
        store.outbox().enqueue(&mut tx, &Message::new("e").payload("1")).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut conn = server.client().await;
    conn.query_drop("SET GLOBAL super_read_only = 1").await.unwrap();
    let error = store.lease(&lease(me)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
    let mut producer = store.client().await.unwrap();
    let mut tx = producer.start_transaction(TxOpts::default()).await.unwrap();
    let enqueued = store.outbox().enqueue(&mut tx, &Message::new("e").payload("1")).await;
    assert_eq!(enqueued.unwrap_err().kind(), ErrorKind::ReadOnly);
    tx.rollback().await.unwrap();
    store.read(&everything()).await.unwrap();
    conn.query_drop("SET GLOBAL super_read_only = 0").await.unwrap();
    store.lease(&lease(me)).await.unwrap();

    // Idle connections are closed by the server; nobody notices.
    conn.query_drop("SET GLOBAL wait_timeout = 1").await.unwrap();
    store.leave(me).await.unwrap();

    server.restart(&defaults);
    drop(server.client().await);
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match store.lease(&lease(me)).await {
            Ok(leases) => {
                assert_eq!(leases.lanes.len(), 64);
                break;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                assert!(Instant::now() < deadline, "it does not come back: {error:?}");
            }
        }
    }
    store.read(&everything()).await.or(store.read(&everything()).await).unwrap();
}

#[tokio::test]
async fn what_the_server_takes_in_no_packet_is_refused_before_it_is_sent() {
    let server = OwnServer::start("packet", &["--max-allowed-packet=256K"]);
    let store = migrated(&server).await;
    let mut conn = store.client().await.unwrap();
    let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
    let outbox = store.outbox();
    let of = |bytes: usize| Message::new("e").payload(vec![0xff; bytes]);
    outbox.enqueue(&mut tx, &of(100_000)).await.unwrap();
    let error = outbox.enqueue(&mut tx, &of(300_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PayloadTooLarge, "{error:?}");
    assert!(error.to_string().contains("max_allowed_packet of 262144"), "{error}");
    let batch = [of(100_000), of(100_000), of(10), of(100_000)];
    outbox.enqueue_all(&mut tx, &batch).await.unwrap();
    let text = Message::new("text").payload("x".repeat(240_000));
    outbox.enqueue(&mut tx, &text).await.unwrap();
    tx.commit().await.unwrap();
    let records = store.read(&everything()).await.unwrap().records;
    assert_eq!(records.len(), 6, "the transaction stayed usable, and the batch was split");
}
