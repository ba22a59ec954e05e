//! `postgres://` is a server, and the producer's transaction on it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Admin, Error, ErrorKind, Message, Migration, Outbox, Rules, Store};
use posthaste_postgres::{Partition, PartitionPlan, PostgresOptions, PostgresStore};
use tokio_postgres::{IsolationLevel, Transaction};

use super::{
    CleanupDone, CleanupWork, Database, Every, Extras, Inputs, Keep, PartitionsDone, PartitionsWork,
    Producer, Settings,
};
use crate::failure::Failure;
use crate::ndjson::Input;

/// How long one statement of the producer may take; it waits for other producers of the same idempotency key.
const STATEMENT: Duration = Duration::from_secs(30);
/// How many messages and how many bytes of payload are sent at a time.
const CHUNK_MESSAGES: usize = 1_000;
const CHUNK_BYTES: usize = 4 * 1024 * 1024;

pub(super) fn open(url: &str, table: &str, settings: &Settings) -> Result<Database, Failure> {
    let store = PostgresStore::new(options(url, table, settings))?;
    Ok(Database {
        producer: Box::new(PostgresProducer { store: store.clone() }),
        extras: Some(Box::new(store.clone())),
        admin: Arc::new(store.clone()) as Arc<dyn Admin>,
        store: Arc::new(store) as Arc<dyn Store>,
    })
}

pub(super) fn migrations(url: &str, table: &str, settings: &Settings) -> Result<Vec<Migration>, Failure> {
    // It connects when it is used, and so not now.
    Ok(PostgresStore::new(options(url, table, settings))?.migration_sql())
}

fn options(url: &str, table: &str, settings: &Settings) -> PostgresOptions {
    let (schema, listen) = (&settings.schema, &settings.listen);
    let mut options = PostgresOptions::new(url).table(table).wake(!listen.no_listen);
    options.listen_url = listen.url().map(str::to_owned);
    options.partition = schema.partition.map(length);
    options.wake_trigger = schema.wake_trigger;
    options.lanes = schema.lanes.unwrap_or(options.lanes);
    if let Some(lease) = settings.lease {
        options.connect_timeout = options.connect_timeout.min(lease / 2);
        options.statement_timeout = options.statement_timeout.min(lease / 2);
    }
    options
}

fn length(every: Every) -> Partition {
    match every {
        Every::Day => Partition::Day,
        Every::Month => Partition::Month,
    }
}

#[async_trait]
impl Extras for PostgresStore {
    async fn migrate_inbox(&self) -> Result<Vec<Migration>, Error> {
        self.migrate_inbox().await
    }

    async fn changes_to_adopt(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    async fn partitioned_by(&self) -> Result<Option<Every>, Error> {
        Ok(self.partitioned_by().await?.map(|every| match every {
            Partition::Day => Every::Day,
            Partition::Month => Every::Month,
        }))
    }

    async fn maintain_partitions(&self, work: &PartitionsWork) -> Result<PartitionsDone, Error> {
        if work.lock_name.is_some() {
            let text = "--lock-name is for MySQL; on PostgreSQL the lock follows from the table";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        let mut plan = PartitionPlan::new(length(work.every)).include_dead(work.include_dead);
        plan.lookahead = work.lookahead.unwrap_or(plan.lookahead);
        plan.retention = work.retention.map_or(plan.retention, Keep::time);
        let report = self.maintain_partitions(&plan).await?;
        Ok(PartitionsDone {
            created: report.created,
            dropped: report.dropped,
            kept: report.kept,
            postponed: report.postponed,
        })
    }

    async fn clean_up(&self, _work: &CleanupWork) -> Result<CleanupDone, Error> {
        let text = "cleanup is for MySQL; on PostgreSQL `posthaste purge` and a relay's --retain delete old messages";
        Err(Error::new(ErrorKind::InvalidInput, text))
    }
}

struct PostgresProducer {
    store: PostgresStore,
}

#[async_trait]
impl Producer for PostgresProducer {
    async fn enqueue_all(&self, inputs: &mut Inputs<'_>, rules: &Rules) -> Result<u64, Failure> {
        let outbox = self.store.outbox().with_rules(rules.clone());
        let mut client = self.store.client().await?;
        let begin = client.build_transaction().isolation_level(IsolationLevel::ReadCommitted);
        let mut tx = in_time(begin.start()).await?;
        let millis = STATEMENT.as_millis();
        let limits = format!(
            "SET LOCAL statement_timeout = {millis}; SET LOCAL lock_timeout = {millis}; \
             SET LOCAL idle_in_transaction_session_timeout = {millis}"
        );
        in_time(tx.batch_execute(&limits)).await?;
        let mut count = 0;
        while let Some(chunk) = Chunk::take(inputs)? {
            count += chunk.messages.len() as u64;
            chunk.enqueue(&outbox, &mut tx).await?;
        }
        in_time(tx.commit()).await.map_err(|failure| {
            failure
                .hint("if the connection broke, they may be there nevertheless; look before you run it again")
        })?;
        Ok(count)
    }
}

/// Messages that are sent together, and where each was read.
#[derive(Default)]
struct Chunk {
    messages: Vec<Message>,
    lines: Vec<Option<u64>>,
}

impl Chunk {
    /// The next messages; `None` behind the last one.
    fn take(inputs: &mut Inputs<'_>) -> Result<Option<Self>, Failure> {
        let mut chunk = Self::default();
        let mut bytes = 0;
        while chunk.messages.len() < CHUNK_MESSAGES && bytes < CHUNK_BYTES {
            let Some(input) = inputs.next() else { break };
            let Input { message, line } = input?;
            bytes += message.payload_bytes().map_or(0, bytes::Bytes::len);
            chunk.messages.push(message);
            chunk.lines.push(line);
        }
        Ok((!chunk.messages.is_empty()).then_some(chunk))
    }

    async fn enqueue(&self, outbox: &Outbox, tx: &mut Transaction<'_>) -> Result<(), Failure> {
        let savepoint = in_time(tx.transaction()).await?;
        let Err(error) = outbox.enqueue_all(&savepoint, &self.messages).await else {
            return in_time(savepoint.commit()).await;
        };
        if !is_of_one_message(&error) || savepoint.rollback().await.is_err() {
            return Err(error.into());
        }
        // One of them is at fault; the transaction is lost anyway, so they are tried one by one.
        for (message, line) in self.messages.iter().zip(&self.lines) {
            if let Err(error) = outbox.enqueue(&*tx, message).await {
                return Err(Failure::from(error).at_line(*line));
            }
        }
        Err(error.into())
    }
}

/// Whether the error is about a message, and not about the database or the user.
fn is_of_one_message(error: &Error) -> bool {
    use ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::InvalidMessage
            | Kind::PayloadTooLarge
            | Kind::DuplicateKey
            | Kind::DuplicateId
            | Kind::Database
    )
}

/// Waits a little longer than the server lets a statement take.
async fn in_time<T>(step: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(STATEMENT + Duration::from_secs(1), step).await {
        Ok(done) => done.map_err(failed),
        Err(_elapsed) => {
            let text = "the messages cannot be written: the database did not answer in time";
            Err(Error::new(ErrorKind::Unavailable, text).into())
        }
    }
}

/// What the driver reports, by its SQLSTATE.
#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failed(error: tokio_postgres::Error) -> Failure {
    let kind = match error.code().map(tokio_postgres::error::SqlState::code) {
        Some("25006") => ErrorKind::ReadOnly,
        Some("40001" | "40P01") => ErrorKind::Conflict,
        _ => ErrorKind::Unavailable,
    };
    let said = error.as_db_error().map_or_else(|| error.to_string(), |server| server.message().to_owned());
    Error::new(kind, format!("the messages cannot be written: {said}")).into()
}
