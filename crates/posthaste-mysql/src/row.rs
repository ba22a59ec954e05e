//! Rows that a read brought, as the page takes them.

use bytes::Bytes;
use mysql_async::Row;
use mysql_async::prelude::FromValue;
use posthaste::{Error, Key, MessageId, Record};
use uuid::Uuid;

use crate::error::Failure;
use crate::page::{Looked, Place, Read};
use crate::value::{attempts, headers_from_json, lane, position, system_time};

/// A row of page.sql.
pub(crate) fn to_place(mut row: Row) -> Result<Place, Failure> {
    let scan: usize = take(&mut row, 0)?;
    let (created, id): (i64, Vec<u8>) = (take(&mut row, 1)?, take(&mut row, 2)?);
    let id = to_uuid(&id)?;
    let is_in_hand = matches!(row.as_ref(3), None | Some(mysql_async::Value::NULL));
    let read = if is_in_hand { None } else { Some(to_read(row, created, id)?) };
    Ok(Place { scan, position: position(created, id), read })
}

/// A row of due.sql, with how many rows were looked at for it.
pub(crate) fn to_due(mut row: Row) -> Result<Looked, Failure> {
    let looked_at: usize = take(&mut row, 0)?;
    let (created, id): (i64, Vec<u8>) = (take(&mut row, 1)?, take(&mut row, 2)?);
    Ok(Looked { looked_at, read: to_read(row, created, to_uuid(&id)?)? })
}

fn to_uuid(id: &[u8]) -> Result<Uuid, Failure> {
    Uuid::from_slice(id).map_err(|_| unreadable(2))
}

/// The columns of record.sql and what is behind them, by their places.
fn to_read(mut row: Row, created: i64, id: Uuid) -> Result<Read, Failure> {
    let status: i64 = take(&mut row, 3)?;
    let since: Option<i64> = take(&mut row, 5)?;
    let is_due: bool = take(&mut row, 6)?;
    let (event_type, aggregate_type, aggregate_id): (String, String, String) =
        (take(&mut row, 7)?, take(&mut row, 8)?, take(&mut row, 9)?);
    let headers: Option<Vec<u8>> = take(&mut row, 11)?;
    let tombstone: bool = take(&mut row, 14)?;
    let bytes: Option<usize> = take(&mut row, 15)?;
    let payload: Option<Vec<u8>> = take(&mut row, 16)?;
    let blocker: Option<Vec<u8>> = take(&mut row, 17)?;
    let record = Record {
        id: MessageId::from_stored(id),
        lane: lane(take(&mut row, 4)?),
        position: position(created, id),
        event_type,
        aggregate: Key::new(&aggregate_type, &aggregate_id),
        payload: payload.filter(|_| !tombstone).map(Bytes::from),
        content_type: take(&mut row, 10)?,
        headers: headers_from_json(headers.as_deref()),
        idempotency_key: take(&mut row, 12)?,
        attempts: attempts(take(&mut row, 13)?),
        enqueued_at: system_time(created),
        held_back: false,
    };
    Ok(Read {
        bytes: if tombstone { 0 } else { bytes.unwrap_or_default() },
        deferred: !tombstone && record.payload.is_none(),
        is_blocked: blocker.is_some(),
        due: is_due && status == 0,
        since: since.unwrap_or_default(),
        record,
    })
}

pub(crate) fn take<T: FromValue>(row: &mut Row, place: usize) -> Result<T, Failure> {
    row.take_opt::<T, _>(place).and_then(Result::ok).ok_or_else(|| unreadable(place))
}

fn unreadable(place: usize) -> Failure {
    let text = format!("reading: the database answered with a value in place {place} that cannot be read");
    Failure::Ours(Error::new(posthaste::ErrorKind::Database, text))
}
