//! Writing down what became of records: one statement, one round trip; another one for records that do not lie
//! where they were read.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};

use posthaste::{BeginAttempt, Error, Outcome, RecordRef, SettleReport, SettleRequest, Settlement};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

use crate::connection::{Use, no_row};
use crate::store::Inner;
use crate::value::{count, delay, lane, sequence, stored_attempts};

const DOING: &str = "settling";
/// The most characters of an error text that are kept.
const MAX_ERROR_CHARS: usize = 1024;

impl Inner {
    pub(crate) async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error> {
        if request.settlements.is_empty() {
            return Ok(SettleReport::default());
        }
        let batch = Batch::new(&request.settlements);
        let done = match self.settle_places(request, &batch).await? {
            Found::All => return Ok(SettleReport { applied: batch.ids.len(), ..SettleReport::default() }),
            Found::None => return self.settle_rows(request, &batch).await,
            Found::Only(done) => done,
        };
        let is_left = |settlement: &&Settlement| !done.contains(settlement.record.id.as_uuid());
        let rest = Batch::new(request.settlements.iter().filter(is_left));
        let report = self.settle_rows(request, &rest).await?;
        Ok(SettleReport { applied: report.applied + done.len(), ..report })
    }

    /// Settles records by the places where they were read, if that is known and all were processed.
    async fn settle_places(&self, request: &SettleRequest, batch: &Batch<'_>) -> Result<Found, Error> {
        let places = self.places.take(&batch.positions);
        let Some(places) = places.filter(|_| batch.all_were_processed()) else { return Ok(Found::None) };
        let params: [(&(dyn ToSql + Sync), Type); 5] = [
            (&request.relay.0, Type::UUID),
            (&batch.fence_lanes, Type::INT2_ARRAY),
            (&batch.fence_tokens, Type::INT8_ARRAY),
            (&batch.ids, Type::UUID_ARRAY),
            (&places, Type::TID_ARRAY),
        ];
        let sql = if request.delete_processed { &self.sql.delete_places } else { &self.sql.mark_places };
        let rows = self.run(Use::Settle, DOING, sql, &params).await?;
        let row = rows.first().ok_or_else(|| self.error(DOING, no_row(DOING)))?;
        if count(row.get("applied")) == batch.ids.len() {
            return Ok(Found::All);
        }
        let done: Vec<Uuid> = row.get::<_, Option<_>>("done").unwrap_or_default();
        Ok(if done.is_empty() { Found::None } else { Found::Only(done.into_iter().collect()) })
    }

    /// Settles records by their ids.
    async fn settle_rows(&self, request: &SettleRequest, batch: &Batch<'_>) -> Result<SettleReport, Error> {
        let mut params: Vec<(&(dyn ToSql + Sync), Type)> = vec![
            (&request.relay.0, Type::UUID),
            (&batch.fence_lanes, Type::INT2_ARRAY),
            (&batch.fence_tokens, Type::INT8_ARRAY),
            (&batch.ids, Type::UUID_ARRAY),
            (&batch.positions, Type::INT8_ARRAY),
            (&batch.lanes, Type::INT2_ARRAY),
            (&batch.tokens, Type::INT8_ARRAY),
        ];
        let all_were_processed = batch.all_were_processed();
        let sql = match (request.delete_processed, all_were_processed) {
            (true, _) => &self.sql.settle_delete,
            (false, true) => &self.sql.settle_processed,
            (false, false) => &self.sql.settle,
        };
        if request.delete_processed || !all_were_processed {
            params.push((&batch.outcomes, Type::INT2_ARRAY));
            params.push((&batch.waits, Type::INT8_ARRAY));
            params.push((&batch.attempts, Type::INT4_ARRAY));
            params.push((&batch.errors, Type::TEXT_ARRAY));
        }
        let rows = self.run(Use::Settle, DOING, sql, &params).await?;
        let row = rows.first().ok_or_else(|| self.error(DOING, no_row(DOING)))?;
        let lanes: Vec<i16> = row.get::<_, Option<_>>("lanes").unwrap_or_default();
        let tokens: Vec<i64> = row.get::<_, Option<_>>("tokens").unwrap_or_default();
        let held: BTreeSet<_> = lanes.into_iter().zip(tokens).collect();
        Ok(batch.report(count(row.get("applied")), &held))
    }

    pub(crate) async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error> {
        let RecordRef { id, position, lane, token } = attempt.record;
        let (lane, position) = (stored_lane(lane), sequence(position));
        let attempts = stored_attempts(attempt.attempts);
        let params: [(&(dyn ToSql + Sync), Type); 6] = [
            (&attempt.relay.0, Type::UUID),
            (&lane, Type::INT2),
            (&token, Type::INT8),
            (id.as_uuid(), Type::UUID),
            (&position, Type::INT8),
            (&attempts, Type::INT4),
        ];
        let rows = self.run(Use::Settle, "noting an attempt", &self.sql.begin_attempt, &params).await?;
        Ok(!rows.is_empty())
    }
}

fn stored_lane(lane: posthaste::Lane) -> i16 {
    i16::try_from(lane.0).unwrap_or(i16::MAX)
}

/// Which records of a batch were found where they were read, and so are settled.
enum Found {
    All,
    /// Those with these ids.
    Only(HashSet<Uuid>),
    None,
}

const PROCESSED: i16 = 1;

/// Outcomes as arrays, in order of id.
#[derive(Default)]
struct Batch<'a> {
    fence_lanes: Vec<i16>,
    fence_tokens: Vec<i64>,
    ids: Vec<Uuid>,
    positions: Vec<i64>,
    lanes: Vec<i16>,
    tokens: Vec<i64>,
    outcomes: Vec<i16>,
    waits: Vec<i64>,
    attempts: Vec<i32>,
    errors: Vec<Option<Cow<'a, str>>>,
}

impl<'a> Batch<'a> {
    fn new(settlements: impl IntoIterator<Item = &'a Settlement>) -> Self {
        let mut sorted: Vec<_> = settlements.into_iter().collect();
        sorted.sort_unstable_by_key(|settlement| settlement.record.id);
        let mut batch = Self::default();
        let mut fence = BTreeSet::new();
        for settlement in sorted {
            let record = &settlement.record;
            fence.insert((stored_lane(record.lane), record.token));
            batch.ids.push(*record.id.as_uuid());
            batch.positions.push(sequence(record.position));
            batch.lanes.push(stored_lane(record.lane));
            batch.tokens.push(record.token);
            batch.push_outcome(&settlement.outcome);
        }
        (batch.fence_lanes, batch.fence_tokens) = fence.into_iter().unzip();
        batch
    }

    fn all_were_processed(&self) -> bool {
        self.outcomes.iter().all(|outcome| *outcome == PROCESSED)
    }

    fn push_outcome(&mut self, outcome: &'a Outcome) {
        let (outcome, wait, attempts, error) = match outcome {
            Outcome::Processed => (PROCESSED, 0, 0, None),
            Outcome::Retry { after, attempts, error } => (2, delay(*after), *attempts, Some(cut(error))),
            Outcome::Dead { attempts, error, park: false } => (3, 0, *attempts, Some(cut(error))),
            Outcome::Dead { attempts, error, park: true } => (4, 0, *attempts, Some(cut(error))),
            Outcome::Released { attempts } => (5, 0, *attempts, None),
        };
        self.outcomes.push(outcome);
        self.waits.push(wait);
        self.attempts.push(stored_attempts(attempts));
        self.errors.push(error);
    }

    /// What was written, by which lanes are held by which tokens.
    fn report(&self, applied: usize, held: &BTreeSet<(i16, i64)>) -> SettleReport {
        let stale: Vec<_> = self
            .lanes
            .iter()
            .copied()
            .zip(self.tokens.iter().copied())
            .filter(|at| !held.contains(at))
            .collect();
        let stale_lanes: BTreeSet<_> = stale.iter().map(|(stale, _)| lane(*stale)).collect();
        SettleReport {
            applied,
            stale: stale.len(),
            gone: self.ids.len().saturating_sub(stale.len()).saturating_sub(applied),
            stale_lanes: stale_lanes.into_iter().collect(),
        }
    }
}

/// The part of an error text that is kept. PostgreSQL takes no NUL in a text.
fn cut(error: &str) -> Cow<'_, str> {
    let end = error.char_indices().nth(MAX_ERROR_CHARS).map_or(error.len(), |(at, _)| at);
    let kept = &error[..end];
    if kept.contains('\0') { Cow::Owned(kept.replace('\0', "\u{FFFD}")) } else { Cow::Borrowed(kept) }
}
