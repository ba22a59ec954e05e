//! deadpool-postgres 0.14: its transactions keep statements prepared.

use deadpool_postgres_0_14::Transaction;

use super::tokio_postgres_0_7::{answer, params};
use crate::outbox::{Answer, Dialect, DriverError, OutboxTransaction, Pending, Progress, Step, Work};

impl OutboxTransaction for &Transaction<'_> {
    type Outcome<'a, R: Send + 'a>
        = Pending<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
    where
        Self: 'a,
    {
        let mut script = work.begin(Dialect::Postgres);
        Box::pin(async move {
            loop {
                match script.next() {
                    Progress::Run(step) => script.answer(run(self, &step).await),
                    Progress::Done(result) => return result,
                }
            }
        })
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
        (&*self).perform(work)
    }
}

async fn run(tx: &Transaction<'_>, step: &Step<'_>) -> Result<Answer, DriverError> {
    if let Some(before) = &step.before {
        tx.batch_execute(before).await?;
    }
    if step.is_plain {
        tx.batch_execute(&step.sql).await?;
        return Ok(Answer::default());
    }
    let values = params(step);
    let statement = tx.prepare_typed_cached(&step.sql, &values.types()).await?;
    let rows = tx.query(&statement, &values.each()).await?;
    Ok(answer(step, &rows))
}
