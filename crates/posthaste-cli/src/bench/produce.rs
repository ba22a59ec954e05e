//! Producers: some connections that write messages, as fast as they can or at a rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use posthaste::Message;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::book::Book;
use super::drafts::Drafts;
use super::ground::{Ground, Hand, Way};
use super::load::Load;
use crate::failure::Failure;

/// How much is filled in at a time.
const FILL_MESSAGES: u64 = 1_000;
const FILL_BYTES: u64 = 4 * 1024 * 1024;

/// Connections that are open already.
pub(super) struct Producers {
    hands: Vec<Box<dyn Hand>>,
}

/// What all producers of a run share.
struct Work {
    drafts: Arc<Drafts>,
    messages: u64,
    batch: u64,
    /// How many transactions a second, if there is a rate.
    rate: Option<f64>,
    begun: Instant,
    next: AtomicU64,
    done: Arc<AtomicU64>,
    book: Option<Arc<Book>>,
}

impl Producers {
    pub(super) async fn connect(ground: &dyn Ground, way: Way, count: usize) -> Result<Self, Failure> {
        let mut hands = Vec::with_capacity(count);
        for _ in 0..count {
            hands.push(ground.hand(way).await?);
        }
        Ok(Self { hands })
    }

    /// Writes the messages of a load, and gives how long each transaction took, in microseconds. `done` counts the
    /// messages; the book is told of those that are committed.
    pub(super) async fn write(
        self,
        load: &Load,
        drafts: &Arc<Drafts>,
        done: &Arc<AtomicU64>,
        book: Option<Arc<Book>>,
    ) -> Result<Vec<u32>, Failure> {
        let batch = load.batch.get() as u64;
        let work = Arc::new(Work {
            drafts: drafts.clone(),
            messages: load.messages(),
            batch,
            rate: load.rate.map(|rate| rate.get() as f64 / batch as f64),
            begun: Instant::now(),
            next: AtomicU64::new(0),
            done: done.clone(),
            book,
        });
        let mut producers: JoinSet<_> =
            self.hands.into_iter().map(|hand| produce(hand, work.clone())).collect();
        let mut micros = Vec::new();
        while let Some(joined) = producers.join_next().await {
            micros.extend(
                joined.map_err(|panic| Failure::failed(format!("a producer ended early: {panic}")))??,
            );
        }
        Ok(micros)
    }
}

async fn produce(mut hand: Box<dyn Hand>, work: Arc<Work>) -> Result<Vec<u32>, Failure> {
    let mut micros = Vec::new();
    loop {
        let turn = work.next.fetch_add(1, Relaxed);
        let first = turn * work.batch;
        if first >= work.messages {
            return Ok(micros);
        }
        let numbers = first..(first + work.batch).min(work.messages);
        let messages: Vec<Message> = numbers.clone().map(|number| work.drafts.message(number)).collect();
        if let Some(rate) = work.rate {
            sleep_until(work.begun + Duration::from_secs_f64(turn as f64 / rate)).await;
        }
        let begun = Instant::now();
        hand.put(&messages).await?;
        micros.push(u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX));
        if let Some(book) = &work.book {
            numbers.for_each(|number| book.note_committed(number));
        }
        work.done.fetch_add(messages.len() as u64, Relaxed);
    }
}

/// Fills the outbox by one connection, many messages at a time, in the order of their numbers.
pub(super) async fn fill(
    ground: &dyn Ground,
    load: &Load,
    drafts: &Drafts,
    done: &AtomicU64,
) -> Result<(), Failure> {
    let mut hand = ground.hand(Way::Outbox).await?;
    let step = FILL_MESSAGES.min(FILL_BYTES / load.payload_bytes.get() as u64).max(1);
    let mut first = 0;
    while first < load.messages() {
        let end = (first + step).min(load.messages());
        let messages: Vec<Message> = (first..end).map(|number| drafts.message(number)).collect();
        hand.put(&messages).await?;
        done.store(end, Relaxed);
        first = end;
    }
    Ok(())
}
