//! Relays: processes of the real binary that write to the end of one file, so that its lines are in the order in which they
//! published.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use posthaste::MessageId;
use serde_json::Value;
use tokio::time::Instant;

use crate::support::Bed;

/// What a relay that loses its lanes says, in one way or another.
const LOST_LANES: [&str; 3] =
    ["publishing stopped until it is", "because the lease had run out", "while records of it were in flight"];

/// Asks until something is so. Nothing that is waited for takes a tenth of this time on a machine that is free.
pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(becomes_so(is_so), "{what}: not in two minutes");
}

fn becomes_so(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_mins(2);
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    true
}

/// Lets time pass where time itself is what is looked at: an outage's length, or that of a transaction.
pub(crate) fn pass(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        std::thread::park_timeout(until - Instant::now());
    }
}

/// The relays of one outbox.
pub(crate) struct Relays<'a> {
    bed: &'a Bed,
    published: PathBuf,
    log: PathBuf,
}

impl<'a> Relays<'a> {
    pub(crate) fn new(bed: &'a Bed) -> Self {
        Self { bed, published: bed.path("published"), log: bed.path("log") }
    }

    /// The command of a relay.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let append = |path: &Path| OpenOptions::new().create(true).append(true).open(path).unwrap();
        let mut command = self.bed.command(&[&["relay"], arguments].concat());
        command.stdin(Stdio::null()).stdout(append(&self.published)).stderr(append(&self.log));
        command
    }

    /// A relay that has started. One that meets a database that does not answer in time ends at once, as a machine with much
    /// to do makes it happen now and then; its supervisor, which we are, starts it again.
    pub(crate) fn start(&self, mut make: impl FnMut() -> Command) -> Process {
        let deadline = Instant::now() + Duration::from_mins(2);
        while Instant::now() < deadline {
            let mut process = Process(make().spawn().unwrap());
            let name = format!(":{}\"", process.0.id());
            until("the relay has started", || {
                process.has_ended() || process.stat().state == 'T' || self.log().contains(&name)
            });
            if process.0.try_wait().unwrap().is_none_or(|status| status.code() != Some(1)) {
                return process;
            }
        }
        panic!("no relay starts: {}", self.log());
    }

    /// As `until`, and tells what the relays have said when it does not become so.
    pub(crate) fn until(&self, what: &str, is_so: impl FnMut() -> bool) {
        assert!(becomes_so(is_so), "{what}: not in two minutes: {}", self.log());
    }

    /// A relay that meets something at a place of its code, as `posthaste::failpoint` describes it.
    pub(crate) fn start_with_failpoint(&self, arguments: &[&str], failpoint: &str) -> Process {
        self.start(|| {
            let mut command = self.command(arguments);
            command.env("POSTHASTE_FAILPOINT", failpoint).env("POSTHASTE_TEST_UPKEEP_EVERY", "100ms");
            command
        })
    }

    pub(crate) fn bed(&self) -> &'a Bed {
        self.bed
    }

    /// What was published so far, in order.
    pub(crate) fn published(&self) -> Vec<MessageId> {
        let text = std::fs::read_to_string(&self.published).unwrap_or_default();
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        complete.lines().map(id_of).collect()
    }

    /// How often a relay lost lanes or its lease.
    pub(crate) fn lapses(&self) -> usize {
        let log = self.log();
        log.lines().filter(|line| LOST_LANES.iter().any(|said| line.contains(said))).count()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

/// The id in a line. One that was cut off by a kill stands before the next relay's first one.
fn id_of(line: &str) -> MessageId {
    let value: Value = serde_json::from_str(line)
        .or_else(|_| serde_json::from_str(&line[line.rfind("{\"id\":").unwrap()..]))
        .unwrap_or_else(|error| panic!("{error}: {line}"));
    MessageId::new(value["id"].as_str().unwrap().parse().unwrap()).unwrap()
}

/// A relay that runs. Dropped, it is killed.
pub(crate) struct Process(Child);

impl Process {
    /// Sends a signal by its name: `TERM`, `KILL`, `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let process = self.0.id().to_string();
        assert!(
            Command::new("kill").args(["-s", name, &process]).status().unwrap().success(),
            "kill -s {name}"
        );
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Waits until it is frozen. Panics when it ends instead.
    pub(crate) fn until_frozen(&mut self) {
        until("the relay is frozen", || {
            assert!(!self.has_ended(), "it ended before it came to the place");
            self.stat().state == 'T'
        });
    }

    /// Waits for the end; the code is `None` after a signal.
    pub(crate) fn end(mut self) -> Option<i32> {
        until("the relay ends", || self.has_ended());
        self.0.wait().unwrap().code()
    }

    /// How many files (`fd`) or threads (`task`) it has.
    pub(crate) fn entries(&self, what: &str) -> usize {
        std::fs::read_dir(format!("/proc/{}/{what}", self.0.id())).unwrap().count()
    }

    pub(crate) fn stat(&self) -> Stat {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        // The name, in parentheses, may hold anything.
        let fields: Vec<_> = text.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks = |field: usize| fields[field].parse::<u64>().unwrap();
        Stat {
            state: fields[0].chars().next().unwrap(),
            cpu: Duration::from_millis((ticks(11) + ticks(12)) * 10),
            resident_pages: ticks(21),
        }
    }
}

/// What the kernel says of a process.
#[derive(Debug)]
pub(crate) struct Stat {
    /// `T` is frozen.
    pub(crate) state: char,
    pub(crate) cpu: Duration,
    pub(crate) resident_pages: u64,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
