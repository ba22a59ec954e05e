//! Outages: the relay's way to its database or to its broker is cut for a while. It rests meanwhile, recovers by itself, and
//! leaves nothing behind.

use std::time::Duration;

use posthaste_testkit::{Fault, FaultProxy, InvariantChecker};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::producer::{Producer, messages};
use crate::relays::{Process, Relays, pass, until};
use crate::report;
use crate::stores::{self, Database};

const FAULTS: [(&str, Fault); 5] = [
    ("blackhole", Fault::Blackhole),
    ("mute", Fault::Mute),
    ("half-close", Fault::HalfClose),
    ("reset", Fault::Reset),
    ("refuse", Fault::Refuse),
];
const RELAY: [&str; 8] =
    ["--lease", "1s", "--idle-poll", "20ms", "--publish-timeout", "500ms", "--window-rows", "64"];
/// The most records that a relay has in hand.
const WINDOW: usize = 64;
/// Of the time that an outage takes, the relay may spend this share computing. Measured is about a hundredth of it.
const MOST_CPU: f64 = 0.3;

fn length() -> Duration {
    Duration::from_secs(if report::is_whole() { 15 } else { 2 })
}

/// What a relay uses.
#[derive(Debug, Clone, Copy)]
struct Use {
    cpu: Duration,
    files: usize,
    threads: usize,
}

fn used(relay: &Process) -> Use {
    Use { cpu: relay.stat().cpu, files: relay.entries("fd"), threads: relay.entries("task") }
}

/// Where the proxy stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Database(Database),
    Broker,
}

/// A relay in front of which a proxy stands, and what it is to publish.
struct Scene<'a> {
    relays: &'a Relays<'a>,
    proxy: &'a FaultProxy,
    broker: Option<&'a Broker>,
    producer: Producer,
    checker: InvariantChecker,
    next: usize,
    before: Before,
}

impl Scene<'_> {
    fn produce(&mut self) {
        for number in self.next..self.next + 5 {
            let committed: Vec<_> =
                (0..10).flat_map(|key| messages(&key.to_string(), number..number + 1)).collect();
            self.producer.place(&committed);
            committed.iter().for_each(|message| self.checker.committed(message));
        }
        self.next += 5;
    }

    fn published(&self) -> Vec<posthaste::MessageId> {
        self.broker.map_or_else(|| self.relays.published(), Broker::arrived)
    }

    fn until_published(&self, what: &str) {
        until(what, || {
            let mut checker = self.checker.clone();
            self.published().iter().for_each(|id| checker.published(*id));
            checker.check().lost.is_empty()
        });
    }

    /// One outage. Gives a row of the table.
    fn outage(&mut self, relay: &Process, name: &str, fault: Fault) -> Vec<String> {
        let before = used(relay);
        self.proxy.set(fault);
        self.produce();
        let began = Instant::now();
        pass(length());
        let (cpu, took) = (relay.stat().cpu.saturating_sub(before.cpu), began.elapsed());
        let share = cpu.as_secs_f64() / took.as_secs_f64();
        self.proxy.heal();
        let healed = Instant::now();
        self.until_published(&format!("after {name}, the relay publishes again"));
        let recovered = healed.elapsed();
        // The connections of before are gone, or in use again.
        let tidy = || used(relay).files <= before.files + 2 && used(relay).threads <= before.threads + 2;
        until("the relay has no more files and threads than before", tidy);
        if let Before::Database(database) = self.before {
            let most = 5 + 1;
            until("no session is left over", || stores::sessions(self.relays.bed(), database) <= most);
        }
        assert!(share < MOST_CPU, "{name}: {cpu:?} of {took:?} computing");
        vec![
            name.to_owned(),
            format!("{:.1} %", share * 100.0),
            format!("{:.1} s", recovered.as_secs_f64()),
            self.proxy.accepted().to_string(),
        ]
    }
}

fn outages(before: Before) {
    let database = if let Before::Database(database) = before { database } else { Database::Sqlite };
    let bed = database.bed();
    let relays = Relays::new(&bed);
    let broker = (before == Before::Broker).then(Broker::new);
    let proxy = FaultProxy::start(broker.as_ref().map_or_else(|| stores::address(&bed), Broker::address));
    let to = broker.as_ref().map_or("stdout".to_owned(), |broker| broker.url_by(proxy.address()));
    let relay = relays.start(|| {
        let mut command = relays.command(&[&RELAY[..], &["--to", &to]].concat());
        if let Before::Database(_) = before {
            command.env("POSTHASTE_DATABASE_URL", stores::url_by(&bed, proxy.address()));
        }
        command
    });
    let mut scene = Scene {
        relays: &relays,
        proxy: &proxy,
        broker: broker.as_ref(),
        producer: Producer::new(&bed),
        checker: InvariantChecker::default(),
        next: 0,
        before,
    };
    scene.produce();
    scene.until_published("the relay publishes");
    let faults = if report::is_whole() { &FAULTS[..] } else { &FAULTS[..3] };
    let rows: Vec<_> = faults.iter().map(|(name, fault)| scene.outage(&relay, name, *fault)).collect();
    relay.signal("TERM");
    assert_eq!(relay.end(), Some(0), "{}", relays.log());
    let published = scene.published();
    published.iter().for_each(|id| scene.checker.published(*id));
    let found = scene.checker.check();
    assert!(found.is_at_least_once(), "{found}");
    let repeats: usize = found.duplicates.values().map(|times| times - 1).sum();
    // A confirm that an outage swallows is in doubt, and so is what a lost lease gives to others.
    let in_doubt = if before == Before::Broker { FAULTS.len() } else { 0 };
    assert!(
        repeats <= (in_doubt + relays.lapses()) * WINDOW,
        "{repeats} repeats, {} lapses",
        relays.lapses()
    );
    let title = match before {
        Before::Database(database) => format!("Outages of {}", database.name()),
        Before::Broker => "Outages of RabbitMQ".to_owned(),
    };
    report::table("outages", &title, &["fault", "cpu", "recovered after", "connections so far"], &rows);
}

#[test]
fn outages_of_postgres() {
    outages(Before::Database(Database::Postgres));
}

#[test]
fn outages_of_mysql() {
    outages(Before::Database(Database::MySql));
}

#[test]
fn outages_of_mariadb() {
    outages(Before::Database(Database::MariaDb));
}

#[test]
fn outages_of_rabbitmq() {
    outages(Before::Broker);
}
