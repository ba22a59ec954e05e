//! Does a benchmark several times, each on new ground, and sums it up.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tokio::io::AsyncReadExt;

use super::broker::Broker;
use super::drafts::Drafts;
use super::ground::{self, Ground};
use super::load::Load;
use super::report::{Report, Run, median};
use super::watched::{Shown, watched};
use super::{drain, enqueue, floor, idle, mixed};
use crate::database::Target;
use crate::failure::{Failure, note};
use crate::shutdown::StopRequests;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Enqueue,
    Drain,
    Mixed,
    Floor,
    /// Watched for so long.
    Idle(Duration),
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Enqueue => "enqueue",
            Self::Drain => "drain",
            Self::Mixed => "mixed",
            Self::Floor => "floor",
            Self::Idle(_) => "idle",
        }
    }
}

/// How it is measured.
#[derive(Debug, Clone)]
pub(crate) struct How {
    /// The URL of a broker to publish to.
    pub(crate) to: Option<String>,
    /// Without the floor.
    pub(crate) no_floor: bool,
    /// Without progress.
    pub(crate) quiet: bool,
    /// It ends with the process that started it, and that closes stdin then.
    pub(crate) with_parent: bool,
}

/// From so many messages on, what they left to be written would be written while it is measured.
const MUCH: u64 = 10_000;

/// All that one run needs.
pub(super) struct Stage {
    pub(super) ground: Arc<dyn Ground>,
    pub(super) load: Load,
    pub(super) drafts: Arc<Drafts>,
    /// The destination; none: nothing.
    pub(super) broker: Option<Arc<Broker>>,
    pub(super) how: How,
    /// Whether the floor comes before, which is so every other time.
    pub(super) floor_first: bool,
}

impl Stage {
    /// Does something whose progress is shown.
    pub(super) async fn watched<T>(
        &self,
        total: u64,
        what: &'static str,
        count: impl Fn() -> u64,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        watched(Shown { total, what, quiet: self.how.quiet }, count, work).await
    }

    /// Fills the outbox.
    pub(super) async fn fill(&self) -> Result<(), Failure> {
        let done = AtomicU64::new(0);
        let filling = super::produce::fill(&*self.ground, &self.load, &self.drafts, &done);
        let count = || done.load(std::sync::atomic::Ordering::Relaxed);
        self.watched(self.load.messages(), "filled in", count, filling).await?;
        self.ground.tidy(self.load.messages() >= MUCH).await
    }

    /// The same place for the warm-up.
    pub(super) fn warming_up(&self) -> Option<Self> {
        let load = self.load.warming_up()?;
        let drafts = Arc::new(Drafts::new(&load));
        Some(Self {
            ground: self.ground.clone(),
            broker: self.broker.clone(),
            load,
            drafts,
            how: How { quiet: true, ..self.how.clone() },
            floor_first: self.floor_first,
        })
    }

    async fn run(&self, what: What) -> Result<Run, Failure> {
        match what {
            What::Enqueue => enqueue::run(self).await,
            What::Drain => drain::run(self).await,
            What::Mixed => mixed::run(self).await,
            What::Floor => floor::run(self).await,
            What::Idle(watched) => idle::run(self, watched).await,
        }
    }
}

/// Does a benchmark as often as its load says.
pub(crate) async fn repeat(target: &Target, load: Load, what: What, how: How) -> Result<Report, Failure> {
    load.check()?;
    how.to.as_deref().map_or(Ok(()), Broker::check)?;
    let mut requests = StopRequests::listen()?;
    let drafts = Arc::new(Drafts::new(&load));
    let (mut runs, mut grounds, mut server) = (Vec::new(), Vec::new(), String::new());
    for turn in 0..load.repeats.get() {
        let ground = ground::make(target, &load).await?;
        if !how.quiet {
            note(&format!("working in {}", ground.name()));
        }
        let work = async {
            let broker = match &how.to {
                Some(url) => Some(Arc::new(Broker::open(url, queue_name(&*ground)).await?)),
                None => None,
            };
            let stage = Stage {
                ground: ground.clone(),
                broker: broker.clone(),
                load: load.clone(),
                drafts: drafts.clone(),
                how: how.clone(),
                floor_first: turn % 2 == 0,
            };
            let run = stage.run(what).await;
            if let Some(broker) = broker {
                broker.close().await;
            }
            Ok((ground.server().await?, run?))
        };
        let done = tokio::select! {
            done = work => done,
            () = requests.next() => Err(Failure::failed("interrupted; what was made for the benchmark is removed")),
            () = parent_gone(how.with_parent) => Err(Failure::silent()),
        };
        let removed = ground.remove().await;
        let (version, run) = done?;
        removed?;
        server = version;
        runs.push(run);
        grounds.push(ground.name().to_owned());
    }
    let median = median(&runs)?;
    let to = if how.to.is_some() { "amqp" } else { "null" }.to_owned();
    Ok(Report { benchmark: what.name().to_owned(), server, to, grounds, load, median, runs })
}

/// A name for a queue that nobody else has.
fn queue_name(ground: &dyn Ground) -> String {
    let ground = ground.name().rsplit('/').next().unwrap_or_default();
    format!("posthaste-bench-{ground}-{}", std::process::id())
}

/// Waits for the end of the process that started this one.
async fn parent_gone(with_parent: bool) {
    if !with_parent {
        return std::future::pending().await;
    }
    let mut stdin = tokio::io::stdin();
    let mut ignored = [0; 64];
    while !matches!(stdin.read(&mut ignored).await, Ok(0) | Err(_)) {}
}
