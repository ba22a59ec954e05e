//! Tidying up, one relay at a time.

use std::time::{Duration, SystemTime};

use super::table::{Place, Status, Table, deadline, is_older};
use crate::store::{UpkeepReport, UpkeepRequest};

/// How long after the end of its lease a relay is forgotten.
const FORGET_RELAYS_AFTER: Duration = Duration::from_hours(24);

impl Table {
    pub(super) fn tidy_up(&mut self, request: &UpkeepRequest, now: SystemTime) -> UpkeepReport {
        if self.upkeep.is_some_and(|(keeper, until)| keeper != request.relay && until > now) {
            return UpkeepReport::default();
        }
        self.upkeep = Some((request.relay, deadline(now, request.lease)));
        self.relays.retain(|_, relay| !is_older(relay.leased_until, FORGET_RELAYS_AFTER, now));
        let purged = request.keep_processed.map_or(0, |keep| {
            let places = self.settled_before(Status::Processed, keep, request.limit, now);
            for place in &places {
                self.remove(*place);
            }
            places.len()
        });
        let keys_purged = request.keep_keys.map_or(0, |keep| self.purge_keys(keep, request.limit, now));
        let more = purged.max(keys_purged) >= request.limit;
        UpkeepReport { ours: true, purged, keys_purged, inbox_purged: 0, more }
    }

    /// Rows in this state that were settled longer ago than an age, oldest first.
    pub(super) fn settled_before(
        &self,
        status: Status,
        age: Duration,
        limit: usize,
        now: SystemTime,
    ) -> Vec<Place> {
        let mut places = self.places_by_age();
        places.retain(|place| {
            let row = &self.rows[place];
            row.status == status && row.settled_before(age, now)
        });
        places.truncate(limit);
        places
    }

    fn purge_keys(&mut self, keep: Duration, limit: usize, now: SystemTime) -> usize {
        let old = self.keys.iter().filter(|(_, enqueued_at)| is_older(**enqueued_at, keep, now));
        let old: Vec<_> = old.map(|(key, _)| key.clone()).take(limit).collect();
        for key in &old {
            self.keys.remove(key);
        }
        old.len()
    }
}
