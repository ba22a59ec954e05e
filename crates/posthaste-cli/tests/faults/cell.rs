//! One cell of the crash matrix: a relay meets something at a place of its code, and others go on.

use posthaste::Message;
use posthaste::failpoint as place;
use posthaste_testkit::{InvariantChecker, Violations};

use crate::producer::{Producer, messages};
use crate::relays::{Process, Relays, until};
use crate::stores::{self, Database};
use crate::support::Bed;

/// The most records that a relay has in hand.
const WINDOW: usize = 64;
const RELAY: [&str; 10] = [
    "--lease",
    "2s",
    "--idle-poll",
    "20ms",
    "--max-in-flight",
    "8",
    "--window-rows",
    "64",
    "--retry-base",
    "50ms",
];

/// What happens to a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blow {
    /// SIGKILL, exactly there.
    Kill,
    /// SIGSTOP; others take its lanes over when its lease is over; then SIGCONT.
    Freeze,
    /// The process aborts, as when a handler overflows its stack.
    Abort,
    /// The task panics, and the process goes on.
    Panic,
}

/// A place in the relay's code, how often it is reached before, and what happens there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cell {
    pub(crate) place: &'static str,
    pub(crate) nth: u32,
    pub(crate) blow: Blow,
}

/// What came of it.
pub(crate) struct Found {
    pub(crate) violations: Violations,
    pub(crate) published: usize,
    /// How many times something was published once more.
    pub(crate) repeats: usize,
    pub(crate) allowed_repeats: usize,
}

impl Found {
    pub(crate) fn is_allowed(&self) -> bool {
        self.violations.is_at_least_once() && self.repeats <= self.allowed_repeats
    }
}

impl Cell {
    pub(crate) fn run(self, database: Database) -> Found {
        let bed = database.bed();
        let mut scene = Scene::new(&bed, database);
        scene.produce("before", 16);
        scene.hold_one_back();
        if self.is_about_care() {
            // Who takes over from a relay that died writes attempts down before it makes them.
            let killed = scene.relays.start_with_failpoint(&RELAY, "after-read=abort");
            assert_eq!(killed.end(), None);
        }
        let failpoint = format!("{}={}@{}", self.place, self.action(), self.nth);
        let arguments = if self.is_at_the_end() { &[&RELAY[..], &["--drain"]].concat() } else { &RELAY[..] };
        let struck = scene.relays.start_with_failpoint(arguments, &failpoint);
        match self.blow {
            Blow::Kill => self.kill(&mut scene, struck),
            Blow::Abort => assert_eq!(struck.end(), None, "{self:?}"),
            Blow::Freeze => self.freeze(&mut scene, struck),
            Blow::Panic => self.panic(&mut scene, struck),
        }
        scene.let_go();
        scene.produce("after", 2);
        scene.drain();
        let status = bed.status();
        assert_eq!((&status["ready"], &status["dead"]), (&0.into(), &0.into()), "{self:?}: {status}");
        self.found(&scene)
    }

    fn kill(self, scene: &mut Scene<'_>, mut struck: Process) {
        struck.until_frozen();
        struck.signal("KILL");
        assert_eq!(struck.end(), None, "{self:?}");
        scene.let_go();
    }

    fn freeze(self, scene: &mut Scene<'_>, mut struck: Process) {
        struck.until_frozen();
        while scene.is_locked() {
            // On SQLite whoever is frozen in the middle of a write holds up all others, producers too, until it goes on.
            struck.signal("CONT");
            until("the write is over", || !scene.is_locked());
            struck.signal("STOP");
            struck.until_frozen();
        }
        scene.let_go();
        // It waits for the frozen one's lanes.
        scene.drain();
        scene.all_is_published(&format!("{self:?}: what the frozen relay had in hand"));
        struck.signal("CONT");
        self.goes_on(scene, struck);
    }

    fn panic(self, scene: &mut Scene<'_>, mut struck: Process) {
        let starts = [place::BEFORE_LEASE, place::AFTER_LEASE].contains(&self.place) && self.nth == 1;
        if starts || self.place == place::BEFORE_LEAVE || self.place == place::AFTER_LEAVE {
            // There is no task that could be started anew.
            until("the relay ends", || struck.has_ended());
            return;
        }
        let said = format!("failpoint {}", self.place);
        scene.relays.until(&format!("{self:?}: the panic"), || scene.relays.log().contains(&said));
        scene.let_go();
        self.goes_on(scene, struck);
    }

    /// The relay works again by itself, and ends as it should.
    fn goes_on(self, scene: &mut Scene<'_>, struck: Process) {
        if !self.is_at_the_end() {
            scene.produce("then", 2);
            let what = format!("{self:?}: the relay that it happened to publishes");
            scene.relays.until(&what, || scene.is_all_published());
            struck.signal("TERM");
        }
        assert_eq!(struck.end(), Some(0), "{self:?}: {}", scene.relays.log());
    }

    fn is_about_care(self) -> bool {
        [place::BEFORE_BEGIN_ATTEMPT, place::AFTER_BEGIN_ATTEMPT].contains(&self.place)
    }

    fn is_at_the_end(self) -> bool {
        [place::BEFORE_LEAVE, place::AFTER_LEAVE].contains(&self.place)
    }

    fn action(self) -> &'static str {
        match self.blow {
            Blow::Kill | Blow::Freeze => "stop",
            Blow::Abort => "abort",
            Blow::Panic => "panic",
        }
    }

    /// How many records may have been published without anybody having written that down.
    fn may_be_in_doubt(self) -> usize {
        let begins = [place::BEFORE_LEASE, place::AFTER_LEASE, place::BEFORE_READ, place::AFTER_READ]
            .contains(&self.place);
        let nothing_in_hand = self.is_at_the_end() || (begins && self.nth == 1);
        // A panic in one of the relay's own tasks costs what that task had in hand, and nothing has been published in it.
        let publishing =
            [place::BEFORE_PUBLISH, place::AFTER_PUBLISH].contains(&self.place) || self.is_about_care();
        let in_doubt = !nothing_in_hand && (self.blow != Blow::Panic || publishing);
        if in_doubt { WINDOW } else { 0 }
    }

    fn found(self, scene: &Scene<'_>) -> Found {
        let published = scene.relays.published();
        let mut checker = scene.checker.clone();
        published.iter().for_each(|id| checker.published(*id));
        let violations = checker.check();
        Found {
            repeats: violations.duplicates.values().map(|times| times - 1).sum(),
            // A relay that lost its lease, by itself or on a busy machine, may publish what it had in hand once more.
            allowed_repeats: self.may_be_in_doubt() + scene.relays.lapses() * WINDOW,
            published: published.len(),
            violations,
        }
    }
}

/// An outbox, who produces for it, and who relays.
struct Scene<'a> {
    relays: Relays<'a>,
    producer: Producer,
    /// A transaction that is open over all of it, and what it enqueued. (On `SQLite` nobody else could write.)
    held_back: Option<(Producer, Vec<Message>)>,
    checker: InvariantChecker,
    committed: Vec<Message>,
    has_open_transactions: bool,
}

impl<'a> Scene<'a> {
    fn new(bed: &'a Bed, database: Database) -> Self {
        Self {
            relays: Relays::new(bed),
            producer: Producer::new(bed),
            held_back: None,
            checker: InvariantChecker::default(),
            committed: Vec::new(),
            has_open_transactions: database != Database::Sqlite,
        }
    }

    /// Commits so many rounds of a message for each of ten keys and one without a key, and rolls some back.
    fn produce(&mut self, round: &str, rounds: usize) {
        for number in 0..rounds {
            let keys = (0..10).map(|key| key.to_string()).chain([String::new()]);
            let committed: Vec<_> = keys.flat_map(|key| messages(&key, number..number + 1)).collect();
            self.producer.place(&committed);
            self.note(committed);
            if number % 4 == 1 {
                let undone = messages(round, number..number + 3);
                self.producer.begin(false).unwrap();
                self.producer.enqueue(&undone).unwrap();
                self.producer.roll_back().unwrap();
                undone.iter().for_each(|message| self.checker.rolled_back(message));
            }
        }
    }

    /// Enqueues in a transaction that stays open.
    fn hold_one_back(&mut self) {
        if self.has_open_transactions {
            let mut producer = Producer::new(self.relays.bed());
            let late = messages("late", 0..5);
            producer.begin(false).unwrap();
            producer.enqueue(&late).unwrap();
            self.held_back = Some((producer, late));
        }
    }

    /// Commits it.
    fn let_go(&mut self) {
        if let Some((mut producer, late)) = self.held_back.take() {
            producer.commit().unwrap();
            self.note(late);
        }
    }

    fn note(&mut self, committed: Vec<Message>) {
        committed.iter().for_each(|message| self.checker.committed(message));
        self.committed.extend(committed);
    }

    /// Whether somebody is in the middle of writing to the file of a `SQLite` database.
    fn is_locked(&self) -> bool {
        !self.has_open_transactions && stores::is_locked(self.relays.bed())
    }

    /// Publishes everything, with a relay that nothing happens to.
    fn drain(&self) {
        let drained = self.relays.start(|| self.relays.command(&[&RELAY[..], &["--drain"]].concat())).end();
        assert_eq!(drained, Some(0), "{}", self.relays.log());
    }

    fn is_all_published(&self) -> bool {
        let published: std::collections::BTreeSet<_> = self.relays.published().into_iter().collect();
        self.committed.iter().all(|message| published.contains(&message.id()))
    }

    fn all_is_published(&self, what: &str) {
        assert!(self.is_all_published(), "{what}: not published by the relay that took over");
    }
}
