//! Rates, medians and CPU time.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use posthaste::{BoxError, Relay, RelayBuilder, publish_fn};
use tokio::time::Instant;

use crate::support::{self, PostgresFixture};

/// A fixture whose store can be told from the others at the server.
pub(crate) struct Bench {
    pub(crate) fixture: PostgresFixture,
    application: String,
}

impl Bench {
    pub(crate) async fn new() -> Option<Self> {
        let url = support::server_url();
        Self::at(&if url.contains('?') { url } else { url + "?" }).await
    }

    /// With a store that connects to a URL that ends with its parameters.
    pub(crate) async fn at(url: &str) -> Option<Self> {
        let application = format!("figures-{}", std::process::id());
        let url = format!("{url}&application_name={application}");
        let fixture = PostgresFixture::at(url, |options| options.connections(4)).await?;
        posthaste::Admin::migrate(&fixture.store).await.unwrap();
        Some(Self { fixture, application })
    }

    /// Empties the table and fills it by a SELECT of `n`s.
    pub(crate) async fn fill(&self, rows: u32) {
        self.fixture.schema.execute("TRUNCATE {}outbox").await;
        self.add(&format!("generate_series(1, {rows}) n")).await;
        self.settle_down().await;
    }

    pub(crate) async fn add(&self, from: &str) {
        let insert = format!(
            "INSERT INTO {{}}outbox (event_type, aggregate_type, aggregate_id, payload)
             SELECT 'order.created', 'order', (n % 5000)::text, convert_to(repeat('x', 512), 'UTF8') FROM {from}"
        );
        self.fixture.schema.execute(&insert).await;
    }

    pub(crate) async fn settle_down(&self) {
        self.fixture.schema.execute("VACUUM ANALYZE {}outbox").await;
        self.fixture.schema.execute("CHECKPOINT").await;
    }

    pub(crate) fn relay(&self) -> RelayBuilder {
        Relay::builder(Arc::new(self.fixture.store.clone()))
            .publisher(publish_fn(|_| async { Ok::<_, BoxError>(()) }))
    }

    /// The CPU time so far of the store's sessions in the server, if it is on this machine.
    pub(crate) async fn server_cpu(&self) -> Duration {
        let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = $1";
        let rows = self.fixture.schema.client.query(sql, &[&self.application]).await.unwrap();
        rows.iter().map(|row| cpu_of(&format!("/proc/{}/schedstat", row.get::<_, i32>(0)).into())).sum()
    }

    /// The CPU time so far of the session that prepares and compares.
    pub(crate) async fn loop_cpu(&self) -> Duration {
        let row = self.fixture.schema.client.query_one("SELECT pg_backend_pid()", &[]).await.unwrap();
        cpu_of(&format!("/proc/{}/schedstat", row.get::<_, i32>(0)).into())
    }
}

/// The CPU time so far of this process.
pub(crate) fn own_cpu() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.map(|task| cpu_of(&task.path().join("schedstat"))).sum()
}

fn cpu_of(schedstat: &PathBuf) -> Duration {
    let text = std::fs::read_to_string(schedstat).unwrap_or_default();
    let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// What a run over so many rows took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Took {
    /// Rows a second.
    pub(crate) rate: f64,
    /// Microseconds of CPU time a row: in the server's sessions, and here.
    pub(crate) server: f64,
    pub(crate) here: f64,
}

impl Took {
    pub(crate) fn new(rows: u32, time: Duration, server: Duration, here: Duration) -> Self {
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / f64::from(rows);
        Self { rate: rate(rows, time), server: each(server), here: each(here) }
    }
}

/// The median of each figure.
pub(crate) fn medians(runs: &[Took]) -> Took {
    let of = |figure: fn(&Took) -> f64| median(runs.iter().map(figure).collect());
    Took { rate: of(|it| it.rate), server: of(|it| it.server), here: of(|it| it.here) }
}

pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

pub(crate) fn rate(rows: u32, took: Duration) -> f64 {
    f64::from(rows) / took.as_secs_f64()
}

/// How often a comparison is made: `ROUNDS`, or else 3.
pub(crate) fn rounds() -> usize {
    std::env::var("ROUNDS").map_or(3, |rounds| rounds.parse().unwrap())
}

/// Runs a step and says what it took of the store's sessions and here.
pub(crate) async fn timed(bench: &Bench, rows: u32, step: impl Future<Output = ()>) -> Took {
    let (server, here, began) = (bench.server_cpu().await, own_cpu(), Instant::now());
    step.await;
    let (time, here) = (began.elapsed(), own_cpu().saturating_sub(here));
    Took::new(rows, time, bench.server_cpu().await.saturating_sub(server), here)
}
