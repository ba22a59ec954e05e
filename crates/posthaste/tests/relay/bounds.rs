//! What is in hand is bounded: in number, in bytes, in publishes under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use posthaste::{
    BeginAttempt, BoxError, Error, LeaseRequest, Leases, Page, ReadRequest, Record, Relay, RelayBuilder,
    RelayId, SettleReport, SettleRequest, Store, UpkeepReport, UpkeepRequest, publish_fn,
};
use posthaste_testkit::{Gate, ScriptedPublisher, Step};

use crate::support::*;

/// Counts the records that are alive, by their payloads.
#[derive(Clone, Default)]
struct Alive(Arc<AliveCounts>);

#[derive(Default)]
struct AliveCounts {
    records: AtomicUsize,
    most_records: AtomicUsize,
    bytes: AtomicUsize,
    most_bytes: AtomicUsize,
}

/// A payload that counts itself.
struct Counted(Bytes, Alive);

impl Alive {
    fn count(&self, payload: &Bytes) -> Bytes {
        let counts = &self.0;
        let records = counts.records.fetch_add(1, Ordering::SeqCst) + 1;
        counts.most_records.fetch_max(records, Ordering::SeqCst);
        let bytes = counts.bytes.fetch_add(payload.len(), Ordering::SeqCst) + payload.len();
        counts.most_bytes.fetch_max(bytes, Ordering::SeqCst);
        Bytes::from_owner(Counted(payload.clone(), self.clone()))
    }

    fn most_records(&self) -> usize {
        self.0.most_records.load(Ordering::SeqCst)
    }

    fn most_bytes(&self) -> usize {
        self.0.most_bytes.load(Ordering::SeqCst)
    }
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let counts = &self.1.0;
        counts.records.fetch_sub(1, Ordering::SeqCst);
        counts.bytes.fetch_sub(self.0.len(), Ordering::SeqCst);
    }
}

/// A store whose records are counted while they are alive.
struct CountingStore {
    store: TappedStore,
    alive: Alive,
}

#[async_trait::async_trait]
impl Store for CountingStore {
    async fn read(&self, request: &ReadRequest) -> Result<Page, Error> {
        let mut page = self.store.read(request).await?;
        for record in &mut page.records {
            record.payload = record.payload.as_ref().map(|payload| self.alive.count(payload));
        }
        Ok(page)
    }

    async fn lease(&self, request: &LeaseRequest) -> Result<Leases, Error> {
        self.store.lease(request).await
    }

    async fn leave(&self, relay: RelayId) -> Result<(), Error> {
        self.store.leave(relay).await
    }

    async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error> {
        self.store.begin_attempt(attempt).await
    }

    async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error> {
        self.store.settle(request).await
    }

    async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
        self.store.upkeep(request).await
    }

    async fn set_idle(&self, relay: RelayId, idle: bool) -> Result<(), Error> {
        self.store.set_idle(relay, idle).await
    }

    async fn rung(&self) {
        self.store.rung().await;
    }
}

/// A relay whose records are counted, with a publisher that takes its time.
fn counted(store: &TappedStore) -> (RelayBuilder, Alive) {
    let alive = Alive::default();
    let counting = CountingStore { store: store.clone(), alive: alive.clone() };
    let slow = publish_fn(|_record: Arc<Record>| async {
        pass(millis(20)).await;
        Ok::<_, BoxError>(())
    });
    (Relay::builder(Arc::new(counting)).publisher(slow).seed(7), alive)
}

#[tokio::test(start_paused = true)]
async fn the_window_is_never_exceeded_in_records() {
    let store = outbox(4);
    enqueue(&store, &many(1_000, |n| keyed(n % 37).payload(vec![0; 10])));
    let (relay, alive) = counted(&store);
    let _relay = start(relay.window_rows(40).max_in_flight(16));
    within(secs(60), store.until_settled()).await;
    assert!(alive.most_records() <= 40, "{} records were in hand", alive.most_records());
    assert!(alive.most_records() >= 30, "the window is used: {} records", alive.most_records());
}

#[tokio::test(start_paused = true)]
async fn the_window_is_never_exceeded_in_bytes() {
    let store = outbox(4);
    enqueue(&store, &many(300, |n| keyed(n % 37).payload(vec![0; 10_000])));
    let (relay, alive) = counted(&store);
    let _relay = start(relay.window_bytes(200_000).max_in_flight(16));
    within(secs(60), store.until_settled()).await;
    assert!(alive.most_bytes() <= 200_000, "{} bytes were in hand", alive.most_bytes());
    assert!(alive.most_bytes() >= 100_000, "the window is used: {} bytes", alive.most_bytes());
}

#[tokio::test(start_paused = true)]
async fn the_window_is_not_exceeded_while_outcomes_cannot_be_written() {
    let store = outbox(4);
    enqueue(&store, &many(300, |n| keyed(n % 37).payload(vec![0; 10_000])));
    store.break_down(&[Op::Settle], Fault::Error(posthaste::ErrorKind::ReadOnly));
    let (relay, alive) = counted(&store);
    let _relay = start(relay.window_bytes(200_000).window_rows(100).max_in_flight(16));
    pass(secs(60)).await;
    assert!(alive.most_bytes() <= 200_000, "{} bytes were in hand", alive.most_bytes());
    assert!(alive.most_records() <= 100, "{} records were in hand", alive.most_records());
    store.heal();
    within(secs(60), store.until_settled()).await;
    assert!(alive.most_bytes() <= 200_000, "{} bytes were in hand", alive.most_bytes());
}

#[tokio::test(start_paused = true)]
async fn the_window_is_not_exceeded_by_large_records() {
    for size in [30_000, 60_000, 90_000, 150_000] {
        let store = outbox(4);
        enqueue(&store, &many(60, |n| keyed(n % 37).payload(vec![0; size])));
        let (relay, alive) = counted(&store);
        let running = start(relay.window_bytes(200_000).max_in_flight(16));
        within(secs(60), store.until_settled()).await;
        assert!(alive.most_bytes() <= 200_000, "{} bytes of {size} each were in hand", alive.most_bytes());
        assert!(alive.most_bytes() + size > 150_000, "only {} bytes were in hand", alive.most_bytes());
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_larger_than_the_window_is_taken_alone() {
    let store = outbox(1);
    let sizes = [10, 300_000, 10, 500_000, 20];
    enqueue(&store, &sizes.map(|size| keyed(size).payload(vec![0; size])));
    let (relay, alive) = counted(&store);
    let _relay = start(relay.window_bytes(100_000));
    within(secs(10), store.until_settled()).await;
    assert!(alive.most_bytes() < 600_000, "{} bytes were in hand", alive.most_bytes());
}

#[tokio::test(start_paused = true)]
async fn a_window_of_one_record_works() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    let messages = many(60, |n| if n % 5 == 0 { loose() } else { keyed(n % 7) });
    enqueue(&store, &messages);
    let _relay = start(relay(&store, &publisher).window_rows(1).settle_batch(1));
    within(secs(60), store.until_settled()).await;
    assert_exactly_once(&messages, publisher.log());
}

#[tokio::test(start_paused = true)]
async fn never_more_publishes_than_allowed_are_under_way() {
    let (store, publisher) = (outbox(8), ScriptedPublisher::default());
    let gate = Gate::closed();
    publisher.otherwise(Step::publish_after(&gate));
    enqueue_loose(&store, 100);
    let relay = start(relay(&store, &publisher).max_in_flight(7));
    gate.until_waiting(7).await;
    pass(secs(3)).await;
    assert_eq!(gate.waiting(), 7);
    gate.let_through(3);
    publisher.log().until_published(3).await;
    gate.until_waiting(7).await;
    pass(secs(1)).await;
    assert_eq!((gate.waiting(), publisher.log().calls().len()), (7, 10));
    gate.open();
    within(secs(5), store.until_settled()).await;
    assert_eq!(relay.stop().await.published, 100);
}

#[tokio::test(start_paused = true)]
async fn never_two_publishes_of_a_key_are_under_way() {
    let (store, publisher) = (outbox(4), Crowd::new(millis(3)));
    enqueue(&store, &many(500, |n| keyed(n % 5)));
    let _relay = start(relay(&store, &publisher).window_rows(50));
    within(secs(10), publisher.until_published("tested", 500)).await;
    assert_eq!(publisher.counts().most_of_a_key, 1);
    assert_eq!(publisher.counts().most_in_flight, 5, "but all keys at the same time");
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_written_in_batches_of_the_set_size() {
    let (store, publisher) = (outbox(4), ScriptedPublisher::default());
    enqueue_loose(&store, 500);
    let _relay = start(relay(&store, &publisher).settle_batch(30));
    within(secs(5), store.until_settled()).await;
    let sizes: Vec<_> = store.settles().iter().map(|(request, _)| request.settlements.len()).collect();
    assert!(sizes.iter().all(|size| *size <= 30), "{sizes:?}");
    assert!(sizes.len() < 60, "they are written together: {sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lonely_outcome_is_written_without_delay() {
    let (store, publisher) = (outbox(1), ScriptedPublisher::default());
    enqueue_one(&store, keyed(1));
    let _relay = start(relay(&store, &publisher).settle_linger(secs(60)));
    within(millis(50), store.until_settled()).await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_does_not_wait_for_others_longer_than_it_may() {
    let (store, publisher) = (outbox(2), ScriptedPublisher::default());
    let gate = Gate::closed();
    let (slow, quick) = (enqueue_one(&store, keyed(1)), enqueue_one(&store, keyed(2)));
    publisher.on(slow, [Step::publish_after(&gate)]);
    let _relay = start(relay(&store, &publisher).settle_linger(millis(500)));
    within(millis(600), store.until(|store| state(store, quick) == posthaste::State::Processed)).await;
    let wrote = store.times(Op::Settle)[0] - publisher.log().calls_of(quick)[0].began;
    assert!(wrote >= millis(500), "it was written after {wrote:?}");
}
