//! Showing messages to operators.

use posthaste::{Error, Glob, ListFilter, MessageDetails, MessageId, MessageInfo, State};
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::database::{Database, Statement, Step};
use crate::lease::LANE;
use crate::read::{attempts, bytes, message_id, optional_text, text};
use crate::{headers, time};

/// Lists messages, oldest first.
pub(crate) fn list(database: &mut Database, filter: &ListFilter) -> Result<Vec<MessageInfo>, Error> {
    database.read("listing messages", |step| {
        let sql = match filter.state {
            None => &step.sql.list_all,
            Some(State::Ready | State::Waiting) => &step.sql.list_pending,
            Some(State::Dead) => &step.sql.list_dead,
            Some(State::Processed) => &step.sql.list_processed,
        };
        let mut viewer = Viewer::new(step)?;
        let mut statement = step.prepare(sql)?;
        let mut rows = statement.query([i64::MIN])?;
        let mut found = Vec::new();
        while found.len() < filter.limit
            && let Some(row) = rows.next()?
        {
            let Some(info) = viewer.info(row.get(0)?, filter.event_type.as_ref())? else { continue };
            if filter.state.is_none_or(|state| state == info.state) {
                found.push(info);
            }
        }
        Ok(found)
    })
}

/// Shows one message whole.
pub(crate) fn show(database: &mut Database, id: MessageId) -> Result<Option<MessageDetails>, Error> {
    database.read("showing a message", |step| {
        let Some(seq) = step.first(&step.sql.by_id, [id.to_string()], |row| row.get::<_, i64>(0))? else {
            return Ok(None);
        };
        let mut viewer = Viewer::new(step)?;
        let Some(info) = viewer.info(seq, None)? else { return Ok(None) };
        let blocked_by = match info.state {
            State::Ready | State::Waiting => viewer.earlier(seq, &info.aggregate_type, &info.aggregate_id)?,
            State::Dead | State::Processed => None,
        };
        step.first(&step.sql.details, [seq], |row| {
            Ok(MessageDetails {
                info,
                lane: LANE,
                content_type: optional_text(row.get_ref(0)?),
                headers: headers::parse(row.get_ref(1)?),
                idempotency_key: optional_text(row.get_ref(2)?),
                payload: bytes(row.get_ref(3)?).map(bytes::Bytes::copy_from_slice),
                blocked_by,
            })
        })
    })
}

/// Looks at rows one by one.
struct Viewer<'s> {
    now: i64,
    info: Statement<'s>,
    earlier: Statement<'s>,
}

impl<'s> Viewer<'s> {
    fn new(step: &Step<'s>) -> rusqlite::Result<Self> {
        Ok(Self {
            now: step.now.millis,
            info: step.prepare(&step.sql.info)?,
            earlier: step.prepare(&step.sql.held_before)?,
        })
    }

    /// The row at a position, if its event type matches.
    fn info(&mut self, seq: i64, event_type: Option<&Glob>) -> rusqlite::Result<Option<MessageInfo>> {
        let mut rows = self.info.query([seq])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let is_wanted = match event_type {
            Some(glob) => glob.matches(&text(row.get_ref(3)?)),
            None => true,
        };
        if !is_wanted {
            return Ok(None);
        }
        let Some(mut info) = info(row)? else { return Ok(None) };
        let (status, status_at): (i64, i64) = (row.get(2)?, row.get(9)?);
        drop(rows);
        info.state = match status {
            0 => {
                let is_due = info.next_attempt_at.is_none_or(|at| at <= time::from_millis(self.now));
                let waits = !is_due || self.earlier(seq, &info.aggregate_type, &info.aggregate_id)?.is_some();
                if waits { State::Waiting } else { State::Ready }
            }
            1 => State::Processed,
            _ => State::Dead,
        };
        if status != 0 {
            info.next_attempt_at = None;
            info.settled_at = Some(time::from_millis(status_at));
        }
        Ok(Some(info))
    }

    /// The first message of a key that holds up those behind it, if it stands before a position.
    fn earlier(
        &mut self,
        seq: i64,
        aggregate_type: &str,
        aggregate_id: &str,
    ) -> rusqlite::Result<Option<MessageId>> {
        if aggregate_id.is_empty() {
            return Ok(None);
        }
        let mut rows = self.earlier.query((aggregate_type, aggregate_id, seq))?;
        Ok(rows.next()?.map(|row| row.get_ref(1).map(message_id)).transpose()?.flatten())
    }
}

/// A row as it is stored. The state is to be judged by the caller.
fn info(row: &Row<'_>) -> rusqlite::Result<Option<MessageInfo>> {
    let Some(id) = message_id(row.get_ref(1)?) else { return Ok(None) };
    let waits_until = row.get_ref(8)?;
    Ok(Some(MessageInfo {
        id,
        state: State::Ready,
        event_type: text(row.get_ref(3)?).into_owned(),
        aggregate_type: text(row.get_ref(4)?).into_owned(),
        aggregate_id: text(row.get_ref(5)?).into_owned(),
        attempts: attempts(row.get(6)?),
        enqueued_at: time::from_millis(row.get(7)?),
        next_attempt_at: match waits_until {
            ValueRef::Integer(millis) => Some(time::from_millis(millis)),
            _ => None,
        },
        settled_at: None,
        last_error: optional_text(row.get_ref(10)?),
    }))
}
