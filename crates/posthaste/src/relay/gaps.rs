//! Records that were passed over in a lane, and what has to wait for them.
//!
//! A record is passed over when its destination has its share of the window already, when nobody serves its destination
//! here, or when an earlier record of its key was passed over. Others behind it are read on; those of its key wait.
//!
//! Each record that was passed over belongs to one *gap*: that of the destination for which it waits. The gap of a
//! destination is the stretch from its `start` to the lane's floor. When there is room again, that stretch is read
//! once more (a *walk*), and `start` moves on with it. Records that nobody serves here belong to the gap of *nowhere*,
//! which only the sweep walks.
//!
//! Keys are kept as hashes, each with the first and the last place at which it was passed over. There is a limit to how
//! many; behind a *wall*, all keys count as passed over.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;

use hashbrown::HashMap;

use crate::record::{Key, Position};

/// The most keys to remember, in all lanes together.
pub(super) const MOST_KEYS: usize = 256 * 1_024;

/// The number of the gap of records that nobody serves here.
pub(super) const NOWHERE: usize = usize::MAX;

/// So few keys are never looked through.
const FEW_KEYS: usize = 256;

/// A key by its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    pub(super) fn of(key: &Key) -> Self {
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(HASHER.hash_one(key))
    }
}

/// The gaps of one lane.
#[derive(Debug, Default)]
pub(super) struct Gaps {
    /// By the number of the destination.
    of: Vec<Option<Gap>>,
    nowhere: PassedOver,
    /// What the sweep that is under way found of them so far, and how far it came.
    sweep: Option<(PassedOver, Position)>,
}

/// Records of one destination that were passed over.
#[derive(Debug)]
struct Gap {
    /// All that belongs to the gap stands behind this position.
    start: Position,
    keys: PassedOver,
}

/// Who walks, if anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Walker {
    Nobody,
    /// The gap of this destination is walked.
    Gap(usize),
    /// The lane is swept.
    Sweep,
}

impl Gaps {
    /// Whether nothing was passed over.
    pub(super) fn is_empty(&self) -> bool {
        self.of.iter().all(Option::is_none) && self.nowhere.is_empty() && self.sweep.is_none()
    }

    /// How many keys are remembered.
    pub(super) fn keys(&self) -> usize {
        let gaps = self.of.iter().flatten().map(|gap| gap.keys.len()).sum::<usize>();
        gaps + self.nowhere.len() + self.sweep.as_ref().map_or(0, |(keys, _)| keys.len())
    }

    /// Where the gap of a destination starts.
    pub(super) fn start(&self, to: usize) -> Option<Position> {
        self.of.get(to)?.as_ref().map(|gap| gap.start)
    }

    /// The gap to which an earlier record of a key belongs, if one was passed over and still is.
    pub(super) fn holder(&self, key: KeyHash, at: Position, walker: Walker) -> Option<usize> {
        if self.nowhere_at(at, walker).hold_up(key, at) {
            return Some(NOWHERE);
        }
        let mut others = self.of.iter().enumerate().filter(|(to, _)| walker != Walker::Gap(*to));
        others.find(|(_, gap)| gap.as_ref().is_some_and(|gap| gap.holds_up(key, at))).map(|(to, _)| to)
    }

    /// One more record of a key belongs to a gap.
    pub(super) fn note(&mut self, to: usize, at: Position, key: KeyHash, walker: Walker, budget: &mut usize) {
        if to == NOWHERE {
            self.nowhere_mut(at, walker).note(key, at, budget);
        } else if let Some(gap) = self.of.get_mut(to).and_then(Option::as_mut) {
            gap.keys.note(key, at, budget);
        }
    }

    /// Whether a record of a destination belongs to its gap, whoever reads it.
    pub(super) fn has(&self, to: usize, at: Position, walker: Walker) -> bool {
        walker != Walker::Gap(to) && self.start(to).is_some_and(|start| start < at)
    }

    /// Passes a record over until there is room for a destination. Nothing that is not looked at stands between it
    /// and `before`.
    pub(super) fn pass(
        &mut self,
        to: usize,
        before: Position,
        at: Position,
        key: Option<KeyHash>,
        budget: &mut usize,
    ) {
        if self.of.len() <= to {
            self.of.resize_with(to + 1, || None);
        }
        let gap = self.of[to].get_or_insert_with(|| Gap { start: before, keys: PassedOver::default() });
        gap.start = gap.start.min(before);
        if let Some(key) = key {
            gap.keys.note(key, at, budget);
        }
    }

    /// Passes over a record that nobody serves here.
    pub(super) fn pass_nowhere(
        &mut self,
        at: Position,
        key: Option<KeyHash>,
        is_unrouted: bool,
        walker: Walker,
        budget: &mut usize,
    ) {
        let keys = self.nowhere_mut(at, walker);
        if is_unrouted && Some(at) > keys.counted_to {
            keys.unrouted += 1;
            keys.counted_to = Some(at);
        }
        if let Some(key) = key {
            keys.note(key, at, budget);
        }
    }

    /// How many records without a route were passed over, as far as is known.
    pub(super) fn unrouted(&self) -> u64 {
        let swept = self.sweep.as_ref().map_or(0, |(keys, _)| keys.unrouted);
        self.nowhere.unrouted.max(swept)
    }

    /// A walk through the gap of a destination came up to this position, and left nothing behind that belongs to it.
    pub(super) fn walked(&mut self, to: usize, position: Position) {
        if let Some(gap) = self.of.get_mut(to).and_then(Option::as_mut) {
            gap.start = position.max(gap.start);
            gap.keys.forget_before(gap.start);
        }
    }

    /// Nothing belongs to the gap of a destination any more.
    pub(super) fn close(&mut self, to: usize) {
        if let Some(gap) = self.of.get_mut(to) {
            *gap = None;
        }
    }

    /// A sweep begins at the start of the lane.
    pub(super) fn sweep_begins(&mut self) {
        self.sweep = Some((PassedOver::default(), Position::START));
    }

    /// The sweep came up to this position, or to the floor.
    pub(super) fn swept(&mut self, position: Position, to_the_end: bool) {
        if to_the_end {
            if let Some((keys, _)) = self.sweep.take() {
                self.nowhere = keys;
            }
        } else if let Some((_, walked)) = &mut self.sweep {
            *walked = position.max(*walked);
        }
    }

    /// What is known about the records before this position that nobody serves here.
    fn nowhere_at(&self, at: Position, walker: Walker) -> &PassedOver {
        let swept = self.sweep.as_ref().filter(|(_, up_to)| walker == Walker::Sweep || at <= *up_to);
        swept.map_or(&self.nowhere, |(keys, _)| keys)
    }

    fn nowhere_mut(&mut self, at: Position, walker: Walker) -> &mut PassedOver {
        let swept = self.sweep.as_mut().filter(|(_, up_to)| walker == Walker::Sweep || at <= *up_to);
        swept.map_or(&mut self.nowhere, |(keys, _)| keys)
    }
}

impl Gap {
    fn holds_up(&self, key: KeyHash, at: Position) -> bool {
        at > self.start && self.keys.hold_up_behind(key, at, self.start)
    }
}

/// The keys of records that were passed over.
#[derive(Debug, Default)]
struct PassedOver {
    /// The first and the last place of each; of a place the major part is enough, since it may be taken for later.
    keys: HashMap<KeyHash, (i64, i64)>,
    /// From where, and up to where, keys were not remembered any more.
    wall: Option<(Position, Position)>,
    /// With how many keys to look for some to forget.
    forget_at: usize,
    unrouted: u64,
    counted_to: Option<Position>,
}

impl PassedOver {
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.wall.is_none() && self.unrouted == 0
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn note(&mut self, key: KeyHash, at: Position, budget: &mut usize) {
        if let Some((first, last)) = self.keys.get_mut(&key) {
            (*first, *last) = (at.major.min(*first), at.major.max(*last));
        } else if self.wall.is_none() && *budget > 0 {
            *budget -= 1;
            self.keys.insert(key, (at.major, at.major));
        } else {
            let (from, to) = self.wall.unwrap_or((at, at));
            self.wall = Some((from.min(at), to.max(at)));
        }
    }

    fn hold_up(&self, key: KeyHash, at: Position) -> bool {
        self.hold_up_behind(key, at, Position::START)
    }

    /// Whether an earlier record of the key was passed over behind this position.
    fn hold_up_behind(&self, key: KeyHash, at: Position, start: Position) -> bool {
        let is_behind_wall = self.wall.is_some_and(|(from, _)| at > from);
        let noted = || self.keys.get(&key);
        is_behind_wall || noted().is_some_and(|(first, last)| *first <= at.major && *last >= start.major)
    }

    /// Forgets what stands before a position: of the keys now and then, since that takes a look at all of them.
    fn forget_before(&mut self, start: Position) {
        if self.wall.is_some_and(|(_, to)| to <= start) {
            self.wall = None;
        }
        if self.keys.len() >= self.forget_at.max(FEW_KEYS) {
            self.keys.retain(|_, (_, last)| *last >= start.major);
            self.forget_at = self.keys.len() * 2;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sequence: i64) -> Position {
        Position::from_sequence(sequence)
    }

    fn key(id: i64) -> KeyHash {
        KeyHash::of(&Key::new("key", &id.to_string()))
    }

    fn passed(to: usize, before: i64, place: i64, id: i64) -> Gaps {
        let mut gaps = Gaps::default();
        gaps.pass(to, at(before), at(place), Some(key(id)), &mut 9);
        gaps
    }

    #[test]
    fn a_key_waits_behind_its_record_and_no_other_key_does() {
        let gaps = passed(0, 4, 5, 1);
        assert_eq!(gaps.holder(key(1), at(6), Walker::Nobody), Some(0));
        assert_eq!(gaps.holder(key(1), at(4), Walker::Nobody), None, "it stands before");
        assert_eq!(gaps.holder(key(2), at(6), Walker::Nobody), None);
        assert_eq!(gaps.holder(key(1), at(6), Walker::Gap(0)), None, "who walks comes past it");
        assert!(gaps.has(0, at(5), Walker::Nobody) && !gaps.has(0, at(4), Walker::Nobody));
        assert!(!gaps.has(1, at(5), Walker::Nobody), "other destinations have no gap");
    }

    #[test]
    fn a_key_is_free_when_the_walk_came_past_its_last_record() {
        let mut gaps = passed(0, 4, 5, 1);
        gaps.note(0, at(9), key(1), Walker::Nobody, &mut 9);
        gaps.walked(0, at(5));
        assert_eq!(gaps.holder(key(1), at(20), Walker::Nobody), Some(0), "one more is to come");
        gaps.walked(0, at(10));
        assert_eq!(gaps.holder(key(1), at(20), Walker::Nobody), None);
        assert!(gaps.has(0, at(20), Walker::Nobody), "the gap goes on");
        gaps.close(0);
        assert!(gaps.is_empty());
    }

    #[test]
    fn behind_the_wall_every_key_waits_until_the_walk_came_past_it() {
        let mut gaps = Gaps::default();
        for place in 1..=20 {
            gaps.pass(0, at(0), at(place), Some(key(place)), &mut 5_usize.saturating_sub(gaps.keys()));
        }
        assert_eq!(gaps.keys(), 5, "no more are remembered");
        assert_eq!(gaps.holder(key(3), at(30), Walker::Nobody), Some(0));
        assert_eq!(gaps.holder(key(99), at(30), Walker::Nobody), Some(0), "it may be one of those forgotten");
        assert_eq!(gaps.holder(key(99), at(6), Walker::Nobody), None, "it stands before the wall");
        gaps.walked(0, at(20));
        assert_eq!(gaps.holder(key(99), at(30), Walker::Nobody), None);
    }

    #[test]
    fn what_nobody_serves_is_looked_at_anew_by_every_sweep() {
        let mut gaps = Gaps::default();
        for (place, id) in [(1, 1), (2, 2), (3, 3)] {
            gaps.pass_nowhere(at(place), Some(key(id)), true, Walker::Nobody, &mut 9);
        }
        assert_eq!(gaps.unrouted(), 3);
        gaps.sweep_begins();
        // The first one is gone.
        gaps.pass_nowhere(at(2), Some(key(2)), true, Walker::Sweep, &mut 9);
        gaps.swept(at(2), false);
        assert_eq!(gaps.holder(key(1), at(2), Walker::Nobody), None, "the sweep came past here");
        assert_eq!(gaps.holder(key(1), at(9), Walker::Nobody), Some(NOWHERE), "but not yet here");
        assert_eq!(gaps.holder(key(2), at(9), Walker::Nobody), Some(NOWHERE));
        gaps.pass_nowhere(at(3), Some(key(3)), true, Walker::Sweep, &mut 9);
        gaps.swept(at(3), true);
        assert_eq!(gaps.holder(key(1), at(9), Walker::Nobody), None);
        assert_eq!(gaps.holder(key(3), at(9), Walker::Nobody), Some(NOWHERE));
        assert_eq!(gaps.unrouted(), 2);
    }

    #[test]
    fn many_keys_that_are_free_are_forgotten() {
        let mut gaps = Gaps::default();
        for place in 1..=5_000 {
            gaps.pass(0, at(0), at(place), Some(key(place)), &mut 10_000);
            gaps.walked(0, at(place - 10));
        }
        assert!(gaps.keys() < 2 * FEW_KEYS, "{}", gaps.keys());
    }
}
