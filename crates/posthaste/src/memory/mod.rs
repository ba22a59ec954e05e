//! A store in memory: what the traits mean, in the plainest code that says it.

mod admin;
mod enqueue;
mod lease;
mod read;
mod settle;
mod store;
mod table;
mod upkeep;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use enqueue::MemoryTransaction;
use table::Table;

use crate::admin::MessageDetails;
use crate::clock::{Clock, SystemClock};
use crate::error::Error;
use crate::outbox::Outbox;
use crate::validate::Rules;
use crate::wake::Waker;

/// An outbox in memory, for tests of services that use one, and as the readable reference of what
/// [`Store`](crate::Store) and [`Admin`](crate::Admin) mean. Clones share the same outbox.
///
/// It keeps every promise of a database but the one that matters: it forgets everything when the process ends.
///
/// ```
/// use posthaste::{MemoryStore, Message};
///
/// # fn main() -> Result<(), posthaste::Error> {
/// let store = MemoryStore::new(8);
/// let mut transaction = store.begin();
/// transaction.enqueue(&Message::new("order.created").aggregate("order", 7).text("one pie"))?;
/// transaction.commit();
///
/// let stored = store.messages();
/// assert_eq!(stored.len(), 1);
/// assert_eq!(stored[0].info.event_type, "order.created");
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    table: Arc<Mutex<Table>>,
    clock: Arc<dyn Clock>,
    rules: Rules,
    waker: Waker,
}

impl MemoryStore {
    /// An empty outbox with so many lanes (at least one), on the system's clock, with the default [`Rules`].
    pub fn new(lanes: u16) -> Self {
        Self {
            table: Arc::new(Mutex::new(Table::new(lanes.max(1)))),
            clock: Arc::new(SystemClock),
            rules: Rules::default(),
            waker: Waker::default(),
        }
    }

    /// Sets the clock by which leases, delays and ages are judged. Clones made before keep theirs.
    pub fn with_clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sets the rules that messages are held to. Clones made before keep theirs.
    pub fn with_rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// The producer's side, as a service uses it with a database: for tests that hand a service this store's
    /// transactions instead of those of a driver. The table's name counts for nothing.
    ///
    /// It has the rules of this store, and its receipts wake the relays of it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the name can be that of no table.
    ///
    /// ```
    /// use posthaste::{MemoryStore, Message};
    ///
    /// # async fn example() -> Result<(), posthaste::Error> {
    /// let store = MemoryStore::new(4);
    /// let outbox = store.outbox("outbox")?;
    /// let mut tx = store.begin();
    /// outbox.enqueue(&mut tx, &Message::new("order.created")).await?;
    /// tx.commit();
    /// assert_eq!(store.messages()[0].info.event_type, "order.created");
    /// # Ok(()) }
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
    /// ```
    pub fn outbox(&self, table: &str) -> Result<Outbox, Error> {
        Ok(Outbox::new(table)?.with_rules(self.rules.clone()).with_waker(self.waker.clone()))
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> u16 {
        self.table().lane_count()
    }

    /// What wakes the relays of this store.
    pub fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Every message in the outbox, whatever its state, in the order in which they were enqueued: for asserting
    /// what a service enqueued.
    pub fn messages(&self) -> Vec<MessageDetails> {
        let now = self.clock.now();
        let table = self.table();
        let places = table.places_by_age();
        let held_back = table.held_back_keys();
        places.iter().map(|place| table.details(&table.rows[place], &held_back, now)).collect()
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("lanes", &self.lanes()).finish_non_exhaustive()
    }
}
