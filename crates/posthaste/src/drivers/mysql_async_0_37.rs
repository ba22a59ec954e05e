//! `mysql_async` 0.37.

use mysql_async::consts::StatusFlags;
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError as Closed, Error, Params, Row, Transaction};
use mysql_async_0_37 as mysql_async;

use super::run::no_transaction;
use crate::outbox::{
    Answer, Dialect, DriverError, ErrorCode, OutboxTransaction, Pending, Progress, Step, Value, Work,
};

/// A connection of which the caller knows that it is in a transaction (begun by a plain `START TRANSACTION`, say).
///
/// That is checked, as far as the server's last answer says it: on a connection that is in none, the call fails with
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput). After a statement that failed nobody knows; so do not go on
/// after a deadlock, which ends the transaction on the server, and what follows is committed at once.
#[derive(Debug)]
pub struct InTransaction<'t>(pub &'t mut Conn);

impl OutboxTransaction for &mut Transaction<'_> {
    type Outcome<'a, R: Send + 'a>
        = Pending<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
    where
        Self: 'a,
    {
        perform(self, work)
    }
}

impl OutboxTransaction for InTransaction<'_> {
    type Outcome<'a, R: Send + 'a>
        = Pending<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
    where
        Self: 'a,
    {
        if !is_in_transaction(self.0) {
            return Box::pin(async { Err(no_transaction()) });
        }
        perform(self.0, work)
    }
}

fn is_in_transaction(connection: &Conn) -> bool {
    connection.last_ok_packet().is_none_or(|answer| {
        let flags = answer.status_flags();
        // Without autocommit every statement begins one.
        flags.contains(StatusFlags::SERVER_STATUS_IN_TRANS)
            || !flags.contains(StatusFlags::SERVER_STATUS_AUTOCOMMIT)
    })
}

fn perform<'a, R: Send + 'a>(connection: &'a mut (impl Queryable + 'a), work: Work<'a, R>) -> Pending<'a, R> {
    let mut script = work.begin(Dialect::MySql);
    Box::pin(async move {
        loop {
            match script.next() {
                Progress::Run(step) => script.answer(run(connection, &step).await.map_err(Into::into)),
                Progress::Done(result) => return result,
            }
        }
    })
}

async fn run(connection: &mut impl Queryable, step: &Step<'_>) -> Result<Answer, Error> {
    if let Some(before) = &step.before {
        connection.query_drop(&**before).await?;
    }
    if step.is_plain {
        connection.query_drop(&*step.sql).await?;
        return Ok(Answer::default());
    }
    let row: Option<Row> = connection.exec_first(&*step.sql, params(step)).await?;
    let read = |row: Row| {
        let column = |name: &&str| row.get_opt::<Option<i64>, _>(*name)?.ok().flatten();
        step.columns.iter().map(column).collect()
    };
    Ok(Answer { row: row.map(read) })
}

fn params(step: &Step<'_>) -> Params {
    use mysql_async::Value as Param;
    let param = |value: &Value<'_>| match value {
        Value::Text(Some(text)) => Param::Bytes(text.as_bytes().to_vec()),
        Value::Bytes(Some(bytes)) => Param::Bytes(bytes.to_vec()),
        Value::Integer(Some(integer)) => Param::Int(*integer),
        Value::Text(None) | Value::Bytes(None) | Value::Integer(None) => Param::NULL,
    };
    Params::Positional(step.values.iter().map(param).collect())
}

impl From<Error> for DriverError {
    fn from(error: Error) -> Self {
        match &error {
            Error::Server(server) => Self::new(ErrorCode::MySql(server.code), server.message.clone(), error),
            Error::Io(_) | Error::Driver(Closed::ConnectionClosed | Closed::PoolDisconnected) => {
                Self::new(ErrorCode::Connection, error.to_string(), error)
            }
            Error::Driver(_) | Error::Other(_) | Error::Url(_) => {
                Self::new(ErrorCode::Unknown, error.to_string(), error)
            }
        }
    }
}
