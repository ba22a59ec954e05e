//! sqlx: one pool of one connection for all transactions of a test, so that what one leaves behind meets the next.

use ::sqlx::pool::PoolOptions;
use ::sqlx::{Connection, Database as Sql, Executor, MySql, Pool, Postgres, Sqlite, Transaction};
use posthaste::sqlx_0_9::{Backend, InTransaction};
use posthaste::{ErrorKind, Message};
use tokio::sync::OnceCell;

use crate::database::Database;
use crate::scenarios::{Driver, End, Op, Said, poll_times, run_op, spoils_the_connection, tests};

struct Sqlx<DB: Sql>(OnceCell<Pool<DB>>);

impl<DB: Sql> Default for Sqlx<DB> {
    fn default() -> Self {
        Self(OnceCell::new())
    }
}

tests!(postgres, Sqlx::<Postgres>::default(), Kind::Postgres, a_cancelled_enqueue_can_be_rolled_back);
tests!(mysql, Sqlx::<MySql>::default(), Kind::MySql, a_cancelled_enqueue_can_be_rolled_back);
tests!(sqlite, Sqlx::<Sqlite>::default(), Kind::Sqlite, a_cancelled_enqueue_can_be_rolled_back);

impl<DB> Driver for Sqlx<DB>
where
    DB: Backend,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    async fn run(&self, database: &Database, ops: &[Op], end: End) -> Vec<Said> {
        let own;
        let pool = if spoils_the_connection(database, ops) {
            own = connect(&database.url).await;
            &own
        } else {
            self.0.get_or_init(|| connect(&database.url)).await
        };
        let mut tx = pool.begin().await.unwrap();
        let said = Box::pin(apply(database, &mut tx, ops)).await;
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
            End::Drop => drop(tx),
        }
        said
    }
}

async fn connect<DB: Sql>(url: &str) -> Pool<DB> {
    PoolOptions::new().max_connections(1).connect(url).await.unwrap()
}

async fn apply<DB>(database: &Database, tx: &mut Transaction<'_, DB>, ops: &[Op]) -> Vec<Said>
where
    DB: Backend,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let mut said = Vec::new();
    for op in ops {
        said.push(match op {
            Op::Order(id) => {
                let sql = format!("INSERT INTO {} (id) VALUES ({id})", database.orders());
                tx.execute(::sqlx::raw_sql(::sqlx::AssertSqlSafe(sql)))
                    .await
                    .map(|_| 0)
                    .map_err(|_| ErrorKind::Database)
            }
            Op::Sql(sql) => {
                let sql = ::sqlx::raw_sql(::sqlx::AssertSqlSafe(sql.clone()));
                tx.fetch_all(sql).await.map(|_| 0).map_err(|_| ErrorKind::Database)
            }
            Op::Elsewhere(what) => {
                database.elsewhere(what).await;
                Ok(0)
            }
            Op::Nested(ops, commit) => {
                let mut inner = tx.begin().await.unwrap();
                Box::pin(apply(database, &mut inner, ops)).await;
                if *commit {
                    inner.commit().await.unwrap()
                } else {
                    inner.rollback().await.unwrap()
                }
                Ok(0)
            }
            Op::Cancel(message, polls) => {
                Ok(usize::from(poll_times(database.outbox.enqueue(&mut *tx, message), *polls).await))
            }
            Op::EnqueueAll(_) => run_op!(database, op, InTransaction(&mut **tx), await),
            op => run_op!(database, op, &mut *tx, await),
        });
    }
    said
}

/// sqlx up to 0.9.0 can give a connection back to the pool inside an open transaction, when `begin()` is cancelled. A
/// transaction that is begun on it is still one of its own: what it commits is there, what it rolls back is not.
#[tokio::test]
async fn a_cancelled_begin_does_no_harm_to_the_next_transaction() {
    let database = Database::new(crate::database::Kind::Postgres).await;
    let pool = connect::<Postgres>(&database.url).await;
    let mut polls = 0;
    loop {
        let finished = poll_times(pool.begin(), polls).await;
        let mut tx = pool.begin().await.unwrap();
        database.outbox.enqueue(&mut tx, &Message::new("lost")).await.unwrap();
        tx.rollback().await.unwrap();
        let mut tx = pool.begin().await.unwrap();
        database.outbox.enqueue(&mut tx, &Message::new("kept")).await.unwrap();
        tx.commit().await.unwrap();
        polls += 1;
        assert_eq!(database.committed().await.0, vec!["kept"; polls]);
        if finished {
            break;
        }
    }
}

#[tokio::test]
async fn a_connection_that_is_in_no_transaction_is_refused() {
    let database = Database::new(crate::database::Kind::Postgres).await;
    let mut connection = ::sqlx::PgConnection::connect(&database.url).await.unwrap();
    let message = Message::new("a");
    let error = database.outbox.enqueue(InTransaction(&mut connection), &message).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let mut tx = Connection::begin(&mut connection).await.unwrap();
    database.outbox.enqueue(InTransaction(&mut *tx), &message).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(database.committed().await.0, ["a"]);
}
