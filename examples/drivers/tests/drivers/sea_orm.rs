//! sea-orm.

use ::sea_orm::{ConnectOptions, ConnectionTrait, DatabaseConnection, DatabaseTransaction, TransactionTrait};
use posthaste::ErrorKind;
use tokio::sync::OnceCell;

use crate::database::{Database, Kind as Of};
use crate::scenarios::{Driver, End, Op, Said, poll_times, run_op, spoils_the_connection, tests};

#[derive(Default)]
struct SeaOrm(OnceCell<DatabaseConnection>);

tests!(postgres, SeaOrm::default(), Kind::Postgres, a_cancelled_enqueue_can_be_rolled_back);
tests!(mysql, SeaOrm::default(), Kind::MySql, a_cancelled_enqueue_can_be_rolled_back);
tests!(sqlite, SeaOrm::default(), Kind::Sqlite, a_cancelled_enqueue_can_be_rolled_back);

impl Driver for SeaOrm {
    async fn run(&self, database: &Database, ops: &[Op], end: End) -> Vec<Said> {
        let connect = async || {
            let scheme = if database.kind == Of::Sqlite { "sqlite://" } else { "" };
            let mut options = ConnectOptions::new(format!("{scheme}{}", database.url));
            options.max_connections(1);
            ::sea_orm::Database::connect(options).await.unwrap()
        };
        let own;
        let pool = if spoils_the_connection(database, ops) {
            own = connect().await;
            &own
        } else {
            self.0.get_or_init(connect).await
        };
        let tx = pool.begin().await.unwrap();
        let said = Box::pin(apply(database, &tx, ops)).await;
        match end {
            End::Commit => tx.commit().await.unwrap(),
            End::Rollback => tx.rollback().await.unwrap(),
            End::Drop => drop(tx),
        }
        said
    }
}

async fn apply(database: &Database, tx: &DatabaseTransaction, ops: &[Op]) -> Vec<Said> {
    let mut said = Vec::new();
    for op in ops {
        said.push(match op {
            Op::Order(id) => {
                let sql = format!("INSERT INTO {} (id) VALUES ({id})", database.orders());
                tx.execute_unprepared(&sql).await.map(|_| 0).map_err(|_| ErrorKind::Database)
            }
            Op::Sql(sql) => tx.execute_unprepared(sql).await.map(|_| 0).map_err(|_| ErrorKind::Database),
            Op::Elsewhere(what) => {
                database.elsewhere(what).await;
                Ok(0)
            }
            Op::Nested(ops, commit) => {
                let inner = tx.begin().await.unwrap();
                Box::pin(apply(database, &inner, ops)).await;
                if *commit {
                    inner.commit().await.unwrap()
                } else {
                    inner.rollback().await.unwrap()
                }
                Ok(0)
            }
            Op::Cancel(message, polls) => {
                Ok(usize::from(poll_times(database.outbox.enqueue(tx, message), *polls).await))
            }
            op => run_op!(database, op, tx, await),
        });
    }
    said
}
