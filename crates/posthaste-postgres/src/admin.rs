//! The operator's side.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use posthaste::{
    Admin, Count, DeadSelection, Error, Glob, ListFilter, MessageDetails, MessageId, MessageInfo, Migration,
    Mode, Purge, Purged, RelayInfo, State, Stats,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::{Params, Use, no_row};
use crate::partitions::PartitionPlan;
use crate::schema::ALL;
use crate::store::{Inner, PostgresStore};
use crate::value::{attempts, count, duration, headers_from_json, lane, limit, micros};

/// How many rows a page of a walk has.
const PAGE: usize = 1_000;

#[async_trait]
impl Admin for PostgresStore {
    /// An outbox that is to be partitioned gets its first partitions at once.
    async fn migrate(&self) -> Result<Vec<Migration>, Error> {
        let applied = self.0.migrate(&ALL).await?;
        if let Some(every) = self.0.options.partition.filter(|_| !applied.is_empty()) {
            self.maintain_partitions(&PartitionPlan::new(every).retention(None)).await?;
        }
        Ok(applied)
    }

    async fn pending_migrations(&self) -> Result<Vec<Migration>, Error> {
        self.0.pending_migrations().await
    }

    fn migration_sql(&self) -> Vec<Migration> {
        self.0.migrations()
    }

    async fn stats(&self, cap: Option<u64>) -> Result<Stats, Error> {
        self.0.stats(cap).await
    }

    /// Lists in order of enqueueing; where all states or the processed ones are asked for, in order of the ids, which
    /// hold the time at which they were made.
    async fn list(&self, filter: &ListFilter) -> Result<Vec<MessageInfo>, Error> {
        self.0.list(filter).await
    }

    async fn show(&self, id: MessageId) -> Result<Option<MessageDetails>, Error> {
        let params = [(id.as_uuid() as _, Type::UUID)];
        let rows = self.0.run(Use::Other, "showing a message", &self.0.sql.show, &params).await?;
        Ok(rows.first().map(to_details))
    }

    async fn redrive(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error> {
        self.0.mend("redriving", selection, mode, false).await
    }

    async fn discard(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error> {
        self.0.mend("discarding", selection, mode, true).await
    }

    async fn purge(&self, purge: &Purge) -> Result<Purged, Error> {
        purge.check()?;
        let processed = self.0.purge_processed(purge.older_than, purge.limit).await?;
        let left = if purge.include_dead { purge.limit - processed } else { 0 };
        let dead = self.0.purge_dead(purge.older_than, left).await?;
        Ok(Purged { processed: processed as u64, dead })
    }
}

/// A dead row that may be mended.
struct Dead {
    id: Uuid,
    seq: i64,
    lane: i16,
    event_type: String,
    parks: bool,
}

impl Inner {
    async fn list(&self, filter: &ListFilter) -> Result<Vec<MessageInfo>, Error> {
        let mut found = Vec::new();
        let (mut after_seq, mut after_id) = (i64::MIN, Uuid::nil());
        let page = limit(PAGE);
        while found.len() < filter.limit {
            let by_seq = [(&after_seq as _, Type::INT8), (&page as _, Type::INT8)];
            let status = (filter.state == Some(State::Processed)).then_some(1_i16);
            let by_id = [(&after_id as _, Type::UUID), (&page as _, Type::INT8), (&status as _, Type::INT2)];
            let (sql, params): (_, Params<'_>) = match filter.state {
                None | Some(State::Processed) => (&self.sql.list_by_id, &by_id),
                Some(State::Dead) => (&self.sql.list_dead, &by_seq),
                Some(State::Ready | State::Waiting) => (&self.sql.list_pending, &by_seq),
            };
            let rows = self.run(Use::Other, "listing", sql, params).await?;
            let Some(last) = rows.last() else { break };
            (after_seq, after_id) = (last.get("seq"), last.get("id"));
            let matches = |info: &MessageInfo| {
                filter.state.is_none_or(|state| info.state == state)
                    && filter.event_type.as_ref().is_none_or(|glob| glob.matches(&info.event_type))
            };
            found.extend(rows.iter().map(to_info).filter(matches));
            if rows.len() < PAGE {
                break;
            }
        }
        found.truncate(filter.limit);
        Ok(found)
    }

    /// Walks the dead rows of a selection, oldest first, and redrives or discards them in bounded steps.
    async fn mend(
        &self,
        doing: &str,
        selection: &DeadSelection,
        mode: Mode,
        discard: bool,
    ) -> Result<u64, Error> {
        let ids: Option<Vec<Uuid>> = match selection {
            DeadSelection::Ids(ids) => Some(ids.iter().map(|id| *id.as_uuid()).collect()),
            DeadSelection::EventType(_) | DeadSelection::All => None,
        };
        let glob = match selection {
            DeadSelection::EventType(glob) => Some(glob),
            DeadSelection::Ids(_) | DeadSelection::All => None,
        };
        let (mut mended, mut after) = (0, i64::MIN);
        let most = match mode {
            Mode::DryRun => u64::MAX,
            Mode::UpTo(most) => most,
        };
        while mended < most {
            let (mut dead, last) = self.dead_page(doing, after, ids.as_ref(), glob, None).await?;
            dead.truncate(usize::try_from(most - mended).unwrap_or(usize::MAX));
            mended += match mode {
                Mode::DryRun => dead.len() as u64,
                Mode::UpTo(_) => self.mend_page(doing, &dead, discard, None).await?,
            };
            let Some(last) = last else { break };
            after = dead.last().map_or(last, |dead| if mended < most { last } else { dead.seq });
        }
        Ok(mended)
    }

    /// A page of dead rows that match, and the last one looked at unless there are no more.
    async fn dead_page(
        &self,
        doing: &str,
        after: i64,
        ids: Option<&Vec<Uuid>>,
        glob: Option<&Glob>,
        older_than: Option<Duration>,
    ) -> Result<(Vec<Dead>, Option<i64>), Error> {
        let (page, older_than) = (limit(PAGE), older_than.map(micros));
        let params = [
            (&after as _, Type::INT8),
            (&page as _, Type::INT8),
            (&ids as _, Type::UUID_ARRAY),
            (&older_than as _, Type::INT8),
        ];
        let rows = self.run(Use::Other, doing, &self.sql.dead, &params).await?;
        let last = rows.last().filter(|_| rows.len() == PAGE).map(|row| row.get("seq"));
        let dead = |row: &Row| Dead {
            id: row.get("id"),
            seq: row.get("seq"),
            lane: row.get("lane"),
            event_type: row.get("event_type"),
            parks: row.get("parks"),
        };
        let mut dead: Vec<_> = rows.iter().map(dead).collect();
        dead.retain(|dead| glob.is_none_or(|glob| glob.matches(&dead.event_type)));
        Ok((dead, last))
    }

    async fn mend_page(
        &self,
        doing: &str,
        dead: &[Dead],
        discard: bool,
        older_than: Option<Duration>,
    ) -> Result<u64, Error> {
        if dead.is_empty() {
            return Ok(0);
        }
        let ids: Vec<_> = dead.iter().map(|dead| dead.id).collect();
        // A redrive always moves a lane's revision on, a discard where a key goes on.
        let mut lanes: Vec<_> =
            dead.iter().filter(|dead| dead.parks || !discard).map(|dead| dead.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        let older_than = older_than.map(micros);
        let params =
            [(&ids as _, Type::UUID_ARRAY), (&lanes as _, Type::INT2_ARRAY), (&older_than as _, Type::INT8)];
        let rows = if discard {
            self.run(Use::Other, doing, &self.sql.discard, &params).await?
        } else {
            self.run(Use::Other, doing, &self.sql.redrive, &params[..2]).await?
        };
        let row = rows.first().ok_or_else(|| self.error(doing, no_row(doing)))?;
        self.waker.wake();
        Ok(count(row.get("mended")) as u64)
    }

    /// Deletes dead rows that were given up longer ago than an age.
    async fn purge_dead(&self, older_than: Duration, most: usize) -> Result<u64, Error> {
        let (mut purged, mut after) = (0, i64::MIN);
        while purged < most as u64 {
            let (mut dead, last) = self.dead_page("purging", after, None, None, Some(older_than)).await?;
            dead.truncate(most - usize::try_from(purged).unwrap_or(most));
            purged += self.mend_page("purging", &dead, true, Some(older_than)).await?;
            let Some(last) = last else { break };
            after = last;
        }
        Ok(purged)
    }

    async fn stats(&self, cap: Option<u64>) -> Result<Stats, Error> {
        let doing = "counting";
        let look_at = cap.map(|cap| i64::try_from(cap).unwrap_or(i64::MAX).saturating_add(1));
        let params = [(&look_at as _, Type::INT8)];
        let rows = self.run(Use::Other, doing, &self.sql.stats, &params).await?;
        let relays = self.run(Use::Other, doing, &self.sql.relays, &[]).await?;
        let row = rows.first().ok_or_else(|| self.error(doing, no_row(doing)))?;
        let get = |name: &str| count(row.get(name)) as u64;
        let is_partial = |looked_at: &str| cap.is_some_and(|cap| get(looked_at) > cap);
        let capped = |count: u64, partial: bool| Count {
            count: count.min(cap.unwrap_or(u64::MAX)),
            capped: partial || cap.is_some_and(|cap| count > cap),
        };
        let (ready_partial, held_partial) = (is_partial("ready_looked_at"), is_partial("held_looked_at"));
        let blocked = get("ready_blocked") + get("held_blocked");
        Ok(Stats {
            ready: capped(
                get("ready_looked_at") - get("ready_blocked") + get("due"),
                ready_partial || held_partial,
            ),
            waiting: capped(
                get("ready_blocked") + get("held_looked_at") - get("due"),
                ready_partial || held_partial,
            ),
            blocked: capped(blocked, ready_partial || held_partial),
            dead: capped(get("dead"), false),
            oldest_ready_age: row.get::<_, Option<i64>>("oldest_age").map(duration),
            lanes_total: count(row.get("lanes")),
            lanes_leased: count(row.get("leased")),
            relays: relays.iter().map(to_relay).collect(),
        })
    }
}

fn to_relay(row: &Row) -> RelayInfo {
    let left: i64 = row.get("lease_left");
    RelayInfo {
        id: row.get::<_, Uuid>("id").to_string(),
        name: row.get("name"),
        lanes: count(row.get("lanes")),
        lease_left: (left > 0).then(|| duration(left)),
    }
}

fn to_info(row: &Row) -> MessageInfo {
    let blocked = row.get::<_, Option<Uuid>>("blocked_by").is_some();
    let state = match row.get::<_, i16>("status") {
        0 if blocked || row.get("waits") => State::Waiting,
        0 => State::Ready,
        1 => State::Processed,
        _ => State::Dead,
    };
    MessageInfo {
        id: MessageId::from_stored(row.get("id")),
        state,
        event_type: row.get("event_type"),
        aggregate_type: row.get("aggregate_type"),
        aggregate_id: row.get("aggregate_id"),
        attempts: attempts(row.get("attempts")),
        enqueued_at: row.get("created_at"),
        next_attempt_at: row.get("next_attempt_at"),
        settled_at: row.get("processed_at"),
        last_error: row.get("last_error"),
    }
}

fn to_details(row: &Row) -> MessageDetails {
    let payload: Option<&[u8]> = row.get("payload");
    MessageDetails {
        info: to_info(row),
        lane: lane(row.get("lane")),
        content_type: row.get("content_type"),
        headers: headers_from_json(row.get("headers")),
        idempotency_key: row.get("idempotency_key"),
        payload: payload.map(Bytes::copy_from_slice),
        blocked_by: row.get::<_, Option<Uuid>>("blocked_by").map(MessageId::from_stored),
    }
}
