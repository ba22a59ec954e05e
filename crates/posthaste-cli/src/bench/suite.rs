//! Many benchmarks, one after another, each in a process of its own so that none has the memory of another.
//!
//! What is done stands in a file ([`results`]), so that a suite that was cut off goes on where it was.

mod chart;
mod page;
pub(crate) mod plan;
mod results;
mod targets;

use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use self::plan::{Engine, Plan, Point, points};
use self::results::{Entry, Heading, Results};
use super::report::Report;
use crate::database::{DatabaseUrl, Target, redact};
use crate::durations::human;
use crate::failure::{Failure, note};
use crate::shutdown::StopRequests;

/// What a suite is asked to do.
#[derive(Debug, Clone)]
pub(crate) struct Suite {
    pub(crate) plan: Plan,
    pub(crate) directory: PathBuf,
    pub(crate) resume: bool,
}

/// What a suite did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) measured: usize,
    pub(crate) failed: usize,
}

/// Measures what is not measured yet, and writes the report.
pub(crate) async fn run(target: &Target, suite: &Suite) -> Result<Done, Failure> {
    let mut requests = StopRequests::listen()?;
    let (url, engine) = database(target)?;
    let heading = Heading {
        plan: suite.plan,
        database: redact(&url),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        machine: machine(),
    };
    let mut results = if suite.resume {
        Results::resume(&suite.directory, &heading)?
    } else {
        Results::begin(&suite.directory, &heading)?
    };
    let points = points(suite.plan, engine);
    let done = results.done();
    let left: Vec<_> = points.iter().filter(|point| !done.contains(point.id().as_str())).collect();
    let (begun, before) = (Instant::now(), points.len() - left.len());
    for (count, point) in left.iter().enumerate() {
        let rest = if count == 0 { String::new() } else { eta(begun, count, left.len()) };
        note(&format!("{} of {}: {}{rest}", before + count + 1, points.len(), point.id()));
        let mut child = start(&own_url(&url, engine, count), point)?;
        let open = child.stdin.take();
        let work = outcome(child);
        tokio::pin!(work);
        let result = tokio::select! {
            result = &mut work => result?,
            () = requests.next() => {
                // It clears up first.
                drop(open);
                let _ = work.await;
                return Err(Failure::failed("interrupted").hint("go on with --resume"));
            }
        };
        if let Err(error) = &result {
            note(&format!("failed: {error}"));
        }
        results.add(Entry::of(point, result))?;
    }
    page::write(&suite.directory, &heading, &results)?;
    let failed = results.entries.iter().filter(|entry| entry.error.is_some()).count();
    Ok(Done { measured: results.entries.len() - failed, failed })
}

fn eta(begun: Instant, done: usize, all: usize) -> String {
    let left = begun.elapsed().mul_f64((all - done) as f64 / done as f64);
    format!(" (about {} left)", human(left))
}

fn database(target: &Target) -> Result<(String, Engine), Failure> {
    let Some(url) = target.url.clone() else {
        return Err(
            Failure::bad_input("no database is named").hint("set POSTHASTE_DATABASE_URL or --database-url")
        );
    };
    let engine = match DatabaseUrl::parse(&url)? {
        DatabaseUrl::Sqlite(_) => Engine::Sqlite,
        DatabaseUrl::Postgres(_) => Engine::Postgres,
        DatabaseUrl::MySql(_) => Engine::MySql,
    };
    Ok((url, engine))
}

/// A file of its own for each benchmark: one that was left alone when its suite was killed may not be gone yet.
fn own_url(url: &str, engine: Engine, count: usize) -> String {
    match engine {
        Engine::Sqlite => format!("{}.{}-{count}", url.trim(), std::process::id()),
        Engine::Postgres | Engine::MySql => url.to_owned(),
    }
}

/// Starts a benchmark. It ends, and clears up, when its stdin is closed: also when this process is killed.
fn start(url: &str, point: &Point) -> Result<Child, Failure> {
    let failed = |error| Failure::failed(format!("a benchmark cannot be started: {error}"));
    Command::new(std::env::current_exe().map_err(failed)?)
        .arg("bench")
        .args(&point.arguments)
        .args(["--json", "--quiet", "--with-parent"])
        .env("POSTHASTE_DATABASE_URL", url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)
}

/// What a benchmark printed, or why it failed.
async fn outcome(mut child: Child) -> Result<Result<Report, String>, Failure> {
    let failed = |error| Failure::failed(format!("a benchmark cannot be waited for: {error}"));
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let (mut out, mut err) = (child.stdout.take(), child.stderr.take());
    let read_out = async {
        match &mut out {
            Some(out) => out.read_to_string(&mut stdout).await,
            None => Ok(0),
        }
    };
    let read_err = async {
        match &mut err {
            Some(err) => err.read_to_string(&mut stderr).await,
            None => Ok(0),
        }
    };
    tokio::try_join!(read_out, read_err).map_err(failed)?;
    let status = child.wait().await.map_err(failed)?;
    if !status.success() {
        let error = stderr.lines().find_map(|line| line.strip_prefix("error: ")).unwrap_or(stderr.trim());
        return Ok(Err(if error.is_empty() { status.to_string() } else { error.to_owned() }));
    }
    Ok(serde_json::from_str(&stdout).map_err(|error| format!("its report cannot be read: {error}")))
}

/// The machine, as far as the system tells.
fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    let field = |file: &str, name: &str| {
        let text = std::fs::read_to_string(Path::new("/proc").join(file)).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches([' ', '\t', ':']).trim().to_owned())
    };
    let cpu = field("cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory =
        field("meminfo", "MemTotal").and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok());
    let memory = memory.map_or(String::new(), |kib| format!(", {} GiB", kib.div_ceil(1024 * 1024)));
    format!("{cores} cores of {cpu}{memory}, {}", std::env::consts::OS)
}
