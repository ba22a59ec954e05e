//! Outcomes on their way into the table: queued, written in batches, tried again until they are in.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::window::KeyGoes;
use crate::record::{Key, Lane};
use crate::store::{Outcome, RecordRef, RelayId, SettleRequest, Settlement};

/// An outcome, and what it means for the key of its record. The record itself is let go of, with its payload.
#[derive(Debug, Clone)]
pub(super) struct ToSettle {
    pub(super) key: Option<Key>,
    pub(super) settlement: Settlement,
    pub(super) key_goes: KeyGoes,
}

/// The queue of outcomes. One batch at a time is being written; if that fails, the same batch is tried again, so
/// outcomes of one key are always written in order.
#[derive(Debug)]
pub(super) struct Settles {
    waiting: VecDeque<ToSettle>,
    batch: Vec<ToSettle>,
    under_way: bool,
    /// Whether a released record was ever among the outcomes.
    released: bool,
    /// When the oldest outcome has waited long enough for others, or the failed batch may be tried again.
    ready_at: Instant,
    most: usize,
    linger: Duration,
}

impl Settles {
    pub(super) fn new(most: usize, linger: Duration, now: Instant) -> Self {
        Self {
            waiting: VecDeque::new(),
            batch: Vec::new(),
            under_way: false,
            released: false,
            ready_at: now,
            most,
            linger,
        }
    }

    pub(super) fn push(&mut self, outcome: ToSettle, now: Instant) {
        if !self.waiting.is_empty() && self.released {
            // A record that was released and tried again after all has one outcome: the later one.
            self.waiting
                .retain(|other| other.settlement.record.position != outcome.settlement.record.position);
        }
        self.released |= matches!(outcome.settlement.outcome, Outcome::Released { .. });
        if self.waiting.is_empty() && self.batch.is_empty() {
            self.ready_at = now + self.linger;
        }
        self.waiting.push_back(outcome);
    }

    /// Takes out the outcomes of an earlier hold on a lane, which would be refused. With them gone, no batch has
    /// outcomes of two holds on one lane.
    pub(super) fn drop_earlier(&mut self, lane: Lane, token: i64) -> Vec<ToSettle> {
        let is_earlier = |record: &RecordRef| record.lane == lane && record.token != token;
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let (earlier, kept) = waiting.partition::<Vec<_>, _>(|other| is_earlier(&other.settlement.record));
        self.waiting = kept.into();
        earlier
    }

    /// How many outcomes are not written yet.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.batch.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.batch.is_empty()
    }

    /// When the next batch may be written, if there is one and none is being written.
    pub(super) fn next_at(&self) -> Option<Instant> {
        (!self.under_way && !self.is_empty()).then_some(self.ready_at)
    }

    /// The batch to write now, if there is one. `hurry`: do not wait for more.
    pub(super) fn begin(
        &mut self,
        relay: RelayId,
        delete_processed: bool,
        hurry: bool,
        now: Instant,
    ) -> Option<SettleRequest> {
        if self.under_way || self.is_empty() {
            return None;
        }
        let retrying = !self.batch.is_empty();
        let full = self.waiting.len() >= self.most;
        if now < self.ready_at && (retrying || !(hurry || full)) {
            return None;
        }
        if !retrying {
            let count = self.waiting.len().min(self.most);
            self.batch.extend(self.waiting.drain(..count));
        }
        self.under_way = true;
        let settlements = self.batch.iter().map(|outcome| outcome.settlement.clone()).collect();
        Some(SettleRequest { relay, delete_processed, settlements })
    }

    /// The batch is in the table.
    pub(super) fn done(&mut self, now: Instant) -> Vec<ToSettle> {
        self.under_way = false;
        self.ready_at = now + self.linger;
        std::mem::take(&mut self.batch)
    }

    /// The batch could not be written; it is tried again after a while.
    pub(super) fn failed(&mut self, again_at: Instant) {
        self.under_way = false;
        self.ready_at = again_at;
    }

    /// Whether this record has an outcome here that is not written yet.
    pub(super) fn refs(&self) -> impl Iterator<Item = RecordRef> + '_ {
        self.batch.iter().chain(&self.waiting).map(|outcome| outcome.settlement.record)
    }
}
