//! diesel 2.3: PostgreSQL, MySQL and MariaDB, SQLite. Its calls return results.

use diesel::connection::{LoadConnection, TransactionManager, TransactionManagerStatus};
use diesel::{Connection, RunQueryDsl};
use diesel_2 as diesel;

use super::diesel::{Columns, StepQuery, answer, dialect_of};
use super::diesel_error::driver_error;
use super::run::no_transaction;
use crate::error::Error;
use crate::outbox::{Answer, OutboxTransaction, Progress, Step, Work};

/// A connection of diesel in a transaction: within `connection.transaction(|connection| …)`.
///
/// That is checked: on a connection on which diesel has begun none, the call fails with
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput). One that was begun by a plain `BEGIN` counts as none, as
/// diesel does not know of it.
#[derive(Debug)]
pub struct InTransaction<'t, C>(pub &'t mut C);

impl<C> OutboxTransaction for InTransaction<'_, C>
where
    C: LoadConnection,
    StepQuery:
        for<'q> diesel::query_dsl::LoadQuery<'q, C, Columns> + diesel::query_dsl::methods::ExecuteDsl<C>,
{
    type Outcome<'a, R: Send + 'a>
        = Result<R, Error>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Result<R, Error>
    where
        Self: 'a,
    {
        let dialect = dialect_of::<C::Backend>()?;
        if !is_in_transaction(self.0) {
            return Err(no_transaction());
        }
        let mut script = work.begin(dialect);
        loop {
            match script.next() {
                Progress::Run(step) => {
                    script.answer(run(self.0, &step).map_err(|error| driver_error(dialect, error)));
                }
                Progress::Done(result) => return result,
            }
        }
    }
}

fn is_in_transaction<C: Connection>(connection: &mut C) -> bool {
    match C::TransactionManager::transaction_manager_status_mut(connection) {
        TransactionManagerStatus::Valid(status) => status.transaction_depth().is_some(),
        // The next statement says what is wrong.
        TransactionManagerStatus::InError => true,
    }
}

fn run<C>(connection: &mut C, step: &Step<'_>) -> diesel::QueryResult<Answer>
where
    C: LoadConnection,
    StepQuery:
        for<'q> diesel::query_dsl::LoadQuery<'q, C, Columns> + diesel::query_dsl::methods::ExecuteDsl<C>,
{
    if let Some(before) = &step.before {
        connection.batch_execute(before)?;
    }
    if step.is_plain {
        connection.batch_execute(&step.sql)?;
        return Ok(Answer::default());
    }
    let query = StepQuery::new(step);
    if step.columns.is_empty() {
        query.execute(connection)?;
        return Ok(Answer::default());
    }
    let rows: Vec<Columns> = query.load(connection)?;
    Ok(answer(step, &rows))
}
