//! Tidying up: processed records, idempotency keys, the inbox, dead relays, the write-ahead log.

use std::time::Duration;

use posthaste::{Error, UpkeepReport, UpkeepRequest};
use rusqlite::params;

use crate::database::{Database, Step};
use crate::lease;
use crate::purge::{self, Found, Wanted};

/// How long the table remembers a relay whose lease is over.
const REMEMBER_RELAYS: Duration = Duration::from_hours(24);

/// Does a piece of upkeep, if it is this relay's turn.
pub(crate) fn upkeep(database: &mut Database, request: &UpkeepRequest) -> Result<UpkeepReport, Error> {
    let from = database.purge_from;
    let (report, next) = database.write("upkeep", |step| {
        let mut report = UpkeepReport { ours: take_turn(step, request)?, ..UpkeepReport::default() };
        if !report.ours {
            return Ok((report, Some(from)));
        }
        let next = purge_processed(step, request, from, &mut report)?;
        purge_keys(step, request, &mut report)?;
        purge_inbox(step, request, &mut report)?;
        step.execute(&step.sql.purge_relays, [step.now.minus(REMEMBER_RELAYS)])?;
        Ok((report, next))
    })?;
    database.purge_from = next.unwrap_or(i64::MIN);
    if report.ours {
        database.truncate_write_ahead_log();
    }
    Ok(report)
}

/// Takes the upkeep for a time, unless another relay has it.
fn take_turn(step: &Step<'_>, request: &UpkeepRequest) -> rusqlite::Result<bool> {
    step.execute(&step.sql.lane_restore, params![lease::UPKEEP, step.now.millis])?;
    let values = params![request.relay.to_string(), step.now.plus(request.lease), step.now.millis];
    Ok(step.execute(&step.sql.upkeep_lease, values)? > 0)
}

/// Purges from where the last upkeep came to, and says where the next one goes on.
fn purge_processed(
    step: &Step<'_>,
    request: &UpkeepRequest,
    from: i64,
    report: &mut UpkeepReport,
) -> rusqlite::Result<Option<i64>> {
    let Some(older_than) = request.keep_processed else { return Ok(Some(from)) };
    let wanted = Wanted { older_than, dead: false, limit: request.limit };
    let Found { rows, next } = purge::find(step, from, i64::MAX, &wanted)?;
    let purged = purge::delete(step, &rows, older_than)?;
    report.purged = usize::try_from(purged.processed).unwrap_or(usize::MAX);
    // After a stretch without anything to delete, the next one can wait for the next upkeep.
    report.more = next.is_some() && report.purged > 0;
    Ok(next)
}

fn purge_keys(step: &Step<'_>, request: &UpkeepRequest, report: &mut UpkeepReport) -> rusqlite::Result<()> {
    let Some(older_than) = request.keep_keys else { return Ok(()) };
    let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
    report.keys_purged = step.execute(&step.sql.purge_keys, params![limit, step.now.minus(older_than)])?;
    report.more |= report.keys_purged > 0 && report.keys_purged >= request.limit;
    Ok(())
}

fn purge_inbox(step: &Step<'_>, request: &UpkeepRequest, report: &mut UpkeepReport) -> rusqlite::Result<()> {
    let Some(older_than) = request.keep_inbox else { return Ok(()) };
    let limit = i64::try_from(request.limit).unwrap_or(i64::MAX);
    report.inbox_purged = step.execute(&step.sql.purge_inbox, params![limit, step.now.minus(older_than)])?;
    report.more |= report.inbox_purged > 0 && report.inbox_purged >= request.limit;
    Ok(())
}
