//! The records of one key that are in hand, and what is known about those that are not.

use std::collections::VecDeque;

use super::window::Queued;
use crate::record::{Lane, Position};

#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct KeyQueue {
    pub(super) lane: Lane,
    /// The destination on whose account its records are: that of its first.
    pub(super) charged: usize,
    /// Records that wait for their turn, rising by position.
    pub(super) queue: VecDeque<Queued>,
    /// A record of the key is being published.
    pub(super) in_flight: bool,
    /// A record of the key failed, and that is not settled yet: nothing starts.
    pub(super) failed: Option<Position>,
    /// The failed record holds up the key: nothing is taken in until that is settled.
    pub(super) closed: bool,
    /// It is settled, but a read that began before does not know: nothing of it is taken in.
    pub(super) closed_for_read: bool,
    /// Where records in hand stand that were held back. Until they are settled, the table hides those behind them.
    pub(super) held_back: Vec<Position>,
    /// Records of the key may stand unread behind this position.
    pub(super) unread_after: Option<Position>,
    /// The same, from when the key is open again: a read passed over it while it was closed.
    pub(super) passed_over_after: Option<Position>,
    pub(super) in_line: bool,
    pub(super) in_refill: bool,
}

impl KeyQueue {
    pub(super) fn new(lane: Lane) -> Self {
        Self {
            lane,
            charged: 0,
            queue: VecDeque::new(),
            in_flight: false,
            failed: None,
            closed: false,
            closed_for_read: false,
            held_back: Vec::new(),
            unread_after: None,
            passed_over_after: None,
            in_line: false,
            in_refill: false,
        }
    }

    /// Whether no record of the key may start now.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight || self.failed.is_some()
    }

    /// Whether another record would wait behind one of the key.
    pub(super) fn has_first(&self) -> bool {
        !self.queue.is_empty() || self.is_busy()
    }

    /// Whether there is nothing to remember about the key.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && !self.is_busy()
            && !self.closed_for_read
            && self.held_back.is_empty()
            && self.unread_after.is_none()
            && self.passed_over_after.is_none()
    }

    /// Whether a record at this position must not be taken in now.
    pub(super) fn refuses(&self, position: Position) -> bool {
        self.closed || self.closed_for_read || self.unread_after.is_some_and(|after| position > after)
    }

    /// Whether records of it that may stand unread can be read and taken in now.
    pub(super) fn may_refill(&self) -> bool {
        self.unread_after.is_some() && self.held_back.is_empty() && !self.closed
    }

    /// Takes a record in at its place. From `most` records on, and behind one that was held back, the rest of the
    /// key counts as unread.
    pub(super) fn insert(&mut self, queued: Queued, most: usize) {
        let (position, held_back) = (queued.record.position, queued.record.held_back);
        let place = self.queue.partition_point(|other| other.record.position < position);
        self.queue.insert(place, queued);
        if held_back {
            self.held_back.push(position);
            self.mark_unread(position);
        } else if self.queue.len() >= most
            && let Some(last) = self.queue.back()
        {
            self.mark_unread(last.record.position);
        }
    }

    /// Notes that records may stand unread behind this position.
    pub(super) fn mark_unread(&mut self, after: Position) {
        if !self.closed && !self.closed_for_read {
            self.unread_after = Some(self.unread_after.map_or(after, |before| before.min(after)));
        }
    }

    /// A read of what stands behind this position passed over the key, or what it brought of the key is refused: a
    /// record that was committed late may stand there.
    pub(super) fn passed_over(&mut self, after: Position) {
        if self.closed || self.closed_for_read {
            let before = self.passed_over_after.unwrap_or(after);
            self.passed_over_after = Some(before.min(after));
        } else {
            self.mark_unread(after);
        }
    }

    /// A record of the key failed: what stands behind it is not taken in until that is settled, and then is hidden.
    pub(super) fn close(&mut self, failed: Position) {
        self.closed = true;
        self.held_back.retain(|position| *position <= failed);
        if let Some(after) = self.unread_after.take()
            && after < failed
        {
            self.passed_over(after);
        }
    }

    /// Takes out what stands behind a record. One that stands before it was committed late, and nothing hides it.
    pub(super) fn take_behind(&mut self, position: Position) -> VecDeque<Queued> {
        let behind = self.queue.partition_point(|other| other.record.position < position);
        self.queue.split_off(behind)
    }

    /// Records of the key may be taken in again.
    pub(super) fn open(&mut self) {
        if !self.closed
            && !self.closed_for_read
            && let Some(after) = self.passed_over_after.take()
        {
            self.mark_unread(after);
        }
    }

    /// Cuts the queue to `most` records and returns the positions cut off, which count as unread.
    pub(super) fn cut(&mut self, most: usize) -> Vec<Position> {
        let cut: Vec<_> = self.queue.drain(most.max(1)..).map(|queued| queued.record.position).collect();
        if let (Some(last), false) = (self.queue.back(), cut.is_empty()) {
            self.mark_unread(last.record.position);
        }
        self.held_back.retain(|position| !cut.contains(position));
        cut
    }
}
