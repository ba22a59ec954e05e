#![doc = include_str!("../README.md")]

mod admin;
mod clock;
mod error;
mod id;
mod memory;
mod message;
mod publisher;
mod record;
mod relay;
mod retry;
mod store;
mod validate;
mod wake;

pub use admin::{
    Admin, Count, DeadSelection, Glob, ListFilter, MessageDetails, MessageInfo, Migration, Mode, Purge,
    Purged, RelayInfo, State, Stats,
};
pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{BoxError, Error, ErrorKind};
pub use id::{IdGenerator, MessageId};
pub use memory::{MemoryStore, MemoryTransaction};
pub use message::{Due, JSON, Message};
pub use publisher::{FailureClass, PublishError, PublishFn, Publisher, publish_fn};
pub use record::{Key, Lane, Position, Record};
pub use relay::{DeadPolicy, Event, Observer, Relay, RelayBuilder, RelayHandle, Retain, Summary, failpoint};
pub use retry::{Backoff, RetryPolicy};
pub use store::{
    BeginAttempt, DueRecords, Keys, LaneLease, LeaseRequest, Leases, Outcome, Page, Reached, ReadRequest,
    RecordRef, RelayId, Scan, SettleReport, SettleRequest, Settlement, Store, UpkeepReport, UpkeepRequest,
};
pub use validate::{MAX_DELAY, MAX_IDEMPOTENCY_KEY_BYTES, MAX_NAME_CHARS, Rules};
pub use wake::{Receipt, Waker};
