//! diesel-async.

use ::diesel::QueryResult;
use ::diesel::result::Error as DieselError;
use ::diesel_async::{AsyncConnection, AsyncMysqlConnection, AsyncPgConnection, SimpleAsyncConnection};
use futures_util::future::BoxFuture;
use posthaste::diesel_async_0_9::InTransaction;
use posthaste::{ErrorKind, Message};

use crate::database::Database;
use crate::scenarios::{Driver, End, Op, Said, poll_times, run_op, tests};

struct Pg;
struct Mysql;

tests!(postgres, Pg, Kind::Postgres, a_cancelled_enqueue_can_be_rolled_back);
tests!(mysql, Mysql, Kind::MySql, a_cancelled_enqueue_can_be_rolled_back);

macro_rules! driver {
    ($driver:ident, $connection:ty, $apply:ident) => {
        impl Driver for $driver {
            async fn run(&self, database: &Database, ops: &[Op], end: End) -> Vec<Said> {
                let mut connection = <$connection>::establish(&database.url).await.unwrap();
                let mut said = Vec::new();
                let ended: QueryResult<()> = connection
                    .transaction(async |connection| {
                        said = $apply(database, connection, ops).await;
                        if end == End::Commit { Ok(()) } else { Err(DieselError::RollbackTransaction) }
                    })
                    .await;
                assert!(end != End::Commit || ended.is_ok(), "{ended:?}");
                said
            }
        }

        fn $apply<'a>(
            database: &'a Database,
            connection: &'a mut $connection,
            ops: &'a [Op],
        ) -> BoxFuture<'a, Vec<Said>> {
            Box::pin(async move {
                let mut said = Vec::new();
                for op in ops {
                    said.push(match op {
                        Op::Order(id) => {
                            let sql = format!("INSERT INTO {} (id) VALUES ({id})", database.orders());
                            connection.batch_execute(&sql).await.map(|()| 0).map_err(|_| ErrorKind::Database)
                        }
                        Op::Sql(sql) => {
                            connection.batch_execute(sql).await.map(|()| 0).map_err(|_| ErrorKind::Database)
                        }
                        Op::Elsewhere(what) => {
                            database.elsewhere(what).await;
                            Ok(0)
                        }
                        Op::Nested(ops, commit) => {
                            let _: QueryResult<()> = connection
                                .transaction(async |connection| {
                                    $apply(database, connection, ops).await;
                                    if *commit { Ok(()) } else { Err(DieselError::RollbackTransaction) }
                                })
                                .await;
                            Ok(0)
                        }
                        Op::Cancel(message, polls) => {
                            let enqueue = database.outbox.enqueue(InTransaction(connection), message);
                            Ok(usize::from(poll_times(enqueue, *polls).await))
                        }
                        op => run_op!(database, op, InTransaction(connection), await),
                    });
                }
                said
            })
        }
    };
}

driver!(Pg, AsyncPgConnection, apply_pg);
driver!(Mysql, AsyncMysqlConnection, apply_mysql);

#[tokio::test]
async fn a_connection_that_is_in_no_transaction_is_refused() {
    let database = Database::new(crate::database::Kind::Postgres).await;
    let mut connection = AsyncPgConnection::establish(&database.url).await.unwrap();
    let error =
        database.outbox.enqueue(InTransaction(&mut connection), &Message::new("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(database.committed().await.0.is_empty());
}
