//! A store that is tapped: its calls are noted, and fail when a test says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{
    BeginAttempt, Error, ErrorKind, LeaseRequest, Leases, MemoryStore, Page, ReadRequest, RelayId,
    SettleReport, SettleRequest, Store, UpkeepReport, UpkeepRequest, Waker,
};
use tokio::sync::watch;
use tokio::time::Instant;

/// A kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Op {
    Lease,
    Leave,
    Read,
    BeginAttempt,
    Settle,
    Upkeep,
    SetIdle,
    Rung,
}

impl Op {
    pub(crate) const ALL: [Self; 7] =
        [Self::Lease, Self::Leave, Self::Read, Self::BeginAttempt, Self::Settle, Self::Upkeep, Self::SetIdle];
}

/// What happens to a call instead of what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails, and nothing was done.
    Error(ErrorKind),
    /// It is done, but fails all the same.
    ErrorAfter,
    Panic,
    /// It never returns.
    Hang,
}

/// The view that one relay has of an outbox. Clones are the same view.
#[derive(Clone)]
pub(crate) struct TappedStore {
    memory: MemoryStore,
    tap: Arc<watch::Sender<Tap>>,
    /// What the relay listens to instead of commits.
    bell: Option<Waker>,
}

#[derive(Default)]
struct Tap {
    /// The calls that began, and when.
    began: Vec<(Op, Instant)>,
    /// How many calls are over.
    over: usize,
    once: Vec<(Op, Fault)>,
    always: BTreeMap<Op, Fault>,
    latency: BTreeMap<Op, Duration>,
    settles: Vec<(SettleRequest, SettleReport)>,
    held: BTreeSet<u16>,
    upkeep: Option<UpkeepRequest>,
}

impl TappedStore {
    pub(crate) fn new(memory: MemoryStore) -> Self {
        Self { memory, tap: Arc::new(watch::Sender::new(Tap::default())), bell: None }
    }

    /// A view that does not hear commits, but only this bell.
    pub(crate) fn with_bell(self, bell: &Waker) -> Self {
        Self { bell: Some(bell.clone()), ..self }
    }

    /// Another view of the same outbox: that of another relay.
    pub(crate) fn other_view(&self) -> Self {
        Self::new(self.memory.clone())
    }

    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.memory
    }

    /// Lets the next call of this kind fail.
    pub(crate) fn fail_once(&self, op: Op, fault: Fault) {
        self.tap.send_modify(|tap| tap.once.push((op, fault)));
    }

    /// Whether every call that was to fail once has done so.
    pub(crate) fn has_failed(&self) -> bool {
        self.tap.borrow().once.is_empty()
    }

    /// Lets every call of these kinds fail until [`heal`](Self::heal).
    pub(crate) fn break_down(&self, ops: &[Op], fault: Fault) {
        self.tap.send_modify(|tap| tap.always.extend(ops.iter().map(|op| (*op, fault))));
    }

    pub(crate) fn heal(&self) {
        self.tap.send_modify(|tap| {
            tap.always.clear();
            tap.latency.clear();
        });
    }

    /// Lets calls of this kind work again.
    pub(crate) fn mend(&self, op: Op) {
        self.tap.send_modify(|tap| {
            tap.always.remove(&op);
        });
    }

    /// Lets every call of this kind take so long.
    pub(crate) fn slow_down(&self, op: Op, latency: Duration) {
        self.tap.send_modify(|tap| {
            tap.latency.insert(op, latency);
        });
    }

    /// When the calls of a kind began.
    pub(crate) fn times(&self, op: Op) -> Vec<Instant> {
        self.tap.borrow().began.iter().filter(|(kind, _)| *kind == op).map(|(_, at)| *at).collect()
    }

    pub(crate) fn calls(&self, op: Op) -> usize {
        self.times(op).len()
    }

    /// How many calls of any kind began.
    pub(crate) fn all_calls(&self) -> usize {
        self.tap.borrow().began.len()
    }

    /// What was written down so far.
    pub(crate) fn settles(&self) -> Vec<(SettleRequest, SettleReport)> {
        self.tap.borrow().settles.clone()
    }

    /// What upkeep was last asked for.
    pub(crate) fn last_upkeep(&self) -> Option<UpkeepRequest> {
        self.tap.borrow().upkeep.clone()
    }

    /// The lanes that the relay held after its last renewal.
    pub(crate) fn held(&self) -> BTreeSet<u16> {
        self.tap.borrow().held.clone()
    }

    /// Waits until something holds; looks whenever a call has begun or is over.
    pub(crate) async fn until(&self, mut holds: impl FnMut(&Self) -> bool) {
        let mut changes = self.tap.subscribe();
        while !holds(self) {
            changes.changed().await.expect("the sender lives");
        }
    }

    pub(crate) async fn until_calls(&self, op: Op, count: usize) {
        self.until(|store| store.calls(op) >= count).await;
    }

    /// Waits until every message was published or given up, and that is written down.
    pub(crate) async fn until_settled(&self) {
        self.until(|store| store.memory.messages().iter().all(|message| message.info.settled_at.is_some()))
            .await;
    }

    fn begin(&self, op: Op) -> (Option<Fault>, Option<Duration>) {
        let mut fault = None;
        self.tap.send_modify(|tap| {
            tap.began.push((op, Instant::now()));
            let once =
                tap.once.iter().position(|(kind, _)| *kind == op).map(|place| tap.once.remove(place).1);
            fault = once.or_else(|| tap.always.get(&op).copied());
        });
        (fault, self.tap.borrow().latency.get(&op).copied())
    }

    async fn call<T>(&self, op: Op, call: impl Future<Output = Result<T, Error>> + Send) -> Result<T, Error> {
        let (fault, latency) = self.begin(op);
        if let Some(latency) = latency {
            tokio::time::sleep(latency).await;
        }
        let result = match fault {
            None => call.await,
            Some(Fault::Error(kind)) => Err(Error::new(kind, "injected")),
            Some(Fault::ErrorAfter) => {
                let _ = call.await;
                Err(Error::new(ErrorKind::Unavailable, "injected, after it was done"))
            }
            Some(Fault::Panic) => panic!("injected into {op:?}"),
            Some(Fault::Hang) => std::future::pending().await,
        };
        self.tap.send_modify(|tap| tap.over += 1);
        result
    }
}

#[async_trait]
impl Store for TappedStore {
    async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
        self.call(Op::Lease, async {
            let leases = self.memory.lease(request).await?;
            let held = leases.lanes.iter().map(|lease| lease.lane.0).collect();
            self.tap.send_modify(|tap| tap.held = held);
            Ok(leases)
        })
        .await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), Error> {
        self.call(Op::Leave, self.memory.leave(relay)).await
    }

    async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        self.call(Op::Read, self.memory.read(request)).await
    }

    async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error> {
        self.call(Op::BeginAttempt, self.memory.begin_attempt(attempt)).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error> {
        self.call(Op::Settle, async {
            let report = self.memory.settle(request).await?;
            self.tap.send_modify(|tap| tap.settles.push((request.clone(), report.clone())));
            Ok(report)
        })
        .await
    }

    async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
        self.tap.send_modify(|tap| tap.upkeep = Some(request.clone()));
        self.call(Op::Upkeep, self.memory.upkeep(request)).await
    }

    async fn set_idle(&self, relay: RelayId, idle: bool) -> Result<(), Error> {
        self.call(Op::SetIdle, self.memory.set_idle(relay, idle)).await
    }

    async fn rung(&self) {
        let is_asked_to_fail = self.tap.borrow().once.iter().any(|(op, _)| *op == Op::Rung);
        if is_asked_to_fail {
            self.begin(Op::Rung);
            panic!("injected into rung");
        }
        match &self.bell {
            Some(bell) => bell.woken().await,
            None => self.memory.rung().await,
        }
    }
}
