//! A crowd: 50 producers whose transactions are of all lengths and end in all ways, and relay processes that come, go and
//! are killed, on a server that is restarted. Nothing is lost, nothing of a rollback is published, each key keeps its
//! order; and nothing is published twice unless somebody was killed.

use std::fs::OpenOptions;
use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste::Outbox;
use posthaste::{Error, ErrorKind, Message, MessageId};
use posthaste_testkit::InvariantChecker;
use tokio::runtime::Runtime;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use tokio::time::Instant;
use tokio_postgres::{Client, IsolationLevel, NoTls, Transaction};

use crate::cluster::{Cluster, Halt};
use crate::support::{bare_command, json_lines};

const PRODUCERS: usize = 50;
const KEYS: usize = 40;
const STOCK: i32 = 12;

/// How long the crowd is at it; longer by this variable.
fn length() -> Duration {
    let seconds = std::env::var("POSTHASTE_TEST_CROWD_SECONDS").ok();
    Duration::from_secs(seconds.map_or(8, |text| text.parse().unwrap()))
}

/// What happened, in the order in which it did.
struct Crowd {
    url: String,
    outbox: Outbox,
    checker: Mutex<InvariantChecker>,
    /// A transaction holds its keys until it is over: of those that overlap, no order is promised.
    keys: Vec<Arc<AsyncMutex<()>>>,
    until: Instant,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    committed: u64,
    rolled_back: u64,
    conflicts: u64,
    broken: u64,
}

/// How a transaction ended.
enum End {
    Committed,
    RolledBack,
    /// It lost against another one.
    Conflict,
    /// The connection broke; nobody knows.
    Unknown,
}

impl Crowd {
    async fn produce(self: Arc<Self>, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut client = connect(&self.url).await;
        while Instant::now() < self.until {
            let keys = pick(&mut random, KEYS, 1..4);
            let _held = self.hold(&keys).await;
            let work = Work::random(&mut random, &keys);
            let end = self.transact(&mut client, &work).await;
            let is_there = match end {
                End::Committed => true,
                End::RolledBack | End::Conflict => false,
                End::Unknown => {
                    client = connect(&self.url).await;
                    self.is_there(&mut client, &work.kept).await
                }
            };
            self.note(&end, &work, is_there);
        }
    }

    async fn hold(&self, keys: &[usize]) -> Vec<OwnedMutexGuard<()>> {
        let mut held = Vec::new();
        for key in keys {
            held.push(self.keys[*key].clone().lock_owned().await);
        }
        held
    }

    fn note(&self, end: &End, work: &Work, is_there: bool) {
        let mut checker = self.checker.lock().unwrap();
        work.undone.iter().for_each(|message| checker.rolled_back(message));
        for message in &work.kept {
            if is_there {
                checker.committed(message);
            } else {
                checker.rolled_back(message);
            }
        }
        let mut counts = self.counts.lock().unwrap();
        *match end {
            End::Committed => &mut counts.committed,
            End::RolledBack => &mut counts.rolled_back,
            End::Conflict => &mut counts.conflicts,
            End::Unknown => &mut counts.broken,
        } += 1;
    }

    async fn transact(&self, client: &mut Client, work: &Work) -> End {
        let begun = client.build_transaction().isolation_level(work.isolation).start().await;
        let Ok(mut tx) = begun else { return End::Unknown };
        match self.steps(&mut tx, work).await {
            Ok(()) if work.rolls_back => match tx.rollback().await {
                Ok(()) => End::RolledBack,
                Err(_) => End::Unknown,
            },
            Ok(()) => tx.commit().await.map_or_else(|error| ended_by(&error), |()| End::Committed),
            Err(end) => match (end, tx.rollback().await) {
                (End::Conflict, Ok(())) => End::Conflict,
                _ => End::Unknown,
            },
        }
    }

    async fn steps(&self, tx: &mut Transaction<'_>, work: &Work) -> Result<(), End> {
        let enqueued = |result: Result<(), Error>| match result {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Conflict => Err(End::Conflict),
            Err(error) if error.kind() == ErrorKind::Unavailable => Err(End::Unknown),
            Err(error) => panic!("{error:?}"),
        };
        let (first, rest) = work.kept.split_first().unwrap();
        enqueued(self.outbox.enqueue(&mut *tx, first).await.map(|_| ()))?;
        for row in &work.stock {
            let update = "UPDATE stock SET n = n + 1 WHERE id = $1";
            tx.execute(update, &[row]).await.map_err(|error| ended_by(&error))?;
            tokio::time::sleep(work.takes / 2).await;
        }
        if !work.undone.is_empty() {
            let savepoint = tx.savepoint("s").await.map_err(|error| ended_by(&error))?;
            enqueued(self.outbox.enqueue_all(&savepoint, &work.undone).await.map(|_| ()))?;
            savepoint.rollback().await.map_err(|error| ended_by(&error))?;
        }
        enqueued(self.outbox.enqueue_all(&mut *tx, rest).await.map(|_| ()))
    }

    /// Whether a transaction of which nobody knows took effect: all of it or nothing.
    async fn is_there(&self, client: &mut Client, messages: &[Message]) -> bool {
        let ids: Vec<_> = messages.iter().map(|message| *message.id().as_uuid()).collect();
        let sql = "SELECT count(*) FROM outbox WHERE id = ANY ($1)";
        let found: i64 = loop {
            match client.query_one(sql, &[&ids]).await {
                Ok(row) => break row.get(0),
                Err(_) => *client = connect(&self.url).await,
            }
        };
        assert!(found == 0 || found == i64::try_from(ids.len()).unwrap(), "{found} of {}", ids.len());
        found > 0
    }
}

fn ended_by(error: &tokio_postgres::Error) -> End {
    match error.code().map(tokio_postgres::error::SqlState::code) {
        Some("40001" | "40P01") => End::Conflict,
        _ => End::Unknown,
    }
}

/// What a transaction does.
struct Work {
    isolation: IsolationLevel,
    kept: Vec<Message>,
    /// Enqueued behind a savepoint to which it goes back.
    undone: Vec<Message>,
    /// Rows that it changes, in an order of its own: so that some meet in a deadlock.
    stock: Vec<i32>,
    takes: Duration,
    rolls_back: bool,
}

impl Work {
    fn random(random: &mut fastrand::Rng, keys: &[usize]) -> Self {
        let message = |key: &usize| Message::new("e").aggregate("k", key).payload("payload");
        let repeated = (0..random.usize(1..4)).flat_map(|_| keys).map(message).collect();
        let undone = if random.u8(0..4) == 0 { keys.iter().map(message).collect() } else { Vec::new() };
        let mut stock: Vec<_> = (0..random.usize(0..3)).map(|_| random.i32(1..=STOCK)).collect();
        stock.dedup();
        Self {
            isolation: match random.u8(0..6) {
                0 => IsolationLevel::Serializable,
                1 => IsolationLevel::RepeatableRead,
                _ => IsolationLevel::ReadCommitted,
            },
            kept: repeated,
            undone,
            stock,
            takes: Duration::from_millis(if random.u8(0..60) == 0 { 400 } else { random.u64(0..20) }),
            rolls_back: random.u8(0..7) == 0,
        }
    }
}

/// A few different numbers below `most`, in order.
fn pick(random: &mut fastrand::Rng, most: usize, count: std::ops::Range<usize>) -> Vec<usize> {
    let mut picked: Vec<_> = (0..random.usize(count)).map(|_| random.usize(0..most)).collect();
    picked.sort_unstable();
    picked.dedup();
    picked
}

async fn connect(url: &str) -> Client {
    for _ in 0..1_000 {
        if let Ok((client, connection)) = tokio_postgres::connect(url, NoTls).await {
            tokio::spawn(connection);
            return client;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the server did not come back");
}

/// The relays: processes that write to the end of one file, so that its lines are in the order in which they published.
struct Relays {
    url: String,
    lease: &'static str,
    file: PathBuf,
    running: Vec<Child>,
    /// Whether one may have been started while the server was down.
    may_fail: bool,
}

impl Relays {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare_command(arguments);
        let file = OpenOptions::new().create(true).append(true).open(&self.file).unwrap();
        command
            .env("POSTHASTE_DATABASE_URL", &self.url)
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(Stdio::null());
        command
    }

    fn start(&mut self) {
        let arguments =
            ["relay", "--lease", self.lease, "--idle-poll", "50ms", "--max-in-flight", "16", "-q"];
        let relay = self.command(&arguments).spawn().unwrap();
        self.running.push(relay);
    }

    fn end(&mut self, which: usize, signal: &str) {
        let mut relay = self.running.swap_remove(which);
        let id = relay.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        let status = relay.wait().unwrap();
        match status.code() {
            None => assert_eq!(signal, "KILL", "{status}"),
            Some(code) => assert!(code == 0 || (code == 1 && self.may_fail), "{status}"),
        }
    }
}

impl Drop for Relays {
    fn drop(&mut self) {
        for relay in &mut self.running {
            if let Err(error) = relay.kill() {
                assert_eq!(error.kind(), IoKind::InvalidInput);
            }
            let _ = relay.wait();
        }
    }
}

/// Who comes and goes meanwhile.
fn coming_and_going(
    runtime: &Runtime,
    relays: &mut Relays,
    cluster: &Cluster,
    until: Instant,
    with_kills: bool,
) {
    let mut random = fastrand::Rng::with_seed(11);
    let mut round = 0;
    while Instant::now() < until {
        let pause = Duration::from_millis(random.u64(200..700));
        runtime.block_on(async { tokio::time::sleep(pause).await });
        round += 1;
        let count = relays.running.len();
        match random.u8(0..3) {
            0 if count > 2 => relays.end(random.usize(0..count), "TERM"),
            1 if with_kills => {
                relays.end(random.usize(0..count), "KILL");
                relays.start();
            }
            _ if count < 8 => relays.start(),
            _ => relays.end(0, "TERM"),
        }
        if with_kills && round % 8 == 4 {
            cluster.halt(if round % 16 == 4 { Halt::Fast } else { Halt::Kill });
            cluster.again();
        }
    }
}

fn crowd(with_kills: bool) {
    let cluster = Cluster::start(&["max_connections=200"]);
    let url = cluster.url("postgres");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("published");
    let lease = if with_kills { "1s" } else { "30s" };
    let mut relays =
        Relays { url: url.clone(), lease, file: file.clone(), running: Vec::new(), may_fail: with_kills };
    assert!(relays.command(&["migrate"]).status().unwrap().success());
    std::fs::remove_file(&file).unwrap();
    let stock = "CREATE TABLE stock (id int PRIMARY KEY, n int NOT NULL); \
                 INSERT INTO stock SELECT generate_series(1, 12), 0";
    runtime.block_on(async { connect(&url).await.batch_execute(stock).await.unwrap() });
    let until = Instant::now() + length();
    let crowd = Arc::new(Crowd {
        outbox: Outbox::new("outbox").unwrap(),
        checker: Mutex::default(),
        keys: (0..KEYS).map(|_| Arc::default()).collect(),
        counts: Mutex::default(),
        url: url.clone(),
        until,
    });
    let producers: Vec<_> =
        (0..PRODUCERS as u64).map(|seed| runtime.spawn(crowd.clone().produce(seed))).collect();
    relays.start();
    relays.start();
    coming_and_going(&runtime, &mut relays, &cluster, until, with_kills);
    runtime.block_on(async {
        for producer in producers {
            producer.await.unwrap();
        }
    });
    while !relays.running.is_empty() {
        relays.end(0, "TERM");
    }
    let drained = relays.command(&["relay", "--drain", "-q", "--lease", "1s"]).status().unwrap();
    assert!(drained.success());
    check(&crowd, &file, with_kills);
    let open = "SELECT count(*) FROM outbox WHERE status <> 1";
    let open: i64 =
        runtime.block_on(async { connect(&url).await.query_one(open, &[]).await.unwrap().get(0) });
    assert_eq!(open, 0);
}

fn check(crowd: &Crowd, file: &Path, with_kills: bool) {
    let mut checker = crowd.checker.lock().unwrap();
    let lines = json_lines(&std::fs::read_to_string(file).unwrap());
    for line in &lines {
        let id = line["id"].as_str().unwrap().parse().unwrap();
        checker.published(MessageId::new(id).unwrap());
    }
    let (counts, found) = (crowd.counts.lock().unwrap(), checker.check());
    eprintln!("{counts:?}; {} published, {} twice", lines.len(), found.duplicates.len());
    assert!(counts.committed > 100 && counts.rolled_back > 10 && counts.conflicts > 0, "{counts:?}");
    assert!(found.is_at_least_once(), "{found}");
    assert!(with_kills || found.is_exactly_once(), "nobody was killed: {found}");
    assert!(!with_kills || counts.broken > 0, "no restart was noticed: {counts:?}");
}

#[test]
fn relays_that_come_and_go_publish_each_message_once_and_in_order() {
    crowd(false);
}

#[test]
fn relays_that_are_killed_and_restarts_lose_nothing_and_keep_the_order() {
    crowd(true);
}
