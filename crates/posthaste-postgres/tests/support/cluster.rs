//! A server for one test alone, that may be killed, filled or locked.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Stopped, and deleted, when it is dropped.
pub struct Cluster {
    directory: PathBuf,
    port: u16,
}

/// How a server is brought down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halt {
    /// Sessions are ended, and what there is is written.
    Fast,
    /// As if it had crashed; the next start recovers.
    Immediate,
    /// SIGKILL of its first process.
    Kill,
}

impl Cluster {
    /// A new one, with settings as `name=value`. The role `postgres` needs no password.
    pub fn start(settings: &[&str]) -> Self {
        let cluster = Self::bare();
        cluster.make("make", settings);
        cluster
    }

    /// A standby of this one, with settings of its own.
    pub fn standby(&self, settings: &[&str]) -> Self {
        let standby = Self::bare();
        standby.make("follow", &[&[self.port.to_string().as_str()], settings].concat());
        standby
    }

    /// A port that was free a moment ago, and a directory that is not there yet.
    fn bare() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let name = format!("posthaste-cluster-{}-{port}", std::process::id());
        Self { directory: std::env::temp_dir().join(name), port }
    }

    fn make(&self, how: &str, more: &[&str]) {
        run(&[&[how, self.directory(), &self.port.to_string()], more].concat());
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where it is for a user: a role, or `role:password`.
    pub fn url(&self, user: &str) -> String {
        format!("postgres://{user}@{}/postgres?sslmode=disable", self.address())
    }

    pub fn directory(&self) -> &str {
        self.directory.to_str().unwrap()
    }

    /// Brings it down, and waits until it is.
    pub fn halt(&self, how: Halt) {
        match how {
            Halt::Fast => run(&["halt", self.directory(), "fast"]),
            Halt::Immediate => run(&["halt", self.directory(), "immediate"]),
            Halt::Kill => self.kill(),
        }
    }

    /// Brings it up again, however it ended.
    pub fn again(&self) {
        run(&["again", self.directory()]);
    }

    /// Makes a primary of a standby.
    pub fn promote(&self) {
        run(&["promote", self.directory()]);
    }

    fn kill(&self) {
        let file = self.directory.join("data/postmaster.pid");
        let text = std::fs::read_to_string(file).unwrap();
        let process = text.lines().next().unwrap();
        assert!(Command::new("kill").args(["-s", "KILL", process]).status().unwrap().success());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.directory.join("data/postmaster.pid").exists() {
            let _ = command(&["halt", self.directory(), "immediate"]).output();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn command(arguments: &[&str]) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/postgres-server");
    let mut command = Command::new(script);
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) {
    let output = command(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
