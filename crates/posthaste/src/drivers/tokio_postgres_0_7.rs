//! tokio-postgres 0.7.

use std::fmt;
use std::sync::Arc;

use futures_util::future::join;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, Row, Statement, Transaction};
use tokio_postgres_0_7 as tokio_postgres;

use crate::error::Error;
use crate::outbox::{
    Answer, Dialect, DriverError, ErrorCode, Outbox, OutboxTransaction, Pending, Progress, Step, Value, Work,
    postgres_error,
};

impl OutboxTransaction for &Transaction<'_> {
    type Outcome<'a, R: Send + 'a>
        = Pending<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
    where
        Self: 'a,
    {
        perform(self, None, work)
    }
}

impl OutboxTransaction for &mut Transaction<'_> {
    type Outcome<'a, R: Send + 'a>
        = Pending<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
    where
        Self: 'a,
    {
        perform(&*self, None, work)
    }
}

/// A connection of which the caller knows that it is in a transaction (begun by a plain `BEGIN`, say).
///
/// Nobody checks that: neither the driver nor a statement can ask whether a transaction is open. Where none is, a message is
/// committed at once and by itself, whatever becomes of the change that it announces.
#[derive(Debug)]
pub struct InTransaction<'t, C = Client>(pub &'t mut C);

impl OutboxTransaction for InTransaction<'_, Client> {
    type Outcome<'a, R: Send + 'a>
        = Pending<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
    where
        Self: 'a,
    {
        perform(&*self.0, None, work)
    }
}

/// The statements of an outbox, prepared on one connection, so that the server plans them once: for a producer that keeps
/// its connection and enqueues much. (deadpool-postgres, sqlx and diesel keep theirs by themselves.) Not for
/// connections through a pooler in transaction mode.
///
/// ```no_run
/// # use posthaste::{BoxError, Message, Outbox};
/// # use posthaste::tokio_postgres_0_7::Prepared;
/// # use tokio_postgres_0_7 as tokio_postgres;
/// # async fn example(client: &mut tokio_postgres::Client, outbox: &Outbox) -> Result<(), BoxError> {
/// let prepared = Prepared::new(client, outbox).await?;
/// let tx = client.transaction().await?;
/// outbox.enqueue(prepared.on(&tx), &Message::new("order.paid")).await?;
/// tx.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Prepared(Vec<(Arc<str>, Statement)>);

impl Prepared {
    /// Prepares them.
    ///
    /// # Errors
    /// What the database reports.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn new(client: &Client, outbox: &Outbox) -> Result<Self, Error> {
        let mut prepared = Vec::new();
        for sql in outbox.hot_statements()? {
            let statement = client.prepare(&sql).await;
            let statement = statement.map_err(|error| postgres_error("preparing", "", error.into()))?;
            prepared.push((sql, statement));
        }
        Ok(Self(prepared))
    }

    /// A transaction that uses them. It has to be one of the same connection.
    pub fn on<'t>(&'t self, tx: &'t Transaction<'t>) -> PreparedTransaction<'t> {
        PreparedTransaction { tx, prepared: self }
    }

    fn find(&self, sql: &str) -> Option<&Statement> {
        self.0.iter().find(|(prepared, _)| **prepared == *sql).map(|(_, statement)| statement)
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("statements", &self.0.len()).finish()
    }
}

/// A transaction with prepared statements: see [`Prepared::on`].
pub struct PreparedTransaction<'t> {
    tx: &'t Transaction<'t>,
    prepared: &'t Prepared,
}

impl fmt::Debug for PreparedTransaction<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedTransaction").finish_non_exhaustive()
    }
}

impl OutboxTransaction for PreparedTransaction<'_> {
    type Outcome<'a, R: Send + 'a>
        = Pending<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
    where
        Self: 'a,
    {
        perform(self.tx, Some(self.prepared), work)
    }
}

fn perform<'a, R: Send + 'a>(
    client: &'a (impl GenericClient + Sync),
    prepared: Option<&'a Prepared>,
    work: Work<'a, R>,
) -> Pending<'a, R> {
    let mut script = work.begin(Dialect::Postgres);
    Box::pin(async move {
        loop {
            match script.next() {
                Progress::Run(step) => script.answer(run(client, prepared, &step).await.map_err(Into::into)),
                Progress::Done(result) => return result,
            }
        }
    })
}

async fn run(
    client: &(impl GenericClient + Sync),
    prepared: Option<&Prepared>,
    step: &Step<'_>,
) -> Result<Answer, tokio_postgres::Error> {
    if step.is_plain {
        return client.batch_execute(&step.sql).await.map(|()| Answer::default());
    }
    let before = async {
        match &step.before {
            Some(sql) => client.batch_execute(sql).await,
            None => Ok(()),
        }
    };
    let values = params(step);
    let query = async {
        match prepared.and_then(|prepared| prepared.find(&step.sql)) {
            Some(statement) => client.query(statement, &values.each()).await,
            None => client.query_typed(&step.sql, &values.typed()).await,
        }
    };
    // Both are sent at once, in this order.
    let (saved, rows) = join(before, query).await;
    saved?;
    Ok(answer(step, &rows?))
}

pub(super) fn answer(step: &Step<'_>, rows: &[Row]) -> Answer {
    let read = |row: &Row| {
        let column = |name: &&str| row.try_get::<_, Option<i64>>(*name).ok().flatten();
        step.columns.iter().map(column).collect()
    };
    Answer { row: rows.first().map(read) }
}

/// The values as the driver takes them.
pub(super) struct Params<'a>(Vec<Param<'a>>);

#[derive(Debug)]
enum Param<'a> {
    Text(Option<&'a str>),
    Bytes(Option<&'a [u8]>),
    Integer(Option<i64>),
}

pub(super) fn params<'a>(step: &'a Step<'_>) -> Params<'a> {
    let param = |value: &'a Value<'_>| match value {
        Value::Text(text) => Param::Text(text.as_deref()),
        Value::Bytes(bytes) => Param::Bytes(bytes.as_deref()),
        Value::Integer(integer) => Param::Integer(*integer),
    };
    Params(step.values.iter().map(param).collect())
}

impl<'a> Params<'a> {
    fn get(param: &'a Param<'a>) -> (&'a (dyn ToSql + Sync), Type) {
        match param {
            Param::Text(text) => (text, Type::TEXT),
            Param::Bytes(bytes) => (bytes, Type::BYTEA),
            Param::Integer(integer) => (integer, Type::INT8),
        }
    }

    pub(super) fn typed(&'a self) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
        self.0.iter().map(Self::get).collect()
    }

    pub(super) fn each(&'a self) -> Vec<&'a (dyn ToSql + Sync)> {
        self.0.iter().map(|param| Self::get(param).0).collect()
    }

    #[cfg(feature = "deadpool-postgres-0_14")]
    pub(super) fn types(&'a self) -> Vec<Type> {
        self.0.iter().map(|param| Self::get(param).1).collect()
    }
}

impl From<tokio_postgres::Error> for DriverError {
    fn from(error: tokio_postgres::Error) -> Self {
        let source = std::error::Error::source(&error);
        if let Some(server) = error.as_db_error() {
            let code = ErrorCode::SqlState(server.code().code().to_owned().into());
            let (said, constraint) = (server.message().to_owned(), server.constraint().map(str::to_owned));
            return Self::new(code, said, error).with_constraint(constraint);
        }
        if error.is_closed() {
            return Self::new(ErrorCode::Connection, "the connection is closed", error);
        }
        if let Some(io) = source.and_then(|source| source.downcast_ref::<std::io::Error>()) {
            return Self::new(ErrorCode::Connection, format!("the server cannot be reached ({io})"), error);
        }
        let said = source.map_or_else(|| error.to_string(), |source| format!("{error} ({source})"));
        Self::new(ErrorCode::Unknown, said, error)
    }
}
