//! Writing down what became of records, in one round trip: nothing stays locked while this process does something else, or
//! nothing at all.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::{
    BeginAttempt, Error, ErrorKind, Lane, Outcome, RecordRef, RelayId, SettleReport, SettleRequest,
    Settlement,
};
use uuid::Uuid;

use crate::connection::{Answer, Session, Use, get};
use crate::error::{DEADLOCK, Failure, OUT_OF_RANGE};
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
        let mut report = SettleReport::default();
        let mut ours: Vec<_> = request.settlements.iter().collect();
        ours.sort_unstable_by_key(|it| it.record.id);
        let mut tries = 0;
        // It is done again after a deadlock, and without the outcomes of lanes that are not ours.
        while !ours.is_empty() {
            tries += 1;
            let mut session = self.session(Use::Settle, DOING).await?;
            let settled = self.settle_in(&mut session, request, &mut report, &mut ours).await;
            match session.done(settled).await {
                Ok(true) => break,
                Ok(false) if tries < 2 * TRIES => {}
                Ok(false) => {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        "settling: the lanes keep changing hands",
                    ));
                }
                Err(failure) if failure.code() == Some(DEADLOCK) && tries < TRIES => {}
                Err(failure) => return Err(self.error(DOING, failure)),
            }
        }
        let ours: BTreeSet<_> = ours.iter().map(|it| it.record.lane).collect();
        let stale = || request.settlements.iter().filter(|it| !ours.contains(&it.record.lane));
        report.stale = request.settlements.len() - report.applied - report.gone;
        report.stale_lanes = stale().map(|it| it.record.lane).collect::<BTreeSet<_>>().into_iter().collect();
        Ok(report)
    }

    async fn settle_in(
        &self,
        session: &mut Session,
        request: &SettleRequest,
        report: &mut SettleReport,
        ours: &mut Vec<&Settlement>,
    ) -> Result<bool, Failure> {
        // The id is part of a position and names the row: a position that names another id is of no record.
        let is_record = |it: &&&Settlement| it.record.position.minor == it.record.id.as_uuid().as_u128();
        let settlements: Vec<_> = ours.iter().filter(is_record).copied().collect();
        let statements = self.statements(&settlements, request.delete_processed);
        let lanes = ours.iter().map(|it| (it.record.lane, it.record.token)).collect();
        if let Some(applied) = self.fenced(session, request.relay, &lanes, &statements).await? {
            report.applied = applied;
            report.gone = ours.len().saturating_sub(applied);
            return Ok(true);
        }
        let held = self.held(session, request.relay, &lanes).await?;
        ours.retain(|it| held.get(&it.record.lane) == Some(&it.record.token));
        Ok(false)
    }

    /// Runs statements in one transaction and one round trip, if the relay holds all these lanes under these tokens. Returns
    /// how many rows they found; nothing was done where one lane is not the relay's.
    async fn fenced(
        &self,
        session: &mut Session,
        relay: RelayId,
        lanes: &BTreeSet<(Lane, i64)>,
        statements: &[String],
    ) -> Result<Option<usize>, Failure> {
        let pair = |(lane, token): &(Lane, i64)| Literal::made(format!("({},{token})", lane.0));
        let fence = self.sql.fence.bind(&[
            ("relay", uuid(relay.0)),
            ("lanes", list(lanes.iter().map(|(lane, _)| int(lane.0)))),
            ("held", list(lanes.iter().map(pair))),
            ("count", int(lanes.len() as u64)),
        ]);
        let statements = statements.concat();
        match session.ask(&format!("START TRANSACTION;{fence};{statements}COMMIT")).await {
            Ok(answers) => Ok(Some(applied(&answers))),
            Err(failure) if failure.code() == Some(OUT_OF_RANGE) => {
                session.ask("ROLLBACK").await?;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Which of these lanes are the relay's now, with their tokens. Locks nothing.
    async fn held(
        &self,
        session: &mut Session,
        relay: RelayId,
        lanes: &BTreeSet<(Lane, i64)>,
    ) -> Result<BTreeMap<Lane, i64>, Failure> {
        let lanes = list(lanes.iter().map(|(lane, _)| int(lane.0)));
        let rows = session.rows(&self.sql.held.bind(&[("relay", uuid(relay.0)), ("lanes", lanes)])).await?;
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
        if position.minor != id.as_uuid().as_u128() {
            return Ok(false);
        }
        let begin = self.sql.begin_attempt.bind(&[
            ("attempts", int(stored_attempts(attempt.attempts))),
            ("id", uuid(*id.as_uuid())),
            ("created_ts", int(created_ts(*id.as_uuid()))),
        ]);
        let done = self.fenced(session, attempt.relay, &[(lane, token)].into(), &[begin + ";"]).await?;
        Ok(done == Some(1))
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
