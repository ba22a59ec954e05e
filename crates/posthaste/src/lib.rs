#![doc = include_str!("../README.md")]

mod admin;
mod clock;
mod drivers;
mod error;
mod id;
mod memory;
mod message;
mod outbox;
mod publisher;
mod record;
mod relay;
mod retry;
mod store;
#[cfg(feature = "opentelemetry-0_33")]
mod telemetry;
mod validate;
mod wake;

pub use admin::{
    Admin, Count, DeadSelection, Glob, ListFilter, MessageDetails, MessageInfo, Migration, Mode, Purge,
    Purged, RelayInfo, State, Stats,
};
pub use clock::{Clock, ManualClock, SystemClock};
#[cfg(feature = "diesel-2")]
pub use drivers::diesel_2;
#[cfg(feature = "diesel-async-0_9")]
pub use drivers::diesel_async_0_9;
#[cfg(feature = "mysql_async-0_37")]
pub use drivers::mysql_async_0_37;
#[cfg(feature = "rusqlite-0_32")]
pub use drivers::rusqlite;
#[cfg(any(feature = "sqlx-0_8", feature = "sea-orm-1"))]
pub use drivers::sqlx_0_8;
#[cfg(any(feature = "sqlx-0_9", feature = "sea-orm-2"))]
pub use drivers::sqlx_0_9;
#[cfg(feature = "tokio-postgres-0_7")]
pub use drivers::tokio_postgres_0_7;
pub use error::{BoxError, Error, ErrorKind};
pub use id::{IdGenerator, MessageId};
pub use memory::{MemoryStore, MemoryTransaction};
pub use message::{Due, JSON, Message};
pub use outbox::{Inbox, Outbox, OutboxTransaction, Pending};
pub use publisher::{FailureClass, PublishError, PublishFn, Publisher, publish_fn};
pub use record::{Key, Lane, Position, Record};
pub use relay::{
    DeadPolicy, Destination, DestinationSnapshot, DestinationState, Event, Observer, Relay, RelayBuilder,
    RelayHandle, Retain, Route, Snapshot, Summary, failpoint,
};
pub use retry::{Backoff, RetryPolicy};
pub use store::{
    BeginAttempt, DueRecords, Keys, LaneLease, LeaseRequest, Leases, Outcome, Page, Reached, ReadRequest,
    RecordRef, RelayId, Scan, SettleReport, SettleRequest, Settlement, Store, UpkeepReport, UpkeepRequest,
};
pub use validate::{MAX_DELAY, MAX_IDEMPOTENCY_KEY_BYTES, MAX_NAME_CHARS, Rules};
pub use wake::{Receipt, Waker};

/// For adapters of drivers: what [`OutboxTransaction`] is made of.
pub mod driver {
    pub use crate::outbox::{Answer, Dialect, DriverError, ErrorCode, Progress, Script, Step, Value, Work};
}

/// For stores: what they have in common with the producer's side of their database.
pub mod dialect {
    pub use crate::outbox::{
        MySqlTable, PostgresTable, SQLITE_SCHEMA, SqliteTable, literal, mysql_breaks_connection, mysql_error,
        postgres_error, postgres_statements, quote, sqlite_code, sqlite_error,
    };
}
