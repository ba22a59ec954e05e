//! `posthaste relay`: publish messages until stopped.

mod args;
mod destination;
mod monitor;
mod start;

use std::time::Duration;

use posthaste::{Error, Relay, RelayHandle, Summary};
use tokio::time::Instant;

use self::args::Until;
pub(crate) use self::args::{Args, RelayArgs};
pub(crate) use self::destination::Plan;
use self::monitor::Monitor;
use crate::config::Sources;
use crate::database::Target;
use crate::durations::human;
use crate::failure::Failure;
use crate::logging::LogArgs;
use crate::output::messages;
use crate::shutdown::StopRequests;

pub(crate) async fn run(target: &Target, args: Args, sources: &Sources) -> Result<(), Failure> {
    let Args { until, settings } = args;
    settings.logs.start();
    let result = publish(target, &until, &settings, sources).await;
    result.map_err(|failure| settings.logs.say_failure(failure))
}

async fn publish(
    target: &Target,
    until: &Until,
    settings: &RelayArgs,
    sources: &Sources,
) -> Result<(), Failure> {
    let logs = &settings.logs;
    let plan = Plan::of(settings, sources)?;
    let mut requests = StopRequests::listen()?;
    let monitor = Monitor::start(&settings.http, settings.limits.idle_poll, &plan.names()).await?;
    let patient = until.is_never() && !settings.limits.fail_fast;
    let target = target.with(settings.database_settings());
    let Some(database) = start::open(&target, patient, &monitor, &mut requests).await? else {
        logs.say("stopped before the database could be reached");
        return Ok(());
    };
    let builder = monitor.observe(settings.configure(Relay::builder(database.store.clone())));
    let (builder, served) = plan.start(builder, settings)?;
    if settings.limits.fail_fast {
        served.check().await?;
    }
    #[cfg(feature = "failpoints")]
    let builder = with_frequent_upkeep(builder);
    let relay = builder.build()?;
    monitor.running(&relay.handle(), database.admin.clone(), served.looks());
    let mut stopping = Stopping { handle: relay.handle(), logs, before: None };
    let begun = Instant::now();
    let work = work(relay, until);
    tokio::pin!(work);
    let mut ended = false;
    let summary = loop {
        tokio::select! {
            summary = &mut work => break summary?,
            () = served.end().reached(), if !ended => {
                ended = true;
                stopping.handle.stop();
            }
            () = requests.next() => {
                monitor.stopping();
                stopping.requested();
            }
        }
    };
    served.close().await;
    logs.say(&summary_line(&summary, begun.elapsed()));
    match served.end().reason() {
        Some(reason) => Err(Failure::failed(reason)
            .hint("what was not written is still in the table, and no attempt was counted")),
        None => stopping.check(&summary),
    }
}

/// Stopping a relay in two steps.
struct Stopping<'a> {
    handle: RelayHandle,
    logs: &'a LogArgs,
    /// What had been done when the relay was asked to stop for the first time.
    before: Option<Summary>,
}

impl Stopping<'_> {
    fn requested(&mut self) {
        let text = if self.before.is_none() {
            self.before = Some(self.handle.summary());
            self.handle.stop();
            "stopping: finishing what is being published (once more to abandon it)"
        } else {
            self.handle.abandon();
            "abandoning what is being published"
        };
        self.logs.say(text);
    }

    /// Whether everything that was being published was finished.
    fn check(&self, summary: &Summary) -> Result<(), Failure> {
        match self.before.map_or(0, |before| summary.abandoned - before.abandoned) {
            0 => Ok(()),
            count => Err(Failure::failed(format!("abandoned {} while being published", messages(count)))
                .hint("the next relay publishes them, perhaps for the second time")),
        }
    }
}

/// For tests of what happens in the middle of upkeep.
#[cfg(feature = "failpoints")]
fn with_frequent_upkeep(builder: posthaste::RelayBuilder) -> posthaste::RelayBuilder {
    let every = std::env::var("POSTHASTE_TEST_UPKEEP_EVERY")
        .ok()
        .and_then(|text| crate::durations::parse(&text).ok());
    every.into_iter().fold(builder, posthaste::RelayBuilder::upkeep_every)
}

async fn work(relay: Relay, until: &Until) -> Result<Summary, Error> {
    if until.once {
        relay.run_once().await
    } else if until.drain {
        relay.drain().await
    } else if let Some(time) = until.for_time {
        relay.run_until(tokio::time::sleep(time)).await
    } else {
        relay.run_until(std::future::pending()).await
    }
}

fn summary_line(summary: &Summary, took: Duration) -> String {
    let others = [
        (summary.retried, "retried"),
        (summary.dead, "dead"),
        (summary.stale, "published but lost to another relay"),
        (summary.abandoned, "abandoned"),
    ];
    let counts = others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let parts: Vec<_> =
        std::iter::once(format!("published {}", messages(summary.published))).chain(counts).collect();
    format!("{} in {}", parts.join(", "), human(took))
}
