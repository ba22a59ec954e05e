//! The operator's side.

use async_trait::async_trait;
use bytes::Bytes;
use mysql_async::Row;
use posthaste::{
    Admin, Count, DeadSelection, Error, ListFilter, MessageDetails, MessageId, MessageInfo, Migration, Mode,
    Purge, Purged, RelayInfo, State, Stats,
};
use uuid::Uuid;

use crate::connection::{Use, first, get, get_uuid};
use crate::error::Failure;
use crate::mend::Mend;
use crate::schema::ALL;
use crate::store::{Inner, MySqlStore};
use crate::value::{
    Literal, attempts, created_ts, duration, headers_from_json, int, lane, limit, list, system_time, uuid,
};

/// How many rows a page of a walk has.
const PAGE: usize = 1_000;
const COUNTING: &str = "counting";

#[async_trait]
impl Admin for MySqlStore {
    /// An outbox of velmie's is completed with what is ours. One that is to be partitioned gets its first partitions at
    /// once. If it is cut off, running it again does the rest.
    async fn migrate(&self) -> Result<Vec<Migration>, Error> {
        let applied = self.0.migrate(&ALL).await?;
        self.make_first_partitions(&applied).await?;
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

    /// Lists in order of the ids, which hold the time at which they were made.
    async fn list(&self, filter: &ListFilter) -> Result<Vec<MessageInfo>, Error> {
        self.0.list(filter).await
    }

    async fn show(&self, id: MessageId) -> Result<Option<MessageDetails>, Error> {
        let id = *id.as_uuid();
        let show = self.0.sql.show.bind(&[("id", uuid(id)), ("created_ts", int(created_ts(id)))]);
        let doing = "showing a message";
        let rows = self.0.run(Use::Other, doing, &show).await?;
        rows.first().map(to_details).transpose().map_err(|failure| self.0.error(doing, failure))
    }

    async fn redrive(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error> {
        self.0.mend("redriving", selection, mode, Mend::Redrive).await
    }

    async fn discard(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error> {
        self.0.mend("discarding", selection, mode, Mend::Discard).await
    }

    async fn purge(&self, purge: &Purge) -> Result<Purged, Error> {
        purge.check()?;
        let processed = self.0.purge_processed(purge.older_than, purge.limit).await?;
        let left = if purge.include_dead { purge.limit - processed } else { 0 };
        let dead = self.0.purge_dead(purge.older_than, left).await?;
        Ok(Purged { processed: processed as u64, dead })
    }
}

impl Inner {
    async fn list(&self, filter: &ListFilter) -> Result<Vec<MessageInfo>, Error> {
        let (index, condition) = match filter.state {
            None => ("PRIMARY", "TRUE"),
            Some(State::Processed) => ("idx_status_id", "t.status = 1"),
            Some(State::Dead) => ("idx_status_id", "t.status = -1"),
            Some(State::Ready | State::Waiting) => ("idx_status_id", "t.status = 0"),
        };
        let mut found = Vec::new();
        let mut after = Uuid::nil();
        while found.len() < filter.limit {
            let page = self.sql.list.bind(&[
                ("index", Literal::made(index.to_owned())),
                ("condition", Literal::made(condition.to_owned())),
                ("after", uuid(after)),
                ("most", limit(PAGE)),
            ]);
            let rows = self.run(Use::Other, "listing", &page).await?;
            for row in &rows {
                let info = to_info(row).map_err(|failure| self.error("listing", failure))?;
                after = *info.id.as_uuid();
                if filter.state.is_none_or(|state| info.state == state)
                    && filter.event_type.as_ref().is_none_or(|glob| glob.matches(&info.event_type))
                {
                    found.push(info);
                }
            }
            if rows.len() < PAGE {
                break;
            }
        }
        found.truncate(filter.limit);
        Ok(found)
    }

    async fn stats(&self, cap: Option<u64>) -> Result<Stats, Error> {
        let lanes = self.run(Use::Other, COUNTING, &self.sql.stats_lanes.text()).await?;
        let relays = self.run(Use::Other, COUNTING, &self.sql.relays.text()).await?;
        let most = cap.map_or(usize::MAX, |cap| usize::try_from(cap).unwrap_or(usize::MAX).saturating_add(1));
        let all =
            lanes.iter().map(|row| Ok(int(get::<i64>(row, "lane")?))).collect::<Result<Vec<_>, Failure>>();
        let all = all.map_err(|failure| self.error(COUNTING, failure))?;
        let values = [("lanes", list(all)), ("most", limit(most))];
        let mut answers = Vec::new();
        for sql in [
            self.sql.stats_ready.bind(&values),
            self.sql.stats_held.bind(&values),
            self.sql.stats_dead.bind(&values),
            self.sql.stats_oldest.text(),
            self.sql.stats_oldest_due.bind(&values),
        ] {
            answers.push(self.run(Use::Other, COUNTING, &sql).await?);
        }
        let stats = to_stats(cap, &answers, &lanes, &relays);
        stats.map_err(|failure| self.error(COUNTING, failure))
    }
}

fn to_stats(cap: Option<u64>, answers: &[Vec<Row>], lanes: &[Row], relays: &[Row]) -> Result<Stats, Failure> {
    let figure = |answer: usize, column: &str| first::<u64>(&answers[answer], column);
    let is_partial = |looked_at: u64| cap.is_some_and(|cap| looked_at > cap);
    let capped = |count: u64, partial: bool| Count {
        count: count.min(cap.unwrap_or(u64::MAX)),
        capped: partial || cap.is_some_and(|cap| count > cap),
    };
    let (ready, ready_blocked) = (figure(0, "looked_at")?, figure(0, "blocked")?);
    let (held, held_blocked, due) = (figure(1, "looked_at")?, figure(1, "blocked")?, figure(1, "due")?);
    let partial = is_partial(ready) || is_partial(held);
    let ages: [Option<i64>; 2] = [first(&answers[3], "age")?, first(&answers[4], "age")?];
    let mut leased = 0;
    for row in lanes {
        leased += usize::from(get::<bool>(row, "leased")?);
    }
    Ok(Stats {
        ready: capped(ready - ready_blocked + due, partial),
        waiting: capped(ready_blocked + held - due, partial),
        blocked: capped(ready_blocked + held_blocked, partial),
        dead: capped(figure(2, "dead")?, false),
        oldest_ready_age: ages.into_iter().flatten().max().map(duration),
        lanes_total: lanes.len(),
        lanes_leased: leased,
        relays: relays.iter().map(to_relay).collect::<Result<_, _>>()?,
    })
}

fn to_relay(row: &Row) -> Result<RelayInfo, Failure> {
    let left: i64 = get(row, "lease_left")?;
    Ok(RelayInfo {
        id: get_uuid(row, "id")?.to_string(),
        name: get(row, "name")?,
        lanes: get(row, "lanes")?,
        lease_left: (left > 0).then(|| duration(left)),
    })
}

fn to_info(row: &Row) -> Result<MessageInfo, Failure> {
    let blocked = get::<Option<Vec<u8>>>(row, "blocked_by")?.is_some();
    let state = match get::<i64>(row, "status")? {
        0 if blocked || get::<bool>(row, "waits")? => State::Waiting,
        0 => State::Ready,
        1 => State::Processed,
        _ => State::Dead,
    };
    let time = |column| Ok::<_, Failure>(get::<Option<i64>>(row, column)?.map(system_time));
    Ok(MessageInfo {
        id: MessageId::from_stored(get_uuid(row, "id")?),
        state,
        event_type: get(row, "event_type")?,
        aggregate_type: get(row, "aggregate_type")?,
        aggregate_id: get(row, "aggregate_id")?,
        attempts: attempts(get(row, "attempt_count")?),
        enqueued_at: system_time(get(row, "created")?),
        next_attempt_at: time("waits_until")?,
        settled_at: time("settled")?,
        last_error: get(row, "last_error")?,
    })
}

fn to_details(row: &Row) -> Result<MessageDetails, Failure> {
    let tombstone: bool = get(row, "tombstone")?;
    let payload: Option<Vec<u8>> = get(row, "payload")?;
    let blocker: Option<Vec<u8>> = get(row, "blocked_by")?;
    let headers: Option<Vec<u8>> = get(row, "headers")?;
    Ok(MessageDetails {
        info: to_info(row)?,
        lane: lane(get(row, "lane")?),
        content_type: get(row, "content_type")?,
        headers: headers_from_json(headers.as_deref()),
        idempotency_key: get(row, "idempotency_key")?,
        payload: payload.filter(|_| !tombstone).map(Bytes::from),
        blocked_by: blocker.and_then(|id| Uuid::from_slice(&id).ok()).map(MessageId::from_stored),
    })
}
