//! Servers that are restarted, full, locked, or replaced under the relay: each on a server of the test's own.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste::{
    Admin, BoxError, Error, ErrorKind, Event, LeaseRequest, Message, Observer, Record, Relay, RelayHandle,
    RelayId, Store, Summary, publish_fn,
};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use posthaste_testkit::FaultProxy;
use support::cluster::{Cluster, Halt};
use support::producers::{Checker, connect, produce};
use support::until;
use tokio_postgres::{Client, NoTls};

const KEYS: usize = 4;
const EACH: usize = 150;

/// A relay that notes what it publishes and what its store reports.
struct Running {
    handle: RelayHandle,
    task: tokio::task::JoinHandle<Result<Summary, Error>>,
    errors: Errors,
}

/// What a store reported.
type Errors = Arc<Mutex<Vec<(ErrorKind, String)>>>;

struct Noting(Errors);

impl Observer for Noting {
    fn event(&self, event: &Event<'_>) {
        if let Event::StoreFailed { error, .. } = event {
            self.0.lock().unwrap().push((error.kind(), error.to_string()));
        }
    }
}

impl Running {
    /// Its lease is so long that no restart outlasts it.
    fn start(store: &PostgresStore, checker: &Checker) -> Self {
        let (checker, errors) = (checker.clone(), Errors::default());
        let relay = Relay::builder(Arc::new(store.clone()))
            .publisher(publish_fn(move |record: Arc<Record>| {
                checker.lock().unwrap().published(record.id);
                async { Ok::<_, BoxError>(()) }
            }))
            .lease(Duration::from_mins(2))
            .observer(Noting(errors.clone()))
            .build()
            .unwrap();
        let handle = relay.handle();
        Self { handle, task: tokio::spawn(relay.run_until(std::future::pending())), errors }
    }

    fn has_seen(&self, kind: ErrorKind, says: &str) -> bool {
        self.errors.lock().unwrap().iter().any(|(seen, text)| *seen == kind && text.contains(says))
    }

    async fn stop(self) {
        self.handle.stop();
        self.task.await.unwrap().unwrap();
    }
}

async fn count(url: &str, sql: &str) -> i64 {
    connect(url).await.query_one(sql, &[]).await.unwrap().get(0)
}

async fn migrated(url: &str) -> PostgresStore {
    let store = PostgresStore::new(PostgresOptions::new(url)).unwrap();
    store.migrate().await.unwrap();
    store
}

async fn until_drained(url: &str) {
    let open = "SELECT count(*) FROM outbox WHERE status <> 1";
    until("all is published and settled", async || count(url, open).await == 0).await;
}

/// Whether the relay that took the lanes first has them still: nobody else had them in between.
async fn assert_kept_its_place(url: &str) {
    let taken_once = "SELECT count(*) FROM outbox_lane l JOIN outbox_relay r ON r.id = l.owner
                      WHERE l.token = 1 AND l.lane >= 0";
    assert_eq!(count(url, taken_once).await, 64);
    assert_eq!(count(url, "SELECT count(*) FROM outbox_relay").await, 1);
}

/// The server goes and comes back under load; the relay is not restarted and loses neither its place nor a message.
async fn a_restart_is_ridden_out(how: Halt) {
    let cluster = Cluster::start(&[]);
    let url = cluster.url("postgres");
    let store = migrated(&url).await;
    let checker = Checker::default();
    let relay = Running::start(&store, &checker);
    let producers: Vec<_> =
        (0..KEYS).map(|key| produce(url.clone(), "outbox".to_owned(), key, EACH, checker.clone())).collect();
    let published = || relay.handle.summary().published;
    for restart in 1..=3_u64 {
        // It happens while work is under way, whatever the machine's speed.
        until("the relay is at it", async || published() > restart * 100).await;
        cluster.halt(how);
        cluster.again();
    }
    for producer in producers {
        producer.await.unwrap();
    }
    until_drained(&url).await;
    assert_kept_its_place(&url).await;
    let found = checker.lock().unwrap().check();
    assert!(found.is_exactly_once(), "{how:?}: {found}");
    assert!(relay.has_seen(ErrorKind::Unavailable, ""), "{how:?}: the relay must have noticed");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_orderly_restart_under_load_is_ridden_out() {
    a_restart_is_ridden_out(Halt::Fast).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_under_load_is_ridden_out() {
    a_restart_is_ridden_out(Halt::Immediate).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_of_the_server_under_load_is_ridden_out() {
    a_restart_is_ridden_out(Halt::Kill).await;
}

/// Numbers that were given out before a crash and never used are no gap that anything waits for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_lost_in_a_crash_hold_up_nothing() {
    let cluster = Cluster::start(&[]);
    let url = cluster.url("postgres");
    let store = migrated(&url).await;
    let checker = Checker::default();
    let relay = Running::start(&store, &checker);
    let mut client = connect(&url).await;
    for _ in 0..10 {
        let tx = client.transaction().await.unwrap();
        store.outbox().enqueue(&tx, &Message::new("undone").aggregate("k", 0)).await.unwrap();
        tx.rollback().await.unwrap();
    }
    cluster.halt(Halt::Kill);
    cluster.again();
    produce(url.clone(), "outbox".to_owned(), 0, 1, checker.clone()).await.unwrap();
    until_drained(&url).await;
    assert!(checker.lock().unwrap().check().is_exactly_once());
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_without_a_free_connection_says_so_and_the_relay_waits() {
    let cluster = Cluster::start(&["max_connections=8", "superuser_reserved_connections=3"]);
    let admin = cluster.url("postgres");
    migrated(&admin).await;
    let owner = connect(&admin).await;
    let grant = "CREATE ROLE app LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO app;
                 GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO app";
    owner.batch_execute(grant).await.unwrap();
    let app = cluster.url("app");
    let mut taken = take_all_places(&app).await;
    let store = PostgresStore::new(PostgresOptions::new(&app)).unwrap();
    let error = PostgresStore::connect(PostgresOptions::new(&app)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("no connection left"), "{error}");

    let checker = Checker::default();
    let relay = Running::start(&store, &checker);
    for round in 1..=2 {
        until("the relay has noticed", async || relay.has_seen(ErrorKind::Unavailable, "no connection left"))
            .await;
        owner.batch_execute("INSERT INTO outbox (event_type) VALUES ('e')").await.unwrap();
        taken.clear();
        until_drained(&admin).await;
        assert_eq!(relay.handle.summary().published, round);
        // And the same once it has had connections.
        relay.errors.lock().unwrap().clear();
        let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'posthaste'";
        while round == 1 && !relay.has_seen(ErrorKind::Unavailable, "no connection left") {
            owner.query_one(kill, &[]).await.unwrap();
            taken.extend(take_all_places(&app).await);
        }
    }
    relay.stop().await;
}

async fn take_all_places(url: &str) -> Vec<Client> {
    let mut taken = Vec::new();
    while let Ok((client, connection)) = tokio_postgres::connect(url, NoTls).await {
        tokio::spawn(connection);
        taken.push(client);
    }
    taken
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_told() {
    let cluster = Cluster::start(&["password_encryption=scram-sha-256"]);
    let owner = connect(&cluster.url("postgres")).await;
    owner.batch_execute("CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'open sesame'").await.unwrap();
    let connect = |user: &str| PostgresStore::connect(PostgresOptions::new(cluster.url(user)));
    for user in ["locked:close%20sesame", "locked"] {
        let error = connect(user).await.unwrap_err();
        let said = format!("{error:?} {error}");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{user}: {said}");
        assert!(said.contains("the user"), "{said}");
        assert!(!said.contains("sesame"), "{said}");
    }
    connect("locked:open%20sesame").await.unwrap();
}

/// A small file system of its own, which only root can make, and which is the user's as whom the server runs then.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(cluster: &Cluster) -> Option<Self> {
        let path = PathBuf::from(cluster.directory()).join("disk");
        std::fs::create_dir(&path).ok()?;
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=6m,mode=0700,uid=65534", "tmpfs"])
            .arg(&path)
            .stderr(Stdio::null());
        mount.status().ok()?.success().then_some(Self(path))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_waited_for() {
    let cluster = Cluster::start(&[]);
    let Some(disk) = SmallDisk::mount(&cluster) else {
        eprintln!("SKIPPED: a file system cannot be mounted here");
        return;
    };
    let url = cluster.url("postgres");
    let owner = connect(&url).await;
    owner.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.0.display())).await.unwrap();
    owner.batch_execute("SET default_tablespace = small; CREATE TABLE filler (text text)").await.unwrap();
    migrated(&url).await;
    for index in ["outbox", "outbox_lane", "outbox_relay"] {
        owner.batch_execute(&format!("ALTER TABLE {index} SET TABLESPACE small")).await.unwrap();
    }
    let insert = "INSERT INTO outbox (event_type, aggregate_type, aggregate_id, payload)
                  SELECT 'e', 'k', (n % 4)::text, convert_to(repeat('x', 1000), 'UTF8') FROM generate_series(1, 600) n";
    owner.batch_execute(insert).await.unwrap();
    while owner
        .batch_execute("INSERT INTO filler SELECT repeat(random()::text, 50) FROM generate_series(1, 8)")
        .await
        .is_ok()
    {}

    let store = PostgresStore::new(PostgresOptions::new(&url)).unwrap();
    let checker = Checker::default();
    let relay = Running::start(&store, &checker);
    until("the relay has noticed", async || relay.has_seen(ErrorKind::Unavailable, "disk is full")).await;
    let mut client = connect(&url).await;
    let tx = client.transaction().await.unwrap();
    let mut random = fastrand::Rng::with_seed(7);
    let error = loop {
        let payload: Vec<u8> = (0..1_500).map(|_| random.u8(..)).collect();
        if let Err(error) = store.outbox().enqueue(&tx, &Message::new("more").payload(payload)).await {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("disk is full"), "{error}");
    drop(tx);

    owner.batch_execute("DROP TABLE filler; CHECKPOINT").await.unwrap();
    until_drained(&url).await;
    let published = relay.handle.summary().published;
    assert_eq!(published, 600, "each once, however often the settle had to be tried");
    relay.stop().await;
}

/// The server that everybody writes to is lost; for a time there is only a standby that takes no writes, and then it is
/// promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_ridden_out() {
    // A commit waits until the standby has it: what was confirmed is not lost with the first server.
    let primary = Cluster::start(&["wal_level=replica", "hot_standby=on"]);
    let proxy = FaultProxy::start(primary.address());
    let url = format!("postgres://postgres@{}/postgres?sslmode=disable", proxy.address());
    let store = migrated(&url).await;
    // What it shows is behind what it has: nothing may be believed that is read there.
    let standby = primary.standby(&["recovery_min_apply_delay=300ms"]);
    let owner = connect(&primary.url("postgres")).await;
    owner.batch_execute("ALTER SYSTEM SET synchronous_standby_names = '*'").await.unwrap();
    owner.batch_execute("SELECT pg_reload_conf()").await.unwrap();
    let in_sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    let primary_url = primary.url("postgres");
    until("the standby follows", async || count(&primary_url, in_sync).await == 1).await;

    let checker = Checker::default();
    let relay = Running::start(&store, &checker);
    let producers: Vec<_> =
        (0..KEYS).map(|key| produce(url.clone(), "outbox".to_owned(), key, EACH, checker.clone())).collect();
    until("the relay is at it", async || relay.handle.summary().published > 100).await;
    primary.halt(Halt::Kill);
    proxy.lead_to(standby.address());
    until("the relay has met the standby", async || relay.has_seen(ErrorKind::ReadOnly, "standby")).await;
    let at_standby = PostgresStore::new(PostgresOptions::new(standby.url("postgres"))).unwrap();
    let error = at_standby.read(&support::all_lanes()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly, "a relay believes no standby: {error}");
    at_standby.stats(None).await.unwrap();
    assert!(at_standby.pending_migrations().await.unwrap().is_empty(), "an operator may look there");
    standby.promote();
    for producer in producers {
        producer.await.unwrap();
    }
    until_drained(&url).await;
    assert_kept_its_place(&url).await;
    let found = checker.lock().unwrap().check();
    assert!(found.is_exactly_once(), "{found}");
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_across_a_crash_because_it_is_a_row() {
    let cluster = Cluster::start(&[]);
    let url = cluster.url("postgres");
    let store = migrated(&url).await;
    let lease = |relay| LeaseRequest {
        relay,
        name: String::new(),
        duration: Duration::from_mins(5),
        give_back: Vec::new(),
    };
    let (first, second) = (RelayId::random(), RelayId::random());
    assert_eq!(store.lease(&lease(first)).await.unwrap().lanes.len(), 64);
    cluster.halt(Halt::Kill);
    cluster.again();
    let other = PostgresStore::new(PostgresOptions::new(&url)).unwrap();
    assert_eq!(other.lease(&lease(second)).await.unwrap().lanes, [], "the first relay's lease goes on");
}
