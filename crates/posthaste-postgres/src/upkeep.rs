//! Tidying up, one relay at a time, in small steps.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use posthaste::{Error, UpkeepReport, UpkeepRequest};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::{Use, no_row};
use crate::store::Inner;
use crate::value::{count, limit, micros};

const DOING: &str = "tidying up";
/// How many rows are looked at for each that may be deleted.
const LOOKED_AT_FOR_EACH: usize = 10;

/// How far the purge of processed rows has come. It begins at the start each time, where the oldest rows are, and then
/// goes on from where it was, so that rows that stay for long (waiting or dead) cannot hide others for ever.
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

impl Inner {
    pub(crate) async fn upkeep(&self, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
        let lease = micros(request.lease);
        let params = [(&request.relay.0 as _, Type::UUID), (&lease as _, Type::INT8)];
        let ours = !self.run(Use::Other, DOING, &self.sql.upkeep_lease, &params).await?.is_empty();
        if !ours {
            return Ok(UpkeepReport::default());
        }
        let purged = match request.keep_processed {
            Some(keep) => self.purge_processed(keep, request.limit).await?,
            None => 0,
        };
        let keys_purged = match request.keep_keys {
            Some(keep) => self.purge_old(&self.sql.purge_keys, keep, request.limit).await?,
            None => 0,
        };
        let inbox_purged = match request.keep_inbox {
            Some(keep) => self.purge_old(&self.sql.purge_inbox, keep, request.limit).await?,
            None => 0,
        };
        self.run(Use::Other, DOING, &self.sql.purge_relays, &[]).await?;
        self.mend_wake().await?;
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

    /// Looks through a stretch of rows behind an id. Returns how many were deleted, and the last id that was looked
    /// at, unless there is nothing behind it.
    async fn purge_behind(
        &self,
        after: Uuid,
        older_than: Duration,
        most: usize,
    ) -> Result<(usize, Option<Uuid>), Error> {
        let look_at = most.saturating_mul(LOOKED_AT_FOR_EACH).max(1_000);
        let [older_than, look_at_most, most] = [micros(older_than), limit(look_at), limit(most)];
        let params = [
            (&after as _, Type::UUID),
            (&older_than as _, Type::INT8),
            (&look_at_most as _, Type::INT8),
            (&most as _, Type::INT8),
        ];
        let rows = self.run(Use::Other, "purging", &self.sql.purge_processed, &params).await?;
        let row = rows.first().ok_or_else(|| self.error("purging", no_row("purging")))?;
        let is_end = count(row.get("looked")) < look_at;
        Ok((count(row.get("gone")), row.get::<_, Option<Uuid>>("last").filter(|_| !is_end)))
    }

    /// Deletes what is older than an age of a side table. Returns how many.
    pub(crate) async fn purge_old(
        &self,
        sql: &str,
        older_than: Duration,
        most: usize,
    ) -> Result<usize, Error> {
        let (older_than, most) = (micros(older_than), limit(most));
        let params = [(&older_than as _, Type::INT8), (&most as _, Type::INT8)];
        Ok(self.run(Use::Other, "purging", sql, &params).await?.len())
    }
}
