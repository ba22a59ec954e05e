//! Relays that live through every kind of trouble do all the work afterwards, with nothing left behind in them.
//!
//! The simulation lets fresh relays finish the work; here it is those that saw the trouble. `POSTHASTE_SEEDS` sets
//! how many seeds are gone through.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use posthaste::{
    Admin, DeadPolicy, DeadSelection, ErrorKind, Message, MessageId, Mode, PublishError, Publisher, Record,
    RelayHandle, RetryPolicy, State,
};
use posthaste_testkit::InvariantChecker;

use crate::support::*;

/// A destination in a bad mood until it is healed.
#[derive(Clone)]
struct Moody {
    random: Arc<Mutex<fastrand::Rng>>,
    healed: Arc<AtomicBool>,
    rejects: bool,
    taken: Arc<Mutex<Vec<MessageId>>>,
}

impl Moody {
    fn new(seed: u64, rejects: bool) -> Self {
        let random = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { random, healed: Arc::default(), rejects, taken: Arc::default() }
    }

    fn dice(&self, most: u64) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).u64(0..most)
    }

    fn take(&self, record: &Record) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).push(record.id);
    }
}

#[async_trait]
impl Publisher for Moody {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        pass(millis(self.dice(20))).await;
        let mood = if self.healed.load(Ordering::SeqCst) { 99 } else { self.dice(60) };
        match mood {
            0..4 => Err(PublishError::failed("failed")),
            4 if self.rejects => Err(PublishError::rejected("rejected")),
            5 => Err(PublishError::unavailable("away")),
            6 => Err(PublishError::throttled(Some(millis(self.dice(300))), "slow down")),
            7 => panic!("the handler panics"),
            8 => std::future::pending().await,
            9 => {
                self.take(&record);
                Err(PublishError::failed("took it, but said no"))
            }
            10 => {
                self.take(&record);
                pass(millis(self.dice(3_000))).await;
                Ok(())
            }
            _ => {
                self.take(&record);
                Ok(())
            }
        }
    }
}

/// One run.
struct Trouble {
    random: fastrand::Rng,
    store: TappedStore,
    clock: JumpingClock,
    publisher: Moody,
    policy: DeadPolicy,
    messages: Vec<Message>,
    views: Vec<TappedStore>,
    relays: Vec<Running>,
}

impl Trouble {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let (store, clock) = outbox_on_jumping_clock(random.u16(1..7));
        let policy = if random.bool() { DeadPolicy::Park } else { DeadPolicy::Skip };
        // Given up and skipped messages lose their place; that order is checked where none is given up.
        let publisher = Moody::new(random.u64(..), policy == DeadPolicy::Park);
        let (messages, views, relays) = (Vec::new(), Vec::new(), Vec::new());
        Self { random, store, clock, publisher, policy, messages, views, relays }
    }

    fn join(&mut self) -> TappedStore {
        let view = self.store.other_view();
        let retry = RetryPolicy::exponential(millis(50), secs(1)).unlimited_attempts();
        let builder = relay(&view, &self.publisher)
            .lease(secs(3))
            .max_in_flight(self.random.usize(1..10))
            .window_rows(self.random.usize(1..60))
            .settle_batch(self.random.usize(1..9))
            .publish_timeout(secs(2))
            .upkeep_every(secs(5))
            .retry(retry)
            .on_dead(self.policy)
            .seed(self.random.u64(..));
        self.relays.push(start(builder));
        self.views.push(view.clone());
        view
    }

    fn enqueue(&mut self) {
        let (random, keys) = (&mut self.random, 8);
        let batch: Vec<_> = (0..random.usize(1..30))
            .map(|_| {
                let key = random.usize(0..=keys);
                let message = if key == keys { loose() } else { keyed(key) };
                if random.u32(0..10) == 0 { message.delay(millis(random.u64(1..2_000))) } else { message }
            })
            .collect();
        enqueue(&self.store, &batch);
        self.messages.extend(batch);
    }

    async fn trouble(&mut self) {
        let faults = [Fault::Error(ErrorKind::Unavailable), Fault::ErrorAfter, Fault::Panic];
        let fault = faults[self.random.usize(0..3)];
        let op = Op::ALL[self.random.usize(0..Op::ALL.len())];
        let place = self.random.usize(0..self.views.len());
        let view = &self.views[place];
        match self.random.u32(0..12) {
            0..3 => view.fail_once(op, fault),
            3 => view.break_down(&[op], fault),
            4 => view.break_down(&Op::ALL, fault),
            5 => view.slow_down(op, millis(self.random.u64(0..5_000))),
            6 => view.fail_once(Op::Rung, Fault::Panic),
            7 => self.clock.jump(secs(self.random.u64(0..6))),
            8 => {
                let some = Mode::UpTo(self.random.u64(1..5));
                self.store.memory().redrive(&DeadSelection::All, some).await.expect("the store works");
            }
            _ => view.heal(),
        }
    }

    fn heal(&self) {
        self.publisher.healed.store(true, Ordering::SeqCst);
        self.views.iter().for_each(TappedStore::heal);
    }

    /// Waits until everything is published, redriving what was given up.
    async fn finish(&self) {
        for _ in 0..60 {
            self.store
                .memory()
                .redrive(&DeadSelection::All, Mode::UpTo(1_000))
                .await
                .expect("the store works");
            let open = |message: &posthaste::MessageDetails| message.info.state != State::Processed;
            if !self.store.memory().messages().iter().any(open) {
                return;
            }
            pass(secs(1)).await;
        }
        let left = self.store.memory().messages();
        let left: Vec<_> = left.iter().filter(|message| message.info.state != State::Processed).collect();
        panic!("{} messages are left, the first: {:?}", left.len(), left[0]);
    }

    fn check_order(&self) {
        let mut checker = InvariantChecker::default();
        self.messages.iter().for_each(|message| checker.committed(message));
        let taken = self.publisher.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.iter().for_each(|id| checker.published(*id));
        let found = checker.check();
        assert!(found.is_at_least_once(), "{found}");
    }
}

async fn live_through(seed: u64) {
    let mut trouble = Trouble::new(seed);
    for _ in 0..trouble.random.usize(1..4) {
        trouble.join();
    }
    for _ in 0..trouble.random.usize(5..40) {
        trouble.enqueue();
        pass(millis(trouble.random.u64(0..1_500))).await;
        trouble.trouble().await;
    }
    trouble.heal();
    trouble.finish().await;
    trouble.check_order();
    pass(secs(10)).await;
    assert!(trouble.relays.iter().all(|relay| RelayHandle::is_ready(&relay.handle)), "all are well again");
    // One more relay gets what is above the share of the others: no lane is stuck.
    let (lanes, others) = (usize::from(trouble.store.memory().lanes()), trouble.relays.len());
    let share = lanes.saturating_sub(others * lanes.div_ceil(others + 1));
    let view = trouble.join();
    within(secs(12), view.until(|view| view.held().len() >= share)).await;
    trouble.enqueue();
    trouble.finish().await;
    trouble.check_order();
    for relay in trouble.relays {
        within(secs(1), relay.stop()).await;
    }
}

#[test]
fn relays_that_lived_through_trouble_do_all_the_work_afterwards() {
    let seeds = std::env::var("POSTHASTE_SEEDS").map_or(60, |text| text.parse().expect("it is a number"));
    let only = std::env::var("POSTHASTE_SEED").ok().map(|text| text.parse().expect("it is a number"));
    for seed in only.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().expect("a runtime can be made");
        let run = std::panic::AssertUnwindSafe(|| runtime.block_on(live_through(seed)));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("it was seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
