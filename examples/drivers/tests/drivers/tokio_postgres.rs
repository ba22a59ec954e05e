//! tokio-postgres.

use ::tokio_postgres::Transaction;
use posthaste::tokio_postgres_0_7::{InTransaction, Prepared};

use crate::database::{Database, postgres_client};
use crate::scenarios::{Driver, End, Op, Said, poll_times, run_op, tests};

#[derive(Clone, Copy)]
enum Way {
    Shared,
    Exclusive,
    Prepared,
}

struct TokioPostgres(Way);

tests!(shared, TokioPostgres(Way::Shared), Kind::Postgres, a_cancelled_enqueue_can_be_rolled_back);
tests!(exclusive, TokioPostgres(Way::Exclusive), Kind::Postgres);
tests!(prepared, TokioPostgres(Way::Prepared), Kind::Postgres);

impl Driver for TokioPostgres {
    async fn run(&self, database: &Database, ops: &[Op], end: End) -> Vec<Said> {
        let mut client = postgres_client(&database.url).await;
        let prepared = Prepared::new(&client, &database.outbox).await.unwrap();
        let mut tx = client.transaction().await.unwrap();
        let said = Box::pin(self.apply(database, &prepared, &mut tx, ops)).await;
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
            End::Drop => drop(tx),
        }
        said
    }
}

impl TokioPostgres {
    async fn apply(
        &self,
        database: &Database,
        prepared: &Prepared,
        tx: &mut Transaction<'_>,
        ops: &[Op],
    ) -> Vec<Said> {
        let mut said = Vec::new();
        for op in ops {
            said.push(match op {
                Op::Order(id) => {
                    let sql = format!("INSERT INTO {} (id) VALUES ({id})", database.orders());
                    tx.execute(&sql, &[]).await.map(|_| 0).map_err(|_| posthaste::ErrorKind::Database)
                }
                Op::Sql(sql) => {
                    tx.batch_execute(sql).await.map(|()| 0).map_err(|_| posthaste::ErrorKind::Database)
                }
                Op::Elsewhere(what) => {
                    database.elsewhere(what).await;
                    Ok(0)
                }
                Op::Nested(ops, commit) => {
                    let mut inner = tx.transaction().await.unwrap();
                    Box::pin(self.apply(database, prepared, &mut inner, ops)).await;
                    if *commit {
                        inner.commit().await.unwrap()
                    } else {
                        inner.rollback().await.unwrap()
                    }
                    Ok(0)
                }
                Op::Cancel(message, polls) => {
                    Ok(usize::from(poll_times(database.outbox.enqueue(&*tx, message), *polls).await))
                }
                op => match self.0 {
                    Way::Shared => run_op!(database, op, &*tx, await),
                    Way::Exclusive => run_op!(database, op, &mut *tx, await),
                    Way::Prepared => run_op!(database, op, prepared.on(tx), await),
                },
            });
        }
        said
    }
}

#[tokio::test]
async fn a_connection_in_a_plain_transaction_can_be_used() {
    let database = Database::new(crate::database::Kind::Postgres).await;
    let mut client = postgres_client(&database.url).await;
    let message = posthaste::Message::new("a");
    for (end, expected) in [("ROLLBACK", 0), ("COMMIT", 1)] {
        client.batch_execute("BEGIN").await.unwrap();
        database.outbox.enqueue(InTransaction(&mut client), &message).await.unwrap();
        client.batch_execute(end).await.unwrap();
        assert_eq!(database.committed().await.0.len(), expected);
    }
}

/// Where a function was handed a `&mut Transaction`, `&mut tx` and `&mut *tx` both do.
#[tokio::test]
async fn a_borrowed_transaction_can_be_borrowed_again() {
    let database = Database::new(crate::database::Kind::Postgres).await;
    let mut client = postgres_client(&database.url).await;
    let mut owned = client.transaction().await.unwrap();
    let mut tx = &mut owned;
    let message = posthaste::Message::new("a");
    database.outbox.enqueue(&mut tx, &message).await.unwrap();
    database.outbox.enqueue(&mut *tx, &posthaste::Message::new("b")).await.unwrap();
    owned.commit().await.unwrap();
    assert_eq!(database.committed().await.0, ["a", "b"]);
}
