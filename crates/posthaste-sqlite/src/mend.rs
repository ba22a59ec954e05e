//! What operators do about dead messages.

use posthaste::{DeadSelection, Error, Glob, MessageId, Mode};
use rusqlite::params;

use crate::connection::Connection;
use crate::database::{Database, Step};
use crate::read::text;

const DEAD: i64 = -1;
/// The most rows to touch in one transaction; more are touched in several.
const BATCH: u64 = 10_000;

/// What to do with dead messages.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mending {
    Redrive,
    Discard,
}

/// Redrives or discards dead messages, oldest first.
pub(crate) async fn mend(
    connection: &Connection,
    mending: Mending,
    selection: &DeadSelection,
    mode: Mode,
) -> Result<u64, Error> {
    let Mode::UpTo(limit) = mode else {
        let selection = selection.clone();
        return connection.run(move |database| count(database, &selection)).await;
    };
    let (mut done, mut after) = (0, i64::MIN);
    while done < limit {
        let most = (limit - done).min(BATCH);
        let selection = selection.clone();
        let touched =
            connection.run(move |database| mend_some(database, mending, &selection, after, most)).await?;
        done += touched.len() as u64;
        match touched.last() {
            Some(last) if touched.len() as u64 == most => after = *last,
            _ => break,
        }
    }
    Ok(done)
}

fn count(database: &mut Database, selection: &DeadSelection) -> Result<u64, Error> {
    database.read("counting dead messages", |step| {
        find(step, selection, i64::MIN, u64::MAX).map(|found| found.len() as u64)
    })
}

/// Mends the first of the selected messages behind a position, in one transaction, and says which.
fn mend_some(
    database: &mut Database,
    mending: Mending,
    selection: &DeadSelection,
    after: i64,
    most: u64,
) -> Result<Vec<i64>, Error> {
    database.write("mending dead messages", |step| {
        let found = find(step, selection, after, most)?;
        let mut lets_go = false;
        for seq in &found {
            lets_go |= match mending {
                Mending::Redrive => redrive(step, *seq)?,
                Mending::Discard => discard(step, *seq)?,
            };
        }
        if lets_go {
            step.execute(&step.sql.revise, [])?;
        }
        Ok(found)
    })
}

/// Redrives a row. It stands behind where the relay is, so the relay has to read from the start again.
fn redrive(step: &Step<'_>, seq: i64) -> rusqlite::Result<bool> {
    Ok(step.execute(&step.sql.redrive, params![seq, step.now.millis])? > 0)
}

/// Discards a row, and says whether it parked its key.
fn discard(step: &Step<'_>, seq: i64) -> rusqlite::Result<bool> {
    Ok(step.first(&step.sql.discard, [seq], |row| row.get(0))?.unwrap_or(false))
}

/// The positions of the selected dead messages behind a position, oldest first.
fn find(step: &Step<'_>, selection: &DeadSelection, after: i64, limit: u64) -> rusqlite::Result<Vec<i64>> {
    match selection {
        DeadSelection::Ids(ids) => by_id(step, ids, after, limit),
        DeadSelection::EventType(glob) => walk(step, Some(glob), after, limit),
        DeadSelection::All => walk(step, None, after, limit),
    }
}

fn by_id(step: &Step<'_>, ids: &[MessageId], after: i64, limit: u64) -> rusqlite::Result<Vec<i64>> {
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let row = step.first(&step.sql.by_id, [id.to_string()], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?;
        found.extend(row.filter(|(seq, status)| *seq > after && *status == DEAD).map(|(seq, _)| seq));
    }
    found.sort_unstable();
    found.dedup();
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(found)
}

fn walk(step: &Step<'_>, glob: Option<&Glob>, after: i64, limit: u64) -> rusqlite::Result<Vec<i64>> {
    let mut statement = step.prepare(&step.sql.list_dead)?;
    let mut event_type = step.prepare(&step.sql.dead_event_type)?;
    let mut rows = statement.query([after])?;
    let mut found = Vec::new();
    while (found.len() as u64) < limit
        && let Some(row) = rows.next()?
    {
        let seq = row.get(0)?;
        let is_wanted = match glob {
            Some(glob) => event_type.query_row([seq], |row| Ok(glob.matches(&text(row.get_ref(0)?))))?,
            None => true,
        };
        if is_wanted {
            found.push(seq);
        }
    }
    Ok(found)
}
