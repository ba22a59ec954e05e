//! Producers: an order and its message in one transaction, some of which are rolled back on purpose.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste::{Error, Message, MessageId, Outbox};
use rusqlite::{Connection, TransactionBehavior, params};
use tokio::time::Instant;

use super::chance;
use crate::failure::Failure;

/// The business table.
pub(crate) const ORDERS_TABLE: &str = "
    CREATE TABLE orders (
        message_id TEXT PRIMARY KEY,
        customer INTEGER NOT NULL,
        number INTEGER NOT NULL
    )";

/// The probability with which a transaction is rolled back and made again.
const ROLL_BACK: f64 = 0.05;

/// What a producer does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) messages: u64,
    pub(crate) keys: u64,
    pub(crate) seed: u64,
    /// This producer, of so many. Each key belongs to one of them: transactions of one key that overlap would
    /// have no defined order.
    pub(crate) producer: u64,
    pub(crate) producers: u64,
}

/// A message that was committed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Committed {
    pub(crate) id: MessageId,
    pub(crate) key: u64,
    /// Its number within its key.
    pub(crate) number: u64,
    /// When the commit had come back.
    pub(crate) at: Instant,
}

/// What a producer did.
#[derive(Debug, Default)]
pub(crate) struct Produced {
    pub(crate) committed: Vec<Committed>,
    pub(crate) rolled_back: HashSet<MessageId>,
}

/// Produces this producer's share of the messages.
pub(crate) fn produce(
    database: &Path,
    outbox: &Outbox,
    plan: Plan,
    stop: &AtomicBool,
) -> Result<Produced, Failure> {
    let mut connection = connect(database).map_err(failed)?;
    let mut produced = Produced::default();
    for index in (0..plan.messages).filter(|index| index % plan.keys % plan.producers == plan.producer) {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let (key, number) = (index % plan.keys, index / plan.keys);
        if chance(plan.seed, ("roll back", index)) < ROLL_BACK {
            let order = Order::new(key, number)?;
            order.place(&mut connection, outbox, false)?;
            produced.rolled_back.insert(order.message.id());
        }
        let order = Order::new(key, number)?;
        order.place(&mut connection, outbox, true)?;
        produced.committed.push(Committed { id: order.message.id(), key, number, at: Instant::now() });
    }
    Ok(produced)
}

/// A connection as a careful application would open it.
fn connect(database: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(database)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

struct Order {
    customer: u64,
    number: u64,
    message: Message,
}

impl Order {
    fn new(customer: u64, number: u64) -> Result<Self, Error> {
        let event = serde_json::json!({ "customer": customer, "number": number, "total": "12.50" });
        let message = Message::new("order.placed").aggregate("customer", customer).json(&event)?;
        Ok(Self { customer, number, message })
    }

    /// Writes the order and its message in one transaction.
    fn place(&self, connection: &mut Connection, outbox: &Outbox, commit: bool) -> Result<(), Failure> {
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
        tx.prepare_cached("INSERT INTO orders (message_id, customer, number) VALUES (?1, ?2, ?3)")
            .and_then(|mut insert| {
                insert.execute(params![
                    self.message.id().to_string(),
                    i64::try_from(self.customer).unwrap_or(i64::MAX),
                    i64::try_from(self.number).unwrap_or(i64::MAX)
                ])
            })
            .map_err(failed)?;
        let receipt = outbox.enqueue(&tx, &self.message)?;
        if commit {
            tx.commit().map_err(failed)?;
            receipt.wake();
        } else {
            tx.rollback().map_err(failed)?;
        }
        Ok(())
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is passed to `map_err`")]
pub(super) fn failed(error: rusqlite::Error) -> Failure {
    Failure::failed(format!("a producer of the demo failed: {error}"))
}
