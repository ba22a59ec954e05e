//! The operator's side.

use std::time::SystemTime;

use async_trait::async_trait;

use super::MemoryStore;
use super::table::{HeldBackKeys, Place, Relay, Row, Status, Table};
use crate::admin::{
    Admin, Count, DeadSelection, ListFilter, MessageDetails, MessageInfo, Migration, Mode, Purge, Purged,
    RelayInfo, State, Stats,
};
use crate::error::Error;
use crate::id::MessageId;
use crate::store::RelayId;

#[async_trait]
impl Admin for MemoryStore {
    /// There is no schema, and so no migration.
    async fn migrate(&self) -> Result<Vec<Migration>, Error> {
        Ok(Vec::new())
    }

    async fn pending_migrations(&self) -> Result<Vec<Migration>, Error> {
        Ok(Vec::new())
    }

    fn migration_sql(&self) -> Vec<Migration> {
        Vec::new()
    }

    async fn stats(&self, cap: Option<u64>) -> Result<Stats, Error> {
        Ok(self.table().stats(cap, self.clock.now()))
    }

    async fn list(&self, filter: &ListFilter) -> Result<Vec<MessageInfo>, Error> {
        Ok(self.table().list(filter, self.clock.now()))
    }

    async fn show(&self, id: MessageId) -> Result<Option<MessageDetails>, Error> {
        let now = self.clock.now();
        let table = self.table();
        let row = table.ids.get(&id).map(|place| &table.rows[place]);
        Ok(row.map(|row| table.details(row, &table.held_back_keys(), now)))
    }

    async fn redrive(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error> {
        let mut table = self.table();
        let places = table.dead(selection, mode);
        if mode != Mode::DryRun {
            for place in &places {
                table.redrive(*place);
            }
            self.waker.wake();
        }
        Ok(places.len() as u64)
    }

    async fn discard(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error> {
        let mut table = self.table();
        let places = table.dead(selection, mode);
        if mode != Mode::DryRun {
            for place in &places {
                table.remove(*place);
            }
            self.waker.wake();
        }
        Ok(places.len() as u64)
    }

    async fn purge(&self, purge: &Purge) -> Result<Purged, Error> {
        purge.check()?;
        Ok(self.table().purge(purge, self.clock.now()))
    }
}

impl Table {
    fn stats(&self, cap: Option<u64>, now: SystemTime) -> Stats {
        let held_back = self.held_back_keys();
        let mut stats = Stats { lanes_total: self.lanes.len(), ..Stats::default() };
        for row in self.rows.values() {
            match row.state(&held_back, now) {
                State::Ready => {
                    add(&mut stats.ready, cap);
                    let since = row.next_attempt_at.unwrap_or(row.record.enqueued_at);
                    let age = now.duration_since(since).unwrap_or_default();
                    stats.oldest_ready_age = stats.oldest_ready_age.max(Some(age));
                }
                State::Waiting => {
                    add(&mut stats.waiting, cap);
                    if row.blocked_at(&held_back).is_some() {
                        add(&mut stats.blocked, cap);
                    }
                }
                State::Dead => add(&mut stats.dead, cap),
                State::Processed => {}
            }
        }
        let owners = self.lanes.iter().filter_map(|lane| lane.owner);
        stats.lanes_leased = owners.filter(|owner| self.is_live(*owner, now)).count();
        stats.relays = self.relay_infos(now);
        stats
    }

    fn relay_infos(&self, now: SystemTime) -> Vec<RelayInfo> {
        let info = |(id, relay): (&RelayId, &Relay)| RelayInfo {
            id: id.to_string(),
            name: relay.name.clone(),
            lanes: self.held_by(*id).len(),
            lease_left: relay.leased_until.duration_since(now).ok().filter(|left| !left.is_zero()),
        };
        self.relays.iter().map(info).collect()
    }

    fn list(&self, filter: &ListFilter, now: SystemTime) -> Vec<MessageInfo> {
        let held_back = self.held_back_keys();
        let places = self.places_by_age().into_iter();
        places
            .map(|place| self.rows[&place].info(&held_back, now))
            .filter(|info| filter.state.is_none_or(|state| state == info.state))
            .filter(|info| filter.event_type.as_ref().is_none_or(|glob| glob.matches(&info.event_type)))
            .take(filter.limit)
            .collect()
    }

    pub(super) fn details(&self, row: &Row, held_back: &HeldBackKeys, now: SystemTime) -> MessageDetails {
        let record = &row.record;
        let blocked_at = row.blocked_at(held_back).filter(|_| row.status == Status::Pending);
        MessageDetails {
            info: row.info(held_back, now),
            lane: record.lane,
            content_type: record.content_type.clone(),
            headers: record.headers.clone(),
            idempotency_key: record.idempotency_key.clone(),
            payload: record.payload.clone(),
            blocked_by: blocked_at.map(|position| self.rows[&(record.lane, position)].record.id),
        }
    }

    /// The dead rows of a selection, oldest first: all for a dry run, or else up to the limit.
    fn dead(&self, selection: &DeadSelection, mode: Mode) -> Vec<Place> {
        let mut places = self.places_by_age();
        places.retain(|place| {
            let row = &self.rows[place];
            row.status == Status::Dead
                && match selection {
                    DeadSelection::Ids(ids) => ids.contains(&row.record.id),
                    DeadSelection::EventType(glob) => glob.matches(&row.record.event_type),
                    DeadSelection::All => true,
                }
        });
        if let Mode::UpTo(limit) = mode {
            places.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        places
    }

    fn redrive(&mut self, place: Place) {
        self.unpark(place);
        self.revise(place.0);
        if let Some(row) = self.rows.get_mut(&place) {
            row.status = Status::Pending;
            row.record.attempts = 0;
            row.settled_at = None;
        }
    }

    fn purge(&mut self, purge: &Purge, now: SystemTime) -> Purged {
        let processed = self.settled_before(Status::Processed, purge.older_than, purge.limit, now);
        let left = if purge.include_dead { purge.limit - processed.len() } else { 0 };
        let dead = self.settled_before(Status::Dead, purge.older_than, left, now);
        for place in processed.iter().chain(&dead) {
            self.remove(*place);
        }
        Purged { processed: processed.len() as u64, dead: dead.len() as u64 }
    }
}

impl Row {
    fn state(&self, held_back: &HeldBackKeys, now: SystemTime) -> State {
        match self.status {
            Status::Processed => State::Processed,
            Status::Dead => State::Dead,
            Status::Pending => {
                let waits = self.next_attempt_at.is_some_and(|at| at > now);
                if waits || self.blocked_at(held_back).is_some() { State::Waiting } else { State::Ready }
            }
        }
    }

    fn info(&self, held_back: &HeldBackKeys, now: SystemTime) -> MessageInfo {
        let record = &self.record;
        MessageInfo {
            id: record.id,
            state: self.state(held_back, now),
            event_type: record.event_type.clone(),
            aggregate_type: record.aggregate.aggregate_type().to_owned(),
            aggregate_id: record.aggregate.aggregate_id().to_owned(),
            attempts: record.attempts,
            enqueued_at: record.enqueued_at,
            next_attempt_at: self.next_attempt_at.filter(|_| self.status == Status::Pending),
            settled_at: self.settled_at,
            last_error: self.last_error.clone(),
        }
    }
}

fn add(count: &mut Count, cap: Option<u64>) {
    if cap.is_some_and(|cap| count.count >= cap) {
        count.capped = true;
    } else {
        count.count += 1;
    }
}
