//! A database, the binary to work on it, and ways to wait that are no sleeping.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use posthaste::{PublishError, Relay, Store, publish_fn};
use posthaste_mysql::{MySqlOptions, MySqlStore};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use posthaste_sqlite::{SqliteOptions, SqliteStore};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::mysql_server::{Kind, OwnDatabase};
use crate::server::Schema;

/// A directory with (maybe) a database in it, or beside a schema on a server.
pub(crate) struct Bed {
    directory: TempDir,
    schema: Option<Schema>,
    mysql: Option<OwnDatabase>,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bed {
    /// No database yet.
    pub(crate) fn bare() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), schema: None, mysql: None }
    }

    /// A schema on PostgreSQL without tables; `None`, loudly, where there is no server.
    pub(crate) fn bare_on_postgres() -> Option<Self> {
        Some(Self { schema: Some(Schema::new()?), ..Self::bare() })
    }

    /// A schema on PostgreSQL with the tables.
    pub(crate) fn on_postgres() -> Option<Self> {
        let bed = Self::bare_on_postgres()?;
        bed.ok(&["migrate"]);
        Some(bed)
    }

    /// A database on MySQL or MariaDB without tables.
    pub(crate) fn bare_on_mysql(kind: Kind) -> Self {
        Self { mysql: Some(OwnDatabase::new(kind)), ..Self::bare() }
    }

    /// A database on MySQL or MariaDB with the tables, whose payloads are bytes.
    pub(crate) fn on_mysql(kind: Kind) -> Self {
        let bed = Self::bare_on_mysql(kind);
        bed.ok(&["migrate", "--payload", "binary"]);
        bed
    }

    pub(crate) fn mysql(&self) -> &OwnDatabase {
        self.mysql.as_ref().unwrap()
    }

    pub(crate) fn schema(&self) -> &Schema {
        self.schema.as_ref().unwrap()
    }

    /// A database with the tables.
    pub(crate) fn new() -> Self {
        let bed = Self::bare();
        bed.ok(&["migrate"]);
        bed
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.path("outbox.db")
    }

    pub(crate) fn url(&self) -> String {
        match (&self.schema, &self.mysql) {
            (Some(schema), _) => schema.url(),
            (None, Some(database)) => database.url(),
            (None, None) => format!("sqlite:{}", self.database().display()),
        }
    }

    /// Writes a file, and gives its path as an argument.
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// The command, on this bed's database.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bare_command(arguments);
        command.env("POSTHASTE_DATABASE_URL", self.url()).current_dir(self.directory.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with_input(arguments, "")
    }

    pub(crate) fn run_with_input(&self, arguments: &[&str], input: impl AsRef<[u8]>) -> Ran {
        run(self.command(arguments), input.as_ref())
    }

    /// Runs a command that must succeed, and gives its stdout.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.run(arguments).succeeded()
    }

    /// Enqueues ndjson lines.
    pub(crate) fn enqueue(&self, lines: &str) {
        self.run_with_input(&["enqueue", "--ndjson", "-"], lines).succeeded();
    }

    /// Enqueues one message, and gives its id.
    pub(crate) fn enqueue_one(&self, arguments: &[&str]) -> String {
        self.ok(&[&["enqueue"], arguments].concat()).trim_end().to_owned()
    }

    /// Publishes everything that is ready, and gives the lines, those of one key in order.
    pub(crate) fn drain(&self) -> Vec<Value> {
        json_lines(&self.ok(&["relay", "--drain", "--quiet"]))
    }

    /// As `drain`, in the order of the event types: messages without a key have no order.
    pub(crate) fn drain_by_event_type(&self) -> Vec<Value> {
        let mut lines = self.drain();
        lines.sort_by(|a, b| a["event_type"].as_str().cmp(&b["event_type"].as_str()));
        lines
    }

    pub(crate) fn status(&self) -> Value {
        serde_json::from_str(&self.ok(&["status", "--json"])).unwrap()
    }

    pub(crate) fn show(&self, id: &str) -> Value {
        serde_json::from_str(&self.ok(&["show", id, "--json"])).unwrap()
    }

    pub(crate) fn list(&self, arguments: &[&str]) -> Vec<Value> {
        json_lines(&self.ok(&[&["list", "--json"], arguments].concat()))
    }

    /// Starts a command that goes on running.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.start_into(arguments, Stdio::piped())
    }

    /// As `start`, with its stdout elsewhere than in a pipe, which would stall it when nobody reads.
    pub(crate) fn start_into(&self, arguments: &[&str], stdout: impl Into<Stdio>) -> Running {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
        Running::of(command.spawn().unwrap())
    }

    /// Makes every ready message whose event type begins with `bad` dead.
    pub(crate) fn kill_bad_messages(&self) {
        let store: Arc<dyn Store> = match (&self.schema, &self.mysql) {
            (Some(schema), _) => Arc::new(PostgresStore::new(PostgresOptions::new(schema.url())).unwrap()),
            (None, Some(database)) => Arc::new(MySqlStore::new(MySqlOptions::new(database.url())).unwrap()),
            (None, None) => Arc::new(SqliteStore::open(self.database(), SqliteOptions::default()).unwrap()),
        };
        let publisher = publish_fn(async |record: Arc<posthaste::Record>| {
            if record.event_type.starts_with("bad") {
                Err(PublishError::rejected("refused by the test"))
            } else {
                Ok(())
            }
        });
        let relay = Relay::builder(store).publisher(publisher).build().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(relay.drain()).unwrap();
    }

    /// Asks for the status until it is as wished. Each question takes a process, so it is no busy loop.
    pub(crate) fn wait_for_status(&self, what: &str, wished: impl Fn(&Value) -> bool) {
        let mut status = Value::Null;
        for _ in 0..2_000 {
            status = self.status();
            if wished(&status) {
                return;
            }
        }
        panic!("the status never became {what}: {status}");
    }
}

/// The command, on no database.
pub(crate) fn bare_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    command.args(arguments);
    for name in ["RUST_LOG", "NO_COLOR", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    // Any setting may be in the environment.
    std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("POSTHASTE_")).for_each(
        |(name, _)| {
            command.env_remove(name);
        },
    );
    command
}

pub(crate) fn run(mut command: Command, input: &[u8]) -> Ran {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let _watchdog = Watchdog::over(&child);
    let mut stdin = child.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        // A command that does not read its input may end before it is written.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().unwrap()
    });
    Ran::of(output)
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by a signal"),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// The command failed with this code, and says this in its line `error: …`.
    pub(crate) fn failed_with(&self, code: i32, parts: &[&str]) -> &Self {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.starts_with("error: ") || self.stderr.contains("\nerror: "), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "no {part:?} in {self:?}");
        }
        self
    }
}

/// A command that goes on running. Dropped, it is killed.
pub(crate) struct Running {
    _watchdog: Watchdog,
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    stderr: BufReader<ChildStderr>,
}

impl Running {
    /// A process whose stderr is a pipe.
    pub(crate) fn of(mut child: Child) -> Self {
        let stdout = child.stdout.take().map(BufReader::new);
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { _watchdog: Watchdog::over(&child), child, stdout, stderr }
    }

    /// Waits for the next line on stdout.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "stdout ended with {line:?}; stderr: {}", self.rest_of_stderr());
        line
    }

    /// Waits for a line on stderr that contains a text, and gives it.
    pub(crate) fn wait_for_log(&mut self, text: &str) -> String {
        let mut seen = String::new();
        loop {
            let before = seen.len();
            let read = self.stderr.read_line(&mut seen).unwrap();
            assert_ne!(read, 0, "stderr ended without {text:?}: {seen}");
            if seen[before..].contains(text) {
                return seen[before..].to_owned();
            }
        }
    }

    fn rest_of_stderr(&mut self) -> String {
        let mut text = String::new();
        self.stderr.read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn close_stdout(&mut self) {
        self.stdout = None;
    }

    pub(crate) fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    /// Sends a signal by its name: `TERM`, `INT`, `KILL`.
    pub(crate) fn signal(&self, name: &str) {
        let process = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &process]).status().unwrap();
        assert!(status.success(), "kill -s {name} failed");
    }

    /// Reads both outputs to their ends, and waits for the end of the process. The code is `None` after a signal.
    pub(crate) fn end(mut self) -> (Option<i32>, String, String) {
        let mut stdout = Vec::new();
        let mut stderr = String::new();
        let (out, err) = (self.stdout.take(), &mut self.stderr);
        thread::scope(|scope| {
            scope.spawn(|| out.map(|mut out| out.read_to_end(&mut stdout).unwrap()));
            err.read_to_string(&mut stderr).unwrap();
        });
        let status = self.child.wait().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), stderr)
    }
}

/// Kills a process that runs for a minute, so that a test that would hang fails.
pub(crate) struct Watchdog(#[expect(dead_code, reason = "its drop is the signal")] mpsc::Sender<()>);

impl Watchdog {
    pub(crate) fn over(child: &Child) -> Self {
        let (over, ended) = mpsc::channel();
        let process = child.id().to_string();
        thread::spawn(move || {
            if ended.recv_timeout(Duration::from_mins(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
                let _ = Command::new("kill").args(["-s", "KILL", &process]).status();
            }
        });
        Self(over)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The JSON objects of lines. A last line that was cut off by a kill is left out.
pub(crate) fn json_lines(text: &str) -> Vec<Value> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Lines for `count` messages over `keys` keys; each payload holds the message's number within its key.
pub(crate) fn numbered_lines(count: usize, keys: usize) -> String {
    (0..count).fold(String::new(), |mut lines, index| {
        let (key, number) = ((index % keys).to_string(), (index / keys).to_string());
        let line =
            json!({ "event_type": "e", "aggregate_type": "t", "aggregate_id": key, "payload": number });
        let _ = writeln!(lines, "{line}");
        lines
    })
}

/// Checks published lines of [`numbered_lines`]: every message at least once, in order per key after removing
/// repeats. Returns how many repeats there were.
pub(crate) fn check_numbered(published: &[Value], count: usize) -> usize {
    let mut seen = BTreeSet::new();
    let mut next: BTreeMap<&str, u64> = BTreeMap::new();
    for line in published.iter().filter(|line| seen.insert(line["id"].as_str().unwrap())) {
        let number: u64 = line["payload"].as_str().unwrap().parse().unwrap();
        let next = next.entry(line["aggregate_id"].as_str().unwrap()).or_default();
        assert_eq!(number, *next, "out of order: {line}");
        *next += 1;
    }
    assert_eq!(seen.len(), count, "messages were lost");
    published.len() - seen.len()
}
