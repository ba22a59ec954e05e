//! A publisher that does what a script says.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use posthaste::{FailureClass, MessageId, PublishError, Publisher, Record};

use super::gate::Gate;
use super::log::PublishLog;

/// Does what a script says, and keeps a record of every call. Without a script it publishes everything. Clones share
/// the script and the record.
///
/// ```
/// use posthaste::{FailureClass, Message};
/// use posthaste_testkit::{ScriptedPublisher, Step};
///
/// let (poison, flaky) = (Message::new("poison"), Message::new("flaky"));
/// let publisher = ScriptedPublisher::default();
/// publisher.always(poison.id(), Step::Fail(FailureClass::Rejected));
/// publisher.on(flaky.id(), [Step::Fail(FailureClass::Failed), Step::Panic]);
/// publisher.on_call(7, Step::Hang);
/// ```
#[derive(Debug, Clone, Default)]
pub struct ScriptedPublisher {
    script: Arc<Mutex<Script>>,
    log: PublishLog,
}

/// What to do when a record is to be published.
#[derive(Debug, Clone)]
pub enum Step {
    /// Publish it.
    Publish,
    /// Fail in this way, with the reason `scripted failure`.
    Fail(FailureClass),
    /// Never return.
    Hang,
    /// Panic.
    Panic,
    /// Wait at the gate, then do something else.
    Await(Gate, Box<Step>),
}

impl Step {
    /// Waits at the gate, then publishes.
    pub fn publish_after(gate: &Gate) -> Self {
        Self::Await(gate.clone(), Box::new(Self::Publish))
    }
}

#[derive(Debug, Default)]
struct Script {
    of_ids: BTreeMap<MessageId, VecDeque<Step>>,
    always: BTreeMap<MessageId, Step>,
    of_calls: BTreeMap<usize, Step>,
    otherwise: Option<Step>,
}

impl ScriptedPublisher {
    /// What to do when this record is to be published: one step a time, and when they are used up what the rest of
    /// the script says.
    pub fn on(&self, id: MessageId, steps: impl IntoIterator<Item = Step>) {
        self.script().of_ids.entry(id).or_default().extend(steps);
    }

    /// What to do whenever this record is to be published and no step of [`on`](Self::on) is left.
    pub fn always(&self, id: MessageId, step: Step) {
        self.script().always.insert(id, step);
    }

    /// What to do in the nth call, whatever the record, if the script says nothing about it. The first is 1.
    pub fn on_call(&self, number: usize, step: Step) {
        self.script().of_calls.insert(number, step);
    }

    /// What to do when nothing else in the script applies, from now on.
    pub fn otherwise(&self, step: Step) {
        self.script().otherwise = Some(step);
    }

    /// The calls.
    pub fn log(&self) -> &PublishLog {
        &self.log
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Script {
    fn next(&mut self, id: MessageId, number: usize) -> Step {
        let of_id = self.of_ids.get_mut(&id).and_then(VecDeque::pop_front);
        of_id
            .or_else(|| self.always.get(&id).cloned())
            .or_else(|| self.of_calls.remove(&number))
            .or_else(|| self.otherwise.clone())
            .unwrap_or(Step::Publish)
    }
}

async fn perform(mut step: Step) -> Result<(), PublishError> {
    loop {
        match step {
            Step::Publish => return Ok(()),
            Step::Fail(class) => return Err(PublishError::new(class, "scripted failure")),
            Step::Hang => std::future::pending().await,
            Step::Panic => panic!("scripted panic"),
            Step::Await(gate, next) => {
                gate.pass().await;
                step = *next;
            }
        }
    }
}

#[async_trait]
impl Publisher for ScriptedPublisher {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        let call = self.log.begin(&record);
        let step = self.script().next(record.id, call.number);
        call.follow(perform(step)).await
    }
}
