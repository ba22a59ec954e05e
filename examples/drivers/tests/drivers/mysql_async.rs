//! `mysql_async`. It has no nested transactions: savepoints are plain SQL.

use ::mysql_async::prelude::Queryable;
use ::mysql_async::{Pool, Transaction, TxOpts};
use posthaste::mysql_async_0_37::InTransaction;
use posthaste::{ErrorKind, Message};
use tokio::sync::OnceCell;

use crate::database::Database;
use crate::scenarios::{Driver, End, Op, Said, poll_times, run_op, tests};

#[derive(Default)]
struct MysqlAsync(OnceCell<Pool>);

tests!(mysql, MysqlAsync::default(), Kind::MySql, a_cancelled_enqueue_can_be_rolled_back);

impl Driver for MysqlAsync {
    async fn run(&self, database: &Database, ops: &[Op], end: End) -> Vec<Said> {
        let pool = self.0.get_or_init(async || Pool::new(database.url.as_str())).await;
        let mut tx = pool.start_transaction(TxOpts::default()).await.unwrap();
        let said = Box::pin(apply(database, &mut tx, ops)).await;
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
            End::Drop => drop(tx),
        }
        said
    }
}

async fn apply(database: &Database, tx: &mut Transaction<'_>, ops: &[Op]) -> Vec<Said> {
    let mut said = Vec::new();
    for op in ops {
        said.push(match op {
            Op::Order(id) => {
                let sql = format!("INSERT INTO {} (id) VALUES ({id})", database.orders());
                tx.query_drop(sql).await.map(|()| 0).map_err(|_| ErrorKind::Database)
            }
            Op::Sql(sql) => tx.query_drop(sql).await.map(|()| 0).map_err(|_| ErrorKind::Database),
            Op::Elsewhere(what) => {
                database.elsewhere(what).await;
                Ok(0)
            }
            Op::Nested(ops, commit) => {
                tx.query_drop("SAVEPOINT inner_one").await.unwrap();
                Box::pin(apply(database, tx, ops)).await;
                let end = if *commit { "RELEASE SAVEPOINT" } else { "ROLLBACK TO SAVEPOINT" };
                tx.query_drop(format!("{end} inner_one")).await.unwrap();
                Ok(0)
            }
            Op::Cancel(message, polls) => {
                Ok(usize::from(poll_times(database.outbox.enqueue(&mut *tx, message), *polls).await))
            }
            op => run_op!(database, op, &mut *tx, await),
        });
    }
    said
}

#[tokio::test]
async fn a_connection_in_a_plain_transaction_can_be_used() {
    let database = Database::new(crate::database::Kind::MySql).await;
    let mut connection = ::mysql_async::Conn::from_url(&database.url).await.unwrap();
    let message = Message::new("a");
    for (end, expected) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        connection.query_drop("START TRANSACTION").await.unwrap();
        database.outbox.enqueue(InTransaction(&mut connection), &message).await.unwrap();
        connection.query_drop(end).await.unwrap();
        assert_eq!(database.committed().await.0.len(), expected);
    }
}

#[tokio::test]
async fn a_connection_that_is_in_no_transaction_is_refused() {
    let database = Database::new(crate::database::Kind::MySql).await;
    let mut connection = ::mysql_async::Conn::from_url(&database.url).await.unwrap();
    for before in
        ["DO 1", "SELECT 1", "START TRANSACTION; COMMIT", "START TRANSACTION; CREATE TABLE t (a INT)"]
    {
        for statement in before.split("; ") {
            connection.query_drop(statement).await.unwrap();
        }
        let error = database.outbox.enqueue(InTransaction(&mut connection), &Message::new("a")).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidInput, "{before}");
    }
    assert!(database.committed().await.0.is_empty());
    // Without autocommit, each statement begins one.
    connection.query_drop("SET autocommit = 0").await.unwrap();
    database.outbox.enqueue(InTransaction(&mut connection), &Message::new("lost")).await.unwrap();
    connection.query_drop("ROLLBACK").await.unwrap();
    database.outbox.enqueue(InTransaction(&mut connection), &Message::new("kept")).await.unwrap();
    connection.query_drop("COMMIT").await.unwrap();
    assert_eq!(database.committed().await.0, ["kept"]);
}
