//! PostgreSQL: the statements, their values, and what follows from their answers.

mod arrays;
mod error;
mod table;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use error::postgres_error;

pub use table::{PostgresTable, literal, quote};

use super::batch::{ChunkLimits, check_duplicates, chunks, duplicate_id, duplicate_key, headers_json};
use super::failure::DriverError;
use super::script::{Io, Step, Value};
use super::trace::TraceContext;
use crate::error::Error;
use crate::message::{Due, Message};
use crate::validate::MAX_DELAY;

const CHUNK: ChunkLimits = ChunkLimits { messages: 5_000, bytes: 8 * 1024 * 1024 };
const SAVEPOINT: &str = "SAVEPOINT posthaste_enqueue_all";
const ROLL_BACK: &str = "ROLLBACK TO SAVEPOINT posthaste_enqueue_all";
const RELEASE: &str = "RELEASE SAVEPOINT posthaste_enqueue_all";

/// The statements, for one table.
#[derive(Debug)]
pub(super) struct Sql {
    table: PostgresTable,
    enqueue: Arc<str>,
    enqueue_key: Arc<str>,
    enqueue_all: Arc<str>,
    forget_key: Arc<str>,
    first_time: Arc<str>,
}

/// The statements by their names, for a store that checks how they are planned.
///
/// # Errors
/// As [`PostgresTable::parse`].
pub fn postgres_statements(table: &str) -> Result<[(&'static str, Arc<str>); 5], Error> {
    Ok(Sql::new(table)?.all())
}

impl Sql {
    pub(super) fn new(name: &str) -> Result<Self, Error> {
        let table = PostgresTable::parse(name)?;
        let fill = |template: &str| table.fill(template, 0).into();
        Ok(Self {
            enqueue: fill(include_str!("enqueue.sql")),
            enqueue_key: fill(include_str!("enqueue_key.sql")),
            enqueue_all: fill(include_str!("enqueue_all.sql")),
            forget_key: fill(include_str!("forget_key.sql")),
            first_time: fill(include_str!("first_time.sql")),
            table,
        })
    }

    fn all(&self) -> [(&'static str, Arc<str>); 5] {
        [
            ("enqueue", self.enqueue.clone()),
            ("enqueue_key", self.enqueue_key.clone()),
            ("enqueue_all", self.enqueue_all.clone()),
            ("forget_key", self.forget_key.clone()),
            ("first_time", self.first_time.clone()),
        ]
    }

    /// The statements that are worth preparing on a connection that is kept.
    #[cfg(feature = "tokio-postgres-0_7")]
    pub(crate) fn hot(&self) -> [Arc<str>; 3] {
        [&self.enqueue, &self.enqueue_key, &self.first_time].map(Arc::clone)
    }

    pub(super) async fn enqueue<'a>(
        &'a self,
        io: &Io<'a>,
        message: &'a Message,
        trace: &TraceContext,
    ) -> Result<(), Error> {
        let values = values(message, trace)?;
        let Some(key) = message.idempotency_key_str() else {
            let answer = io.run(Step::new(&self.enqueue, values, &["messages"])).await;
            let inserted = answer.map_err(|error| self.error(error))?.count(0);
            return if inserted == 1 { Ok(()) } else { Err(duplicate_id(Some(message))) };
        };
        let answer = io.run(Step::new(&self.enqueue_key, values, &["messages", "keys"])).await;
        let answer = answer.map_err(|error| self.error(error))?;
        match (answer.count(0), answer.count(1)) {
            (1, _) => return Ok(()),
            (_, 0) => return Err(duplicate_key(Some(key))),
            _ => {}
        }
        // The key was new, but the id was not: the key is free again.
        let forget = Step::new(&self.forget_key, vec![Value::text(key)], &[]);
        io.run(forget).await.map_err(|error| self.error(error))?;
        Err(duplicate_id(Some(message)))
    }

    pub(super) async fn enqueue_all<'a>(
        &'a self,
        io: &Io<'a>,
        messages: &'a [Message],
        trace: &TraceContext,
    ) -> Result<(), Error> {
        check_duplicates(messages)?;
        // The savepoint goes along with the first statement.
        let mut savepoint = Some(SAVEPOINT.into());
        for chunk in chunks(messages, CHUNK) {
            let step = Step::new(&self.enqueue_all, arrays::values(chunk, trace)?, &["messages", "keys"]);
            let answer = io.run(step.before(savepoint.take())).await.map_err(|error| self.error(error))?;
            if answer.count(0) != chunk.len() {
                self.plain(io, ROLL_BACK).await?;
                self.plain(io, RELEASE).await?;
                let keys = chunk.iter().filter(|message| message.idempotency_key_str().is_some()).count();
                return Err(if answer.count(1) < keys { duplicate_key(None) } else { duplicate_id(None) });
            }
        }
        self.plain(io, RELEASE).await
    }

    pub(super) async fn first_time<'a>(
        &self,
        io: &Io<'a>,
        consumer: &'a str,
        id: &str,
    ) -> Result<bool, Error> {
        let values = vec![Value::text(consumer), Value::text(id.to_owned())];
        let answer = io.run(Step::new(&self.first_time, values, &["first_time"])).await;
        let grants = || format!("INSERT on {}", self.table.qualified("inbox"));
        let answer = answer.map_err(|error| postgres_error("noting a message", &grants(), error))?;
        Ok(answer.row.is_some())
    }

    async fn plain(&self, io: &Io<'_>, sql: &str) -> Result<(), Error> {
        io.run(Step::plain(sql)).await.map(drop).map_err(|error| self.error(error))
    }

    fn error(&self, error: DriverError) -> Error {
        let (key, wake) = (self.table.qualified("key"), self.table.qualified("wake"));
        let grants = format!("INSERT on {} and {key} and SELECT on {wake}", self.table);
        postgres_error("enqueueing", &grants, error)
    }
}

/// A message as the values of a statement.
fn values<'a>(message: &'a Message, trace: &TraceContext) -> Result<Vec<Value<'a>>, Error> {
    let (delay, at) = due(message.due());
    let mut values = vec![
        Value::text(message.id().to_string()),
        Value::text(message.event_type()),
        Value::text(message.aggregate_type()),
        Value::text(message.aggregate_id()),
        Value::Bytes(message.payload_bytes().map(|payload| Cow::Borrowed(&payload[..]))),
        Value::Text(message.content_type_str().map(Cow::Borrowed)),
        Value::text(headers_json(message, trace)?),
        Value::Integer(Some(delay)),
        Value::Integer(at),
    ];
    values.extend(message.idempotency_key_str().map(Value::text));
    Ok(values)
}

/// A delay, and a time (since 1970), in microseconds.
fn due(due: Due) -> (i64, Option<i64>) {
    match due {
        Due::Now => (0, None),
        Due::After(delay) => (micros(delay.min(MAX_DELAY)), None),
        Due::At(at) => (0, Some(timestamp(at))),
    }
}

/// Microseconds, rounded up.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(i64::MAX)
}

/// The time, rounded up to what the database can hold, and no later than the year 9999.
fn timestamp(time: SystemTime) -> i64 {
    const LATEST: Duration = Duration::from_secs(253_402_300_799);
    micros(time.duration_since(UNIX_EPOCH).unwrap_or_default().min(LATEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_filled_in() {
        let sql = Sql::new("app.events").unwrap();
        for sql in [&sql.enqueue, &sql.enqueue_key, &sql.enqueue_all, &sql.forget_key, &sql.first_time] {
            assert!(!sql.contains(['{', '}']), "a placeholder is left: {sql}");
            assert!(!sql.contains("--") && sql.contains("\"app\".\"events"), "{sql}");
        }
    }

    #[test]
    fn times_are_rounded_up() {
        assert_eq!(due(Due::After(Duration::from_nanos(1))), (1, None));
        assert_eq!(due(Due::At(UNIX_EPOCH + Duration::from_nanos(1_000_000_001))), (0, Some(1_000_001)));
        assert_eq!(due(Due::At(UNIX_EPOCH - Duration::from_secs(1))), (0, Some(0)));
    }
}
