//! Partitions by time: made ahead, and dropped when all in them is over and old.

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste::{Error, ErrorKind, Migration};
use tokio::time::Instant;

use crate::connection::{Session, first, get};
use crate::error::Failure;
use crate::options::Partition;
use crate::store::{Inner, MySqlStore};
use crate::value::{Literal, date, days, text};
use posthaste::dialect::MySqlTable;

const DOING: &str = "looking after the partitions";
/// How long a change may wait for its lock, and so how long it may make others wait behind it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long all changes together may take.
const LONGEST: Duration = Duration::from_hours(1);
const DAY: i64 = 86_400;

/// How to look after the partitions of an outbox.
///
/// ```
/// use std::time::Duration;
/// use posthaste_mysql::{Partition, PartitionPlan};
///
/// let plan = PartitionPlan::new(Partition::Day).retention(Some(Duration::from_hours(168)));
/// assert_eq!(plan.lookahead, Duration::from_hours(30 * 24));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionPlan {
    /// How long a stretch of time a new partition holds.
    pub every: Partition,
    /// How far ahead partitions are made. Default: 30 days for days, 90 for months.
    pub lookahead: Duration,
    /// How long after its end a partition is kept; `None`: for ever. Default: for ever.
    pub retention: Option<Duration>,
    /// The name of the lock under which one instance works at a time, 1 to 64 characters. Default:
    /// `outbox:partitions:<table>`.
    pub lock_name: Option<String>,
}

impl PartitionPlan {
    /// The defaults, for days or months.
    pub fn new(every: Partition) -> Self {
        let ahead = match every {
            Partition::Day => 30,
            Partition::Month => 90,
        };
        Self { every, lookahead: Duration::from_hours(ahead * 24), retention: None, lock_name: None }
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

    /// Sets the name of the lock under which one instance works at a time.
    pub fn lock_name(mut self, name: impl Into<String>) -> Self {
        self.lock_name = Some(name.into());
        self
    }
}

/// What was done about the partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionReport {
    /// Whether it was our turn; if not, another instance has the lock and nothing was done.
    pub ours: bool,
    /// Partitions made.
    pub created: Vec<String>,
    /// Partitions dropped.
    pub dropped: Vec<String>,
    /// Old partitions that hold something that is not over. While there is one, none is dropped.
    pub kept: Vec<String>,
    /// Changes that were put off because somebody held the table for too long: `create` and `drop`.
    pub postponed: Vec<String>,
}

impl MySqlStore {
    /// Makes partitions ahead by splitting the last one, and with a retention drops old ones. Of several instances at a
    /// time, one works.
    ///
    /// Partitions are dropped only if they ended longer ago than the retention and every message in all of them is
    /// processed or dead. This is checked and done while the table is locked for writing, so that nothing can be enqueued
    /// into a partition that was checked; one message that is not over keeps all of them. A change waits a second for
    /// its lock at most.
    ///
    /// It takes SELECT, ALTER, CREATE and INSERT on the outbox, and with a retention DROP and LOCK TABLES too.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the outbox is not partitioned by `RANGE (created_ts)` with a last partition for what is
    /// later than all others, or a setting makes no sense; and what the database reports.
    ///
    /// # Cancel safety
    /// Each change is either done or undone.
    pub async fn maintain_partitions(&self, plan: &PartitionPlan) -> Result<PartitionReport, Error> {
        self.0.maintain_partitions(plan).await
    }

    /// Does a pass now and then every so often, until `stop` is over. What goes wrong is logged, and tried again the next
    /// time.
    ///
    /// # Errors
    /// As the first pass of [`maintain_partitions`](Self::maintain_partitions): what is wrong from the beginning.
    ///
    /// # Cancel safety
    /// Each change is either done or undone.
    pub async fn maintain_partitions_until(
        &self,
        plan: &PartitionPlan,
        every: Duration,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let mut stop = std::pin::pin!(stop);
        let mut report = self.maintain_partitions(plan).await?;
        loop {
            tracing::debug!(?report, "looked after the partitions");
            let next = Instant::now() + every;
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                () = tokio::time::sleep_until(next) => {}
            }
            report = self.maintain_partitions(plan).await.unwrap_or_else(|error| {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "looking after the partitions failed"
                );
                PartitionReport::default()
            });
        }
    }

    /// How long a stretch of time the newest partition holds; `None` where there is none besides the last one.
    ///
    /// # Errors
    /// As [`maintain_partitions`](Self::maintain_partitions).
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn partitioned_by(&self) -> Result<Option<Partition>, Error> {
        let session = self.0.connections.apart(LONGEST, LOCK_TIMEOUT).await;
        let mut session = session.map_err(|failure| self.0.partition_error(failure, false))?;
        let found = self.0.partitions(&mut session).await;
        let found = found.map_err(|failure| self.0.partition_error(failure, false))?;
        Ok(found.every())
    }

    /// Gives an outbox that was made partitioned its first partitions.
    pub(crate) async fn make_first_partitions(&self, applied: &[Migration]) -> Result<(), Error> {
        if let Some(every) = self.0.options.partition.filter(|_| !applied.is_empty()) {
            // The usual name is shared by outboxes of this name in all databases of the server.
            let name = self.0.table.hash_in(&self.0.database);
            let plan = PartitionPlan::new(every).lock_name(format!("posthaste:first:{name:08x}"));
            self.maintain_partitions(&plan).await?;
        }
        Ok(())
    }
}

/// The partitions that there are.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// Names and ends, in seconds since 1970, in order.
    bounded: Vec<(String, i64)>,
    /// The one that takes what is later.
    last: String,
    now: i64,
}

impl Found {
    fn every(&self) -> Option<Partition> {
        let (_, upper) = self.bounded.last()?;
        let lower = self.bounded.len().checked_sub(2).map(|place| self.bounded[place].1);
        let is_day = match lower {
            Some(lower) => upper - lower <= DAY,
            None => date(upper / DAY).2 != 1,
        };
        Some(if is_day { Partition::Day } else { Partition::Month })
    }

    /// The partitions that are missing for a plan: names and ends.
    fn missing(&self, plan: &PartitionPlan) -> Vec<(String, i64)> {
        let ahead = i64::try_from(plan.lookahead.as_secs()).unwrap_or(i64::MAX / 4).min(100 * 366 * DAY);
        let last_end = self.bounded.last().map_or(i64::MIN, |(_, upper)| *upper);
        let names: BTreeSet<_> = self.bounded.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let mut missing = Vec::new();
        let mut start = start_of(self.now, plan.every);
        loop {
            let end = end_of(start, plan.every);
            let name = name_of(start, plan.every);
            if end > last_end && !names.contains(&name) {
                missing.push((name, end));
            }
            if end >= self.now + ahead {
                return missing;
            }
            start = end;
        }
    }

    /// The partitions that ended before the retention.
    fn old(&self, plan: &PartitionPlan) -> Vec<String> {
        let Some(retention) = plan.retention else { return Vec::new() };
        let oldest = self.now.saturating_sub(i64::try_from(retention.as_secs()).unwrap_or(i64::MAX));
        let old = self.bounded.iter().take_while(|(_, upper)| *upper <= oldest);
        old.map(|(name, _)| name.clone()).collect()
    }
}

fn start_of(at: i64, every: Partition) -> i64 {
    let day = at.div_euclid(DAY);
    match every {
        Partition::Day => day * DAY,
        Partition::Month => {
            let (year, month, _) = date(day);
            days(year, month, 1) * DAY
        }
    }
}

fn end_of(start: i64, every: Partition) -> i64 {
    match every {
        Partition::Day => start + DAY,
        Partition::Month => {
            let (year, month, _) = date(start.div_euclid(DAY));
            let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            days(year, month, 1) * DAY
        }
    }
}

fn name_of(start: i64, every: Partition) -> String {
    let (year, month, day) = date(start.div_euclid(DAY));
    match every {
        Partition::Day => format!("p{year:04}{month:02}{day:02}"),
        Partition::Month => format!("p{year:04}{month:02}"),
    }
}

impl Inner {
    async fn maintain_partitions(&self, plan: &PartitionPlan) -> Result<PartitionReport, Error> {
        let name = plan.lock_name.clone().unwrap_or_else(|| self.table.lock_name("outbox:partitions:"));
        check_lock_name(&name)?;
        if plan.retention.is_some_and(|retention| retention.is_zero()) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "retention is zero; leave it out to keep all partitions",
            ));
        }
        // The connection is closed in the end, and all locks with it.
        let session = self.connections.apart(LONGEST, LOCK_TIMEOUT).await;
        let drops = plan.retention.is_some();
        let mut session = session.map_err(|failure| self.partition_error(failure, drops))?;
        let maintained = self.maintain_in(&mut session, plan, &name).await;
        maintained.map_err(|failure| self.partition_error(failure, drops))
    }

    async fn maintain_in(
        &self,
        session: &mut Session,
        plan: &PartitionPlan,
        lock_name: &str,
    ) -> Result<PartitionReport, Failure> {
        let mut report =
            PartitionReport { ours: take_lock(session, lock_name).await?, ..PartitionReport::default() };
        if !report.ours {
            return Ok(report);
        }
        let found = self.partitions(session).await?;
        let missing = found.missing(plan);
        if !missing.is_empty() {
            let split = self.split(session, &found, &missing).await;
            if was_done(split)? {
                report.created = missing.into_iter().map(|(name, _)| name).collect();
            } else {
                report.postponed.push("create".to_owned());
            }
        }
        let old = found.old(plan);
        if !old.is_empty() {
            self.drop_old(session, old, &mut report).await?;
        }
        Ok(report)
    }

    /// Splits the last partition, which holds nothing as long as this is done in time.
    async fn split(
        &self,
        session: &mut Session,
        found: &Found,
        missing: &[(String, i64)],
    ) -> Result<(), Failure> {
        let last = MySqlTable::quote(&found.last);
        let parts = missing
            .iter()
            .map(|(name, end)| format!("PARTITION {} VALUES LESS THAN ({end})", MySqlTable::quote(name)));
        let parts: Vec<_> = parts.chain([format!("PARTITION {last} VALUES LESS THAN MAXVALUE")]).collect();
        let split =
            format!("ALTER TABLE {} REORGANIZE PARTITION {last} INTO ({})", self.table, parts.join(", "));
        session.ask(&split).await.map(|_answers| ())
    }

    /// Drops partitions behind a fence: nobody writes into the table between the look and the drop.
    async fn drop_old(
        &self,
        session: &mut Session,
        old: Vec<String>,
        report: &mut PartitionReport,
    ) -> Result<(), Failure> {
        // A look beforehand, so that producers are not made to wait for nothing.
        report.kept = self.not_over(session, &old).await?;
        if !report.kept.is_empty() {
            return Ok(());
        }
        let locked = session.ask(&format!("LOCK TABLES {} WRITE", self.table)).await;
        if !was_done(locked.map(|_answers| ()))? {
            report.postponed.push("drop".to_owned());
            return Ok(());
        }
        report.kept = self.not_over(session, &old).await?;
        if report.kept.is_empty() {
            let names: Vec<_> = old.iter().map(|name| MySqlTable::quote(name)).collect();
            session.ask(&format!("ALTER TABLE {} DROP PARTITION {}", self.table, names.join(", "))).await?;
            report.dropped = old;
        }
        session.ask("UNLOCK TABLES").await?;
        Ok(())
    }

    /// Those of the partitions that hold something that is neither processed nor dead.
    async fn not_over(&self, session: &mut Session, partitions: &[String]) -> Result<Vec<String>, Failure> {
        let mut kept = Vec::new();
        for name in partitions {
            let partition = Literal::made(MySqlTable::quote(name));
            let sql = self.sql.partition_has_pending.bind(&[("partition", partition)]);
            if first(&session.rows(&sql).await?, "pending")? {
                kept.push(name.clone());
            }
        }
        Ok(kept)
    }

    async fn partitions(&self, session: &mut Session) -> Result<Found, Failure> {
        self.check_table(session).await?;
        let name = [("database", text(&self.database)), ("table", text(&self.table.derived("")))];
        let rows = session.rows(&self.sql.partitions_found.bind(&name)).await?;
        let mut found = Found {
            now: first(&session.rows("SELECT UNIX_TIMESTAMP() AS now").await?, "now")?,
            ..Found::default()
        };
        for row in &rows {
            let column = |name| get::<Option<String>>(row, name);
            let by = (column("method")?.unwrap_or_default(), column("expression")?.unwrap_or_default());
            let expression = by.1.replace(['`', ' '], "").to_ascii_lowercase();
            if by.0 != "RANGE" || expression != "created_ts" || column("subpartitions")?.is_some() {
                let text = format!(
                    "{} is not partitioned by `RANGE (created_ts)` without subpartitions; make one with \
                     `posthaste migrate --partition day` or month",
                    self.table
                );
                return Err(Error::new(ErrorKind::InvalidInput, text).into());
            }
            let name = column("name")?.unwrap_or_default();
            match column("upper")?.unwrap_or_default().parse() {
                Ok(upper) => found.bounded.push((name, upper)),
                Err(_is_maxvalue) => found.last = name,
            }
        }
        if found.last.is_empty() {
            let text = format!(
                "{} has no last partition VALUES LESS THAN MAXVALUE, which new ones are split from; add one",
                self.table
            );
            return Err(Error::new(ErrorKind::InvalidInput, text).into());
        }
        Ok(found)
    }

    fn partition_error(&self, failure: Failure, drops: bool) -> Error {
        let more = if drops { ", DROP and LOCK TABLES" } else { "" };
        failure.into_error(DOING, &format!("SELECT, ALTER, CREATE, INSERT{more} on {}", self.table))
    }
}

/// Checks the name of a lock.
pub(crate) fn check_lock_name(name: &str) -> Result<(), Error> {
    if (1..=64).contains(&name.chars().count()) {
        return Ok(());
    }
    let text = format!("the lock's name has {} characters; it must have 1 to 64", name.chars().count());
    Err(Error::new(ErrorKind::InvalidInput, text))
}

/// Takes a lock that ends with the connection, unless somebody has it.
pub(crate) async fn take_lock(session: &mut Session, name: &str) -> Result<bool, Failure> {
    let lock = format!("SELECT GET_LOCK({}, 0) AS locked", text(name).as_sql());
    Ok(first::<Option<i64>>(&session.rows(&lock).await?, "locked")? == Some(1))
}

/// Whether a change was done; `false`: somebody held the table for too long.
fn was_done(change: Result<(), Failure>) -> Result<bool, Failure> {
    match change {
        Ok(()) => Ok(true),
        Err(failure) if failure.code() == Some(1205) => Ok(false),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2024-02-28 13:00.
    const NOW: i64 = 1_709_125_200;

    fn found(bounded: &[(&str, i64)]) -> Found {
        let bounded = bounded.iter().map(|(name, upper)| ((*name).to_owned(), *upper)).collect();
        Found { bounded, last: "pmax".into(), now: NOW }
    }

    #[test]
    fn partitions_are_made_for_the_days_ahead() {
        let plan = PartitionPlan::new(Partition::Day).lookahead(Duration::from_hours(48));
        let missing = found(&[]).missing(&plan);
        let expected =
            [("p20240228", 1_709_164_800), ("p20240229", 1_709_251_200), ("p20240301", 1_709_337_600)];
        assert_eq!(missing, expected.map(|(name, end)| (name.to_owned(), end)));
        let some = found(&[("p20240227", 1_709_078_400), ("p20240229", 1_709_251_200)]);
        assert_eq!(
            some.missing(&plan),
            [("p20240301".to_owned(), 1_709_337_600)],
            "nothing is split but the last"
        );
        assert_eq!(some.every(), Some(Partition::Month), "two days long");
    }

    #[test]
    fn months_end_where_months_end() {
        let plan = PartitionPlan::new(Partition::Month).lookahead(Duration::from_hours(320 * 24));
        let names: Vec<_> = found(&[]).missing(&plan).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.first().map(String::as_str), Some("p202402"));
        assert_eq!(names.last().map(String::as_str), Some("p202501"));
        assert_eq!(names.len(), 12);
    }

    #[test]
    fn what_ended_before_the_retention_is_old() {
        let plan = PartitionPlan::new(Partition::Day).retention(Some(Duration::from_hours(24)));
        let all = found(&[("a", NOW - 2 * DAY), ("b", NOW - DAY), ("c", NOW - DAY + 1)]);
        assert_eq!(all.old(&plan), ["a", "b"]);
        assert_eq!(all.old(&plan.retention(None)), Vec::<String>::new());
        assert!(check_lock_name("").is_err() && check_lock_name(&"x".repeat(65)).is_err());
        assert!(check_lock_name(&"ü".repeat(64)).is_ok());
    }
}
