//! What `redrive` and `discard` have in common: walking over dead messages in small steps.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

use posthaste::{Admin, DeadSelection, Error, Glob, ListFilter, MessageId, Mode, State};
use tokio::time::{MissedTickBehavior, interval};

use crate::failure::{Failure, note};
use crate::output::{Output, messages};
use crate::progress::Progress;
use crate::shutdown::StopRequests;

/// The most messages that one transaction touches.
const STEP: usize = 1_000;

/// What is done to dead messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Redrive,
    Discard,
}

/// How it is done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    pub(super) action: Action,
    pub(super) dry_run: bool,
    /// Messages a second; `None`: as fast as it goes.
    pub(super) rate: Option<NonZeroU32>,
}

impl Action {
    fn infinitive(self) -> &'static str {
        match self {
            Self::Redrive => "redrive",
            Self::Discard => "discard",
        }
    }

    fn participle(self) -> &'static str {
        match self {
            Self::Redrive => "redriven",
            Self::Discard => "discarded",
        }
    }

    async fn apply(self, admin: &dyn Admin, selection: &DeadSelection, mode: Mode) -> Result<u64, Error> {
        match self {
            Self::Redrive => admin.redrive(selection, mode).await,
            Self::Discard => admin.discard(selection, mode).await,
        }
    }
}

/// Does the job on the messages with these ids, and names those that are not dead.
pub(super) async fn by_ids(admin: &dyn Admin, ids: Vec<MessageId>, job: Job) -> Result<(), Failure> {
    let mut dead = Vec::new();
    let mut seen = HashSet::new();
    let mut others = false;
    for id in ids.into_iter().filter(|id| seen.insert(*id)) {
        match admin.show(id).await?.map(|message| message.info.state) {
            Some(State::Dead) => dead.push(id),
            Some(state) => {
                others = true;
                note(&format!("{id} is {}, not dead", state.as_str()));
            }
            None => {
                others = true;
                note(&format!("{id} is not there"));
            }
        }
    }
    let total = dead.len() as u64;
    if job.dry_run {
        report_dry_run(job.action, total)?;
    } else {
        walk(admin, &mut Given { ids: dead }, total, job).await?;
    }
    if others { Err(Failure::silent()) } else { Ok(()) }
}

/// Does the job on all dead messages, or on those with a matching event type.
pub(super) async fn by_event_type(
    admin: &dyn Admin,
    event_type: Option<String>,
    job: Job,
) -> Result<(), Failure> {
    let glob = event_type.map(Glob::new);
    let selection = glob.clone().map_or(DeadSelection::All, DeadSelection::EventType);
    let total = job.action.apply(admin, &selection, Mode::DryRun).await?;
    if job.dry_run {
        return report_dry_run(job.action, total);
    }
    walk(admin, &mut Listed { event_type: glob, seen: HashSet::new(), left: total }, total, job).await
}

fn report_dry_run(action: Action, total: u64) -> Result<(), Failure> {
    let mut output = Output::new();
    output.line(format_args!("would {} {}", action.infinitive(), messages(total)))?;
    Ok(output.finish()?)
}

/// Steps over the messages until there are no more, or somebody asks to stop. Each step is a transaction.
async fn walk(admin: &dyn Admin, source: &mut impl Batches, total: u64, job: Job) -> Result<(), Failure> {
    let mut requests = StopRequests::listen()?;
    let (step, pause) = pace(job.rate);
    let mut ticks = interval(pause);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut progress = Progress::new(total, job.action.participle());
    let mut done = 0;
    let stopped = loop {
        tokio::select! {
            biased;
            () = requests.next() => break true,
            _ = ticks.tick() => {}
        }
        let ids = source.next(admin, step).await?;
        if ids.is_empty() {
            break false;
        }
        let most = Mode::UpTo(ids.len() as u64);
        done += job.action.apply(admin, &DeadSelection::Ids(ids), most).await?;
        progress.set(done);
    };
    progress.finish();
    let mut output = Output::new();
    output.line(format_args!("{} {}", job.action.participle(), messages(done)))?;
    output.finish()?;
    if stopped {
        return Err(Failure::failed(format!("stopped after {done} of {}", messages(total)))
            .hint("run the command again to go on; nothing is done twice"));
    }
    Ok(())
}

/// How many messages a step takes, and how long after a step the next one begins.
fn pace(rate: Option<NonZeroU32>) -> (usize, Duration) {
    let Some(rate) = rate else { return (STEP, Duration::from_nanos(1)) };
    // Ten steps a second, unless they would become too small or too large.
    let step = (rate.get() / 10).clamp(1, 1_000);
    (step as usize, Duration::from_secs_f64(f64::from(step) / f64::from(rate.get())))
}

/// Where the ids for the steps come from.
trait Batches {
    /// At most `most` ids that did not come before; empty at the end.
    async fn next(&mut self, admin: &dyn Admin, most: usize) -> Result<Vec<MessageId>, Error>;
}

/// Ids that the user gave.
struct Given {
    ids: Vec<MessageId>,
}

impl Batches for Given {
    async fn next(&mut self, _: &dyn Admin, most: usize) -> Result<Vec<MessageId>, Error> {
        let rest = self.ids.split_off(most.min(self.ids.len()));
        Ok(std::mem::replace(&mut self.ids, rest))
    }
}

/// Dead messages, oldest first. No id comes twice, also when a redriven message dies again at once, and no more
/// come than there were dead at the start.
struct Listed {
    event_type: Option<Glob>,
    seen: HashSet<MessageId>,
    left: u64,
}

impl Batches for Listed {
    async fn next(&mut self, admin: &dyn Admin, most: usize) -> Result<Vec<MessageId>, Error> {
        let most = most.min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if most == 0 {
            return Ok(Vec::new());
        }
        let mut limit = most;
        loop {
            let event_type = self.event_type.clone();
            let listed = admin.list(&ListFilter { state: Some(State::Dead), event_type, limit }).await?;
            let fresh: Vec<_> = listed
                .iter()
                .map(|message| message.id)
                .filter(|id| !self.seen.contains(id))
                .take(most)
                .collect();
            if fresh.len() == most || listed.len() < limit {
                self.seen.extend(&fresh);
                self.left -= fresh.len() as u64;
                return Ok(fresh);
            }
            limit *= 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use posthaste::{MemoryStore, Message, PublishError, Relay, publish_fn};

    use super::*;

    /// Lets every ready message die.
    async fn kill_all(store: &MemoryStore) {
        let publisher = publish_fn(async |_| Err::<(), _>(PublishError::rejected("no")));
        let relay = Relay::builder(Arc::new(store.clone())).publisher(publisher).build().unwrap();
        relay.drain().await.unwrap();
    }

    #[tokio::test]
    async fn no_message_comes_twice_although_it_dies_again_at_once() {
        let store = MemoryStore::new(1);
        let mut tx = store.begin();
        let ids: HashSet<_> =
            (0..10).map(|_| tx.enqueue(&Message::new("e").aggregate("t", 1)).unwrap().id()).collect();
        tx.commit();
        kill_all(&store).await;
        let mut source = Listed { event_type: None, seen: HashSet::new(), left: 10 };
        let mut came = Vec::new();
        loop {
            let step = source.next(&store, 3).await.unwrap();
            if step.is_empty() {
                break;
            }
            came.extend(&step);
            store.redrive(&DeadSelection::Ids(step), Mode::UpTo(3)).await.unwrap();
            kill_all(&store).await;
        }
        assert_eq!(came.len(), 10);
        assert_eq!(came.into_iter().collect::<HashSet<_>>(), ids);
    }

    #[test]
    fn the_pace_keeps_the_rate() {
        assert_eq!(pace(NonZeroU32::new(1)), (1, Duration::from_secs(1)));
        assert_eq!(pace(NonZeroU32::new(100)), (10, Duration::from_millis(100)));
        assert_eq!(pace(NonZeroU32::new(1_000_000)), (1_000, Duration::from_millis(1)));
        assert_eq!(pace(None).0, STEP);
    }
}
