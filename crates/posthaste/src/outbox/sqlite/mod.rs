//! SQLite: the statements, their values, and what follows from their answers.

mod error;
mod table;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use error::{sqlite_code, sqlite_error};
pub use table::SqliteTable;

use super::batch::{at, check_duplicates, duplicate_id, duplicate_key, headers_json};
use super::failure::DriverError;
use super::script::{Io, Step, Value};
use super::trace::TraceContext;
use crate::error::{Error, ErrorKind};
use crate::message::{Due, Message};

/// The version of the schema that this version enqueues into.
pub const SQLITE_SCHEMA: i64 = 2;

const SAVEPOINT: &str = "SAVEPOINT posthaste_enqueue";
const ROLL_BACK: &str = "ROLLBACK TO SAVEPOINT posthaste_enqueue";
const RELEASE: &str = "RELEASE SAVEPOINT posthaste_enqueue";

/// How many messages go in one statement: few enough to stay far from the limit of 32,766 values, and enough that what
/// a statement costs by itself (with sqlx, going to another thread and back) does not count.
const ROWS: usize = 50;
const ROW: &str = ", (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

/// The statements, for one table.
#[derive(Debug)]
pub(super) struct Sql {
    table: SqliteTable,
    enqueue: Arc<str>,
    enqueue_all: Arc<str>,
    enqueue_key: Arc<str>,
    first_time: Arc<str>,
    version: Arc<str>,
    find: Arc<str>,
}

impl Sql {
    pub(super) fn new(name: &str) -> Result<Self, Error> {
        let table = SqliteTable::new(name)?;
        let fill = |template: &str| table.fill(template).into();
        Ok(Self {
            enqueue: fill(include_str!("enqueue.sql")),
            enqueue_all: (table.fill(include_str!("enqueue_all.sql")) + &ROW.repeat(ROWS - 1)).into(),
            enqueue_key: fill(include_str!("enqueue_key.sql")),
            first_time: fill(include_str!("first_time.sql")),
            version: fill(include_str!("version.sql")),
            find: fill(include_str!("find.sql")),
            table,
        })
    }

    pub(super) async fn enqueue<'a>(
        &'a self,
        io: &Io<'a>,
        message: &'a Message,
        trace: &TraceContext,
        now: SystemTime,
    ) -> Result<(), Error> {
        if message.idempotency_key_str().is_none() {
            return self.insert(io, message, trace, now).await;
        }
        self.plain(io, SAVEPOINT).await?;
        let inserted = self.insert(io, message, trace, now).await;
        self.end(io, inserted).await
    }

    pub(super) async fn enqueue_all<'a>(
        &'a self,
        io: &Io<'a>,
        messages: &'a [Message],
        trace: &TraceContext,
        now: SystemTime,
    ) -> Result<(), Error> {
        check_duplicates(messages)?;
        self.plain(io, SAVEPOINT).await?;
        for (chunk, first) in messages.chunks(ROWS).zip((0..).step_by(ROWS)) {
            let inserted = self.insert_chunk(io, chunk, first, trace, now).await;
            if inserted.is_err() {
                return self.end(io, inserted).await;
            }
        }
        self.end(io, Ok(())).await
    }

    /// Inserts messages in one statement, if there are enough and none has an idempotency key; or else, and where one is
    /// refused, one by one.
    async fn insert_chunk<'a>(
        &'a self,
        io: &Io<'a>,
        messages: &'a [Message],
        first: usize,
        trace: &TraceContext,
        now: SystemTime,
    ) -> Result<(), Error> {
        if messages.len() == ROWS && messages.iter().all(|message| message.idempotency_key_str().is_none()) {
            let step = Step::new(&self.enqueue_all, rows(messages, trace, now)?, &[]);
            match io.run(step).await {
                Ok(_) => return Ok(()),
                // Nothing of them is there; one by one it is seen which it was.
                Err(error) if error.is_duplicate() => {}
                Err(error) => return Err(self.explain(io, "enqueueing", error).await),
            }
        }
        for (index, message) in messages.iter().enumerate() {
            self.insert(io, message, trace, now).await.map_err(|error| at(first + index, error))?;
        }
        Ok(())
    }

    pub(super) async fn first_time<'a>(
        &self,
        io: &Io<'a>,
        consumer: &'a str,
        id: &str,
        now: SystemTime,
    ) -> Result<bool, Error> {
        let values =
            vec![Value::text(consumer), Value::text(id.to_owned()), Value::Integer(Some(millis(now)))];
        match io.run(Step::new(&self.first_time, values, &["first_time"])).await {
            Ok(answer) => Ok(answer.row.is_some()),
            Err(error) => Err(self.explain(io, "noting a message", error).await),
        }
    }

    /// Takes the idempotency key, if there is one, and inserts the message.
    async fn insert<'a>(
        &'a self,
        io: &Io<'a>,
        message: &'a Message,
        trace: &TraceContext,
        now: SystemTime,
    ) -> Result<(), Error> {
        if let Some(key) = message.idempotency_key_str() {
            let values = vec![Value::text(key), Value::Integer(Some(millis(now)))];
            let taken = io.run(Step::new(&self.enqueue_key, values, &["keys"])).await;
            match taken {
                Ok(answer) if answer.row.is_none() => return Err(duplicate_key(Some(key))),
                Ok(_) => {}
                Err(error) => return Err(self.explain(io, "enqueueing", error).await),
            }
        }
        let step = Step::new(&self.enqueue, values(message, trace, now)?, &["messages"]);
        match io.run(step).await {
            Ok(answer) if answer.row.is_none() => Err(duplicate_id(Some(message))),
            Ok(_) => Ok(()),
            Err(error) => Err(self.explain(io, "enqueueing", error).await),
        }
    }

    /// Ends the savepoint, so that an error leaves nothing behind.
    async fn end(&self, io: &Io<'_>, inserted: Result<(), Error>) -> Result<(), Error> {
        if inserted.is_err() {
            // Where this fails, SQLite has rolled back the whole transaction before.
            let _ = self.plain(io, ROLL_BACK).await;
        }
        let released = self.plain(io, RELEASE).await;
        inserted.and(released)
    }

    async fn plain(&self, io: &Io<'_>, sql: &str) -> Result<(), Error> {
        io.run(Step::plain(sql)).await.map(drop).map_err(|error| sqlite_error("enqueueing", error))
    }

    /// Replaces an error that comes from the schema by one that says so.
    async fn explain(&self, io: &Io<'_>, doing: &str, error: DriverError) -> Error {
        if !error.refuses_the_version() && !error.may_be_about_the_schema() {
            return sqlite_error(doing, error);
        }
        match self.version(io).await {
            Ok(Some(SQLITE_SCHEMA)) => {}
            Ok(Some(_)) => return self.not_migrated("is older than this version needs"),
            Ok(None) => return self.not_migrated("does not exist"),
            Err(reason) => return reason,
        }
        match self.is_taken(io, self.table.as_str()).await {
            Ok(false) => self.not_migrated("does not exist any more, although its side tables do"),
            _ => sqlite_error(doing, error),
        }
    }

    /// The version of the schema, or `None` where there is none.
    async fn version(&self, io: &Io<'_>) -> Result<Option<i64>, Error> {
        const DOING: &str = "looking at the schema";
        match io.run(Step::new(&self.version, Vec::new(), &["version"])).await {
            Ok(answer) => match answer.row.and_then(|row| *row.first()?) {
                Some(version) if version > SQLITE_SCHEMA => Err(self.too_new(version)),
                Some(version) => Ok(Some(version)),
                None => Err(foreign(&self.table.derived("migrations"))),
            },
            Err(error) if error.may_be_about_the_schema() => {
                for name in [self.table.derived("migrations"), self.table.as_str().to_owned()] {
                    if self.is_taken(io, &name).await.map_err(|error| sqlite_error(DOING, error))? {
                        return Err(foreign(&name));
                    }
                }
                Ok(None)
            }
            Err(error) => Err(sqlite_error(DOING, error)),
        }
    }

    async fn is_taken(&self, io: &Io<'_>, name: &str) -> Result<bool, DriverError> {
        let answer = io.run(Step::new(&self.find, vec![Value::text(name.to_owned())], &["found"])).await?;
        Ok(answer.row.is_some())
    }

    fn not_migrated(&self, what: &str) -> Error {
        let text = format!("the outbox {:?} {what}; run `posthaste migrate`", self.table.as_str());
        Error::new(ErrorKind::NotMigrated, text)
    }

    fn too_new(&self, version: i64) -> Error {
        let table = self.table.as_str();
        let text = format!(
            "the schema of {table:?} has version {version}, and this program knows {SQLITE_SCHEMA}: upgrade this program"
        );
        Error::new(ErrorKind::SchemaTooNew, text)
    }
}

fn foreign(name: &str) -> Error {
    let text =
        format!("{name:?} exists, but it is not part of a Posthaste outbox; choose another table name");
    Error::new(ErrorKind::ForeignTable, text)
}

fn values<'a>(message: &'a Message, trace: &TraceContext, now: SystemTime) -> Result<Vec<Value<'a>>, Error> {
    let headers = headers_json(message, trace)?;
    Ok(vec![
        Value::text(message.id().to_string()),
        Value::text(message.event_type()),
        Value::text(message.aggregate_type()),
        Value::text(message.aggregate_id()),
        Value::Integer(held_back_until(message.due(), now)),
        Value::Integer(Some(millis(now))),
        Value::Text(message.content_type_str().map(Cow::Borrowed)),
        Value::Text(Some(headers).filter(|headers| headers != "{}").map(Cow::Owned)),
        Value::Text(message.idempotency_key_str().map(Cow::Borrowed)),
        Value::Bytes(message.payload_bytes().map(|payload| Cow::Borrowed(&payload[..]))),
        Value::Integer(Some(SQLITE_SCHEMA)),
    ])
}

/// The values of `enqueue_all.sql` and its rows.
fn rows<'a>(messages: &'a [Message], trace: &TraceContext, now: SystemTime) -> Result<Vec<Value<'a>>, Error> {
    let mut rows = Vec::with_capacity(messages.len() * 11 + 1);
    rows.push(Value::Integer(Some(SQLITE_SCHEMA)));
    for message in messages {
        let mut row = values(message, trace, now)?;
        // The version stands in the first row alone, and the time in every row twice.
        row.pop();
        row.insert(CREATED_AT, Value::Integer(Some(millis(now))));
        rows.append(&mut row);
    }
    Ok(rows)
}

/// Where `created_at` stands among the values.
const CREATED_AT: usize = 5;

/// Until when a message is held back, in milliseconds; `None` if it is not, as one whose time has come.
fn held_back_until(due: Due, now: SystemTime) -> Option<i64> {
    match due {
        Due::Now => None,
        Due::After(delay) => Some(now.checked_add(delay).map_or(i64::MAX, deadline)),
        Due::At(at) => Some(deadline(at)).filter(|at| *at > millis(now)),
    }
}

/// A time in milliseconds since 1970, rounded down.
fn millis(at: SystemTime) -> i64 {
    i64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

/// A time not to be reached too early, rounded up.
fn deadline(at: SystemTime) -> i64 {
    millis(at.checked_add(Duration::from_nanos(999_999)).unwrap_or(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_have_as_many_values_as_placeholders() {
        let messages: Vec<_> = (0..ROWS).map(|_| Message::new("e")).collect();
        let values = rows(&messages, &TraceContext::default(), UNIX_EPOCH).unwrap();
        assert_eq!(Sql::new("outbox").unwrap().enqueue_all.matches('?').count(), values.len());
    }

    #[test]
    fn delays_are_rounded_up() {
        let at = |micros| UNIX_EPOCH + Duration::from_micros(micros);
        assert_eq!((millis(at(1_999)), deadline(at(1_001)), deadline(at(2_000))), (1, 2, 2));
        assert_eq!(held_back_until(Due::After(Duration::from_micros(500)), at(5_500)), Some(6));
        assert_eq!(held_back_until(Due::After(Duration::MAX), at(1)), Some(i64::MAX));
        assert_eq!(held_back_until(Due::At(at(4_000)), at(5_000)), None);
    }
}
