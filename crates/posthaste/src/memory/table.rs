//! What the store holds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use crate::id::MessageId;
use crate::message::Message;
use crate::record::{Key, Lane, Position, Record};
use crate::store::RelayId;
use crate::validate::MAX_DELAY;

/// Where a row lies.
pub(super) type Place = (Lane, Position);

/// The earliest position of each key at which a row is held back: later rows of that key are blocked.
pub(super) type HeldBackKeys = BTreeMap<Key, Position>;

/// The outbox: its messages, its lanes, and its relays.
pub(super) struct Table {
    /// The committed messages.
    pub(super) rows: BTreeMap<Place, Row>,
    /// Where each committed message lies.
    pub(super) ids: BTreeMap<MessageId, Place>,
    /// The idempotency keys of committed messages, and when they were enqueued. They outlive their message.
    pub(super) keys: BTreeMap<String, SystemTime>,
    /// The ids and idempotency keys that open transactions enqueued, and in which transaction.
    pub(super) open_ids: BTreeMap<MessageId, u64>,
    pub(super) open_keys: BTreeMap<String, u64>,
    /// What consumers have seen, and what they note in open transactions: consumer and message id.
    pub(super) inbox: BTreeSet<(String, String)>,
    pub(super) open_inbox: BTreeSet<(String, String)>,
    /// The positions that open transactions took.
    pub(super) open_positions: BTreeSet<Position>,
    /// The lanes; the index is the lane's number.
    pub(super) lanes: Vec<LaneRow>,
    /// Who does the upkeep, and until when.
    pub(super) upkeep: Option<(RelayId, SystemTime)>,
    /// The relays that took part.
    pub(super) relays: BTreeMap<RelayId, Relay>,
    last_position: i64,
    last_transaction: u64,
}

/// A stored message.
pub(super) struct Row {
    pub(super) record: Record,
    pub(super) status: Status,
    /// On a pending row: held back until then. On a dead row: parks its key, since then.
    pub(super) next_attempt_at: Option<SystemTime>,
    /// When it was processed or given up.
    pub(super) settled_at: Option<SystemTime>,
    pub(super) last_error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    Pending,
    Processed,
    Dead,
}

/// A lane, and who holds it.
#[derive(Default)]
pub(super) struct LaneRow {
    pub(super) owner: Option<RelayId>,
    /// Incremented by every change of owner.
    pub(super) token: i64,
    /// Incremented whenever records go on that were blocked by a dead one.
    pub(super) revision: i64,
}

pub(super) struct Relay {
    pub(super) name: String,
    pub(super) leased_until: SystemTime,
}

impl Table {
    pub(super) fn new(lanes: u16) -> Self {
        Self {
            rows: BTreeMap::new(),
            ids: BTreeMap::new(),
            keys: BTreeMap::new(),
            open_ids: BTreeMap::new(),
            open_keys: BTreeMap::new(),
            inbox: BTreeSet::new(),
            open_inbox: BTreeSet::new(),
            open_positions: BTreeSet::new(),
            lanes: (0..lanes).map(|_| LaneRow::default()).collect(),
            upkeep: None,
            relays: BTreeMap::new(),
            last_position: 0,
            last_transaction: 0,
        }
    }

    pub(super) fn lane_count(&self) -> u16 {
        u16::try_from(self.lanes.len()).unwrap_or(u16::MAX)
    }

    /// The lane of a message: by its key, or by its id where it has none. The same in every process and version.
    pub(super) fn lane_of(&self, message: &Message) -> Lane {
        let hash = if message.aggregate_id().is_empty() {
            fnv1a(message.id().as_uuid().as_bytes())
        } else {
            // No name holds a NUL, so different keys are different texts.
            fnv1a(format!("{}\0{}", message.aggregate_type(), message.aggregate_id()).as_bytes())
        };
        let lane = hash % u64::from(self.lane_count());
        Lane(u16::try_from(lane).unwrap_or_default())
    }

    pub(super) fn next_position(&mut self) -> Position {
        self.last_position += 1;
        let position = Position::from_sequence(self.last_position);
        self.open_positions.insert(position);
        position
    }

    /// The last position behind which alone new rows can appear: the one before the first that an open transaction
    /// took.
    pub(super) fn firm(&self) -> Position {
        let first_open = self.open_positions.first().map(|open| open.major);
        Position::from_sequence(first_open.map_or(self.last_position, |open| open - 1))
    }

    pub(super) fn next_transaction(&mut self) -> u64 {
        self.last_transaction += 1;
        self.last_transaction
    }

    pub(super) fn insert(&mut self, row: Row) {
        let place = row.place();
        self.ids.insert(row.record.id, place);
        self.rows.insert(place, row);
    }

    /// Deletes a row.
    pub(super) fn remove(&mut self, place: Place) {
        self.unpark(place);
        if let Some(row) = self.rows.remove(&place) {
            self.ids.remove(&row.record.id);
        }
    }

    /// Lets a key go on if the row is dead and parks it. A relay may have passed over the key's later rows: the
    /// lane's new revision tells it to read them before any that come now.
    pub(super) fn unpark(&mut self, place: Place) {
        if let Some(row) = self.rows.get_mut(&place)
            && row.status == Status::Dead
            && row.next_attempt_at.take().is_some()
        {
            self.revise(place.0);
        }
    }

    /// Tells the relay to read the lane from its start.
    pub(super) fn revise(&mut self, lane: Lane) {
        if let Some(lane) = self.lanes.get_mut(usize::from(lane.0)) {
            lane.revision += 1;
        }
    }

    /// All rows, oldest first.
    pub(super) fn places_by_age(&self) -> Vec<Place> {
        let mut places: Vec<_> = self.rows.keys().copied().collect();
        places.sort_unstable_by_key(|(_, position)| *position);
        places
    }

    pub(super) fn held_back_keys(&self) -> HeldBackKeys {
        let mut earliest = HeldBackKeys::new();
        for row in self.rows.values().filter(|row| row.next_attempt_at.is_some()) {
            if let Some(key) = row.record.key() {
                // Rows of one key lie in one lane, so they come in order here.
                earliest.entry(key.clone()).or_insert(row.record.position);
            }
        }
        earliest
    }

    /// Whether a relay's lease goes on.
    pub(super) fn is_live(&self, relay: RelayId, now: SystemTime) -> bool {
        self.relays.get(&relay).is_some_and(|relay| relay.leased_until > now)
    }

    /// Whether the relay holds the lane by this very token. It may go on writing after its lease is over, as long
    /// as nobody took the lane.
    pub(super) fn holds(&self, relay: RelayId, lane: Lane, token: i64) -> bool {
        let row = self.lanes.get(usize::from(lane.0));
        row.is_some_and(|lane| lane.owner == Some(relay) && lane.token == token)
    }

    /// The pending row at a place, if it is that message.
    pub(super) fn pending(&mut self, place: Place, id: MessageId) -> Option<&mut Row> {
        self.rows.get_mut(&place).filter(|row| row.record.id == id && row.status == Status::Pending)
    }

    /// The lanes a relay holds.
    pub(super) fn held_by(&self, relay: RelayId) -> BTreeSet<Lane> {
        let held = (0..).zip(&self.lanes).filter(|(_, row)| row.owner == Some(relay));
        held.map(|(lane, _)| Lane(lane)).collect()
    }
}

impl Row {
    pub(super) fn place(&self) -> Place {
        (self.record.lane, self.record.position)
    }

    /// Pending and not held back. It may still be blocked by an earlier row.
    pub(super) fn is_ready(&self) -> bool {
        self.status == Status::Pending && self.next_attempt_at.is_none()
    }

    /// Pending, held back, and its time has come. It may still be blocked by an earlier row.
    pub(super) fn is_due(&self, now: SystemTime) -> bool {
        self.status == Status::Pending && self.next_attempt_at.is_some_and(|at| at <= now)
    }

    /// Where the earliest held-back row of its key stands before it, if there is one.
    pub(super) fn blocked_at(&self, held_back: &HeldBackKeys) -> Option<Position> {
        let earliest = *held_back.get(self.record.key()?)?;
        (earliest < self.record.position).then_some(earliest)
    }

    /// Whether it was settled longer ago than an age.
    pub(super) fn settled_before(&self, age: Duration, now: SystemTime) -> bool {
        self.settled_at.is_some_and(|at| is_older(at, age, now))
    }
}

impl LaneRow {
    pub(super) fn change_owner(&mut self, owner: Option<RelayId>) {
        self.owner = owner;
        self.token += 1;
    }
}

pub(super) fn is_older(time: SystemTime, age: Duration, now: SystemTime) -> bool {
    now.duration_since(time).is_ok_and(|passed| passed > age)
}

/// The time so long from now, or in ten years if that is sooner.
pub(super) fn deadline(now: SystemTime, after: Duration) -> SystemTime {
    now + after.min(MAX_DELAY)
}

/// FNV-1a, 64 bits.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv1a() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
