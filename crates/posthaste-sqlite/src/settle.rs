//! Writing down what became of records.

use std::collections::HashMap;

use posthaste::{
    BeginAttempt, Error, Lane, Outcome, RecordRef, RelayId, SettleReport, SettleRequest, Settlement,
};
use rusqlite::params;
use uuid::fmt::Hyphenated;

use crate::database::{Database, Statement, Step};
use crate::lease;

const MAX_ERROR_CHARS: usize = 1024;

/// Settles records in one transaction, each lane under its token.
pub(crate) fn settle(database: &mut Database, request: &SettleRequest) -> Result<SettleReport, Error> {
    let mut in_order: Vec<_> = request.settlements.iter().collect();
    in_order.sort_unstable_by_key(|settlement| settlement.record.position);
    database.write("settling messages", |step| {
        let mut settler = Settler::new(step, request)?;
        let mut report = SettleReport::default();
        for settlement in &in_order {
            let record = &settlement.record;
            if !settler.fence.is_held(step, record)? {
                report.stale += 1;
                report.stale_lanes.push(record.lane);
            } else if settler.settle(settlement)? {
                report.applied += 1;
            } else {
                report.gone += 1;
            }
        }
        report.stale_lanes.sort_unstable();
        report.stale_lanes.dedup();
        Ok(report)
    })
}

/// Writes down that an attempt begins.
pub(crate) fn begin_attempt(database: &mut Database, attempt: &BeginAttempt) -> Result<bool, Error> {
    database.write("beginning an attempt", |step| {
        if !Fence::new(attempt.relay).is_held(step, &attempt.record)? {
            return Ok(false);
        }
        let mut buffer = [0; Hyphenated::LENGTH];
        let id = id_text(&attempt.record, &mut buffer);
        let seq = attempt.record.position.major;
        Ok(step.execute(&step.sql.settle_attempts, params![seq, id, attempt.attempts])? > 0)
    })
}

/// Asks once for each lane and token.
struct Fence {
    relay: String,
    known: HashMap<(Lane, i64), bool>,
}

impl Fence {
    fn new(relay: RelayId) -> Self {
        Self { relay: relay.to_string(), known: HashMap::new() }
    }

    fn is_held(&mut self, step: &Step<'_>, record: &RecordRef) -> rusqlite::Result<bool> {
        let lease = (record.lane, record.token);
        if let Some(is_held) = self.known.get(&lease) {
            return Ok(*is_held);
        }
        let is_held = lease::is_held(step, &self.relay, record.lane, record.token)?;
        self.known.insert(lease, is_held);
        Ok(is_held)
    }
}

struct Settler<'s> {
    step: &'s Step<'s>,
    fence: Fence,
    /// For most records: processed, and never held back.
    processed: Statement<'s>,
    deletes: bool,
}

impl<'s> Settler<'s> {
    fn new(step: &'s Step<'s>, request: &SettleRequest) -> rusqlite::Result<Self> {
        let deletes = request.delete_processed;
        let sql = if deletes { &step.sql.settle_delete } else { &step.sql.settle_processed };
        Ok(Self { step, fence: Fence::new(request.relay), processed: step.prepare(sql)?, deletes })
    }

    /// Writes one outcome. `false`: there is no such pending record.
    fn settle(&mut self, settlement: &Settlement) -> rusqlite::Result<bool> {
        let Step { sql, now, .. } = self.step;
        let mut buffer = [0; Hyphenated::LENGTH];
        let id = id_text(&settlement.record, &mut buffer);
        let seq = settlement.record.position.major;
        let changed = match &settlement.outcome {
            Outcome::Processed if self.deletes => self.processed.execute(params![seq, id])?,
            Outcome::Processed => match self.processed.execute(params![seq, id, now.millis])? {
                0 => self.step.execute(&sql.settle_processed_held, params![seq, id, now.millis])?,
                changed => changed,
            },
            Outcome::Retry { after, attempts, error } => {
                let values = params![seq, id, attempts, cut(error), now.plus(*after)];
                self.step.execute(&sql.settle_retry, values)?
            }
            Outcome::Dead { attempts, error, park } => {
                let parked = park.then_some(now.millis);
                let values = params![seq, id, now.millis, attempts, cut(error), parked];
                self.step.execute(&sql.settle_dead, values)?
            }
            Outcome::Released { attempts } => {
                self.step.execute(&sql.settle_attempts, params![seq, id, attempts])?
            }
        };
        Ok(changed > 0)
    }
}

fn id_text<'b>(record: &RecordRef, buffer: &'b mut [u8; Hyphenated::LENGTH]) -> &'b str {
    record.id.as_uuid().hyphenated().encode_lower(buffer)
}

/// The first characters of an error.
fn cut(error: &str) -> &str {
    error.char_indices().nth(MAX_ERROR_CHARS).map_or(error, |(end, _)| &error[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"ü".repeat(1024)).chars().count(), 1024);
        assert_eq!(cut(&"ü".repeat(1025)), "ü".repeat(1024));
    }
}
