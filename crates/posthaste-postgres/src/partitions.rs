//! Partitions by time: made ahead, and dropped when all in them is over and old.

mod keep;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste::{Error, ErrorKind};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connection::{Session, Use};
use crate::error::Failure;
use crate::options::Partition;
use crate::store::{Inner, PostgresStore};
use crate::value::micros;
use posthaste::dialect::{literal, quote};

const DOING: &str = "looking after the partitions";
/// How long a change may wait for its lock, and so how long it may make others wait behind it.
const LOCK_TIMEOUT_MILLIS: u32 = 300;
/// The most rows that are moved out of the default partition to make room for one of their own.
const MOST_MOVED: i64 = 100_000;

/// How to look after the partitions of an outbox.
///
/// ```
/// use std::time::Duration;
/// use posthaste_postgres::{Partition, PartitionPlan};
///
/// let plan = PartitionPlan::new(Partition::Day).lookahead(Duration::from_secs(30 * 86_400));
/// assert_eq!(plan.retention, Some(Duration::from_secs(7 * 86_400)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionPlan {
    /// How long a stretch of time a new partition holds.
    pub every: Partition,
    /// How far ahead partitions are made. Default: 30 days.
    pub lookahead: Duration,
    /// How long after its end a partition is kept; `None`: for ever. Default: 7 days.
    pub retention: Option<Duration>,
    /// Whether a partition may be dropped that holds dead messages. Default: no.
    pub include_dead: bool,
    /// How often [`PostgresStore::keep_partitions`] looks after them. Default: 1 h.
    pub check_every: Duration,
}

impl PartitionPlan {
    /// The defaults, for days or months.
    pub fn new(every: Partition) -> Self {
        let day = Duration::from_hours(24);
        Self {
            every,
            lookahead: 30 * day,
            retention: Some(7 * day),
            include_dead: false,
            check_every: Duration::from_hours(1),
        }
    }

    /// Sets how far ahead partitions are made.
    pub fn lookahead(mut self, lookahead: Duration) -> Self {
        self.lookahead = lookahead;
        self
    }

    /// Sets how long after its end a partition is kept; `None`: for ever.
    pub fn retention(mut self, retention: Option<Duration>) -> Self {
        self.retention = retention;
        self
    }

    /// Switches whether a partition may be dropped that holds dead messages.
    pub fn include_dead(mut self, on: bool) -> Self {
        self.include_dead = on;
        self
    }

    /// Sets how often [`PostgresStore::keep_partitions`] looks after them.
    pub fn check_every(mut self, interval: Duration) -> Self {
        self.check_every = interval;
        self
    }
}

/// What was done about the partitions. What could not be done now is done the next time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionReport {
    /// Partitions made.
    pub created: Vec<String>,
    /// Partitions dropped.
    pub dropped: Vec<String>,
    /// Old partitions that were kept because something in them is not over.
    pub kept: Vec<String>,
    /// Partitions about which nothing was done because somebody held a lock for too long, or another maintainer was
    /// at it.
    pub postponed: Vec<String>,
}

/// How one change went.
enum Change {
    Done,
    NotNeeded,
    Kept,
    Postponed,
}

impl PostgresStore {
    /// Makes partitions ahead and drops old ones, each in a transaction of its own, so that it can be stopped anywhere
    /// and run again. A change waits for its lock 300 ms at most: a long reader postpones it, and does not make
    /// producers queue behind it. Of several at a time, one works.
    ///
    /// A partition is dropped only if every message in it is processed (or dead, if the plan says so).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the outbox is not partitioned, and what the database reports.
    ///
    /// # Cancel safety
    /// Each change is either done or undone.
    pub async fn maintain_partitions(&self, plan: &PartitionPlan) -> Result<PartitionReport, Error> {
        self.0.maintain_partitions(plan, &AtomicBool::new(false)).await
    }

    /// How long a stretch of time the newest partition holds; `None` where there is none besides the default one.
    ///
    /// # Errors
    /// As [`maintain_partitions`](Self::maintain_partitions).
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn partitioned_by(&self) -> Result<Option<Partition>, Error> {
        let (found, _) = self.0.partitions().await?;
        Ok(found.iter().max_by_key(|found| found.upper).map(Found::holds))
    }
}

/// A partition that there is.
struct Found {
    name: String,
    lower: Uuid,
    upper: Uuid,
}

impl Found {
    fn holds(&self) -> Partition {
        let day = micros(Duration::from_hours(24)) / 1_000;
        if millis(self.upper) - millis(self.lower) > day { Partition::Month } else { Partition::Day }
    }
}

impl Inner {
    /// Goes through all changes that are due, until it is told to stop.
    pub(crate) async fn maintain_partitions(
        &self,
        plan: &PartitionPlan,
        stopping: &AtomicBool,
    ) -> Result<PartitionReport, Error> {
        let mut report = PartitionReport::default();
        let (found, now) = self.partitions().await?;
        let oldest = plan.retention.map(|retention| now.saturating_sub(micros(retention) / 1_000));
        let is_old = |upper| oldest.is_some_and(|oldest| millis(upper) <= oldest);
        for (name, lower, upper) in self.wanted_partitions(plan).await? {
            if is_old(upper) || found.iter().any(|found| found.upper == upper) {
                continue;
            }
            if stopping.load(Ordering::Relaxed) {
                return Ok(report);
            }
            match self.change(async |session| self.create(session, &name, lower, upper).await).await? {
                Change::Done => report.created.push(name),
                Change::NotNeeded | Change::Kept => {}
                Change::Postponed => report.postponed.push(name),
            }
        }
        for Found { name, .. } in found.into_iter().filter(|found| is_old(found.upper)) {
            if stopping.load(Ordering::Relaxed) {
                return Ok(report);
            }
            match self.change(async |session| self.drop_old(session, &name, plan.include_dead).await).await? {
                Change::Done => report.dropped.push(name),
                Change::NotNeeded => {}
                Change::Kept => report.kept.push(name),
                Change::Postponed => report.postponed.push(name),
            }
        }
        Ok(report)
    }

    /// The partitions that there are besides the default one, and the server's time in milliseconds.
    async fn partitions(&self) -> Result<(Vec<Found>, i64), Error> {
        let table = self.table.qualified("");
        let params = [(&table as _, Type::TEXT)];
        let rows = self.run(Use::Other, DOING, &self.sql.partitions_found, &params).await?;
        let Some(first) = rows.first() else {
            let text = format!("{DOING}: {} is missing; run `posthaste migrate`", self.table);
            return Err(Error::new(ErrorKind::NotMigrated, text));
        };
        if !first.get::<_, bool>("partitioned") {
            let text = format!("{} is not partitioned; that is decided when it is migrated", self.table);
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let found = rows.iter().filter_map(|row| {
            let (lower, upper) = bounds(row.get::<_, Option<&str>>("bounds")?)?;
            Some(Found { name: row.get("name"), lower, upper })
        });
        Ok((found.collect(), first.get("now")))
    }

    async fn wanted_partitions(&self, plan: &PartitionPlan) -> Result<Vec<(String, Uuid, Uuid)>, Error> {
        let every = match plan.every {
            Partition::Day => "day",
            Partition::Month => "month",
        };
        let lookahead = micros(plan.lookahead);
        let params = [(&every as _, Type::TEXT), (&lookahead as _, Type::INT8)];
        let rows = self.run(Use::Other, DOING, &self.sql.partitions_wanted, &params).await?;
        let wanted = rows.iter().map(|row| {
            let name = self.table.derived(&format!("p{}", row.get::<_, &str>("name")));
            (name, row.get("lower"), row.get("upper"))
        });
        Ok(wanted.collect())
    }

    /// Makes one change in a transaction of its own, unless another maintainer is at it.
    async fn change(
        &self,
        change: impl AsyncFnOnce(&Session) -> Result<Change, Failure>,
    ) -> Result<Change, Error> {
        let session = self.session(Use::Other, DOING).await?;
        let changing = async {
            let client = session.client();
            client.batch_execute(&self.begin_write.anywhere).await?;
            client.batch_execute(&format!("SET LOCAL lock_timeout = {LOCK_TIMEOUT_MILLIS}")).await?;
            let lock = format!("SELECT pg_try_advisory_xact_lock({})", self.table.lock_key().wrapping_add(1));
            let is_alone = client.query_typed_one(&lock, &[]).await?.get(0);
            let changed = if is_alone { change(&session).await? } else { Change::Postponed };
            client.batch_execute("COMMIT").await?;
            Ok::<_, Failure>(changed)
        };
        match session.within(changing).await {
            Ok(changed) => session.done(Ok(changed)).map_err(|failure| self.error(DOING, failure)),
            Err(failure) if is_postponed(&failure) => Ok(Change::Postponed),
            Err(failure) => Err(self.error(DOING, failure)),
        }
    }

    /// Makes a partition beside the outbox and attaches it, which takes no lock that an INSERT elsewhere waits for.
    /// Rows that have come to the default partition in the meantime are moved.
    async fn create(
        &self,
        session: &Session,
        name: &str,
        lower: Uuid,
        upper: Uuid,
    ) -> Result<Change, Failure> {
        let client = session.client();
        let (schema, outbox) = (quote(self.table.schema()), self.table.qualified(""));
        let partition = format!("{schema}.{}", quote(name));
        let exists = format!("SELECT to_regclass({}) IS NOT NULL", literal(&partition));
        if client.query_typed_one(&exists, &[]).await?.get(0) {
            return Ok(Change::NotNeeded);
        }
        let default = self.table.qualified("default");
        let bounds = format!("id >= '{lower}' AND id < '{upper}'");
        let misplaced =
            format!("SELECT count(*) FROM (SELECT FROM {default} WHERE {bounds} LIMIT {MOST_MOVED}) d");
        let misplaced: i64 = client.query_typed_one(&misplaced, &[]).await?.get(0);
        if misplaced >= MOST_MOVED {
            return Ok(Change::Postponed);
        }
        let make = format!(
            "CREATE TABLE {partition} (LIKE {outbox} INCLUDING DEFAULTS INCLUDING GENERATED INCLUDING CONSTRAINTS \
             INCLUDING INDEXES INCLUDING STORAGE){};",
            crate::schema::STORAGE
        );
        client.batch_execute(&make).await?;
        if misplaced > 0 {
            let columns = "seq, id, event_type, aggregate_type, aggregate_id, payload, content_type, headers, \
                           idempotency_key, status, attempts, next_attempt_at, last_error, created_at, processed_at";
            let shift = format!(
                "LOCK TABLE {default} IN ACCESS EXCLUSIVE MODE; \
                 WITH moved AS (DELETE FROM {default} WHERE {bounds} RETURNING {columns}) \
                 INSERT INTO {partition} ({columns}) SELECT {columns} FROM moved"
            );
            client.batch_execute(&shift).await?;
        }
        let attach = format!(
            "ALTER TABLE {partition} ADD CONSTRAINT posthaste_bounds CHECK ({bounds}); \
             ALTER TABLE {outbox} ATTACH PARTITION {partition} FOR VALUES FROM ('{lower}') TO ('{upper}'); \
             ALTER TABLE {partition} DROP CONSTRAINT posthaste_bounds"
        );
        client.batch_execute(&attach).await?;
        tracing::info!(partition = name, "partition made");
        Ok(Change::Done)
    }

    /// Drops a partition if everything in it is over. Asked before the lock is taken, so that a partition that stays
    /// is not locked, and again under it.
    async fn drop_old(&self, session: &Session, name: &str, include_dead: bool) -> Result<Change, Failure> {
        let client = session.client();
        let partition = format!("{}.{}", quote(self.table.schema()), quote(name));
        let exists = format!("SELECT to_regclass({}) IS NOT NULL", literal(&partition));
        if !client.query_typed_one(&exists, &[]).await?.get::<_, bool>(0) {
            return Ok(Change::NotNeeded);
        }
        let dead = if include_dead {
            String::new()
        } else {
            format!(" OR EXISTS (SELECT FROM {partition} WHERE status = -1)")
        };
        let is_open = format!(
            "SELECT EXISTS (SELECT FROM {partition} WHERE status = 0 AND next_attempt_at IS NULL) \
             OR EXISTS (SELECT FROM {partition} WHERE status = 0 AND next_attempt_at IS NOT NULL){dead}"
        );
        if client.query_typed_one(&is_open, &[]).await?.get(0) {
            return Ok(Change::Kept);
        }
        let lock =
            format!("LOCK TABLE ONLY {}, {partition} IN ACCESS EXCLUSIVE MODE", self.table.qualified(""));
        client.batch_execute(&lock).await?;
        if client.query_typed_one(&is_open, &[]).await?.get(0) {
            return Ok(Change::Kept);
        }
        let drop = format!(
            "UPDATE {} SET revision = revision + 1 WHERE lane IN (SELECT lane FROM {partition} \
             WHERE status = -1 AND next_attempt_at IS NOT NULL AND aggregate_id <> ''); DROP TABLE {partition}",
            self.table.qualified("lane")
        );
        client.batch_execute(&drop).await?;
        tracing::info!(partition = name, "partition dropped");
        Ok(Change::Done)
    }
}

/// Whether somebody held a lock for too long, or the deadlock detector chose us.
fn is_postponed(failure: &Failure) -> bool {
    match failure {
        Failure::Driver(error) => {
            error.code().is_some_and(|code| ["55P03", "40P01", "57014"].contains(&code.code()))
        }
        Failure::TimedOut | Failure::Ours(_) => false,
    }
}

/// The bounds in `FOR VALUES FROM ('…') TO ('…')`; none for the default partition.
fn bounds(text: &str) -> Option<(Uuid, Uuid)> {
    let bound = |before: &str| text.split_once(before)?.1.split('\'').next()?.parse().ok();
    Some((bound("FROM ('")?, bound("TO ('")?))
}

/// The milliseconds in an id of version 7.
fn millis(id: Uuid) -> i64 {
    i64::try_from(id.as_u128() >> 80).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_understood() {
        let text = "FOR VALUES FROM ('0193a000-0000-0000-0000-000000000000') TO ('0193a526-5c00-0000-0000-000000000000')";
        let (lower, upper) = bounds(text).unwrap();
        assert_eq!((millis(lower), millis(upper)), (0x0193_a000_0000, 0x0193_a526_5c00));
        assert_eq!(bounds("DEFAULT"), None);
    }
}
