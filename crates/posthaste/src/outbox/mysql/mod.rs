//! MySQL and MariaDB: the statements, their values, and what follows from their answers.

mod error;
mod table;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use error::{mysql_breaks_connection, mysql_error};
pub use table::MySqlTable;

use super::batch::{ChunkLimits, check_duplicates, chunks, duplicate_id, duplicate_key, headers_json, size};
use super::failure::DriverError;
use super::script::{Io, Step, Value};
use super::trace::TraceContext;
use crate::error::{Error, ErrorKind};
use crate::message::{Due, Message};
use crate::validate::MAX_DELAY;

const CHUNK: ChunkLimits = ChunkLimits { messages: 500, bytes: 1024 * 1024 };
/// What is shorter is sent without asking the server how much it takes: nobody sets its limit so low.
const SMALL: usize = 64 * 1024;
/// What a statement takes besides its rows.
const AROUND: usize = 2 * 1024;
const SAVEPOINT: &str = "SAVEPOINT posthaste_enqueue_all";
const ROLL_BACK: &str = "ROLLBACK TO SAVEPOINT posthaste_enqueue_all";
const RELEASE: &str = "RELEASE SAVEPOINT posthaste_enqueue_all";

/// The statements, for one table.
#[derive(Debug)]
pub(super) struct Sql {
    table: MySqlTable,
    insert: String,
    row: String,
    /// `row` for payloads that are no UTF-8: the server is told that they are bytes. Drivers send both in the same way, and a
    /// JSON column would take some of them for text.
    row_of_bytes: String,
    insert_key: String,
    enqueue: Arc<str>,
    enqueue_bytes: Arc<str>,
    enqueue_key: Arc<str>,
    forget_key: Arc<str>,
    first_time: Arc<str>,
    room: Arc<str>,
}

impl Sql {
    pub(super) fn new(name: &str) -> Result<Self, Error> {
        let table = MySqlTable::parse(name)?;
        let insert = table.fill(include_str!("enqueue.sql"));
        let row = table.fill(include_str!("row.sql"));
        let insert_key = table.fill(include_str!("enqueue_key.sql"));
        let row_of_bytes = row.replacen(PAYLOAD_PLACE, "(?, ?, ?, ?, CAST(? AS BINARY), ", 1);
        Ok(Self {
            enqueue: rows(&insert, &row, 1),
            enqueue_bytes: rows(&insert, &row_of_bytes, 1),
            enqueue_key: rows(&insert_key, KEY_ROW, 1),
            forget_key: table.fill(include_str!("forget_key.sql")).into(),
            first_time: table.fill(include_str!("first_time.sql")).into(),
            room: table.fill(include_str!("room.sql")).into(),
            table,
            insert,
            row,
            row_of_bytes,
            insert_key,
        })
    }

    pub(super) async fn enqueue<'a>(
        &'a self,
        io: &Io<'a>,
        message: &'a Message,
        trace: &TraceContext,
    ) -> Result<(), Error> {
        self.room(io, std::slice::from_ref(message)).await?;
        let key = message.idempotency_key_str();
        if let Some(key) = key {
            let taken = io.run(Step::new(&self.enqueue_key, vec![Value::bytes(key.as_bytes())], &[])).await;
            taken.map_err(|error| self.refused(error, || duplicate_key(Some(key))))?;
        }
        let mut values = Vec::with_capacity(VALUES);
        push(&mut values, message, trace)?;
        let sql = if is_text(message) { &self.enqueue } else { &self.enqueue_bytes };
        let Err(error) = io.run(Step::new(sql, values, &[])).await else { return Ok(()) };
        if let Some(key) = key.filter(|_| error.is_duplicate()) {
            // The key was new, but the id was not: the key is free again.
            let forget = Step::new(&self.forget_key, vec![Value::bytes(key.as_bytes())], &[]);
            io.run(forget).await.map_err(|error| self.key_stays(error))?;
        }
        Err(self.refused(error, || duplicate_id(Some(message))))
    }

    pub(super) async fn enqueue_all<'a>(
        &'a self,
        io: &Io<'a>,
        messages: &'a [Message],
        trace: &TraceContext,
    ) -> Result<(), Error> {
        check_duplicates(messages)?;
        let limits = ChunkLimits { bytes: self.room(io, messages).await?, ..CHUNK };
        self.plain(io, SAVEPOINT).await?;
        for chunk in chunks(messages, limits) {
            if let Err(error) = self.enqueue_chunk(io, chunk, trace).await {
                // After a deadlock the whole transaction is gone, and the savepoint with it.
                let _ = self.plain(io, ROLL_BACK).await;
                let _ = self.plain(io, RELEASE).await;
                return Err(error);
            }
        }
        self.plain(io, RELEASE).await
    }

    async fn enqueue_chunk<'a>(
        &'a self,
        io: &Io<'a>,
        messages: &'a [Message],
        trace: &TraceContext,
    ) -> Result<(), Error> {
        // In order, so that two that take the same keys wait for each other instead of deadlocking.
        let mut keys: Vec<_> = messages.iter().filter_map(Message::idempotency_key_str).collect();
        keys.sort_unstable();
        if !keys.is_empty() {
            let sql = rows(&self.insert_key, KEY_ROW, keys.len());
            let keys = keys.into_iter().map(|key| Value::bytes(key.as_bytes())).collect();
            let taken = io.run(Step::new(&sql, keys, &[])).await;
            taken.map_err(|error| self.refused(error, || duplicate_key(None)))?;
        }
        // The rows of one statement stand in the order of their ids, so a new one begins where the ids fall.
        for run in messages.chunk_by(|message, next| message.id() < next.id()) {
            let mut values = Vec::with_capacity(run.len() * VALUES);
            for message in run {
                push(&mut values, message, trace)?;
            }
            let row = if run.iter().all(is_text) { &self.row } else { &self.row_of_bytes };
            let step = Step::new(&rows(&self.insert, row, run.len()), values, &[]);
            io.run(step).await.map_err(|error| self.refused(error, || duplicate_id(None)))?;
        }
        Ok(())
    }

    pub(super) async fn first_time<'a>(
        &self,
        io: &Io<'a>,
        consumer: &'a str,
        id: &str,
    ) -> Result<bool, Error> {
        let values = vec![Value::text(consumer), Value::text(id.to_owned())];
        match io.run(Step::new(&self.first_time, values, &[])).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_duplicate() => Ok(false),
            Err(error) => {
                let grants = format!("INSERT on {}", self.table.qualified("inbox"));
                Err(mysql_error("noting a message", &grants, error))
            }
        }
    }

    /// How many bytes a statement may take. Refuses a message that the server would not take.
    async fn room(&self, io: &Io<'_>, messages: &[Message]) -> Result<usize, Error> {
        if messages.iter().map(size).sum::<usize>() <= SMALL {
            return Ok(CHUNK.bytes);
        }
        let answer = io.run(Step::new(&self.room, Vec::new(), &["most"])).await;
        let most = answer.map_err(|error| self.error(error))?.count(0);
        let longest = messages.iter().map(size).max().unwrap_or_default() + AROUND;
        if longest > most {
            let text = format!(
                "a message takes {longest} bytes as a statement, more than the server's max_allowed_packet of {most}"
            );
            return Err(Error::new(ErrorKind::PayloadTooLarge, text));
        }
        Ok(CHUNK.bytes.min(most - AROUND))
    }

    async fn plain(&self, io: &Io<'_>, sql: &str) -> Result<(), Error> {
        io.run(Step::plain(sql)).await.map(drop).map_err(|error| self.error(error))
    }

    fn refused(&self, error: DriverError, duplicate: impl FnOnce() -> Error) -> Error {
        if error.is_duplicate() { duplicate() } else { self.error(error) }
    }

    fn error(&self, error: DriverError) -> Error {
        let (table, key) = (self.table.qualified(""), self.table.qualified("key"));
        mysql_error("enqueueing", &format!("INSERT on {table} and {key}"), error)
    }

    /// A key that was written could not be taken back. To ask for the right beforehand would give every producer the right to
    /// delete keys, for a case that hardly ever comes; the caller rolls back, and that takes the key back as well.
    fn key_stays(&self, error: DriverError) -> Error {
        let key = self.table.qualified("key");
        let doing = "enqueueing: the message's id is there already, and its idempotency key cannot be taken back; roll back";
        mysql_error(doing, &format!("SELECT and DELETE on {key}"), error)
    }
}

const KEY_ROW: &str = "(?)";
/// How `row.sql` begins, up to the payload.
const PAYLOAD_PLACE: &str = "(?, ?, ?, ?, ?, ";
/// How many values `row.sql` has.
const VALUES: usize = 11;

fn rows(insert: &str, row: &str, count: usize) -> Arc<str> {
    let mut sql = String::with_capacity(insert.len() + (row.len() + 1) * count);
    sql.push_str(insert);
    for n in 0..count {
        sql.push(if n == 0 { ' ' } else { ',' });
        sql.push_str(row);
    }
    sql.into()
}

/// Appends a message as the values of `row.sql`.
fn push<'a>(values: &mut Vec<Value<'a>>, message: &'a Message, trace: &TraceContext) -> Result<(), Error> {
    let (delay, at) = match message.due() {
        Due::Now => (0, 0),
        Due::After(delay) => (micros(delay.min(MAX_DELAY)), 0),
        Due::At(at) => (0, timestamp(at)),
    };
    values.extend([
        Value::bytes(&message.id_ref().as_uuid().as_bytes()[..]),
        Value::text(message.event_type()),
        Value::text(message.aggregate_type()),
        Value::text(message.aggregate_id()),
        payload(message),
        Value::Integer(Some(i64::from(message.payload_bytes().is_none()))),
        Value::Text(message.content_type_str().map(Cow::Borrowed)),
        Value::Text(Some(headers_json(message, trace)?).filter(|headers| headers != "{}").map(Cow::Owned)),
        Value::Integer(Some(delay)),
        Value::Integer(Some(at)),
        Value::Bytes(message.idempotency_key_str().map(|key| Cow::Borrowed(key.as_bytes()))),
    ]);
    Ok(())
}

fn is_text(message: &Message) -> bool {
    message.payload_bytes().is_none_or(|payload| std::str::from_utf8(payload).is_ok())
}

/// The payload, as a value that a column of type JSON takes as well as one of bytes: text where it is one. What stands for
/// that of a tombstone must be JSON, too.
fn payload(message: &Message) -> Value<'_> {
    match message.payload_bytes() {
        None => Value::text("null"),
        Some(payload) => match std::str::from_utf8(payload) {
            Ok(text) => Value::text(text),
            Err(_) => Value::bytes(&payload[..]),
        },
    }
}

/// Microseconds, rounded up.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// Microseconds since 1970, no later than the year 9000, so that nothing overflows.
fn timestamp(at: SystemTime) -> i64 {
    const LATEST: Duration = Duration::from_secs(221_845_392_000);
    micros(at.duration_since(UNIX_EPOCH).unwrap_or_default().min(LATEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_as_many_values_as_placeholders() {
        let sql = Sql::new("outbox").unwrap();
        let (message, mut values) = (Message::new("e"), Vec::new());
        push(&mut values, &message, &TraceContext::default()).unwrap();
        assert_eq!(values.len(), VALUES);
        assert_eq!(sql.enqueue.matches('?').count(), VALUES);
        assert_eq!(sql.enqueue_bytes.matches('?').count(), VALUES);
        assert!(sql.enqueue_bytes.contains("CAST(? AS BINARY)"), "{}", sql.enqueue_bytes);
        assert_eq!(rows(&sql.insert, &sql.row, 3).matches('?').count(), 3 * VALUES);
        assert!(!sql.enqueue.contains("--"), "{}", sql.enqueue);
    }
}
