//! deadpool-postgres: one pool for all transactions of a test, so that what one leaves behind would meet the next.

use deadpool_postgres::{Config, Pool, Runtime, Transaction};
use tokio::sync::OnceCell;

use crate::database::Database;
use crate::scenarios::{Driver, End, Op, Said, poll_times, run_op, tests};

#[derive(Default)]
struct Deadpool(OnceCell<Pool>);

tests!(deadpool, Deadpool::default(), Kind::Postgres, a_cancelled_enqueue_can_be_rolled_back);

impl Driver for Deadpool {
    async fn run(&self, database: &Database, ops: &[Op], end: End) -> Vec<Said> {
        let connect = async || {
            let config = Config { url: Some(database.url.clone()), ..Config::default() };
            config.create_pool(Some(Runtime::Tokio1), tokio_postgres::NoTls).unwrap()
        };
        let mut client = self.0.get_or_init(connect).await.get().await.unwrap();
        let mut tx = client.transaction().await.unwrap();
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
                Box::pin(apply(database, &mut inner, ops)).await;
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
            Op::EnqueueAll(_) => run_op!(database, op, &mut *tx, await),
            op => run_op!(database, op, &*tx, await),
        });
    }
    said
}
