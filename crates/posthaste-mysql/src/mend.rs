//! Redriving and discarding dead messages, in bounded steps.

use std::collections::BTreeSet;
use std::time::Duration;

use mysql_async::Row;
use posthaste::{DeadSelection, Error, Glob, Lane, MessageId, Mode};
use uuid::Uuid;

use crate::connection::{Session, Use, get, get_uuid};
use crate::error::{DEADLOCK, Failure};
use crate::settle::row;
use crate::store::{Inner, TRIES};
use crate::value::{Literal, int, lane, limit, list, micros, uuid};

/// How many rows a page of a walk has, and so how many are mended in one transaction.
const PAGE: usize = 500;

/// A dead row that may be mended.
struct Dead {
    id: Uuid,
    lane: Lane,
    event_type: String,
}

/// What is done with dead rows.
#[derive(Clone, Copy)]
pub(crate) enum Mend {
    Redrive,
    Discard,
}

impl Inner {
    /// Walks the dead rows of a selection, oldest first, and redrives or discards them in bounded steps.
    pub(crate) async fn mend(
        &self,
        doing: &str,
        selection: &DeadSelection,
        mode: Mode,
        mend: Mend,
    ) -> Result<u64, Error> {
        let glob = match selection {
            DeadSelection::EventType(glob) => Some(glob),
            DeadSelection::Ids(_) | DeadSelection::All => None,
        };
        let condition = match selection {
            DeadSelection::Ids(ids) => among(ids),
            DeadSelection::EventType(_) | DeadSelection::All => everything(),
        };
        self.walk_dead(doing, &condition, glob, mode, mend).await
    }

    /// Deletes dead rows that were given up longer ago than an age.
    pub(crate) async fn purge_dead(&self, older_than: Duration, most: usize) -> Result<u64, Error> {
        let age = micros(older_than);
        let condition = Literal::made(format!(
            "COALESCE(t.processed_at, t.updated_at) < NOW(6) - INTERVAL {age} MICROSECOND"
        ));
        self.walk_dead("purging", &condition, None, Mode::UpTo(most as u64), Mend::Discard).await
    }

    async fn walk_dead(
        &self,
        doing: &str,
        condition: &Literal,
        glob: Option<&Glob>,
        mode: Mode,
        mend: Mend,
    ) -> Result<u64, Error> {
        let (mut mended, mut after) = (0, Uuid::nil());
        let most = match mode {
            Mode::DryRun => u64::MAX,
            Mode::UpTo(most) => most,
        };
        while mended < most {
            let (mut dead, last) = self.dead_page(doing, after, condition, glob).await?;
            let left = usize::try_from(most - mended).unwrap_or(usize::MAX);
            let cut = dead.len() > left;
            dead.truncate(left);
            mended += match mode {
                Mode::DryRun => dead.len() as u64,
                Mode::UpTo(_) => self.mend_page(doing, &dead, condition, mend).await?,
            };
            let Some(last) = last.filter(|_| !cut) else {
                // Somebody else may have mended some of the page: go on behind it.
                match dead.last().filter(|_| cut && mended < most) {
                    Some(dead) => after = dead.id,
                    None => break,
                }
                continue;
            };
            after = last;
        }
        Ok(mended)
    }

    /// A page of dead rows that match, and the last one looked at unless there are no more.
    async fn dead_page(
        &self,
        doing: &str,
        after: Uuid,
        condition: &Literal,
        glob: Option<&Glob>,
    ) -> Result<(Vec<Dead>, Option<Uuid>), Error> {
        let values = [("after", uuid(after)), ("condition", condition.clone()), ("most", limit(PAGE))];
        let rows = self.run(Use::Other, doing, &self.sql.dead.bind(&values)).await?;
        let dead = |row: &Row| {
            Ok::<_, Failure>(Dead {
                id: get_uuid(row, "id")?,
                lane: lane(get(row, "lane")?),
                event_type: get(row, "event_type")?,
            })
        };
        let dead = rows.iter().map(dead).collect::<Result<Vec<_>, _>>();
        let mut dead = dead.map_err(|failure| self.error(doing, failure))?;
        let last = dead.last().map(|dead| dead.id).filter(|_| rows.len() == PAGE);
        dead.retain(|dead| glob.is_none_or(|glob| glob.matches(&dead.event_type)));
        Ok((dead, last))
    }

    async fn mend_page(
        &self,
        doing: &str,
        dead: &[Dead],
        condition: &Literal,
        mend: Mend,
    ) -> Result<u64, Error> {
        if dead.is_empty() {
            return Ok(0);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let mut session = self.session(Use::Other, doing).await?;
            let mended = self.mend_in(&mut session, dead, condition, mend).await;
            match session.done(mended).await {
                Err(failure) if failure.code() == Some(DEADLOCK) && tries < TRIES => {}
                mended => {
                    self.waker.wake();
                    return mended.map_err(|failure| self.error(doing, failure));
                }
            }
        }
    }

    /// Locks the lanes, then the rows, as a settle does, and mends what is still dead.
    async fn mend_in(
        &self,
        session: &mut Session,
        dead: &[Dead],
        condition: &Literal,
        mend: Mend,
    ) -> Result<u64, Failure> {
        let lanes: BTreeSet<_> = dead.iter().map(|dead| dead.lane).collect();
        let lock_lanes = self.sql.mend_lock_lanes.bind(&[("lanes", stored(&lanes))]);
        let rows = list(dead.iter().map(|dead| row(dead.id)));
        let values = [("rows", rows), ("condition", condition.clone())];
        let lock_rows = self.sql.mend_lock_rows.bind(&values);
        let locked = session.rows_of(&format!("START TRANSACTION;{lock_lanes};{lock_rows}"), 2).await?;
        let (mut ids, mut revised) = (Vec::new(), BTreeSet::new());
        for locked in &locked {
            ids.push(get_uuid(locked, "id")?);
            // A redrive always moves a lane's revision on, a discard where a key goes on.
            if matches!(mend, Mend::Redrive) || get::<bool>(locked, "parks")? {
                revised.insert(lane(get(locked, "lane")?));
            }
        }
        if ids.is_empty() {
            session.ask("COMMIT").await?;
            return Ok(0);
        }
        let rows = [("rows", list(ids.iter().map(|id| row(*id))))];
        let change = match mend {
            Mend::Redrive => self.sql.redrive.bind(&rows),
            Mend::Discard => self.sql.discard.bind(&rows),
        };
        let revise = self.sql.mend_revise.bind(&[("lanes", stored(&revised))]);
        let answers = session.ask(&format!("{change};{revise};COMMIT")).await?;
        Ok(answers.first().map_or(0, |answer| answer.affected))
    }
}

fn stored(lanes: &BTreeSet<Lane>) -> Literal {
    list(lanes.iter().map(|lane| int(lane.0)))
}

fn everything() -> Literal {
    Literal::made("TRUE".to_owned())
}

fn among(ids: &[MessageId]) -> Literal {
    Literal::made(format!("t.id IN ({})", list(ids.iter().map(|id| uuid(*id.as_uuid()))).as_sql()))
}
