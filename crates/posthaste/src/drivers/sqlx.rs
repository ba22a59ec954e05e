//! sqlx, in any version: the adapters differ in little but the name of the crate.
//!
//! They are generic over the database, and the dialect is found by its name: so this crate needs none of sqlx's backends,
//! and what they need (SQLite's C code, say) comes only with the program that uses it.

/// An adapter, in a module where `sqlx` is the crate, and `text` makes of a statement what that takes as one.
macro_rules! sqlx_adapter {
    (where $($arguments:tt)*) => {
        use sqlx::database::HasStatementCache;
        use sqlx::{
            ColumnIndex, Connection, Database, Decode, Encode, Executor, IntoArguments, Row, Transaction, Type,
        };

        use super::run::{dialect_of, no_transaction};
        use crate::outbox::{
            Answer, Dialect, DriverError, ErrorCode, OutboxTransaction, Pending, Progress, Step, Value, Work,
        };

        /// A connection of which the caller knows that it is in a transaction, as one that a function was handed as
        /// `&mut PgConnection`. That is checked: on a connection on which sqlx has begun none, the call fails with
        /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput). One that was begun by a plain `BEGIN` counts as
        /// none, as sqlx does not know of it: begin it with `begin()` or `begin_with()`.
        #[derive(Debug)]
        pub struct InTransaction<'t, C>(pub &'t mut C);

        /// A database of sqlx: `sqlx::Postgres`, `sqlx::MySql`, or `sqlx::Sqlite`.
        pub trait Backend: Database {
            #[doc(hidden)]
            fn run<'a>(
                connection: &'a mut Self::Connection,
                step: &'a Step<'_>,
            ) -> impl Future<Output = Result<Answer, sqlx::Error>> + Send + 'a;
        }

        impl<DB> Backend for DB
        where
            DB: Database + HasStatementCache,
            $($arguments)*,
            for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
            for<'v> Option<&'v str>: Encode<'v, DB> + Type<DB>,
            for<'v> Option<&'v [u8]>: Encode<'v, DB> + Type<DB>,
            for<'v> Option<i64>: Encode<'v, DB> + Type<DB> + Decode<'v, DB>,
            for<'n> &'n str: ColumnIndex<DB::Row>,
        {
            async fn run(connection: &mut DB::Connection, step: &Step<'_>) -> Result<Answer, sqlx::Error> {
                if let Some(before) = &step.before {
                    connection.execute(sqlx::raw_sql(text(before))).await?;
                }
                if step.is_plain {
                    connection.execute(sqlx::raw_sql(text(&step.sql))).await?;
                    return Ok(Answer::default());
                }
                let mut query = sqlx::query::<DB>(text(&step.sql));
                for value in &step.values {
                    query = match value {
                        Value::Text(text) => query.bind(text.as_deref()),
                        Value::Bytes(bytes) => query.bind(bytes.as_deref()),
                        Value::Integer(integer) => query.bind(*integer),
                    };
                }
                let rows = connection.fetch_all(query).await?;
                let read = |row: &DB::Row| {
                    let column = |name: &&str| row.try_get::<Option<i64>, _>(*name).ok().flatten();
                    step.columns.iter().map(column).collect()
                };
                Ok(Answer { row: rows.first().map(read) })
            }
        }

        impl<DB: Backend> OutboxTransaction for &mut Transaction<'_, DB> {
            type Outcome<'a, R: Send + 'a>
                = Pending<'a, R>
            where
                Self: 'a;

            fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
            where
                Self: 'a,
            {
                perform::<DB, R>(&mut **self, work)
            }
        }

        impl<C, DB> OutboxTransaction for InTransaction<'_, C>
        where
            C: Connection<Database = DB>,
            DB: Backend<Connection = C>,
        {
            type Outcome<'a, R: Send + 'a>
                = Pending<'a, R>
            where
                Self: 'a;

            fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
            where
                Self: 'a,
            {
                if !self.0.is_in_transaction() {
                    return Box::pin(async { Err(no_transaction()) });
                }
                perform::<DB, R>(self.0, work)
            }
        }

        fn perform<'a, DB: Backend, R: Send + 'a>(
            connection: &'a mut DB::Connection,
            work: Work<'a, R>,
        ) -> Pending<'a, R> {
            Box::pin(async move {
                let dialect = dialect_of(DB::NAME)?;
                let mut script = work.begin(dialect);
                loop {
                    match script.next() {
                        Progress::Run(step) => {
                            let answer = DB::run(connection, &step).await;
                            script.answer(answer.map_err(|error| driver_error(dialect, error)));
                        }
                        Progress::Done(result) => return result,
                    }
                }
            })
        }

        pub(super) fn driver_error(dialect: Dialect, error: sqlx::Error) -> DriverError {
            let (code, said, constraint) = describe(dialect, &error);
            DriverError::new(code, said, error).with_constraint(constraint)
        }

        /// The code, what the database said, and the constraint that was violated.
        pub(super) fn describe(dialect: Dialect, error: &sqlx::Error) -> (ErrorCode, String, Option<String>) {
            match error {
                sqlx::Error::Database(database) => {
                    let code = database_code(dialect, database.as_ref());
                    (code, database.message().to_owned(), database.constraint().map(str::to_owned))
                }
                sqlx::Error::Io(io) => (ErrorCode::Connection, format!("the server cannot be reached ({io})"), None),
                sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
                    (ErrorCode::Connection, format!("the connection is closed ({error})"), None)
                }
                other => (ErrorCode::Unknown, other.to_string(), None),
            }
        }

        fn database_code(dialect: Dialect, error: &dyn sqlx::error::DatabaseError) -> ErrorCode {
            #[cfg(feature = "mysql")]
            if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
                return ErrorCode::MySql(error.number());
            }
            super::run::code_of(dialect, error.code().as_deref(), error.is_unique_violation())
        }
    };
}
