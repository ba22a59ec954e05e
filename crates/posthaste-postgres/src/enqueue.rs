//! Enqueueing, in the caller's transaction.

use std::collections::BTreeSet;
use std::time::SystemTime;

use posthaste::{Due, Error, ErrorKind, Message, Receipt, Rules, Waker};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, Statement, Transaction};
use uuid::Uuid;

use crate::error::{Failure, map};
use crate::sql::Sql;
use crate::store::PostgresStore;
use crate::table::TableName;
use crate::value::{count, delay, headers_to_json, timestamp};

const DOING: &str = "enqueueing";
/// How many messages and how many bytes one statement takes.
const CHUNK_MESSAGES: usize = 5_000;
const CHUNK_BYTES: usize = 8 * 1024 * 1024;
const SAVEPOINT: &str = "posthaste_enqueue_all";

/// The producer's side of an outbox: writes messages in the caller's own transaction. It has no connection of its own.
///
/// ```no_run
/// use posthaste::{BoxError, Message};
/// use posthaste_postgres::PostgresOutbox;
///
/// # async fn place_order(client: &mut tokio_postgres::Client) -> Result<(), BoxError> {
/// let outbox = PostgresOutbox::new("outbox")?;
/// let tx = client.transaction().await?;
/// tx.execute("UPDATE orders SET state = 'paid' WHERE id = 7", &[]).await?;
/// let receipt = outbox.enqueue(&tx, &Message::new("order.paid").aggregate("order", 7)).await?;
/// tx.commit().await?;
/// receipt.wake();
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct PostgresOutbox {
    sql: Sql,
    table: TableName,
    rules: Rules,
    waker: Waker,
}

impl PostgresOutbox {
    /// The outbox of this name: `table` (in the schema `public`) or `schema.table`.
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

    /// Enqueues a message: one statement, one round trip. After an error that is not the database's own the
    /// transaction is as it was before, and stays usable.
    ///
    /// # Errors
    /// - What [`Rules::check`] finds.
    /// - [`ErrorKind::DuplicateKey`] and [`ErrorKind::DuplicateId`] if there is a message with the same. While another
    ///   open transaction has enqueued the same, this waits to see what becomes of it.
    /// - [`ErrorKind::Conflict`] if the transaction lost against another one and is to be run again.
    /// - What the database reports; then the transaction has failed.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the message was enqueued in the transaction: roll it back.
    pub async fn enqueue(&self, tx: &Transaction<'_>, message: &Message) -> Result<Receipt, Error> {
        self.enqueue_by(tx, None, message).await
    }

    /// Prepares the statements of [`enqueue`](Self::enqueue) on a connection, for a producer that keeps it and enqueues
    /// much: the server then plans them once. Not for connections through a pooler in transaction mode.
    ///
    /// # Errors
    /// What the database reports.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn prepare(&self, client: &Client) -> Result<PreparedEnqueue, Error> {
        let types = |count: usize| TYPES.into_iter().take(count).collect::<Vec<_>>();
        let (plain_types, key_types) = (types(TYPES.len() - 1), types(TYPES.len()));
        let prepared = tokio::try_join!(
            client.prepare_typed(&self.sql.enqueue, &plain_types),
            client.prepare_typed(&self.sql.enqueue_key, &key_types),
        );
        let (plain, with_key) = prepared.map_err(|error| self.error(error))?;
        Ok(PreparedEnqueue { plain, with_key })
    }

    /// As [`enqueue`](Self::enqueue), by statements that were prepared on the transaction's connection.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Cancel safety
    /// As [`enqueue`](Self::enqueue).
    pub async fn enqueue_prepared(
        &self,
        tx: &Transaction<'_>,
        prepared: &PreparedEnqueue,
        message: &Message,
    ) -> Result<Receipt, Error> {
        self.enqueue_by(tx, Some(prepared), message).await
    }

    async fn enqueue_by(
        &self,
        tx: &Transaction<'_>,
        prepared: Option<&PreparedEnqueue>,
        message: &Message,
    ) -> Result<Receipt, Error> {
        self.rules.check(message)?;
        let values = Values::new(message);
        let mut params = values.params();
        let (mut sql, mut statement) = (&self.sql.enqueue, prepared.map(|prepared| &prepared.plain));
        if let Some(key) = &values.idempotency_key {
            params.push(key);
            (sql, statement) = (&self.sql.enqueue_key, prepared.map(|prepared| &prepared.with_key));
        }
        let rows = if let Some(statement) = statement {
            tx.query(statement, &params).await
        } else {
            let typed: Vec<_> = params.iter().copied().zip(TYPES).collect();
            tx.query_typed(sql, &typed).await
        };
        let rows = rows.map_err(|error| self.error(error))?;
        let row = rows.first().ok_or_else(nothing_came_back)?;
        if count_of(row, "messages") == 1 {
            return Ok(self.receipt(message));
        }
        let duplicate_id = || {
            Error::new(
                ErrorKind::DuplicateId,
                format!("id {} is there already: the message was enqueued before", message.id()),
            )
        };
        let Some(key) = &values.idempotency_key else { return Err(duplicate_id()) };
        if count_of(row, "keys") == 0 {
            return Err(duplicate_key());
        }
        // The key was new, but the id was not: the key is free again.
        let params: [(&(dyn ToSql + Sync), Type); 1] = [(key, Type::TEXT)];
        tx.execute_typed(&self.sql.forget_key, &params).await.map_err(|error| self.error(error))?;
        Err(duplicate_id())
    }

    /// Enqueues messages in the order given; all or, on an error that is not the database's own, none of them. Many
    /// messages take one statement, large ones several.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Cancel safety
    /// As [`enqueue`](Self::enqueue).
    pub async fn enqueue_all(
        &self,
        tx: &Transaction<'_>,
        messages: &[Message],
    ) -> Result<Vec<Receipt>, Error> {
        messages.iter().try_for_each(|message| self.rules.check(message))?;
        check_duplicates(messages)?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        let savepoint = format!("SAVEPOINT {SAVEPOINT}");
        let mut is_saved = false;
        for chunk in chunks(messages) {
            // The savepoint goes along with the first statement, in the same round trip.
            let save = async { if is_saved { Ok(()) } else { tx.batch_execute(&savepoint).await } };
            let (saved, enqueued) = tokio::join!(biased; save, self.enqueue_chunk(tx, chunk));
            saved.map_err(|error| self.error(error))?;
            is_saved = true;
            if let Err(refused) = enqueued.map_err(|error| self.error(error))? {
                let back = format!("ROLLBACK TO {SAVEPOINT}; RELEASE {SAVEPOINT}");
                tx.batch_execute(&back).await.map_err(|error| self.error(error))?;
                return Err(refused);
            }
        }
        let end = format!("RELEASE {SAVEPOINT}");
        tx.batch_execute(&end).await.map_err(|error| self.error(error))?;
        Ok(messages.iter().map(|message| self.receipt(message)).collect())
    }

    /// Enqueues what goes into one statement. The inner error says that it was refused.
    async fn enqueue_chunk(
        &self,
        tx: &Transaction<'_>,
        messages: &[Message],
    ) -> Result<Result<(), Error>, tokio_postgres::Error> {
        let arrays = Arrays::new(messages);
        let rows = tx.query_typed(&self.sql.enqueue_all, &arrays.params()).await?;
        let Some(row) = rows.first() else { return Ok(Err(nothing_came_back())) };
        if count_of(row, "messages") == messages.len() {
            return Ok(Ok(()));
        }
        let keys = messages.iter().filter(|message| message.idempotency_key_str().is_some()).count();
        Ok(Err(if count_of(row, "keys") < keys { duplicate_key() } else { duplicate_id() }))
    }

    fn receipt(&self, message: &Message) -> Receipt {
        Receipt::new(message.id(), self.waker.clone())
    }

    fn error(&self, error: tokio_postgres::Error) -> Error {
        map(DOING, &producer_grants(&self.table), error)
    }
}

impl PostgresStore {
    /// The producer's side of the same outbox. Its receipts wake the relays of this store in this process.
    pub fn outbox(&self) -> PostgresOutbox {
        PostgresOutbox::of(&self.0.table, self.0.options.rules.clone(), self.0.waker.clone())
    }
}

/// What a producer needs.
fn producer_grants(table: &TableName) -> String {
    let (key, wake) = (table.qualified("key"), table.qualified("wake"));
    format!("INSERT on {table} and {key} and SELECT on {wake}")
}

fn count_of(row: &Row, column: &str) -> usize {
    count(row.get(column))
}

fn duplicate_key() -> Error {
    Error::new(ErrorKind::DuplicateKey, "a message with this idempotency key was enqueued before")
}

fn duplicate_id() -> Error {
    Error::new(ErrorKind::DuplicateId, "a message with this id was enqueued before")
}

fn nothing_came_back() -> Error {
    Failure::into_error(crate::connection::no_row(DOING), DOING, "")
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

/// Splits messages so that no statement becomes too large.
fn chunks(messages: &[Message]) -> Vec<&[Message]> {
    let mut chunks = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (n, message) in messages.iter().enumerate() {
        let headers: usize = message.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
        let size = message.payload_bytes().map_or(0, bytes::Bytes::len) + headers + 512;
        if n > start && (bytes + size > CHUNK_BYTES || n - start == CHUNK_MESSAGES) {
            chunks.push(&messages[start..n]);
            (start, bytes) = (n, 0);
        }
        bytes += size;
    }
    chunks.push(&messages[start..]);
    chunks
}

/// A message as the parameters of a statement.
struct Values<'a> {
    id: Uuid,
    event_type: &'a str,
    aggregate_type: &'a str,
    aggregate_id: &'a str,
    payload: Option<&'a [u8]>,
    content_type: Option<&'a str>,
    headers: String,
    delay: i64,
    at: Option<SystemTime>,
    idempotency_key: Option<&'a str>,
}

impl<'a> Values<'a> {
    fn new(message: &'a Message) -> Self {
        let (delay, at) = match message.due() {
            Due::Now => (0, None),
            Due::After(after) => (delay(after), None),
            Due::At(at) => (0, Some(timestamp(at))),
        };
        Self {
            id: *message.id().as_uuid(),
            event_type: message.event_type(),
            aggregate_type: message.aggregate_type(),
            aggregate_id: message.aggregate_id(),
            payload: message.payload_bytes().map(AsRef::as_ref),
            content_type: message.content_type_str(),
            headers: headers_to_json(message.headers()),
            delay,
            at,
            idempotency_key: message.idempotency_key_str(),
        }
    }

    fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        vec![
            &self.id,
            &self.event_type,
            &self.aggregate_type,
            &self.aggregate_id,
            &self.payload,
            &self.content_type,
            &self.headers,
            &self.delay,
            &self.at,
        ]
    }
}

/// The types of the parameters; the last is that of the idempotency key.
const TYPES: [Type; 10] = [
    Type::UUID,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::BYTEA,
    Type::TEXT,
    Type::TEXT,
    Type::INT8,
    Type::TIMESTAMPTZ,
    Type::TEXT,
];

/// Statements that were prepared on one connection.
#[derive(Debug, Clone)]
pub struct PreparedEnqueue {
    plain: Statement,
    with_key: Statement,
}

/// Messages as the parameters of a statement.
#[derive(Default)]
struct Arrays<'a> {
    ids: Vec<Uuid>,
    event_types: Vec<&'a str>,
    aggregate_types: Vec<&'a str>,
    aggregate_ids: Vec<&'a str>,
    payloads: Vec<Option<&'a [u8]>>,
    content_types: Vec<Option<&'a str>>,
    headers: Vec<String>,
    delays: Vec<i64>,
    at: Vec<Option<SystemTime>>,
    idempotency_keys: Vec<Option<&'a str>>,
}

impl<'a> Arrays<'a> {
    fn new(messages: &'a [Message]) -> Self {
        let mut arrays = Self::default();
        for message in messages {
            let values = Values::new(message);
            arrays.ids.push(values.id);
            arrays.event_types.push(values.event_type);
            arrays.aggregate_types.push(values.aggregate_type);
            arrays.aggregate_ids.push(values.aggregate_id);
            arrays.payloads.push(values.payload);
            arrays.content_types.push(values.content_type);
            arrays.headers.push(values.headers);
            arrays.delays.push(values.delay);
            arrays.at.push(values.at);
            arrays.idempotency_keys.push(values.idempotency_key);
        }
        arrays
    }

    fn params(&self) -> [(&(dyn ToSql + Sync), Type); 10] {
        [
            (&self.ids, Type::UUID_ARRAY),
            (&self.event_types, Type::TEXT_ARRAY),
            (&self.aggregate_types, Type::TEXT_ARRAY),
            (&self.aggregate_ids, Type::TEXT_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.content_types, Type::TEXT_ARRAY),
            (&self.headers, Type::TEXT_ARRAY),
            (&self.delays, Type::INT8_ARRAY),
            (&self.at, Type::TIMESTAMPTZ_ARRAY),
            (&self.idempotency_keys, Type::TEXT_ARRAY),
        ]
    }
}
