//! Figures about the outbox.

use posthaste::{Count, Error, RelayInfo, Stats};
use rusqlite::{Rows, params};

use crate::database::{Database, Step};
use crate::read::Blocks;

/// Counts in one snapshot, at most `cap` rows of each kind.
pub(crate) fn stats(database: &mut Database, cap: Option<u64>) -> Result<Stats, Error> {
    let cap = cap.unwrap_or(u64::MAX);
    database.read("counting messages", |step| {
        let mut blocks = Blocks::new(step)?;
        let fresh =
            if blocks.is_empty() { fresh_unblocked(step, cap)? } else { fresh(step, cap, &mut blocks)? };
        let held = held_back(step, cap, &mut blocks)?;
        let relays = relays(step)?;
        // Rows that were not looked at may be blocked, and so may be waiting.
        let unseen = held.capped || (fresh.capped && !blocks.is_empty());
        let oldest = [fresh.oldest, held.oldest].into_iter().flatten().min();
        Ok(Stats {
            ready: count(fresh.ready + held.ready, fresh.capped || held.capped, cap),
            waiting: count(fresh.blocked + held.blocked + held.not_due, unseen, cap),
            blocked: count(fresh.blocked + held.blocked_all(), unseen, cap),
            dead: dead(step, cap)?,
            oldest_ready_age: oldest.map(|since| step.now.since(since)),
            lanes_total: 1,
            lanes_leased: relays
                .iter()
                .filter(|relay| relay.lease_left.is_some())
                .map(|relay| relay.lanes)
                .sum(),
            relays,
        })
    })
}

/// What a walk through pending rows found.
#[derive(Default)]
struct Walk {
    ready: u64,
    /// Due, but behind an earlier row of the key.
    blocked: u64,
    not_due: u64,
    /// Not due, and behind an earlier row of the key as well.
    not_due_and_blocked: u64,
    /// Since when the row that was ready first is ready.
    oldest: Option<i64>,
    capped: bool,
}

impl Walk {
    fn blocked_all(&self) -> u64 {
        self.blocked + self.not_due_and_blocked
    }
}

/// The rows that were never held back, where nothing can be blocked: counted in the index alone.
fn fresh_unblocked(step: &Step<'_>, cap: u64) -> rusqlite::Result<Walk> {
    let counted = capped_count(step, &step.sql.count_ready, cap)?;
    let oldest = step.first(&step.sql.first_ready, [], |row| row.get(0))?;
    Ok(Walk { ready: counted.count, capped: counted.capped, oldest, ..Walk::default() })
}

fn fresh(step: &Step<'_>, cap: u64, blocks: &mut Blocks<'_>) -> rusqlite::Result<Walk> {
    let mut statement = step.prepare(&step.sql.walk_ready)?;
    walk(statement.query([])?, cap, blocks, i64::MAX)
}

fn held_back(step: &Step<'_>, cap: u64, blocks: &mut Blocks<'_>) -> rusqlite::Result<Walk> {
    let mut statement = step.prepare(&step.sql.walk_waiting)?;
    walk(statement.query([])?, cap, blocks, step.now.millis)
}

/// Walks rows of position, key, and the time since which they are ready.
fn walk(mut rows: Rows<'_>, cap: u64, blocks: &mut Blocks<'_>, now: i64) -> rusqlite::Result<Walk> {
    let mut walk = Walk::default();
    let mut looked_at = 0;
    while let Some(row) = rows.next()? {
        if looked_at == cap {
            walk.capped = true;
            break;
        }
        looked_at += 1;
        let since: i64 = row.get(3)?;
        match (since <= now, blocks.holds_up(row)?) {
            (true, false) => {
                walk.ready += 1;
                walk.oldest = Some(walk.oldest.map_or(since, |oldest| oldest.min(since)));
            }
            (true, true) => walk.blocked += 1,
            (false, is_blocked) => {
                walk.not_due += 1;
                walk.not_due_and_blocked += u64::from(is_blocked);
            }
        }
    }
    Ok(walk)
}

fn dead(step: &Step<'_>, cap: u64) -> rusqlite::Result<Count> {
    capped_count(step, &step.sql.count_dead, cap)
}

/// Runs a statement that counts up to a limit, with a limit of one more than the cap.
fn capped_count(step: &Step<'_>, sql: &str, cap: u64) -> rusqlite::Result<Count> {
    let limit = i64::try_from(cap.saturating_add(1)).unwrap_or(i64::MAX);
    let counted = step.prepare(sql)?.query_row(params![limit], |row| row.get::<_, i64>(0))?;
    let counted = u64::try_from(counted).unwrap_or(0);
    Ok(count(counted, false, cap))
}

fn count(counted: u64, capped: bool, cap: u64) -> Count {
    Count { count: counted.min(cap), capped: capped || counted > cap }
}

fn relays(step: &Step<'_>) -> rusqlite::Result<Vec<RelayInfo>> {
    let mut statement = step.prepare(&step.sql.relays)?;
    let relays = statement.query_map([], |row| {
        Ok(RelayInfo {
            id: row.get(0)?,
            name: row.get(1)?,
            lanes: row.get::<_, i64>(3)?.try_into().unwrap_or(0),
            lease_left: step.now.until(row.get(2)?),
        })
    })?;
    relays.collect()
}
