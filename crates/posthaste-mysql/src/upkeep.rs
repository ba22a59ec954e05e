//! Tidying up, one relay at a time, in small steps.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use posthaste::{Error, UpkeepReport, UpkeepRequest};
use uuid::Uuid;

use crate::connection::{Use, get, get_uuid};
use crate::settle::row;
use crate::store::Inner;
use crate::value::{Literal, bytes, int, limit, list, micros, uuid};

const DOING: &str = "tidying up";
const PURGING: &str = "purging";
/// How many rows are looked at for each that may be deleted.
const LOOKED_AT_FOR_EACH: usize = 4;
/// How many rows one statement deletes.
const CHUNK: usize = 500;
pub(crate) const PROCESSED: i8 = 1;
pub(crate) const DEAD: i8 = -1;

/// How far the purge of processed rows has come. It begins at the start each time, where the oldest rows are, and then
/// goes on from where it was, so that rows that were processed late cannot hide others for ever.
#[derive(Debug, Default)]
pub(crate) struct Purger(Mutex<Uuid>);

impl Purger {
    fn position(&self) -> Uuid {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, position: Uuid) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = position;
    }
}

/// A stretch of settled rows that was looked through.
pub(crate) struct Looked {
    /// Those that are old enough, and whether each parks its key.
    pub(crate) old: Vec<(Uuid, bool)>,
    /// The last that was looked at, unless there is nothing behind it.
    pub(crate) last: Option<Uuid>,
}

impl Inner {
    pub(crate) async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
        let values = [("relay", uuid(request.relay.0)), ("duration", int(micros(request.lease)))];
        if self.change(Use::Other, DOING, &self.sql.upkeep_lease.bind(&values)).await? == 0 {
            return Ok(UpkeepReport::default());
        }
        let purged = match request.keep_processed {
            Some(keep) => self.purge_processed(keep, request.limit).await?,
            None => 0,
        };
        let keys_purged = match request.keep_keys {
            Some(keep) => self.purge_keys(keep, request.limit).await?,
            None => 0,
        };
        let inbox_purged = match request.keep_inbox {
            Some(keep) => self.purge_inbox(keep, request.limit).await?,
            None => 0,
        };
        self.change(Use::Other, DOING, &self.sql.purge_relays.text()).await?;
        let more = request.limit > 0 && purged.max(keys_purged).max(inbox_purged) >= request.limit;
        Ok(UpkeepReport { ours: true, purged, keys_purged, inbox_purged, more })
    }

    /// Deletes processed rows that were settled longer ago than an age. Returns how many.
    pub(crate) async fn purge_processed(&self, older_than: Duration, most: usize) -> Result<usize, Error> {
        let (purged, last) = self.purge_behind(Uuid::nil(), older_than, most).await?;
        let Some(start_ends_at) = last.filter(|_| purged < most) else { return Ok(purged) };
        // The start was looked through. Go on from where the last walk came to.
        let from = self.purger.position().max(start_ends_at);
        let (more, last) = self.purge_behind(from, older_than, most - purged).await?;
        self.purger.set(last.unwrap_or_default());
        Ok(purged + more)
    }

    async fn purge_behind(
        &self,
        after: Uuid,
        older_than: Duration,
        most: usize,
    ) -> Result<(usize, Option<Uuid>), Error> {
        let look_at = most.saturating_mul(LOOKED_AT_FOR_EACH).max(1_000);
        let Looked { mut old, last } = self.look(PROCESSED, after, older_than, look_at).await?;
        // Where the limit cuts it short, the walk goes on behind what was taken.
        let cut = old.len() > most;
        old.truncate(most);
        let last = if cut { old.last().map(|(id, _)| *id) } else { last };
        let ids: Vec<_> = old.iter().map(|(id, _)| *id).collect();
        Ok((self.delete_settled(PROCESSED, &ids, older_than).await?, last))
    }

    /// Looks through settled rows behind an id.
    pub(crate) async fn look(
        &self,
        status: i8,
        after: Uuid,
        older_than: Duration,
        most: usize,
    ) -> Result<Looked, Error> {
        let values = [
            ("status", int(status)),
            ("after", uuid(after)),
            ("age", int(micros(older_than))),
            ("most", limit(most)),
        ];
        let rows = self.run(Use::Other, PURGING, &self.sql.purge_look.bind(&values)).await?;
        let mut looked = Looked { old: Vec::new(), last: None };
        for row in &rows {
            let id = get_uuid(row, "id").map_err(|failure| self.error(PURGING, failure))?;
            looked.last = Some(id);
            if row.get("old").unwrap_or(false) {
                looked.old.push((id, row.get("parked").unwrap_or(false)));
            }
        }
        looked.last = looked.last.filter(|_| rows.len() >= most);
        Ok(looked)
    }

    /// Deletes settled rows by primary key, in small transactions, if they are still settled and old enough.
    pub(crate) async fn delete_settled(
        &self,
        status: i8,
        ids: &[Uuid],
        older_than: Duration,
    ) -> Result<usize, Error> {
        let mut deleted = 0;
        for chunk in ids.chunks(CHUNK) {
            let values = [
                ("rows", list(chunk.iter().map(|id| row(*id)))),
                ("status", int(status)),
                ("age", int(micros(older_than))),
            ];
            deleted += self.change(Use::Other, PURGING, &self.sql.purge_delete.bind(&values)).await?;
        }
        Ok(usize::try_from(deleted).unwrap_or_default())
    }

    async fn purge_keys(&self, older_than: Duration, most: usize) -> Result<usize, Error> {
        let age = ("age", int(micros(older_than)));
        let look = self.sql.purge_keys.bind(&[age.clone(), ("most", limit(most))]);
        let mut keys = Vec::new();
        for row in self.run(Use::Other, PURGING, &look).await? {
            let key: Vec<u8> =
                get(&row, "idempotency_key").map_err(|failure| self.error(PURGING, failure))?;
            keys.push(bytes(&key));
        }
        self.forget(&keys, |keys| self.sql.forget_keys.bind(&[("keys", keys), age.clone()])).await
    }

    pub(crate) async fn purge_inbox(&self, older_than: Duration, most: usize) -> Result<usize, Error> {
        let age = ("age", int(micros(older_than)));
        let look = self.sql.purge_inbox.bind(&[age.clone(), ("most", limit(most))]);
        let mut entries = Vec::new();
        for row in self.run(Use::Other, PURGING, &look).await? {
            let column = |name| get::<Vec<u8>>(&row, name).map_err(|failure| self.error(PURGING, failure));
            let (consumer, message) = (bytes(&column("consumer")?), bytes(&column("message_id")?));
            entries.push(Literal::made(format!("({},{})", consumer.as_sql(), message.as_sql())));
        }
        self.forget(&entries, |entries| self.sql.forget_seen.bind(&[("entries", entries), age.clone()])).await
    }

    /// Deletes rows of a side table by primary key, in small transactions.
    async fn forget(&self, keys: &[Literal], statement: impl Fn(Literal) -> String) -> Result<usize, Error> {
        let mut deleted = 0;
        for chunk in keys.chunks(CHUNK) {
            let sql = statement(list(chunk.iter().cloned()));
            deleted += self.change(Use::Other, PURGING, &sql).await?;
        }
        Ok(usize::try_from(deleted).unwrap_or_default())
    }
}
