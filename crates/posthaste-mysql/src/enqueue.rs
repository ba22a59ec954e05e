//! Enqueueing, in the caller's transaction.

use std::collections::BTreeSet;

use mysql_async::Transaction;
use posthaste::{Due, Error, ErrorKind, Message, Receipt, Rules, Waker};

use crate::connection::{ask, first};
use crate::error::{DUPLICATE, code, map};
use crate::sql::Sql;
use crate::store::MySqlStore;
use crate::table::TableName;
use crate::value::{
    Literal, bytes, delay, headers_to_json, int, list, optional_text, payload, text, time, timestamp, uuid,
};

const DOING: &str = "enqueueing";
/// How many messages and how many bytes one round trip takes.
const CHUNK_MESSAGES: usize = 1_000;
const CHUNK_BYTES: usize = 1024 * 1024;
/// What is shorter is sent without asking the server how much it takes: nobody sets its limit so low.
const SMALL: usize = 64 * 1024;
/// What a statement takes besides its rows.
const AROUND: usize = 2 * 1024;
const SAVE: &str = "SAVEPOINT posthaste_enqueue";
const KEEP: &str = "RELEASE SAVEPOINT posthaste_enqueue";
const UNDO: &str = "ROLLBACK TO SAVEPOINT posthaste_enqueue; RELEASE SAVEPOINT posthaste_enqueue";

/// The producer's side of an outbox: writes messages in the caller's own transaction. It has no connection of its own.
///
/// ```no_run
/// use mysql_async::TxOpts;
/// use mysql_async::prelude::Queryable;
/// use posthaste::{BoxError, Message};
/// use posthaste_mysql::MySqlOutbox;
///
/// # async fn place_order(conn: &mut mysql_async::Conn) -> Result<(), BoxError> {
/// let outbox = MySqlOutbox::new("outbox")?;
/// let mut tx = conn.start_transaction(TxOpts::default()).await?;
/// tx.query_drop("UPDATE orders SET state = 'paid' WHERE id = 7").await?;
/// let message = Message::new("order.paid").aggregate("order", 7).json(&serde_json::json!({"id": 7}))?;
/// let receipt = outbox.enqueue(&mut tx, &message).await?;
/// tx.commit().await?;
/// receipt.wake();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct MySqlOutbox {
    sql: Sql,
    table: TableName,
    rules: Rules,
    waker: Waker,
}

impl MySqlOutbox {
    /// The outbox of this name: `table` (in the connection's database) or `database.table`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the name cannot be one.
    pub fn new(table: &str) -> Result<Self, Error> {
        Ok(Self::of(&TableName::parse(table)?, Rules::default(), Waker::default()))
    }

    fn of(table: &TableName, rules: Rules, waker: Waker) -> Self {
        Self { sql: Sql::new(table), table: table.clone(), rules, waker }
    }

    /// Sets the rules that messages are held to.
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Enqueues a message: one statement, one round trip (one more for a message of more than 32 KiB). After a duplicate
    /// or a message that is refused the transaction is as it was before, and stays usable.
    ///
    /// # Errors
    /// - What [`Rules::check`] finds, and [`ErrorKind::InvalidMessage`] for a payload that is no JSON where the outbox
    ///   stores JSON.
    /// - [`ErrorKind::PayloadTooLarge`] if the message is larger than the server's `max_allowed_packet`, before it is sent.
    /// - [`ErrorKind::DuplicateKey`] and [`ErrorKind::DuplicateId`] if there is a message with the same. While another
    ///   open transaction has enqueued the same, this waits to see what becomes of it.
    /// - [`ErrorKind::Conflict`] if the transaction lost against another one, which has rolled it back: run it again.
    /// - What the database reports.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the message was enqueued in the transaction: roll it back.
    pub async fn enqueue(&self, tx: &mut Transaction<'_>, message: &Message) -> Result<Receipt, Error> {
        match self.enqueue_messages(tx, std::slice::from_ref(message)).await {
            Ok(()) => Ok(self.receipt(message)),
            Err(error) if error.kind() == ErrorKind::DuplicateId => {
                let text = format!("id {} is there already: the message was enqueued before", message.id());
                Err(Error::new(ErrorKind::DuplicateId, text))
            }
            Err(error) => Err(error),
        }
    }

    /// Enqueues messages in the order given; all or, after a duplicate or a message that is refused, none of them. A
    /// thousand messages or a mebibyte take one round trip.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Cancel safety
    /// As [`enqueue`](Self::enqueue).
    pub async fn enqueue_all(
        &self,
        tx: &mut Transaction<'_>,
        messages: &[Message],
    ) -> Result<Vec<Receipt>, Error> {
        self.enqueue_messages(tx, messages).await?;
        Ok(messages.iter().map(|message| self.receipt(message)).collect())
    }

    async fn enqueue_messages(&self, tx: &mut Transaction<'_>, messages: &[Message]) -> Result<(), Error> {
        messages.iter().try_for_each(|message| self.rules.check(message))?;
        check_duplicates(messages)?;
        let rows: Vec<_> = messages.iter().map(row).collect();
        let chunks = chunks(messages, &rows, self.room(tx, &rows).await?);
        // One statement by itself is done or not; several are undone together.
        let is_saved = chunks.len() > 1 || chunks.iter().any(|chunk| chunk.statements(&self.sql).len() > 1);
        for (n, chunk) in chunks.iter().enumerate() {
            let mut statements = chunk.statements(&self.sql);
            let is_last = n + 1 == chunks.len();
            if is_saved && n == 0 {
                statements.insert(0, Part { sql: SAVE.to_owned(), refuses: Refuses::Nothing });
            }
            if is_saved && is_last {
                statements.push(Part { sql: KEEP.to_owned(), refuses: Refuses::Nothing });
            }
            if let Err(error) = self.send(tx, &statements).await {
                if is_saved && leaves_the_transaction(error.kind()) {
                    ask(tx, UNDO).await.1.map_err(|error| self.error(error))?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    async fn send(&self, tx: &mut Transaction<'_>, statements: &[Part]) -> Result<(), Error> {
        let sql: Vec<_> = statements.iter().map(|part| part.sql.as_str()).collect();
        let (answers, result) = ask(tx, &sql.join(";")).await;
        result.map_err(|error| {
            // The statement that failed is the one behind those that answered.
            let refused = statements.get(answers.len()).map(|part| &part.refuses);
            match (code(&error), refused) {
                (Some(DUPLICATE), Some(Refuses::Key)) => duplicate_key(),
                (Some(DUPLICATE), Some(Refuses::Id)) => duplicate_id(),
                _ => self.error(error),
            }
        })
    }

    /// How many bytes a round trip may take. Refuses a message that the server would not take, which would cost the
    /// connection.
    async fn room(&self, tx: &mut Transaction<'_>, rows: &[Literal]) -> Result<usize, Error> {
        let all: usize = rows.iter().map(|row| row.as_sql().len()).sum();
        if all <= SMALL {
            return Ok(CHUNK_BYTES);
        }
        let (mut answers, result) = ask(tx, "SELECT @@max_allowed_packet AS most").await;
        result.map_err(|error| self.error(error))?;
        let rows_of_answer = answers.pop().map(|answer| answer.rows).unwrap_or_default();
        let most: usize = first(&rows_of_answer, "most").map_err(|failure| failure.into_error(DOING, ""))?;
        let longest = rows.iter().map(|row| row.as_sql().len()).max().unwrap_or_default();
        if longest.saturating_add(AROUND) > most {
            let text = format!(
                "a message takes {} bytes as a statement, more than the server's max_allowed_packet of {most}",
                longest + AROUND
            );
            return Err(Error::new(ErrorKind::PayloadTooLarge, text));
        }
        Ok(CHUNK_BYTES.min(most - AROUND))
    }

    fn receipt(&self, message: &Message) -> Receipt {
        Receipt::new(message.id(), self.waker.clone())
    }

    fn error(&self, error: mysql_async::Error) -> Error {
        let grants = format!("INSERT on {} and {}", self.table, self.table.qualified("key"));
        map(DOING, &grants, error)
    }
}

impl MySqlStore {
    /// The producer's side of the same outbox. Its receipts wake the relays of this store in this process.
    pub fn outbox(&self) -> MySqlOutbox {
        MySqlOutbox::of(&self.0.table, self.0.options.rules.clone(), self.0.waker.clone())
    }
}

/// A statement, and what a duplicate in it means.
struct Part {
    sql: String,
    refuses: Refuses,
}

enum Refuses {
    Nothing,
    Key,
    Id,
}

/// Whether the transaction still stands after an error.
fn leaves_the_transaction(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::DuplicateKey | ErrorKind::DuplicateId | ErrorKind::InvalidMessage)
}

fn duplicate_key() -> Error {
    Error::new(ErrorKind::DuplicateKey, "a message with this idempotency key was enqueued before")
}

fn duplicate_id() -> Error {
    Error::new(ErrorKind::DuplicateId, "a message with this id was enqueued before")
}

/// Finds ids and keys that occur twice in a batch, as the table would.
fn check_duplicates(messages: &[Message]) -> Result<(), Error> {
    let mut keys = BTreeSet::new();
    if !messages.iter().filter_map(Message::idempotency_key_str).all(|key| keys.insert(key)) {
        return Err(duplicate_key());
    }
    let mut ids = BTreeSet::new();
    if messages.iter().all(|message| ids.insert(message.id())) { Ok(()) } else { Err(duplicate_id()) }
}

/// What goes to the server in one round trip.
struct Chunk<'a> {
    messages: &'a [Message],
    rows: &'a [Literal],
}

impl Chunk<'_> {
    fn statements(&self, sql: &Sql) -> Vec<Part> {
        let mut keys: Vec<_> = self.messages.iter().filter_map(Message::idempotency_key_str).collect();
        keys.sort_unstable();
        let mut statements = Vec::new();
        if !keys.is_empty() {
            let keys = list(keys.iter().map(|key| in_brackets(&bytes(key.as_bytes()))));
            statements.push(Part { sql: sql.enqueue_key.bind(&[("rows", keys)]), refuses: Refuses::Key });
        }
        // The rows of one statement stand in the order of their ids, so a new one begins where the ids fall.
        let rises = |pair: &[Message]| pair[0].id() < pair[1].id();
        let mut start = 0;
        for n in 1..=self.messages.len() {
            if n == self.messages.len() || !rises(&self.messages[n - 1..=n]) {
                let rows = list(self.rows[start..n].iter().cloned());
                statements.push(Part { sql: sql.enqueue.bind(&[("rows", rows)]), refuses: Refuses::Id });
                start = n;
            }
        }
        statements
    }
}

/// Splits messages so that no round trip takes too much.
fn chunks<'a>(messages: &'a [Message], rows: &'a [Literal], room: usize) -> Vec<Chunk<'a>> {
    let mut chunks = Vec::new();
    let (mut start, mut size) = (0, 0);
    for (n, row) in rows.iter().enumerate() {
        // The statement around it and the key that may come with it.
        let bytes = row.as_sql().len() + 768;
        if n > start && (size + bytes > room || n - start == CHUNK_MESSAGES) {
            chunks.push(Chunk { messages: &messages[start..n], rows: &rows[start..n] });
            (start, size) = (n, 0);
        }
        size += bytes;
    }
    if start < rows.len() {
        chunks.push(Chunk { messages: &messages[start..], rows: &rows[start..] });
    }
    chunks
}

fn in_brackets(literal: &Literal) -> Literal {
    Literal::made(format!("({})", literal.as_sql()))
}

/// A message as a row of enqueue.sql.
fn row(message: &Message) -> Literal {
    let until = match message.due() {
        Due::Now => crate::value::null(),
        Due::After(after) => {
            Literal::made(format!("UTC_TIMESTAMP(6) + INTERVAL {} MICROSECOND", delay(after)))
        }
        Due::At(at) => {
            let at = time(timestamp(at));
            Literal::made(format!("IF({0} > UTC_TIMESTAMP(6), {0}, NULL)", at.as_sql()))
        }
    };
    // What stands for the payload of a tombstone must be JSON, in case it is a column of that type.
    let stored = message.payload_bytes().map_or_else(|| payload(b"null"), |it| payload(it));
    let headers = headers_to_json(message.headers());
    in_brackets(&list([
        uuid(*message.id().as_uuid()),
        text(message.event_type()),
        text(message.aggregate_type()),
        text(message.aggregate_id()),
        stored,
        int(i8::from(message.payload_bytes().is_none())),
        optional_text(message.content_type_str()),
        optional_text(headers.as_deref()),
        until,
        message.idempotency_key_str().map_or_else(crate::value::null, |key| bytes(key.as_bytes())),
    ]))
}
