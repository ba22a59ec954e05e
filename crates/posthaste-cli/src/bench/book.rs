//! Accounts for every message of a run.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::time::Instant;

use super::drafts::Drafts;
use crate::failure::Failure;

/// Which messages were published, in which order, and maybe when.
pub(super) struct Book {
    begun: Instant,
    total: u64,
    /// A bit for each message.
    seen: Vec<AtomicU64>,
    count: AtomicU64,
    doubled: AtomicU64,
    foreign: AtomicU64,
    /// The number after the last one of each key; empty where the order is not defined.
    next_of_key: Vec<AtomicU64>,
    disordered: AtomicU64,
    times: Option<Times>,
}

/// When each message was committed and published, in microseconds since the book was begun, plus one.
struct Times {
    committed: Vec<AtomicU64>,
    published: Vec<AtomicU64>,
}

fn zeros(count: u64) -> Vec<AtomicU64> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Book {
    /// A book of so many messages.
    pub(super) fn new(total: u64) -> Self {
        Self {
            begun: Instant::now(),
            total,
            seen: zeros(total.div_ceil(64)),
            count: AtomicU64::new(0),
            doubled: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            next_of_key: Vec::new(),
            disordered: AtomicU64::new(0),
            times: None,
        }
    }

    /// Looks at the order too: the messages of a key were enqueued in the order of their numbers.
    pub(super) fn in_order_of(mut self, keys: u64) -> Self {
        self.next_of_key = zeros(keys);
        self
    }

    /// Notes the times too.
    pub(super) fn with_times(mut self) -> Self {
        self.times = Some(Times { committed: zeros(self.total), published: zeros(self.total) });
        self
    }

    /// How many were published.
    pub(super) fn published(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// A message was committed.
    pub(super) fn note_committed(&self, number: u64) {
        self.note_time(number, |times| &times.committed);
    }

    /// A message was published.
    pub(super) fn note_published(&self, number: Option<u64>, drafts: &Drafts) {
        let Some(number) = number.filter(|number| *number < self.total) else {
            self.foreign.fetch_add(1, Relaxed);
            return;
        };
        self.note_time(number, |times| &times.published);
        let bit = 1 << (number % 64);
        if self.seen[index(number / 64)].fetch_or(bit, Relaxed) & bit != 0 {
            self.doubled.fetch_add(1, Relaxed);
            return;
        }
        if let Some(next) = drafts.key(number).and_then(|key| self.next_of_key.get(index(key)))
            && next.swap(number + 1, Relaxed) > number
        {
            self.disordered.fetch_add(1, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
    }

    fn note_time(&self, number: u64, which: impl Fn(&Times) -> &Vec<AtomicU64>) {
        if let Some(times) = &self.times {
            let micros = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            which(times)[index(number)].store(micros.saturating_add(1), Relaxed);
        }
    }

    /// From commit to publish, in microseconds. A message may be published before its producer sees that it was
    /// committed; that counts as nothing.
    pub(super) fn commit_to_publish(&self) -> Vec<u32> {
        let Some(times) = &self.times else { return Vec::new() };
        let pairs = times.committed.iter().zip(&times.published);
        pairs
            .map(|(committed, published)| {
                let micros = published.load(Relaxed).saturating_sub(committed.load(Relaxed));
                u32::try_from(micros).unwrap_or(u32::MAX)
            })
            .collect()
    }

    /// Finds what was lost, doubled, foreign, or out of order.
    pub(super) fn check(&self, expected: u64) -> Result<(), Failure> {
        let count = self.published();
        let faults = [
            (expected.saturating_sub(count), "lost"),
            (count.saturating_sub(expected), "published although they were not due"),
            (self.doubled.load(Relaxed), "published twice"),
            (self.foreign.load(Relaxed), "published that were never enqueued"),
            (self.disordered.load(Relaxed), "published out of order"),
        ];
        let found: Vec<_> = faults
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        Err(Failure::failed(format!("of {expected} messages: {}; the figures are void", found.join(", "))))
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::load::Load;
    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: Load,
    }

    fn checked(published: &[u64]) -> Result<(), String> {
        let drafts = Drafts::new(&Line::parse_from(["bench", "--keys", "2"]).load);
        let book = Book::new(4).in_order_of(2);
        published.iter().for_each(|number| book.note_published(Some(*number), &drafts));
        book.check(4).map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn every_fault_is_found() {
        checked(&[0, 1, 2, 3]).unwrap();
        checked(&[1, 0, 3, 2]).unwrap();
        let cases: [(&[u64], &str); 4] = [
            (&[0, 1, 2], "1 lost"),
            (&[0, 1, 2, 3, 3], "1 published twice"),
            (&[0, 1, 2, 3, 4], "1 published that were never enqueued"),
            (&[2, 1, 0, 3], "1 published out of order"),
        ];
        for (published, fault) in cases {
            let found = checked(published).unwrap_err();
            assert!(found.contains(fault), "{found}");
        }
    }

    #[test]
    fn times_are_kept_where_they_are_asked_for() {
        let drafts = Drafts::new(&Line::parse_from(["bench"]).load);
        let book = Book::new(2).with_times();
        for number in [0, 1] {
            book.note_committed(number);
            book.note_published(Some(number), &drafts);
        }
        assert_eq!(book.commit_to_publish().len(), 2);
        assert!(Book::new(2).commit_to_publish().is_empty());
    }
}
