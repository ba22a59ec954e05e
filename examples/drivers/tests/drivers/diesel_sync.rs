//! diesel: calls return results.

use ::diesel::connection::SimpleConnection;
use ::diesel::result::Error as DieselError;
use ::diesel::{Connection, MysqlConnection, PgConnection, QueryResult, SqliteConnection};
use posthaste::diesel_2::InTransaction;
use posthaste::{ErrorKind, Message};

use crate::database::Database;
use crate::scenarios::{Driver, End, Op, Said, run_op, tests};

struct Pg;
struct Mysql;
struct Sqlite;

tests!(postgres, Pg, Kind::Postgres);
tests!(mysql, Mysql, Kind::MySql);
tests!(sqlite, Sqlite, Kind::Sqlite);

macro_rules! driver {
    ($driver:ident, $connection:ty, $apply:ident) => {
        impl Driver for $driver {
            async fn run(&self, database: &Database, ops: &[Op], end: End) -> Vec<Said> {
                tokio::task::block_in_place(|| {
                    let mut connection = <$connection>::establish(&database.url).unwrap();
                    let mut said = Vec::new();
                    let ended: QueryResult<()> = connection.transaction(|connection| {
                        said = $apply(database, connection, ops);
                        if end == End::Commit { Ok(()) } else { Err(DieselError::RollbackTransaction) }
                    });
                    assert!(end != End::Commit || ended.is_ok(), "{ended:?}");
                    said
                })
            }
        }

        fn $apply(database: &Database, connection: &mut $connection, ops: &[Op]) -> Vec<Said> {
            let mut said = Vec::new();
            for op in ops {
                said.push(match op {
                    Op::Order(id) => {
                        let sql = format!("INSERT INTO {} (id) VALUES ({id})", database.orders());
                        connection.batch_execute(&sql).map(|()| 0).map_err(|_| ErrorKind::Database)
                    }
                    Op::Sql(sql) => {
                        connection.batch_execute(sql).map(|()| 0).map_err(|_| ErrorKind::Database)
                    }
                    Op::Elsewhere(what) => {
                        tokio::runtime::Handle::current().block_on(database.elsewhere(what));
                        Ok(0)
                    }
                    Op::Nested(ops, commit) => {
                        let _: QueryResult<()> = connection.transaction(|connection| {
                            $apply(database, connection, ops);
                            if *commit { Ok(()) } else { Err(DieselError::RollbackTransaction) }
                        });
                        Ok(0)
                    }
                    op => run_op!(database, op, InTransaction(connection)),
                });
            }
            said
        }
    };
}

driver!(Pg, PgConnection, apply_pg);
driver!(Mysql, MysqlConnection, apply_mysql);
driver!(Sqlite, SqliteConnection, apply_sqlite);

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_in_no_transaction_is_refused() {
    let database = Database::new(crate::database::Kind::Sqlite).await;
    let mut connection = SqliteConnection::establish(&database.url).unwrap();
    let error = database.outbox.enqueue(InTransaction(&mut connection), &Message::new("a")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(database.committed().await.0.is_empty());
}
