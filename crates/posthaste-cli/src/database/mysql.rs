//! `mysql://` and `mariadb://` are a server, and the producer's transaction on it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::{IsolationLevel, Transaction, TxOpts};
use posthaste::{Admin, Error, ErrorKind, Message, Migration, Outbox, Rules, Store};
use posthaste_mysql::{Cleanup, MySqlOptions, MySqlStore, Partition, PartitionPlan, Payload};

use super::{
    CleanupDone, CleanupWork, Database, Every, Extras, Inputs, Keep, Layout, PartitionsDone, PartitionsWork,
    Producer, Settings,
};
use crate::failure::Failure;
use crate::ndjson::Input;

/// How long one step of the producer may take; it waits for other producers of the same idempotency key.
const STEP: Duration = Duration::from_secs(60);
/// How many messages and how many bytes of payload are sent at a time.
const CHUNK_MESSAGES: usize = 1_000;
const CHUNK_BYTES: usize = 1024 * 1024;

pub(super) fn open(url: &str, table: &str, settings: &Settings) -> Result<Database, Failure> {
    let store = MySqlStore::new(options(url, table, settings))?;
    Ok(Database {
        producer: Box::new(MySqlProducer { store: store.clone() }),
        extras: Some(Box::new(store.clone())),
        admin: Arc::new(store.clone()) as Arc<dyn Admin>,
        store: Arc::new(store) as Arc<dyn Store>,
    })
}

pub(super) fn migrations(url: &str, table: &str, settings: &Settings) -> Result<Vec<Migration>, Failure> {
    // It connects when it is used, and so not now.
    Ok(MySqlStore::new(options(url, table, settings))?.migration_sql())
}

fn options(url: &str, table: &str, settings: &Settings) -> MySqlOptions {
    let schema = &settings.schema;
    let mut options = MySqlOptions::new(url).table(table);
    options.partition = schema.partition.map(length);
    options.lanes = schema.lanes.unwrap_or(options.lanes);
    options.payload = match schema.payload {
        Some(Layout::Binary) => Payload::Binary,
        Some(Layout::Json) | None => Payload::Json,
    };
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
impl Extras for MySqlStore {
    async fn migrate_inbox(&self) -> Result<Vec<Migration>, Error> {
        self.migrate_inbox().await
    }

    async fn changes_to_adopt(&self) -> Result<Vec<String>, Error> {
        self.changes_to_adopt().await
    }

    async fn partitioned_by(&self) -> Result<Option<Every>, Error> {
        Ok(self.partitioned_by().await?.map(|every| match every {
            Partition::Day => Every::Day,
            Partition::Month => Every::Month,
        }))
    }

    async fn maintain_partitions(&self, work: &PartitionsWork) -> Result<PartitionsDone, Error> {
        let mut plan = PartitionPlan::new(length(work.every));
        plan.lookahead = work.lookahead.unwrap_or(plan.lookahead);
        plan.retention = work.retention.map_or(plan.retention, Keep::time);
        plan.lock_name = work.lock_name.clone();
        let report = self.maintain_partitions(&plan).await?;
        let mut postponed = report.postponed;
        if !report.ours {
            postponed.push("everything".to_owned());
        }
        Ok(PartitionsDone { created: report.created, dropped: report.dropped, kept: report.kept, postponed })
    }

    async fn clean_up(&self, work: &CleanupWork) -> Result<CleanupDone, Error> {
        let mut cleanup = Cleanup::new(work.retention).limit(work.limit).include_dead(work.include_dead);
        cleanup.lock_name = work.lock_name.clone();
        let report = self.clean_up(&cleanup).await?;
        Ok(CleanupDone { ours: report.ours, processed: report.processed, dead: report.dead })
    }
}

struct MySqlProducer {
    store: MySqlStore,
}

#[async_trait]
impl Producer for MySqlProducer {
    async fn enqueue_all(&self, inputs: &mut Inputs<'_>, rules: &Rules) -> Result<u64, Failure> {
        let outbox = self.store.outbox().with_rules(rules.clone());
        let mut conn = self.store.client().await?;
        let mut options = TxOpts::default();
        options.with_isolation_level(IsolationLevel::ReadCommitted);
        let mut tx = in_time(conn.start_transaction(options)).await?;
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
        let Err(error) = within(outbox.enqueue_all(&mut *tx, &self.messages)).await else { return Ok(()) };
        if !is_of_one_message(&error) {
            return Err(error.into());
        }
        // One of them is at fault, and none of them was enqueued; the transaction is lost anyway, so they are tried one
        // by one.
        for (message, line) in self.messages.iter().zip(&self.lines) {
            if let Err(error) = within(outbox.enqueue(&mut *tx, message)).await {
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
        Kind::InvalidMessage | Kind::PayloadTooLarge | Kind::DuplicateKey | Kind::DuplicateId
    )
}

async fn within<T>(step: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    match tokio::time::timeout(STEP, step).await {
        Ok(done) => done,
        Err(_elapsed) => Err(too_late()),
    }
}

async fn in_time<T>(step: impl Future<Output = Result<T, mysql_async::Error>>) -> Result<T, Failure> {
    match tokio::time::timeout(STEP, step).await {
        Ok(done) => done.map_err(failed),
        Err(_elapsed) => Err(too_late().into()),
    }
}

fn too_late() -> Error {
    let text = "the messages cannot be written: the database did not answer in time";
    Error::new(ErrorKind::Unavailable, text)
}

/// What the driver reports, by its number.
#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn failed(error: mysql_async::Error) -> Failure {
    let kind = match &error {
        mysql_async::Error::Server(server) => match server.code {
            1290 | 1792 | 1836 => ErrorKind::ReadOnly,
            1213 => ErrorKind::Conflict,
            _ => ErrorKind::Unavailable,
        },
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, format!("the messages cannot be written: {error}")).into()
}
