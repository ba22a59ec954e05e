//! Messages that kill the process that publishes them.

use std::sync::Arc;

use async_trait::async_trait;
use posthaste::{
    Admin, DeadPolicy, DeadSelection, ErrorKind, FailureClass, MessageId, Mode, PublishError, Publisher,
    Record, RetryPolicy, State,
};
use posthaste_testkit::{Call, Gate, PublishLog, ScriptedPublisher, Step};
use tokio::sync::Notify;

use crate::support::*;

const MAX_ATTEMPTS: u32 = 4;
const LEASE: u64 = 3;

/// Kills the relay when it is to publish the poison: from then on nothing reaches the store.
#[derive(Clone)]
struct Deadly {
    inner: ScriptedPublisher,
    poison: MessageId,
    store: TappedStore,
    killed: Arc<Notify>,
}

#[async_trait]
impl Publisher for Deadly {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        if record.id == self.poison {
            self.store.break_down(&Op::ALL, Fault::Hang);
            self.killed.notify_one();
            return std::future::pending().await;
        }
        pass(millis(5)).await;
        self.inner.publish(record).await
    }
}

/// An outbox with a message that kills whoever publishes it.
struct Plague {
    store: TappedStore,
    publisher: ScriptedPublisher,
    poison: MessageId,
    window: usize,
    killed: u32,
}

impl Plague {
    fn new(store: TappedStore, poison: MessageId) -> Self {
        Self { store, publisher: ScriptedPublisher::default(), poison, window: 1_000, killed: 0 }
    }

    fn log(&self) -> &PublishLog {
        self.publisher.log()
    }

    /// Starts relays, one after the other died, until all messages are settled.
    async fn run(&mut self, slow: impl Fn(&TappedStore)) {
        loop {
            let view = self.store.other_view();
            slow(&view);
            let killed = Arc::new(Notify::new());
            let deadly = Deadly {
                inner: self.publisher.clone(),
                poison: self.poison,
                store: view.clone(),
                killed: killed.clone(),
            };
            let retry = RetryPolicy::fixed(secs(1)).max_attempts(MAX_ATTEMPTS);
            let relay = relay(&view, &deadly).lease(secs(LEASE)).retry(retry).max_in_flight(16);
            let relay = relay.window_rows(self.window).idle_poll(secs(1));
            let running = start(relay.seed(u64::from(self.killed)));
            let is_killed = tokio::select! {
                biased;
                () = killed.notified() => true,
                () = within(secs(600), view.until_settled()) => false,
            };
            running.task.abort();
            if !is_killed {
                return;
            }
            self.killed += 1;
            assert!(self.killed <= MAX_ATTEMPTS + 1, "the poison is given up at last");
            self.assert_no_one_else_pays();
        }
    }

    /// No other message that is still to be published pays for the poison.
    fn assert_no_one_else_pays(&self) {
        for message in self.store.memory().messages() {
            let info = message.info;
            if info.id != self.poison && info.state != State::Processed {
                assert_eq!(
                    (info.state, info.attempts),
                    (State::Ready, 0),
                    "after {} deaths: {info:?}",
                    self.killed
                );
            }
        }
    }

    fn assert_over(&self) {
        assert!(self.killed >= MAX_ATTEMPTS, "it was tried as often as allowed: {}", self.killed);
        assert_eq!(count(&self.store, State::Dead), 1, "only the poison is given up");
        assert_eq!(
            (state(&self.store, self.poison), attempts(&self.store, self.poison)),
            (State::Dead, MAX_ATTEMPTS)
        );
        let error = last_error(&self.store, self.poison).expect("it says why");
        assert!(error.contains("a relay died while publishing it"), "{error}");
        assert_eq!(count(&self.store, State::Ready) + count(&self.store, State::Waiting), 0);
    }
}

/// So many messages of different keys, of which one is poison.
fn plague(lanes: u16, count: usize, place: usize) -> Plague {
    let store = outbox(lanes);
    let ids = enqueue(&store, &many(count, |n| if n % 3 == 0 { loose() } else { keyed(n) }));
    Plague::new(store, ids[place].id())
}

#[tokio::test(start_paused = true)]
async fn a_message_that_kills_its_relay_is_given_up_after_max_attempts_and_no_other_pays() {
    for (lanes, place) in [(1, 0), (1, 20), (1, 59), (4, 0), (4, 31), (4, 59)] {
        let mut plague = plague(lanes, 60, place);
        plague.run(|_| {}).await;
        plague.assert_over();
    }
}

#[tokio::test(start_paused = true)]
async fn the_poison_is_given_up_however_long_the_backlog_of_the_lanes_is() {
    for poisoned in 0..12 {
        let store = outbox(12);
        enqueue(&store, &many(1_200, |n| if n % 3 == 0 { loose() } else { keyed(n) }));
        let of_lane = |message: &&posthaste::MessageDetails| message.lane.0 == poisoned;
        let poison = store.memory().messages().iter().filter(of_lane).nth(2).expect("it has more").info.id;
        let mut plague = Plague { window: 100, ..Plague::new(store, poison) };
        plague.run(|_| {}).await;
        plague.assert_over();
    }
}

#[tokio::test(start_paused = true)]
async fn no_other_message_pays_however_long_the_store_takes() {
    for latency in [1, 5, 50, 300] {
        for op in [Op::Settle, Op::BeginAttempt, Op::Read] {
            let mut plague = plague(1, 40, 10);
            plague.run(|view| view.slow_down(op, millis(latency))).await;
            plague.assert_over();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_other_message_pays_if_the_first_read_after_a_death_fails() {
    let mut plague = plague(2, 40, 10);
    plague.run(|view| view.fail_once(Op::Read, Fault::Error(ErrorKind::Unavailable))).await;
    plague.assert_over();
}

#[tokio::test(start_paused = true)]
async fn no_other_message_pays_if_an_attempt_cannot_be_written_down_at_first() {
    let mut plague = plague(2, 40, 10);
    plague.run(|view| view.fail_once(Op::BeginAttempt, Fault::Error(ErrorKind::Unavailable))).await;
    plague.assert_over();
}

#[tokio::test(start_paused = true)]
async fn a_key_goes_on_when_its_first_message_killed_its_relays() {
    let store = outbox(2);
    let ids = enqueue_key(&store, "poisoned", 5);
    let mut plague = Plague::new(store, ids[0]);
    plague.run(|_| {}).await;
    plague.assert_over();
    assert_eq!(plague.log().published(), ids[1..], "the rest follows in order");
}

#[tokio::test(start_paused = true)]
async fn a_hot_key_beside_the_poison_pays_nothing() {
    let store = outbox(1);
    enqueue_key(&store, "hot", 100);
    let poison = enqueue_one(&store, keyed("poison"));
    enqueue_key(&store, "hot", 100);
    let mut plague = Plague::new(store, poison);
    plague.run(|_| {}).await;
    plague.assert_over();
}

/// Lets a relay die with what it has in flight, and returns the outbox when its lease is over.
async fn after_a_death(store: &TappedStore, in_flight: usize) -> ScriptedPublisher {
    let (publisher, gate) = (ScriptedPublisher::default(), Gate::closed());
    publisher.otherwise(Step::publish_after(&gate));
    let view = store.other_view();
    let dying = start(relay(&view, &publisher).lease(secs(LEASE)).max_in_flight(in_flight));
    gate.until_waiting(in_flight).await;
    view.break_down(&Op::ALL, Fault::Hang);
    dying.task.abort();
    publisher.log().until_ended(in_flight).await;
    pass(secs(LEASE)).await;
    let next = ScriptedPublisher::default();
    next.otherwise(Step::Publish);
    next
}

#[tokio::test(start_paused = true)]
async fn the_care_after_a_death_ends_when_nothing_is_left_to_be_careful_with() {
    let store = outbox(2);
    enqueue_loose(&store, 2_000);
    let publisher = after_a_death(&store, 16).await;
    let gate = Gate::closed();
    let _next = start(relay(&store, &publisher).max_in_flight(16));
    within(secs(2), publisher.log().until_published(100)).await;
    publisher.otherwise(Step::publish_after(&gate));
    within(secs(2), gate.until_waiting(16)).await;
    gate.open();
    within(secs(5), store.until_settled()).await;
    assert!(store.calls(Op::BeginAttempt) <= 100, "{} attempts written down", store.calls(Op::BeginAttempt));
    assert!(store.calls(Op::BeginAttempt) >= 16, "those that were in flight are tried with care");
}

#[tokio::test(start_paused = true)]
async fn a_slow_message_does_not_hold_up_the_others_for_long_after_a_death() {
    let store = outbox(1);
    let ids = enqueue_loose(&store, 40);
    let publisher = after_a_death(&store, 4).await;
    publisher.on(ids[0], [Step::Hang]);
    let _next = start(relay(&store, &publisher).max_in_flight(4).publish_timeout(secs(60)));
    within(secs(3), publisher.log().until_published(39)).await;
}

#[tokio::test(start_paused = true)]
async fn the_store_is_left_alone_when_attempts_cannot_be_written_down() {
    let store = outbox(1);
    let ids = enqueue_key(&store, 1, 40);
    let publisher = after_a_death(&store, 1).await;
    store.break_down(&[Op::BeginAttempt], Fault::Error(ErrorKind::Unavailable));
    let _next = start(relay(&store, &publisher).lease(secs(LEASE)));
    pass(secs(9)).await;
    let (begun, leases) = (store.calls(Op::BeginAttempt), store.calls(Op::Lease));
    assert!((3..100).contains(&begun), "{begun} attempts to write an attempt down in 9 s");
    assert!(leases < 50, "{leases} renewals in 9 s");
    assert!(publisher.log().calls().is_empty(), "nothing is published without that at first");
    within(secs(5), store.until_settled()).await;
    assert_eq!(publisher.log().published(), ids, "but the care does not last for ever");
}

#[tokio::test(start_paused = true)]
async fn an_outage_after_a_death_counts_no_attempt() {
    let store = outbox(1);
    let ids = enqueue_key(&store, 1, 5);
    let publisher = after_a_death(&store, 1).await;
    publisher.otherwise(Step::Fail(FailureClass::Unavailable));
    let running = start(relay(&store, &publisher).lease(secs(LEASE)).idle_poll(secs(1)));
    pass(secs(600)).await;
    running.stop().await;
    for id in ids {
        assert_eq!((state(&store, id), attempts(&store, id)), (State::Ready, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_during_an_outage_after_a_death_counts_no_attempt() {
    let store = outbox(1);
    let ids = enqueue_key(&store, 1, 5);
    let publisher = after_a_death(&store, 1).await;
    publisher.otherwise(Step::Fail(FailureClass::Unavailable));
    within(secs(60), run_once(relay(&store, &publisher))).await;
    for id in ids {
        assert_eq!((state(&store, id), attempts(&store, id)), (State::Ready, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_after_a_death_counts_no_attempt_of_what_was_not_under_way() {
    let store = outbox(1);
    let ids = enqueue_key(&store, 1, 5);
    let publisher = after_a_death(&store, 1).await;
    publisher.otherwise(Step::Fail(FailureClass::Throttled { retry_after: Some(secs(600)) }));
    let events = Events::new();
    let running = start(relay(&store, &publisher).lease(secs(LEASE)).observer(events.clone()));
    within(secs(5), events.until("paused")).await;
    store.break_down(&[Op::Lease], Fault::Error(ErrorKind::Unavailable));
    within(secs(5), events.until("lapsed")).await;
    within(secs(1), store.until(|store| attempts(store, ids[0]) == 0)).await;
    store.heal();
    let summary = running.stop().await;
    assert_eq!(summary.stale, 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_deleted_by_hand_after_a_death_holds_nothing_up() {
    let store = outbox(1);
    let gone = enqueue_one(&store, loose());
    let others = enqueue_loose(&store, 20);
    let publisher = after_a_death(&store, 1).await;
    // Its row is deleted between the read and the attempt.
    store.slow_down(Op::BeginAttempt, secs(1));
    let _next = start(relay(&store, &publisher));
    store.until_calls(Op::BeginAttempt, 1).await;
    delete_by_hand(&store, gone).await;
    store.slow_down(Op::BeginAttempt, millis(0));
    within(secs(10), publisher.log().until_published(others.len())).await;
    within(secs(3), store.until_settled()).await;
    assert!(store.calls(Op::BeginAttempt) < 100, "{} attempts", store.calls(Op::BeginAttempt));
}

#[tokio::test(start_paused = true)]
async fn parked_keys_stay_parked_when_the_poison_killed_its_relays() {
    let store = outbox(1);
    let ids = enqueue_key(&store, "poisoned", 3);
    let publisher = after_a_death(&store, 1).await;
    publisher.always(ids[0], Step::Fail(FailureClass::Rejected));
    let _next = start(relay(&store, &publisher).on_dead(DeadPolicy::Park));
    within(secs(5), store.until(|store| state(store, ids[0]) == State::Dead)).await;
    pass(secs(5)).await;
    assert!(publisher.log().published().is_empty(), "its key waits");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_was_written_down_and_not_made_costs_nothing_while_that_is_being_taken_back() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    let redriven = enqueue_one(&store, keyed("redriven"));
    let record = enqueue_one(&store, keyed("last attempt"));
    publisher.on(redriven, [Step::Fail(FailureClass::Rejected)]);
    let throttled = FailureClass::Throttled { retry_after: Some(secs(2)) };
    publisher.on(record, [Step::Hang, Step::Fail(throttled)]);
    let settings = |store| {
        relay(store, &publisher).lease(secs(LEASE)).retry(RetryPolicy::fixed(secs(1)).max_attempts(1))
    };
    let first = store.other_view();
    let dying = start(settings(&first));
    within(secs(1), first.until(|store| state(store, redriven) == State::Dead)).await;
    publisher.log().until_begun(2).await;
    first.break_down(&Op::ALL, Fault::Hang);
    dying.task.abort();

    // The next one is careful: it writes the last attempt down, and then the destination does not take the record.
    let second = store.other_view();
    second.slow_down(Op::Settle, secs(5));
    let _relay = start(settings(&second));
    let third_ended = |calls: &Vec<Call>| calls.get(2).is_some_and(|call| call.end.is_some());
    within(secs(10), publisher.log().until(third_ended)).await;
    assert_eq!(attempts(&store, record), 1, "the attempt was written down");
    // Now the lane is read from its start, and the attempt taken back, which takes longer than the pause.
    store.memory().redrive(&DeadSelection::All, Mode::UpTo(1)).await.expect("it is redriven");
    within(secs(20), second.until_settled()).await;
    assert_eq!((state(&store, redriven), state(&store, record)), (State::Processed, State::Processed));
}
