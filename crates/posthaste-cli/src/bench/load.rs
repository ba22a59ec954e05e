//! What a run is asked to do.

use std::num::{NonZeroU64, NonZeroUsize};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::database::{Every, Layout};
use crate::failure::Failure;
use crate::numbers::{at_least_one, at_least_one_u64};

/// The smallest payload that holds a message's number.
pub(super) const MIN_PAYLOAD: usize = 32;
/// The largest one that the rules of an outbox take.
const MAX_PAYLOAD: usize = 1024 * 1024;
/// More could not be accounted for in memory.
const MAX_MESSAGES: u64 = 100_000_000;

/// The messages, and who works on them.
#[expect(clippy::struct_excessive_bools, reason = "they are options")]
#[derive(Debug, Clone, clap::Args, Serialize, Deserialize)]
#[command(next_help_heading = "Load")]
pub(crate) struct Load {
    /// How many messages are measured
    #[arg(long, value_name = "N", default_value = "20000", value_parser = at_least_one_u64)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) messages: NonZeroU64,

    /// How many messages go before, unmeasured
    #[arg(long, value_name = "N", default_value = "1000")]
    pub(crate) warm_up: u64,

    /// How often all is done; figures are medians
    #[arg(long, value_name = "N", default_value = "3", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) repeats: NonZeroUsize,

    /// The size of a payload, a JSON object
    #[arg(long, value_name = "BYTES", default_value = "512", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) payload_bytes: NonZeroUsize,

    /// Whether payloads can be compressed
    #[arg(long, value_enum, value_name = "CONTENT", default_value = "random")]
    pub(crate) payload: Content,

    /// How many keys the messages are of; 0: they have none
    #[arg(long, value_name = "N", default_value = "1000")]
    pub(crate) keys: u64,

    /// Half of the messages are of a tenth of the keys
    #[arg(long)]
    pub(crate) skewed: bool,

    /// So many of the keys are held up by a first message that is not due
    #[arg(long, value_name = "N", default_value = "0", conflicts_with = "skewed")]
    pub(crate) blocked_keys: u64,

    /// How many connections enqueue
    #[arg(long, value_name = "N", default_value = "8", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) producers: NonZeroUsize,

    /// How many messages a transaction enqueues
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) batch: NonZeroUsize,

    /// How many messages a second are enqueued [default: as many as can be]
    #[arg(long, value_name = "N", value_parser = at_least_one_u64, allow_hyphen_values = true)]
    pub(crate) rate: Option<NonZeroU64>,

    /// How many relays work, each with connections of its own
    #[arg(long, value_name = "N", default_value = "1", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) relays: NonZeroUsize,

    /// The most messages being published at the same time, by each relay
    #[arg(long, value_name = "N", default_value = "256", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    pub(crate) in_flight: NonZeroUsize,

    /// The most outcomes that are written down at a time [default: the relay's]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_hyphen_values = true)]
    pub(crate) settle_batch: Option<NonZeroUsize>,

    /// Delete messages when they are published, and do not keep them
    #[arg(long)]
    pub(crate) delete: bool,

    /// Somebody else's transaction holds an old snapshot all the time
    #[arg(long)]
    pub(crate) hold_snapshot: bool,

    /// Make the outbox a partitioned table [PostgreSQL, MySQL]
    #[arg(long, value_enum, value_name = "LENGTH")]
    pub(crate) partition: Option<Every>,

    /// How payloads are stored [MySQL; default: json]
    #[arg(long, value_enum, value_name = "LAYOUT")]
    pub(crate) layout: Option<Layout>,

    /// Enqueue with statements that are not prepared beforehand [PostgreSQL]
    #[arg(long)]
    pub(crate) unprepared: bool,
}

/// What fills a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Content {
    /// Letters and digits in no order
    Random,
    /// The same letter again and again
    Fixed,
}

impl Load {
    /// Refuses what cannot be done.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let payload = self.payload_bytes.get();
        let wrong = if !(MIN_PAYLOAD..=MAX_PAYLOAD).contains(&payload) {
            format!("--payload-bytes must be {MIN_PAYLOAD} to {MAX_PAYLOAD}")
        } else if self.messages().max(self.warm_up) > MAX_MESSAGES {
            format!("--messages and --warm-up must be at most {MAX_MESSAGES}")
        } else if self.blocked_keys > 0 && self.blocked_keys >= self.keys {
            "--blocked-keys must be fewer than --keys".to_owned()
        } else {
            return Ok(());
        };
        Err(Failure::bad_input(wrong))
    }

    /// How many messages are measured.
    pub(crate) fn messages(&self) -> u64 {
        self.messages.get()
    }

    /// The same load for the warm-up: fewer messages, of as many keys as they allow, none of them held up.
    pub(super) fn warming_up(&self) -> Option<Self> {
        let messages = NonZeroU64::new(self.warm_up)?;
        Some(Self {
            messages,
            keys: self.keys.min(self.warm_up),
            blocked_keys: 0,
            rate: None,
            ..self.clone()
        })
    }
}
