//! rusqlite 0.32 to 0.43. Its calls return results.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Savepoint, Transaction};

use crate::error::Error;
use crate::outbox::{
    Answer, Dialect, DriverError, ErrorCode, OutboxTransaction, Progress, Step, Value, Work,
};

/// A connection of which the caller knows that it is in a transaction. That is checked: on a connection that is in
/// none, the call fails with [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput).
#[derive(Debug)]
pub struct InTransaction<'t>(pub &'t mut Connection);

macro_rules! implement {
    ($($transaction:ty),*) => {$(
        impl OutboxTransaction for $transaction {
            type Outcome<'a, R: Send + 'a>
                = Result<R, Error>
            where
                Self: 'a;

            fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Result<R, Error>
            where
                Self: 'a,
            {
                perform(&*self, work)
            }
        }
    )*};
}

implement!(&Transaction<'_>, &mut Transaction<'_>, &Savepoint<'_>, &mut Savepoint<'_>);

impl OutboxTransaction for InTransaction<'_> {
    type Outcome<'a, R: Send + 'a>
        = Result<R, Error>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Result<R, Error>
    where
        Self: 'a,
    {
        if self.0.is_autocommit() {
            return Err(super::run::no_transaction());
        }
        perform(self.0, work)
    }
}

fn perform<R>(connection: &Connection, work: Work<'_, R>) -> Result<R, Error> {
    let mut script = work.begin(Dialect::Sqlite);
    loop {
        match script.next() {
            Progress::Run(step) => script.answer(run(connection, &step).map_err(Into::into)),
            Progress::Done(result) => return result,
        }
    }
}

fn run(connection: &Connection, step: &Step<'_>) -> rusqlite::Result<Answer> {
    #[cfg(feature = "rusqlite")]
    let mut statement = connection.prepare_cached(&step.sql)?;
    #[cfg(not(feature = "rusqlite"))]
    let mut statement = connection.prepare(&step.sql)?;
    let values = step.values.iter().map(|value| match value {
        Value::Text(Some(text)) => ValueRef::Text(text.as_bytes()),
        Value::Bytes(Some(bytes)) => ValueRef::Blob(bytes),
        Value::Integer(Some(integer)) => ValueRef::Integer(*integer),
        Value::Text(None) | Value::Bytes(None) | Value::Integer(None) => ValueRef::Null,
    });
    let values = rusqlite::params_from_iter(values.map(ToSqlOutput::Borrowed));
    if step.columns.is_empty() {
        return statement.execute(values).map(|_| Answer::default());
    }
    let mut rows = statement.query(values)?;
    let Some(row) = rows.next()? else { return Ok(Answer { row: None }) };
    let columns = step.columns.iter().map(|name| row.get::<_, Option<i64>>(*name).ok().flatten()).collect();
    // To its end, so that nothing of it is left undone.
    while rows.next()?.is_some() {}
    Ok(Answer { row: Some(columns) })
}

impl From<rusqlite::Error> for DriverError {
    fn from(error: rusqlite::Error) -> Self {
        let code = match &error {
            rusqlite::Error::SqliteFailure(error, _) | rusqlite::Error::SqlInputError { error, .. } => {
                ErrorCode::Sqlite(error.extended_code)
            }
            _ => ErrorCode::Unknown,
        };
        Self::new(code, error.to_string(), error)
    }
}
