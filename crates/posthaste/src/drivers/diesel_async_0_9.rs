//! diesel-async 0.9: PostgreSQL, MySQL and MariaDB, and SQLite through its wrapper of blocking connections.

use diesel::connection::TransactionManagerStatus;
use diesel_2 as diesel;
use diesel_async::methods::{ExecuteDsl, LoadQuery};
use diesel_async::{AsyncConnection, TransactionManager};
use diesel_async_0_9 as diesel_async;
use futures_util::TryStreamExt;

use super::diesel::{Columns, StepQuery, answer, dialect_of};
use super::diesel_error::driver_error;
use super::run::no_transaction;
use crate::outbox::{Answer, OutboxTransaction, Pending, Progress, Step, Work};

/// A connection of diesel-async in a transaction: within `connection.transaction(async |connection| …)`.
///
/// That is checked: on a connection on which diesel-async has begun none, the call fails with
/// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput). One that was begun by a plain `BEGIN` counts as none, as
/// diesel-async does not know of it.
#[derive(Debug)]
pub struct InTransaction<'t, C>(pub &'t mut C);

impl<C> OutboxTransaction for InTransaction<'_, C>
where
    C: AsyncConnection,
    StepQuery: for<'q> LoadQuery<'q, C, Columns> + ExecuteDsl<C>,
{
    type Outcome<'a, R: Send + 'a>
        = Pending<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
    where
        Self: 'a,
    {
        Box::pin(async move {
            let dialect = dialect_of::<C::Backend>()?;
            if !is_in_transaction(self.0) {
                return Err(no_transaction());
            }
            let mut script = work.begin(dialect);
            loop {
                match script.next() {
                    Progress::Run(step) => {
                        let answer = run(self.0, &step).await;
                        script.answer(answer.map_err(|error| driver_error(dialect, error)));
                    }
                    Progress::Done(result) => return result,
                }
            }
        })
    }
}

fn is_in_transaction<C: AsyncConnection>(connection: &mut C) -> bool {
    match C::TransactionManager::transaction_manager_status_mut(connection) {
        TransactionManagerStatus::Valid(status) => status.transaction_depth().is_some(),
        // The next statement says what is wrong.
        TransactionManagerStatus::InError => true,
    }
}

async fn run<C>(connection: &mut C, step: &Step<'_>) -> diesel::QueryResult<Answer>
where
    C: AsyncConnection,
    StepQuery: for<'q> LoadQuery<'q, C, Columns> + ExecuteDsl<C>,
{
    if let Some(before) = &step.before {
        connection.batch_execute(before).await?;
    }
    if step.is_plain {
        connection.batch_execute(&step.sql).await?;
        return Ok(Answer::default());
    }
    let query = StepQuery::new(step);
    if step.columns.is_empty() {
        ExecuteDsl::execute(query, connection).await?;
        return Ok(Answer::default());
    }
    let rows: Vec<Columns> = query.internal_load(connection).await?.try_collect().await?;
    Ok(answer(step, &rows))
}
