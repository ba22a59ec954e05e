//! A broker of the test's own, to be stopped, restarted and alarmed.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lapin::{Connection, ConnectionProperties};
use tokio::time::Instant;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/rabbitmq-server");
/// Starting Erlang takes its time on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Node {
    dir: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl Node {
    /// A node with lines of `rabbitmq.conf`.
    pub async fn start(config: &str) -> Self {
        let port = free_ports();
        let dir = std::env::temp_dir().join(format!("posthaste_rabbitmq_{port}"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("rabbitmq.conf"), config).unwrap();
        let mut node = Self { dir, port, child: None };
        node.run().await;
        node
    }

    pub fn url(&self) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}", self.port)
    }

    /// Runs it, and waits until it lets somebody in.
    pub async fn run(&mut self) {
        let log = std::fs::File::create(self.dir.join("out")).unwrap();
        let child = Command::new(SCRIPT)
            .args(["run", self.dir.to_str().unwrap(), &self.port.to_string()])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let (deadline, url) = (Instant::now() + PATIENCE, self.url());
        loop {
            let attempt = Connection::connect(&url, ConnectionProperties::default());
            if matches!(tokio::time::timeout(Duration::from_secs(5), attempt).await, Ok(Ok(_))) {
                return;
            }
            let out = std::fs::read_to_string(self.dir.join("out")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the node does not start: {out}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Ends it as a power cut would. What it had written to disk is there when it runs again.
    pub fn kill(&mut self) {
        let pid = std::fs::read_to_string(self.dir.join("pid")).unwrap_or_default();
        let _ = Command::new("kill").args(["-9", pid.trim()]).stderr(Stdio::null()).status();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }

    /// Ends it in order.
    pub async fn stop(&mut self) {
        self.ctl(&["stop"]).await;
        if let Some(mut child) = self.child.take() {
            tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
        }
    }

    /// `rabbitmqctl`; returns what it prints.
    pub async fn ctl(&self, args: &[&str]) -> String {
        let mut command = tokio::process::Command::new(SCRIPT);
        command.args(["ctl", self.dir.to_str().unwrap(), &self.port.to_string()]).args(args);
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A port that is free, and so is the next.
fn free_ports() -> u16 {
    loop {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if port < u16::MAX && TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}
