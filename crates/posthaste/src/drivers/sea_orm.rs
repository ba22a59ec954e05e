//! sea-orm, in any version: the adapters differ in little but the name of the crate.

/// An adapter, in a module where `sea_orm` is the crate, and `describe` that of the sqlx below it. It is given the methods
/// that run a statement without a result, and with one.
macro_rules! sea_orm_adapter {
    ($execute:ident, $query_one:ident) => {
        use sea_orm::{
            ConnectionTrait, DatabaseTransaction, DbBackend, DbErr, QueryResult, RuntimeErr, Statement,
        };

        use super::run::other_database;
        use crate::outbox::{
            Answer, Dialect, DriverError, ErrorCode, OutboxTransaction, Pending, Progress, Step, Value, Work,
        };

        impl OutboxTransaction for &DatabaseTransaction {
            type Outcome<'a, R: Send + 'a>
                = Pending<'a, R>
            where
                Self: 'a;

            fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
            where
                Self: 'a,
            {
                Box::pin(async move {
                    let backend = self.get_database_backend();
                    let dialect = dialect(backend).ok_or_else(|| other_database(&format!("{backend:?}")))?;
                    let mut script = work.begin(dialect);
                    loop {
                        match script.next() {
                            Progress::Run(step) => {
                                let answer = run(self, backend, step).await;
                                script.answer(answer.map_err(|error| driver_error(dialect, error)));
                            }
                            Progress::Done(result) => return result,
                        }
                    }
                })
            }
        }

        impl OutboxTransaction for &mut DatabaseTransaction {
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

        #[allow(unreachable_patterns, reason = "there may be more of them, or not")]
        fn dialect(backend: DbBackend) -> Option<Dialect> {
            match backend {
                DbBackend::Postgres => Some(Dialect::Postgres),
                DbBackend::MySql => Some(Dialect::MySql),
                DbBackend::Sqlite => Some(Dialect::Sqlite),
                _ => None,
            }
        }

        async fn run(tx: &DatabaseTransaction, backend: DbBackend, step: Step<'_>) -> Result<Answer, DbErr> {
            if let Some(before) = &step.before {
                tx.execute_unprepared(before).await?;
            }
            if step.is_plain {
                tx.execute_unprepared(&step.sql).await?;
                return Ok(Answer::default());
            }
            let values = step.values.into_iter().map(|value| match value {
                Value::Text(text) => text.map(String::from).into(),
                Value::Bytes(bytes) => bytes.map(Vec::from).into(),
                Value::Integer(integer) => integer.into(),
            });
            let statement = Statement::from_sql_and_values(backend, &*step.sql, values);
            if step.columns.is_empty() {
                tx.$execute(statement).await?;
                return Ok(Answer::default());
            }
            let read = |row: QueryResult| {
                let column = |name: &&str| row.try_get::<Option<i64>>("", name).ok().flatten();
                step.columns.iter().map(column).collect()
            };
            Ok(Answer { row: tx.$query_one(statement).await?.map(read) })
        }

        fn driver_error(dialect: Dialect, error: DbErr) -> DriverError {
            let (code, said, constraint) = match &error {
                DbErr::Exec(RuntimeErr::SqlxError(sqlx))
                | DbErr::Query(RuntimeErr::SqlxError(sqlx))
                | DbErr::Conn(RuntimeErr::SqlxError(sqlx)) => describe(dialect, sqlx),
                DbErr::ConnectionAcquire(_) => (ErrorCode::Connection, error.to_string(), None),
                other => (ErrorCode::Unknown, other.to_string(), None),
            };
            DriverError::new(code, said, error).with_constraint(constraint)
        }
    };
}
