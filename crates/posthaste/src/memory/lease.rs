//! Who holds which lane.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::table::{Relay, Table, deadline};
use crate::record::Lane;
use crate::store::{LaneLease, LeaseRequest, Leases, RelayId};

impl Table {
    pub(super) fn lease(&mut self, request: &LeaseRequest, now: SystemTime) -> Leases {
        let me = request.relay;
        let renewed = Relay { name: request.name.clone(), leased_until: deadline(now, request.duration) };
        self.relays.insert(me, renewed);
        for lane in &request.give_back {
            if let Some(row) = self.lanes.get_mut(usize::from(lane.0))
                && row.owner == Some(me)
            {
                row.change_owner(None);
            }
        }
        let live = self.relays.values().filter(|relay| relay.leased_until > now).count();
        let share = self.lanes.len().div_ceil(live.max(1));
        let taken_from_expired = self.take_free_lanes(request, share, now);
        let lanes = self
            .held_by(me)
            .into_iter()
            .map(|lane| LaneLease {
                lane,
                token: self.lanes[usize::from(lane.0)].token,
                from_expired: taken_from_expired.contains(&lane),
            })
            .collect();
        Leases { lanes, share, total: self.lanes.len() }
    }

    /// Takes free lanes until the relay has its share. Returns those whose last owner's lease ran out.
    fn take_free_lanes(&mut self, request: &LeaseRequest, share: usize, now: SystemTime) -> BTreeSet<Lane> {
        let mut from_expired = BTreeSet::new();
        let mut held = self.held_by(request.relay).len();
        for lane in (0..self.lane_count()).map(Lane) {
            if held >= share {
                break;
            }
            let owner = self.lanes[usize::from(lane.0)].owner;
            if owner.is_some_and(|owner| self.is_live(owner, now)) || request.give_back.contains(&lane) {
                continue;
            }
            self.lanes[usize::from(lane.0)].change_owner(Some(request.relay));
            held += 1;
            if owner.is_some() {
                from_expired.insert(lane);
            }
        }
        from_expired
    }

    pub(super) fn leave(&mut self, relay: RelayId) {
        for row in self.lanes.iter_mut().filter(|row| row.owner == Some(relay)) {
            row.change_owner(None);
        }
        if self.upkeep.is_some_and(|(keeper, _)| keeper == relay) {
            self.upkeep = None;
        }
        self.relays.remove(&relay);
    }
}
