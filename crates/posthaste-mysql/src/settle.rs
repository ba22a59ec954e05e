//! Writing down what became of records: two round trips, one for the fence and one for the rest.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::{
    BeginAttempt, Error, Lane, Outcome, RecordRef, RelayId, SettleReport, SettleRequest, Settlement,
};
use uuid::Uuid;

use crate::connection::{Answer, Session, Use, get};
use crate::error::{DEADLOCK, Failure};
use crate::store::{Inner, TRIES};
use crate::value::{Literal, bytes, created_ts, delay, int, lane, list, null, stored_attempts, text, uuid};

const DOING: &str = "settling";
/// The most characters of an error text that are kept.
const MAX_ERROR_CHARS: usize = 1024;
/// How many rows one statement names. MariaDB makes a join of a list of a thousand, and MySQL gives up on an index for lists
/// of many thousands.
const CHUNK: usize = 500;

impl Inner {
    pub(crate) async fn settle(&self, request: &SettleRequest) -> Result<SettleReport, Error> {
        if request.settlements.is_empty() {
            return Ok(SettleReport::default());
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let mut session = self.session(Use::Settle, DOING).await?;
            let settled = self.settle_in(&mut session, request).await;
            match session.done(settled).await {
                Err(failure) if failure.code() == Some(DEADLOCK) && tries < TRIES => {}
                settled => return settled.map_err(|failure| self.error(DOING, failure)),
            }
        }
    }

    async fn settle_in(
        &self,
        session: &mut Session,
        request: &SettleRequest,
    ) -> Result<SettleReport, Failure> {
        let lanes = request.settlements.iter().map(|it| it.record.lane).collect();
        let held = self.fence(session, request.relay, &lanes).await?;
        let mut report = SettleReport::default();
        let mut stale_lanes = BTreeSet::new();
        let mut ours = Vec::with_capacity(request.settlements.len());
        for settlement in &request.settlements {
            if held.get(&settlement.record.lane) == Some(&settlement.record.token) {
                ours.push(settlement);
            } else {
                report.stale += 1;
                stale_lanes.insert(settlement.record.lane);
            }
        }
        report.stale_lanes = stale_lanes.into_iter().collect();
        let fresh = ours.len();
        // The id is part of a position and names the row: a position that names another id is of no record.
        ours.retain(|it| it.record.position.minor == it.record.id.as_uuid().as_u128());
        ours.sort_unstable_by_key(|it| it.record.id);
        let statements = self.statements(&ours, request.delete_processed);
        let answers = session.ask(&format!("{}COMMIT", statements.concat())).await?;
        report.applied = applied(&answers);
        report.gone = fresh.saturating_sub(report.applied);
        Ok(report)
    }

    /// Begins a transaction and locks those lanes that are the relay's. Returns them with their tokens.
    async fn fence(
        &self,
        session: &mut Session,
        relay: RelayId,
        lanes: &BTreeSet<Lane>,
    ) -> Result<BTreeMap<Lane, i64>, Failure> {
        let lanes = list(lanes.iter().map(|lane| int(lane.0)));
        let fence = self.sql.fence.bind(&[("relay", uuid(relay.0)), ("lanes", lanes)]);
        let rows = session.rows_of(&format!("START TRANSACTION;{fence}"), 1).await?;
        rows.iter().map(|row| Ok((lane(get(row, "lane")?), get(row, "token")?))).collect()
    }

    /// The statements that write outcomes, each with its semicolon: what was processed at once, and the rest.
    fn statements(&self, settlements: &[&Settlement], delete_processed: bool) -> Vec<String> {
        let (processed, others): (Vec<_>, Vec<_>) =
            settlements.iter().copied().partition(|it| it.outcome == Outcome::Processed);
        let statement = if delete_processed { &self.sql.settle_delete } else { &self.sql.settle_processed };
        let marks = processed.chunks(CHUNK).map(|chunk| {
            let rows = list(chunk.iter().map(|it| row(*it.record.id.as_uuid())));
            statement.bind(&[("rows", rows)]) + ";"
        });
        let rest =
            others.chunks(CHUNK).map(|chunk| self.sql.settle.bind(&[("outcomes", outcomes(chunk))]) + ";");
        marks.chain(rest).collect()
    }

    pub(crate) async fn begin_attempt(&self, attempt: &BeginAttempt) -> Result<bool, Error> {
        let doing = "noting an attempt";
        let mut session = self.session(Use::Settle, doing).await?;
        let begun = self.begin_attempt_in(&mut session, attempt).await;
        session.done(begun).await.map_err(|failure| self.error(doing, failure))
    }

    async fn begin_attempt_in(&self, session: &mut Session, attempt: &BeginAttempt) -> Result<bool, Failure> {
        let RecordRef { id, position, lane, token } = attempt.record;
        let held = self.fence(session, attempt.relay, &[lane].into()).await?;
        if held.get(&lane) != Some(&token) || position.minor != id.as_uuid().as_u128() {
            session.ask("ROLLBACK").await?;
            return Ok(false);
        }
        let begin = self.sql.begin_attempt.bind(&[
            ("attempts", int(stored_attempts(attempt.attempts))),
            ("id", uuid(*id.as_uuid())),
            ("created_ts", int(created_ts(*id.as_uuid()))),
        ]);
        let answers = session.ask(&format!("{begin};COMMIT")).await?;
        Ok(applied(&answers) == 1)
    }
}

fn applied(answers: &[Answer]) -> usize {
    let changed: u64 = answers.iter().map(|answer| answer.affected).sum();
    usize::try_from(changed).unwrap_or_default()
}

/// A row by its whole primary key.
pub(crate) fn row(id: Uuid) -> Literal {
    Literal::made(format!("({},{})", bytes(id.as_bytes()).as_sql(), created_ts(id)))
}

/// Outcomes as a table: the first row names the columns and gives them their types.
fn outcomes(settlements: &[&Settlement]) -> Literal {
    let mut sql = String::from(
        "SELECT X'00000000000000000000000000000000' AS id, -1 AS created_ts, \
         0 AS kind, 0 AS attempts, 0 AS wait, _utf8mb4'' AS error",
    );
    for settlement in settlements {
        let (kind, attempts, wait, error) = match &settlement.outcome {
            Outcome::Processed => (1, None, 0, None),
            Outcome::Retry { after, attempts, error } => {
                (2, Some(*attempts), delay(*after), Some(cut(error)))
            }
            Outcome::Dead { attempts, error, park: false } => (3, Some(*attempts), 0, Some(cut(error))),
            Outcome::Dead { attempts, error, park: true } => (4, Some(*attempts), 0, Some(cut(error))),
            Outcome::Released { attempts } => (5, Some(*attempts), 0, None),
        };
        let id = *settlement.record.id.as_uuid();
        let values = [
            uuid(id),
            int(created_ts(id)),
            int(kind),
            attempts.map_or_else(null, |attempts| int(stored_attempts(attempts))),
            int(wait),
            error.map_or_else(null, text),
        ];
        sql.push_str(" UNION ALL SELECT ");
        sql.push_str(list(values).as_sql());
    }
    Literal::made(sql)
}

/// The part of an error text that is kept.
fn cut(error: &str) -> &str {
    let end = error.char_indices().nth(MAX_ERROR_CHARS).map_or(error.len(), |(at, _)| at);
    &error[..end]
}
