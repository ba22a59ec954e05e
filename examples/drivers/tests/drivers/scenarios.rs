//! What has to hold with every driver.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt;
use posthaste::{ErrorKind, Message};

use crate::database::{Database, Kind};
use crate::elsewhere::Elsewhere;

/// What is done in a transaction.
#[derive(Debug, Clone)]
pub enum Op {
    /// The business write.
    Order(i64),
    Sql(String),
    Enqueue(Message),
    EnqueueAll(Vec<Message>),
    FirstTime(&'static str),
    /// In a savepoint, which is kept or rolled back.
    Nested(Vec<Op>, bool),
    /// On another connection.
    Elsewhere(Elsewhere),
    /// The future of an enqueue is polled so many times and dropped, if the driver has any.
    Cancel(Message, usize),
    Panic,
}

/// How the transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Commit,
    Rollback,
    /// It is dropped, where the driver's can be.
    Drop,
}

/// What an operation came to: how many were enqueued, whether it was the first time, whether it came to its end.
pub type Said = Result<usize, ErrorKind>;

/// A cancelled query can leave a connection of sqlx to MySQL in a state in which it never answers again: it must not go
/// back to the pool.
pub fn spoils_the_connection(database: &Database, ops: &[Op]) -> bool {
    database.kind == Kind::MySql && ops.iter().any(|op| matches!(op, Op::Cancel(..)))
}

/// A driver under test.
pub trait Driver {
    /// Runs operations in one transaction. After `Op::Panic` it panics.
    fn run(&self, database: &Database, ops: &[Op], end: End) -> impl Future<Output = Vec<Said>>;
}

/// Runs the operations that all drivers run alike; `await` is given by those that wait.
macro_rules! run_op {
    ($database:expr, $op:expr, $tx:expr $(, $wait:tt)?) => {
        match $op {
            $crate::scenarios::Op::Enqueue(message) => {
                $database.outbox.enqueue($tx, message)$(.$wait)?.map(|_| 1).map_err(|error| error.kind())
            }
            $crate::scenarios::Op::EnqueueAll(messages) => {
                $database
                    .outbox
                    .enqueue_all($tx, messages)$(.$wait)?
                    .map(|receipts| receipts.len())
                    .map_err(|error| error.kind())
            }
            $crate::scenarios::Op::FirstTime(id) => {
                $database
                    .inbox
                    .first_time($tx, "consumer", id)$(.$wait)?
                    .map(usize::from)
                    .map_err(|error| error.kind())
            }
            $crate::scenarios::Op::Panic => panic!("in the middle of a transaction"),
            other => unreachable!("{other:?}"),
        }
    };
}
pub(crate) use run_op;

/// Polls a future at most so many times, each time when it has asked for it. Whether it came to its end.
pub async fn poll_times<F: Future>(future: F, times: usize) -> bool {
    let mut future = pin!(future);
    for _ in 0..times {
        let mut polled = false;
        let done = std::future::poll_fn(|context| {
            if polled {
                return Poll::Ready(false);
            }
            polled = true;
            match future.as_mut().poll(context) {
                Poll::Ready(_) => Poll::Ready(true),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        if done {
            return true;
        }
    }
    false
}

fn events(database: &(Vec<String>, i64)) -> (Vec<&str>, i64) {
    (database.0.iter().map(String::as_str).collect(), database.1)
}

fn message(event_type: &str) -> Message {
    Message::new(event_type).aggregate("order", 1).json(&1).unwrap()
}

pub async fn commit_keeps_everything_in_order(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let many = (0..5).map(|n| message(&format!("many {n}"))).collect();
    let ops = [Op::Order(1), Op::Enqueue(message("one")), Op::EnqueueAll(many), Op::Enqueue(message("last"))];
    let said = driver.run(&database, &ops, End::Commit).await;
    assert_eq!(said, [Ok(0), Ok(1), Ok(5), Ok(1)]);
    let expected = ["one", "many 0", "many 1", "many 2", "many 3", "many 4", "last"];
    assert_eq!(events(&database.committed().await), (expected.to_vec(), 1));
}

pub async fn what_is_not_committed_is_not_there(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let ops = [Op::Order(1), Op::Enqueue(message("a")), Op::EnqueueAll(vec![message("b"), message("c")])];
    for end in [End::Rollback, End::Drop] {
        assert_eq!(driver.run(&database, &ops, end).await, [Ok(0), Ok(1), Ok(2)], "{end:?}");
        assert_eq!(events(&database.committed().await), (vec![], 0), "{end:?}");
    }
    // The same rows again: nothing of the others is left, nor open.
    driver.run(&database, &ops, End::Commit).await;
    assert_eq!(events(&database.committed().await), (vec!["a", "b", "c"], 1));
}

pub async fn a_panic_leaves_nothing(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let ops = [Op::Order(1), Op::Enqueue(message("a")), Op::Panic];
    let run = std::panic::AssertUnwindSafe(driver.run(&database, &ops, End::Commit));
    assert!(run.catch_unwind().await.is_err());
    assert_eq!(events(&database.committed().await), (vec![], 0));
}

pub async fn savepoints_count(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let ops = [
        Op::Enqueue(message("outer")),
        Op::Nested(
            vec![Op::Order(1), Op::Enqueue(message("lost")), Op::EnqueueAll(vec![message("lost")])],
            false,
        ),
        Op::Nested(
            vec![Op::Order(2), Op::Enqueue(message("kept")), Op::EnqueueAll(vec![message("kept too")])],
            true,
        ),
        Op::Enqueue(message("end")),
    ];
    driver.run(&database, &ops, End::Commit).await;
    assert_eq!(events(&database.committed().await), (vec!["outer", "kept", "kept too", "end"], 1));
}

pub async fn duplicates_leave_the_transaction_usable(driver: impl Driver, kind: Kind) {
    use ErrorKind::{DuplicateId, DuplicateKey, InvalidMessage};
    let database = Database::new(kind).await;
    let keyed = |event_type: &str| message(event_type).idempotency_key("key");
    let first = keyed("first");
    driver.run(&database, &[Op::Enqueue(first.clone())], End::Commit).await;
    let mut hundred: Vec<_> = (0..100).map(|_| message("lost")).collect();
    hundred[70] = message("same id").with_id(first.id());
    let other_key = message("other").idempotency_key("other key");
    let ops = [
        Op::Order(1),
        Op::Enqueue(keyed("again")),
        Op::Enqueue(message("same id").with_id(first.id())),
        Op::Enqueue(other_key.clone().with_id(first.id())),
        Op::EnqueueAll(vec![message("lost"), keyed("again")]),
        Op::EnqueueAll(vec![message("lost"), message("same id").with_id(first.id()), other_key.clone()]),
        Op::EnqueueAll(vec![message("lost"), Message::new("")]),
        Op::EnqueueAll(hundred),
        // Its key is free, although one with a used id was refused.
        Op::Enqueue(other_key),
        Op::EnqueueAll(vec![message("x"), message("y").idempotency_key("y")]),
    ];
    let said = driver.run(&database, &ops, End::Commit).await;
    let expected = [
        Ok(0),
        Err(DuplicateKey),
        Err(DuplicateId),
        Err(DuplicateId),
        Err(DuplicateKey),
        Err(DuplicateId),
        Err(InvalidMessage),
        Err(DuplicateId),
        Ok(1),
        Ok(2),
    ];
    assert_eq!(said, expected);
    assert_eq!(events(&database.committed().await), (vec!["first", "other", "x", "y"], 1));
}

/// Control characters are data like others.
const CONTROLS: &str = "\u{1}\u{8}\t\r\n\u{1b}\u{7f}\u{85}\u{2028}";

pub async fn everything_arrives_as_it_was(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let full = |n: u32| {
        Message::new(format!("full {n} \"quoted\\ 'ü' {{}}, $1 ?1{CONTROLS}"))
            .aggregate(format!("a\"b\\{CONTROLS}"), format!("c,{{d}}'{CONTROLS}"))
            .payload(bytes.clone())
            .content_type(format!("application/x; charset=\"ü\"{CONTROLS}"))
            .header("name\"", format!("value\\ {{\"x\": 'ü'}}{CONTROLS}"))
            .idempotency_key(format!("key\\\"{n}'{CONTROLS}"))
            .delay(Duration::from_hours(1))
    };
    let bare = |name: &str| Message::new(name);
    let ops = [
        Op::Enqueue(full(0)),
        Op::Enqueue(bare("tombstone")),
        Op::Enqueue(bare("empty").payload("")),
        Op::EnqueueAll(vec![
            full(1),
            bare("tombstone all"),
            bare("empty all").payload(""),
            bare("NULL").payload("NULL"),
        ]),
    ];
    assert_eq!(driver.run(&database, &ops, End::Commit).await, [Ok(1), Ok(1), Ok(1), Ok(4)]);
    let table =
        if kind == Kind::Postgres { format!("{}.outbox", database.name) } else { "outbox".to_owned() };
    let (hex, text) = match kind {
        Kind::Postgres => (
            "encode(payload, 'hex')",
            "concat_ws('|', event_type, aggregate_type, aggregate_id, content_type, headers->>'name\"', idempotency_key)",
        ),
        Kind::MySql => (
            "lower(hex(payload))",
            "concat_ws('|', event_type, aggregate_type, aggregate_id, content_type, json_value(headers, '$.\"name\\\\\"\"'), idempotency_key)",
        ),
        Kind::Sqlite => (
            "lower(hex(payload))",
            "event_type || '|' || aggregate_type || '|' || aggregate_id || '|' || content_type || '|' || (headers ->> '$.name\"') || '|' || idempotency_key",
        ),
    };
    let hex_of = |payload: &[u8]| payload.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let order = if kind == Kind::MySql { "created_at, id" } else { "seq" };
    let is_tombstone = if kind == Kind::MySql { "tombstone" } else { "payload IS NULL" };
    let payloads = database
        .texts(&format!(
            "SELECT CASE WHEN {is_tombstone} THEN 'none' ELSE {hex} END FROM {table}
             WHERE {is_tombstone} OR {hex} <> '' ORDER BY {order}"
        ))
        .await;
    let whole = hex_of(&bytes);
    assert_eq!(payloads.len(), 5, "two tombstones, two full, and one that looks like a NULL");
    assert_eq!(payloads.iter().filter(|payload| **payload == whole).count(), 2);
    assert_eq!(payloads.iter().filter(|payload| *payload == "none").count(), 2);
    assert!(payloads.contains(&hex_of(b"NULL")));
    for n in [0, 1] {
        let expected = format!(
            "full {n} \"quoted\\ 'ü' {{}}, $1 ?1{CONTROLS}|a\"b\\{CONTROLS}|c,{{d}}'{CONTROLS}|\
             application/x; charset=\"ü\"{CONTROLS}|value\\ {{\"x\": 'ü'}}{CONTROLS}|key\\\"{n}'{CONTROLS}"
        );
        let like = format!("SELECT {text} FROM {table} WHERE event_type LIKE 'full {n}%'");
        assert_eq!(database.texts(&like).await, [expected]);
    }
    let delayed = match kind {
        Kind::Postgres => format!("SELECT count(*) FROM {table} WHERE next_attempt_at BETWEEN now() + interval '58 min' AND now() + interval '61 min'"),
        Kind::MySql => "SELECT count(*) FROM outbox WHERE next_attempt_at BETWEEN utc_timestamp() + interval 58 minute AND utc_timestamp() + interval 61 minute".to_owned(),
        Kind::Sqlite => "SELECT count(*) FROM outbox WHERE next_attempt_at / 1000 - strftime('%s', 'now') BETWEEN 3480 AND 3660".to_owned(),
    };
    assert_eq!(database.number(&delayed).await, 2);
    let at_once = format!("SELECT count(*) FROM {table} WHERE next_attempt_at IS NULL");
    assert_eq!(database.number(&at_once).await, 5);
}

/// The one character that PostgreSQL cannot store, and that ends a text for much other software.
pub async fn a_nul_character_is_refused(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let with = [
        Message::new("nul\0"),
        message("nul").aggregate("nul\0", 1),
        message("nul").aggregate("nul", "1\0"),
        message("nul").content_type("nul\0"),
        message("nul").header("nul\0", "x"),
        message("nul").header("nul", "\0"),
        message("nul").idempotency_key("nul\0"),
    ];
    let mut ops = vec![Op::Order(1), Op::FirstTime("nul\0")];
    for message in with {
        ops.extend([Op::Enqueue(message.clone()), Op::EnqueueAll(vec![Message::new("lost"), message])]);
    }
    // In a payload it is a byte like any other; in JSON it is escaped, and nobody unescapes it.
    ops.push(Op::Enqueue(Message::new("kept").json("\0").unwrap()));
    ops.push(Op::Enqueue(Message::new("kept too").payload("\0")));
    let said = driver.run(&database, &ops, End::Commit).await;
    let mut expected = vec![Ok(0), Err(ErrorKind::InvalidInput)];
    expected.extend([Err(ErrorKind::InvalidMessage); 14]);
    expected.extend([Ok(1), Ok(1)]);
    assert_eq!(said, expected);
    assert_eq!(events(&database.committed().await), (vec!["kept", "kept too"], 1));
}

pub async fn what_the_server_would_not_take_is_refused(driver: impl Driver, kind: Kind) {
    let mut database = Database::new(kind).await;
    if kind != Kind::MySql {
        return;
    }
    let most = usize::try_from(database.number("SELECT CAST(@@max_allowed_packet AS SIGNED)").await).unwrap();
    let rules = posthaste::Rules::default().max_payload_bytes(usize::MAX);
    database.outbox = database.outbox.clone().with_rules(rules);
    let large = Message::new("too large").payload(vec![0_u8; most]).idempotency_key("key");
    let ops = [
        Op::Enqueue(large.clone()),
        Op::EnqueueAll(vec![message("lost"), large]),
        Op::Enqueue(message("kept").idempotency_key("key")),
    ];
    let too_large = Err(ErrorKind::PayloadTooLarge);
    assert_eq!(driver.run(&database, &ops, End::Commit).await, [too_large, too_large, Ok(1)]);
    assert_eq!(events(&database.committed().await), (vec!["kept"], 0));
}

pub async fn many_go_at_once_and_in_order(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let count = if kind == Kind::Postgres { 12_000 } else { 1_200 };
    let name = |n: usize| format!("event {n:05}");
    let mut messages: Vec<_> = (0..count).map(|n| message(&name(n))).collect();
    // Ids do not say the order.
    messages[..10].reverse();
    let expected: Vec<_> = messages.iter().map(|message| message.event_type().to_owned()).collect();
    let said = driver.run(&database, &[Op::EnqueueAll(messages), Op::EnqueueAll(vec![])], End::Commit).await;
    assert_eq!(said, [Ok(count), Ok(0)]);
    assert_eq!(database.committed().await.0, expected);
}

pub async fn an_inbox_takes_a_message_once(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let ops = [Op::FirstTime("1"), Op::FirstTime("1"), Op::FirstTime("2"), Op::FirstTime("")];
    let expected = [Ok(1), Ok(0), Ok(1), Err(ErrorKind::InvalidInput)];
    assert_eq!(driver.run(&database, &ops, End::Rollback).await, expected);
    assert_eq!(driver.run(&database, &ops, End::Commit).await, expected, "the first was rolled back");
    assert_eq!(driver.run(&database, &ops[..1], End::Commit).await, [Ok(0)]);
}

pub async fn of_two_copies_at_once_one_has_an_effect(driver: impl Driver, kind: Kind) {
    // It has one writer.
    if kind == Kind::Sqlite {
        return;
    }
    let database = Database::new(kind).await;
    for (id, commit) in [("1", true), ("2", false)] {
        let ops = [Op::Elsewhere(Elsewhere::Note(id, commit)), Op::FirstTime(id)];
        let said = driver.run(&database, &ops, End::Commit).await;
        assert_eq!(said, [Ok(0), Ok(usize::from(!commit))], "the other one commits: {commit}");
        database.over_there().await;
    }
}

pub async fn a_lost_transaction_is_a_conflict(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let taken = || message("taken").idempotency_key("key");
    let look = Op::Sql(format!("SELECT id FROM {}", database.orders()));
    let elsewhere = Op::Elsewhere(Elsewhere::Commit(taken()));
    let ops = match kind {
        Kind::Postgres => vec![
            Op::Sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ".to_owned()),
            look,
            elsewhere,
            Op::Enqueue(taken()),
        ],
        // A deferred transaction that has read cannot write once another one has.
        Kind::Sqlite => vec![look, elsewhere, Op::Enqueue(taken())],
        // Its transactions only deadlock.
        Kind::MySql => return,
    };
    let said = driver.run(&database, &ops, End::Rollback).await;
    assert_eq!(said.last(), Some(&Err(ErrorKind::Conflict)));
    // Run again from its start, it succeeds.
    assert_eq!(driver.run(&database, &[Op::Enqueue(message("again"))], End::Commit).await, [Ok(1)]);
    assert_eq!(events(&database.committed().await), (vec!["taken", "again"], 0));
}

pub async fn a_deadlock_is_a_conflict(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let taken = || message("taken").idempotency_key("key");
    let mut ops = vec![Op::Order(1), Op::Elsewhere(Elsewhere::Entangle(taken())), Op::Enqueue(taken())];
    match kind {
        Kind::Postgres => ops.insert(0, Op::Sql("SET LOCAL deadlock_timeout = '10ms'".to_owned())),
        Kind::MySql => {}
        // It has one writer.
        Kind::Sqlite => return,
    }
    let said = driver.run(&database, &ops, End::Rollback).await;
    assert_eq!(said.last(), Some(&Err(ErrorKind::Conflict)));
    database.over_there().await;
    let ops = [Op::Enqueue(taken()), Op::Enqueue(message("again"))];
    assert_eq!(driver.run(&database, &ops, End::Commit).await, [Err(ErrorKind::DuplicateKey), Ok(1)]);
    assert_eq!(database.committed().await.0, ["taken", "again"]);
}

pub async fn a_cancelled_enqueue_can_be_rolled_back(driver: impl Driver, kind: Kind) {
    let database = Database::new(kind).await;
    let cancelled = message("cancelled").idempotency_key("key");
    let mut polls = 0;
    loop {
        let said =
            driver.run(&database, &[Op::Order(1), Op::Cancel(cancelled.clone(), polls)], End::Drop).await;
        assert_eq!(events(&database.committed().await), (vec![], 0), "after {polls} polls");
        assert_eq!(driver.run(&database, &[Op::Sql("SELECT 1".to_owned())], End::Commit).await, [Ok(0)]);
        if said[1] == Ok(1) {
            break;
        }
        polls += 1;
        assert!(polls < 100, "it never ends");
    }
    assert!(polls > 0, "it awaits something");
    assert_eq!(driver.run(&database, &[Op::Enqueue(cancelled)], End::Commit).await, [Ok(1)]);
}

/// The tests of one driver on one kind of database.
macro_rules! tests {
    ($name:ident, $driver:expr, $kind:expr $(, $cancelled:ident)?) => {
        mod $name {
            use super::*;
            use crate::database::Kind;
            use crate::scenarios;

            $crate::scenarios::tests!(@each $driver, $kind,
                commit_keeps_everything_in_order,
                what_is_not_committed_is_not_there,
                a_panic_leaves_nothing,
                savepoints_count,
                duplicates_leave_the_transaction_usable,
                everything_arrives_as_it_was,
                a_nul_character_is_refused,
                what_the_server_would_not_take_is_refused,
                many_go_at_once_and_in_order,
                an_inbox_takes_a_message_once,
                of_two_copies_at_once_one_has_an_effect,
                a_lost_transaction_is_a_conflict,
                a_deadlock_is_a_conflict
                $(, $cancelled)?);
        }
    };
    (@each $driver:expr, $kind:expr, $($scenario:ident),*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $scenario() {
            scenarios::$scenario($driver, $kind).await;
        }
    )*};
}
pub(crate) use tests;
