//! The soak: relays that join, leave, freeze and die at random, and sessions that are cut, under producers whose
//! transactions are of all lengths and end in all ways. What every run of the tests does takes half a minute;
//! `POSTHASTE_TEST_SOAK_SECONDS` makes it longer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use posthaste::{Clock, IdGenerator, Message, SystemClock};
use posthaste_testkit::InvariantChecker;
use tokio::time::Instant;

use crate::producer::{Ended, Producer};
use crate::relays::{Process, Relays, pass, until};
use crate::report;
use crate::stores::{self, Database};

const PRODUCERS: usize = 8;
const KEYS: usize = 30;
const STOCK: u32 = 5;
/// The most records that a relay has in hand.
const WINDOW: usize = 64;
const RELAY: [&str; 12] = [
    "--lease",
    "2s",
    "--idle-poll",
    "20ms",
    "--max-in-flight",
    "16",
    "--window-rows",
    "64",
    "--retain",
    "delete",
    // A record may be in flight at several deaths.
    "--max-attempts",
    "1000",
];

fn length() -> Duration {
    let seconds = std::env::var("POSTHASTE_TEST_SOAK_SECONDS").ok();
    Duration::from_secs(
        seconds.map_or(if report::is_whole() { 120 } else { 25 }, |text| text.parse().unwrap()),
    )
}

/// What the producers share.
struct Shared<'a> {
    relays: &'a Relays<'a>,
    database: Database,
    checker: Mutex<InvariantChecker>,
    counts: Mutex<BTreeMap<&'static str, u64>>,
    /// A transaction holds its keys until it is over: of those that overlap, no order is promised.
    keys: Vec<Mutex<()>>,
    until: Instant,
}

impl Shared<'_> {
    fn count(&self, what: &'static str) {
        *self.counts.lock().unwrap().entry(what).or_default() += 1;
    }

    fn produce(&self, number: usize) {
        let mut random = fastrand::Rng::with_seed(number as u64);
        // Producers whose clocks are wrong: their ids say nothing about the order.
        let skew = Duration::from_mins(30) * u32::try_from(number).unwrap();
        let ids = IdGenerator::new(Behind(skew), number as u64);
        let mut producer = Producer::new(self.relays.bed());
        while Instant::now() < self.until {
            let keys = pick(&mut random);
            let _held: Vec<MutexGuard<'_, ()>> =
                keys.iter().map(|key| self.keys[*key].lock().unwrap()).collect();
            let work = Work::random(&mut random, &keys, &ids);
            // On SQLite nobody else can write meanwhile.
            let longest = if self.database == Database::Sqlite { 10 } else { u64::MAX };
            let is_there = match work.run(&mut producer, longest) {
                Ok(()) => !work.rolls_back,
                Err(Ended::Conflict) => {
                    let _ = producer.roll_back();
                    self.count("conflicts");
                    false
                }
                Err(Ended::Broken) => {
                    self.count("cut off");
                    producer = Producer::new(self.relays.bed());
                    work.is_done(&mut producer)
                }
            };
            self.note(&work, is_there);
            pass(Duration::from_millis(random.u64(0..8)));
        }
    }

    fn note(&self, work: &Work, is_there: bool) {
        let mut checker = self.checker.lock().unwrap();
        for message in &work.messages {
            if is_there {
                checker.committed(message);
            } else {
                checker.rolled_back(message);
            }
        }
        drop(checker);
        self.count(if is_there { "committed" } else { "rolled back" });
    }
}

/// A clock that is behind.
struct Behind(Duration);

impl Clock for Behind {
    fn now(&self) -> SystemTime {
        SystemClock.now() - self.0
    }
}

/// A few different keys, in order.
fn pick(random: &mut fastrand::Rng) -> Vec<usize> {
    let mut picked: Vec<_> = (0..random.usize(1..4)).map(|_| random.usize(0..KEYS)).collect();
    picked.sort_unstable();
    picked.dedup();
    picked
}

/// What a transaction does.
struct Work {
    serializable: bool,
    messages: Vec<Message>,
    /// Rows that it changes, in an order of its own: so that some meet in a deadlock.
    stock: Vec<u32>,
    takes: u64,
    rolls_back: bool,
}

impl Work {
    fn random(random: &mut fastrand::Rng, keys: &[usize], ids: &IdGenerator) -> Self {
        let message =
            |key: &usize| Message::new("e").with_id(ids.generate()).aggregate("k", key).payload("1");
        Self {
            serializable: random.u8(0..5) == 0,
            messages: (0..random.usize(1..4)).flat_map(|_| keys).map(message).collect(),
            stock: (0..random.usize(0..4)).map(|_| random.u32(1..=STOCK)).collect(),
            takes: if random.u8(0..80) == 0 { 500 } else { random.u64(0..10) },
            rolls_back: random.u8(0..8) == 0,
        }
    }

    fn run(&self, producer: &mut Producer, longest: u64) -> Result<(), Ended> {
        producer.begin(self.serializable)?;
        let (first, rest) = self.messages.split_first().unwrap();
        producer.enqueue(std::slice::from_ref(first))?;
        producer.execute(&format!("INSERT INTO {{}}done VALUES ('{}')", self.name()))?;
        for row in &self.stock {
            producer.execute(&format!("UPDATE {{}}stock SET n = n + 1 WHERE id = {row}"))?;
        }
        pass(Duration::from_millis(self.takes.min(longest)));
        producer.enqueue(rest)?;
        if self.rolls_back { producer.roll_back() } else { producer.commit() }
    }

    fn name(&self) -> String {
        self.messages[0].id().to_string()
    }

    /// Whether it was committed, where nobody has said so.
    fn is_done(&self, producer: &mut Producer) -> bool {
        producer.number(&format!("SELECT count(*) FROM {{}}done WHERE name = '{}'", self.name())) > 0
    }
}

/// The relays, and what happened to them.
struct Crowd<'a> {
    shared: &'a Shared<'a>,
    random: fastrand::Rng,
    running: Vec<Process>,
    frozen: Vec<(Instant, Process)>,
    started: usize,
    /// Deaths and freezes: as often, what a relay had in hand may be published once more.
    blows: usize,
    cuts: usize,
}

impl Crowd<'_> {
    fn start(&mut self) {
        self.started += 1;
        let (shared, skew) = (self.shared, self.random.i64(-36_000..36_000));
        let relay = shared.relays.start(|| {
            let mut command = shared.relays.command(&RELAY);
            if shared.database != Database::Sqlite {
                // The database's clock decides, so this must change nothing.
                command.env("POSTHASTE_TEST_CLOCK_SKEW", skew.to_string());
                command.env("POSTHASTE_DATABASE_URL", stores::url_as(shared.relays.bed()));
            }
            command
        });
        self.running.push(relay);
    }

    /// Something happens to one of the relays.
    fn turn(&mut self) {
        let now = Instant::now();
        while let Some(due) = self.frozen.iter().position(|(until, _)| *until <= now) {
            let (_, relay) = self.frozen.swap_remove(due);
            relay.signal("CONT");
            self.running.push(relay);
        }
        let count = self.running.len();
        let which = if count == 0 { 0 } else { self.random.usize(0..count) };
        match self.random.u8(0..6) {
            0 if count > 2 => self.end(which),
            1 if count > 0 => {
                let relay = self.running.swap_remove(which);
                relay.signal("KILL");
                assert_eq!(relay.end(), None);
                self.blows += 1;
            }
            2 if count > 1 => {
                let relay = self.running.swap_remove(which);
                relay.signal("STOP");
                let until = now + Duration::from_millis(self.random.u64(100..4_000));
                self.frozen.push((until, relay));
                self.blows += 1;
            }
            3 => {
                let was_cut = stores::cut_a_session(self.shared.relays.bed(), self.shared.database);
                self.cuts += usize::from(was_cut);
            }
            _ if count < 4 => self.start(),
            _ => self.end(which),
        }
    }

    fn end(&mut self, which: usize) {
        let relay = self.running.swap_remove(which);
        relay.signal("TERM");
        let code = relay.end();
        // One that lost its lease has abandoned something, and says so.
        let abandoned = code == Some(1) && self.shared.relays.lapses() > 0;
        assert!(code == Some(0) || abandoned, "{code:?}: {}", self.shared.relays.log());
    }

    fn end_all(&mut self) {
        for (_, relay) in self.frozen.drain(..) {
            relay.signal("CONT");
            self.running.push(relay);
        }
        while !self.running.is_empty() {
            self.end(0);
        }
    }
}

/// What must not grow.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// The memory of a relay that nothing happens to, in MiB.
    memory: u64,
    sessions: usize,
    /// The table with its indexes and side tables, in MiB.
    table: u64,
}

impl Sample {
    fn take(shared: &Shared<'_>, lasting: &Process) -> Self {
        let (bed, database) = (shared.relays.bed(), shared.database);
        Self {
            memory: lasting.stat().resident_pages * 4 / 1024,
            sessions: stores::sessions(bed, database),
            table: stores::size(bed, database) / 1024 / 1024,
        }
    }
}

fn soak(database: Database) {
    let bed = database.bed();
    let relays = Relays::new(&bed);
    let mut producer = Producer::new(&bed);
    producer.execute("CREATE TABLE {}done (name varchar(40) PRIMARY KEY)").unwrap();
    producer.execute("CREATE TABLE {}stock (id int PRIMARY KEY, n int NOT NULL)").unwrap();
    for row in 1..=STOCK {
        producer.execute(&format!("INSERT INTO {{}}stock VALUES ({row}, 0)")).unwrap();
    }
    let shared = Shared {
        relays: &relays,
        database,
        checker: Mutex::default(),
        counts: Mutex::default(),
        keys: (0..KEYS).map(|_| Mutex::default()).collect(),
        until: Instant::now() + length(),
    };
    let random = fastrand::Rng::with_seed(7);
    let mut crowd = Crowd {
        shared: &shared,
        random,
        running: Vec::new(),
        frozen: Vec::new(),
        started: 0,
        blows: 0,
        cuts: 0,
    };
    let lasting = relays.start(|| relays.command(&RELAY));
    let mut samples = Vec::new();
    std::thread::scope(|scope| {
        let shared = &shared;
        (0..PRODUCERS).for_each(|number| drop(scope.spawn(move || shared.produce(number))));
        while Instant::now() < shared.until {
            pass(Duration::from_millis(crowd.random.u64(100..400)));
            crowd.turn();
            samples.push(Sample::take(shared, &lasting));
        }
    });
    crowd.end_all();
    // A record in hand of a frozen relay waits for the end of its lease.
    let drained = relays.start(|| relays.command(&[&RELAY[..], &["--drain"]].concat())).end();
    assert_eq!(drained, Some(0), "{}", relays.log());
    let last = Sample::take(&shared, &lasting);
    lasting.signal("TERM");
    assert_eq!(lasting.end(), Some(0), "{}", relays.log());
    let status = bed.status();
    assert_eq!((&status["ready"], &status["dead"]), (&0.into(), &0.into()), "{status}");
    drop(producer);
    until("no session is left", || stores::sessions(&bed, database) == 0);
    check(&crowd, &samples, last);
}

fn check(crowd: &Crowd<'_>, samples: &[Sample], last: Sample) {
    let shared = crowd.shared;
    let mut checker = shared.checker.lock().unwrap();
    let published = shared.relays.published();
    published.iter().for_each(|id| checker.published(*id));
    let found = checker.check();
    let counts = shared.counts.lock().unwrap();
    let count = |what| counts.get(what).copied().unwrap_or(0);
    let repeats: usize = found.duplicates.values().map(|times| times - 1).sum();
    let allowed = (crowd.blows + shared.relays.lapses()) * WINDOW;
    let early = samples[samples.len() / 4];
    let most = samples.iter().map(|sample| sample.sessions).max().unwrap_or(0);
    let row = [
        shared.database.name().to_owned(),
        format!("{} s", length().as_secs()),
        format!("{} / {}", count("committed"), count("rolled back")),
        format!("{} / {}", count("conflicts"), count("cut off")),
        format!("{} / {} / {}", crowd.started, crowd.blows, crowd.cuts),
        published.len().to_string(),
        format!("{repeats} / {allowed}"),
        format!(
            "{} / {} / {}",
            found.lost.len(),
            found.leaked.len() + found.unknown.len(),
            found.disorders.len()
        ),
        format!("{} → {} MiB", early.memory, last.memory),
        most.to_string(),
        format!("{} → {} MiB", early.table, last.table),
    ];
    let head = [
        "database",
        "time",
        "committed / rolled back",
        "conflicts / cut off",
        "relays / blows / cuts",
        "published",
        "repeats / allowed",
        "lost / leaked / disorder",
        "memory",
        "most sessions",
        "table",
    ];
    report::table("soak", &format!("Soak, {}", shared.database.name()), &head, &[row.to_vec()]);
    assert!(count("committed") > 50 && count("rolled back") > 5, "{counts:?}");
    assert!(found.is_at_least_once(), "{found}");
    assert!(repeats <= allowed, "{repeats} repeats, {allowed} allowed");
    assert!(last.memory <= early.memory * 3 / 2 + 16, "{early:?}, {last:?}");
    assert!(last.table <= early.table * 2 + 32, "{early:?}, {last:?}");
    // Each relay has at most 5, a producer 1, and what was killed may be seen for a moment.
    assert!(most <= 5 * 10 + PRODUCERS + 10, "{most} sessions");
}

#[test]
fn soak_on_sqlite() {
    soak(Database::Sqlite);
}

#[test]
fn soak_on_postgres() {
    soak(Database::Postgres);
}

#[test]
fn soak_on_mysql() {
    if report::is_whole() {
        soak(Database::MySql);
    }
}

#[test]
fn soak_on_mariadb() {
    if report::is_whole() {
        soak(Database::MariaDb);
    }
}
