//! Deleting settled records, along the primary key and in small steps.

use std::time::Duration;

use posthaste::{Error, Purge, Purged};
use rusqlite::params;

use crate::connection::Connection;
use crate::database::Step;

const PROCESSED: i64 = 1;
const DEAD: i64 = -1;
/// How many rows one step looks at. A thousand take less than a millisecond.
const SCANNED: usize = 10_000;
/// The walk ends at so many rows in succession that are too young to be purged, since those behind them are younger
/// still. It takes more than one, in case a clock was wrong for a while.
const YOUNG_ROWS: usize = 1_000;

/// Which records to purge.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// Those that were settled longer ago than this.
    pub(crate) older_than: Duration,
    /// Dead ones too.
    pub(crate) dead: bool,
    /// The most to delete.
    pub(crate) limit: usize,
}

/// A settled row: its position, and the status it was found in.
type Settled = (i64, i64);

#[derive(Default)]
pub(crate) struct Found {
    pub(crate) rows: Vec<Settled>,
    /// Behind which position to look on; `None`: there is nothing more.
    pub(crate) next: Option<i64>,
}

/// Purges up to a limit. It looks for the rows in reads, which are in nobody's way, and then deletes them in one
/// transaction.
///
/// It begins where the last purge ended, and comes around to there, so that what cannot be purged is not looked at
/// again and again.
pub(crate) async fn purge(connection: &Connection, request: &Purge) -> Result<Purged, Error> {
    let Purge { older_than, include_dead: dead, limit } = *request;
    let start = connection.run(|database| Ok(database.purge_from)).await?;
    let mut rows = Vec::new();
    let mut next = None;
    for (mut from, until) in [(start, i64::MAX), (i64::MIN, start)] {
        while rows.len() < limit {
            let wanted = Wanted { older_than, dead, limit: limit - rows.len() };
            let found = connection
                .run(move |database| {
                    database.read("looking for messages to purge", |step| find(step, from, until, &wanted))
                })
                .await?;
            rows.extend(found.rows);
            next = found.next;
            match next {
                Some(reached) => from = reached,
                None => break,
            }
        }
    }
    connection
        .run(move |database| {
            database.purge_from = next.unwrap_or(i64::MIN);
            if rows.is_empty() {
                return Ok(Purged::default());
            }
            database.write("purging messages", |step| delete(step, &rows, older_than))
        })
        .await
}

/// Looks at a bounded stretch of the table.
pub(crate) fn find(step: &Step<'_>, after: i64, until: i64, wanted: &Wanted) -> rusqlite::Result<Found> {
    let mut found = Found { rows: Vec::new(), next: Some(after) };
    if wanted.limit == 0 || after >= until {
        return Ok(Found::default());
    }
    let settled_before = step.now.minus(wanted.older_than);
    let mut statement = step.prepare(&step.sql.purge_scan)?;
    let mut rows = statement.query(params![after, i64::try_from(SCANNED).unwrap_or(i64::MAX)])?;
    let (mut looked_at, mut young) = (0, 0);
    while let Some(row) = rows.next()? {
        let (seq, status): (i64, i64) = (row.get(0)?, row.get(1)?);
        let (status_at, created_at): (i64, i64) = (row.get(2)?, row.get(3)?);
        looked_at += 1;
        young = if created_at >= settled_before { young + 1 } else { 0 };
        if seq > until || young >= YOUNG_ROWS {
            return Ok(Found { next: None, ..found });
        }
        found.next = Some(seq);
        let is_wanted = status == PROCESSED || status == DEAD && wanted.dead;
        if is_wanted && status_at < settled_before {
            found.rows.push((seq, status));
            if found.rows.len() >= wanted.limit {
                return Ok(found);
            }
        }
    }
    if looked_at < SCANNED {
        found.next = None;
    }
    Ok(found)
}

/// Deletes rows that are still as they were when they were looked at.
pub(crate) fn delete(step: &Step<'_>, rows: &[Settled], older_than: Duration) -> rusqlite::Result<Purged> {
    let mut purged = Purged::default();
    let mut lets_go = false;
    let mut processed = step.prepare(&step.sql.purge_processed)?;
    for (seq, status) in rows {
        let row = params![seq, step.now.minus(older_than)];
        if *status == DEAD {
            let parked = step.first(&step.sql.purge_dead, row, |row| row.get::<_, bool>(0))?;
            purged.dead += u64::from(parked.is_some());
            lets_go |= parked.unwrap_or(false);
        } else {
            purged.processed += processed.execute(row)? as u64;
        }
    }
    if lets_go {
        step.execute(&step.sql.revise, [])?;
    }
    Ok(purged)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::database::{Database, Settings};
    use crate::options::SqliteOptions;
    use crate::schema;
    use crate::sql::Sql;
    use crate::watch::real_now;
    use posthaste::dialect::SqliteTable as TableName;

    #[test]
    fn rows_that_changed_since_they_were_looked_at_stay() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings {
            path: directory.path().join("outbox.db"),
            options: SqliteOptions::default().create(true),
            sql: Arc::new(Sql::new(TableName::new("outbox").unwrap())),
        };
        let mut database = Database::open(Arc::new(settings), real_now()).unwrap();
        schema::migrate(&mut database).unwrap();
        let purged = database.write("testing", |step| {
            let insert = "INSERT INTO outbox (event_type, status, status_at)
                VALUES ('e', 0, 1), ('e', 0, 1), ('e', 1, 1), ('e', -1, 1)";
            step.execute(insert, [])?;
            let found_otherwise = [(1, PROCESSED), (2, DEAD), (3, DEAD), (4, PROCESSED)];
            delete(step, &found_otherwise, Duration::from_secs(1))
        });
        assert_eq!(purged.unwrap(), Purged::default());
    }
}
