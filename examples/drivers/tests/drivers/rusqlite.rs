//! rusqlite: calls return results.

use std::ops::Deref;

use ::rusqlite::{Connection, Savepoint, Transaction};
use posthaste::rusqlite::InTransaction;
use posthaste::{ErrorKind, Message, OutboxTransaction};

use crate::database::{Database, Kind as Of};
use crate::scenarios::{Driver, End, Op, Said, run_op, tests};

struct Rusqlite;

tests!(sqlite, Rusqlite, Kind::Sqlite);

impl Driver for Rusqlite {
    async fn run(&self, database: &Database, ops: &[Op], end: End) -> Vec<Said> {
        let mut connection = Connection::open(&database.url).unwrap();
        let mut tx = connection.transaction().unwrap();
        let mut said = Vec::new();
        for op in ops {
            let nested = |ops: &[Op], commit: bool, tx: &mut Transaction<'_>| {
                let mut inner = tx.savepoint().unwrap();
                for op in ops {
                    one::<Savepoint<'_>>(database, &inner, op).unwrap();
                }
                if commit {
                    inner.commit().unwrap()
                } else {
                    inner.rollback().unwrap()
                }
                Ok(0)
            };
            said.push(match op {
                Op::Nested(ops, commit) => nested(ops, *commit, &mut tx),
                Op::Elsewhere(what) => {
                    database.elsewhere(what).await;
                    Ok(0)
                }
                Op::EnqueueAll(_) => run_op!(database, op, &mut tx),
                op => one::<Transaction<'_>>(database, &tx, op),
            });
        }
        match end {
            End::Commit => tx.commit().unwrap(),
            End::Rollback => tx.rollback().unwrap(),
            End::Drop => drop(tx),
        }
        said
    }
}

fn one<'t, T>(database: &'t Database, tx: &'t T, op: &'t Op) -> Said
where
    T: Deref<Target = Connection>,
    &'t T: OutboxTransaction,
    <&'t T as OutboxTransaction>::Outcome<'t, posthaste::Receipt>:
        Into<Result<posthaste::Receipt, posthaste::Error>>,
    <&'t T as OutboxTransaction>::Outcome<'t, Vec<posthaste::Receipt>>:
        Into<Result<Vec<posthaste::Receipt>, posthaste::Error>>,
    <&'t T as OutboxTransaction>::Outcome<'t, bool>: Into<Result<bool, posthaste::Error>>,
{
    match op {
        Op::Order(id) => tx
            .execute(&format!("INSERT INTO orders (id) VALUES ({id})"), [])
            .map(|_| 0)
            .map_err(|_| ErrorKind::Database),
        Op::Sql(sql) => {
            tx.query_row(sql, [], |_| Ok(())).ok();
            Ok(0)
        }
        Op::Enqueue(message) => {
            database.outbox.enqueue(tx, message).into().map(|_| 1).map_err(|error| error.kind())
        }
        Op::EnqueueAll(messages) => database
            .outbox
            .enqueue_all(tx, messages)
            .into()
            .map(|receipts| receipts.len())
            .map_err(|error| error.kind()),
        Op::FirstTime(id) => database
            .inbox
            .first_time(tx, "consumer", id)
            .into()
            .map(usize::from)
            .map_err(|error| error.kind()),
        Op::Panic => panic!("in the middle of a transaction"),
        other => unreachable!("{other:?}"),
    }
}

#[tokio::test]
async fn a_connection_that_is_in_no_transaction_is_refused() {
    let database = Database::new(Of::Sqlite).await;
    let mut connection = Connection::open(&database.url).unwrap();
    let message = Message::new("a");
    let error = database.outbox.enqueue(InTransaction(&mut connection), &message).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    database.outbox.enqueue(InTransaction(&mut connection), &message).unwrap();
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(database.committed().await.0, ["a"]);
}
