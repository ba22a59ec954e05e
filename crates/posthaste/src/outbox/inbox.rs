//! The consumer's side: has this consumer seen this message before?

use std::fmt;
use std::sync::Arc;

use super::script::{Memory, Work};
use super::transaction::{Dialect, OutboxTransaction};
use super::{Statements, in_memory};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};

const MAX_CONSUMER_CHARS: usize = 128;
const MAX_ID_BYTES: usize = 255;

/// The consumer's side: notes which messages it has seen, in the transaction in which it acts on them, so that one that
/// is delivered twice takes effect once. It works with the same transactions as [`Outbox`](crate::Outbox).
///
/// ```
/// use posthaste::{Inbox, MemoryStore};
///
/// # async fn example() -> Result<(), posthaste::Error> {
/// let inbox = Inbox::new("outbox")?;
/// # let store = MemoryStore::new(4);
/// # let id = "0198c7b2-6f3e-7c4b-9a5e-2f1d3c4b5a69";
/// let mut tx = store.begin(); // or what begins a transaction with your driver
/// if inbox.first_time(&mut tx, "invoicing", id).await? {
///     // … the effect, in `tx` …
/// }
/// tx.commit();
/// # Ok(()) }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
pub struct Inbox {
    statements: Arc<Statements>,
    clock: Arc<dyn Clock>,
}

impl Inbox {
    /// The inbox that belongs to the outbox of this name, `<table>_inbox`; see [`Outbox::new`](crate::Outbox::new).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the name can be that of no table.
    pub fn new(table: &str) -> Result<Self, Error> {
        Ok(Self { statements: Arc::new(Statements::new(table)?), clock: Arc::new(SystemClock) })
    }

    /// Sets the clock that stamps entries on SQLite, which has none of its own. Default: the system's.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Notes that a consumer has seen a message, by the id that came with it, and says whether it is for the first time.
    /// It counts once the transaction commits; while another open transaction has noted the same, this waits to see what
    /// becomes of it, so two copies that are handled at the same moment have one effect.
    ///
    /// It remembers as long as entries are kept: a message that comes again after they were purged is new.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: the consumer's name is empty or longer than 128 characters, or the id is empty or
    ///   longer than 255 bytes. Nothing was sent.
    /// - [`ErrorKind::Conflict`]: the transaction lost against another one; run it again from its start.
    /// - What the database reports; then roll the transaction back.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open whether the message was noted in the transaction: roll that back.
    pub fn first_time<'a, T>(
        &'a self,
        tx: T,
        consumer: &'a str,
        message_id: impl fmt::Display,
    ) -> T::Outcome<'a, bool>
    where
        T: OutboxTransaction + 'a,
    {
        let id = message_id.to_string();
        tx.perform(Work::new(move |dialect, io| {
            Box::pin(async move {
                check(consumer, &id)?;
                let statements = &self.statements;
                match dialect {
                    Dialect::Postgres => statements.postgres()?.first_time(&io, consumer, &id).await,
                    Dialect::MySql => statements.mysql()?.first_time(&io, consumer, &id).await,
                    Dialect::Sqlite => {
                        statements.sqlite()?.first_time(&io, consumer, &id, self.clock.now()).await
                    }
                    Dialect::Memory => {
                        let answer = in_memory(&io, Memory::FirstTime(consumer.into(), id)).await?;
                        Ok(answer.row.is_some())
                    }
                }
            })
        }))
    }
}

fn check(consumer: &str, id: &str) -> Result<(), Error> {
    let complaint = if consumer.is_empty() || consumer.chars().count() > MAX_CONSUMER_CHARS {
        format!("the consumer's name {consumer:?} must have 1 to {MAX_CONSUMER_CHARS} characters")
    } else if id.is_empty() || id.len() > MAX_ID_BYTES {
        format!("the message's id must have 1 to {MAX_ID_BYTES} bytes, not {}", id.len())
    } else if consumer.contains('\0') || id.contains('\0') {
        "the consumer's name or the message's id holds a NUL character, which databases refuse".to_owned()
    } else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidInput, complaint))
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("table", &self.statements.table).finish_non_exhaustive()
    }
}
