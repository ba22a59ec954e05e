//! The commands, one file each: its options, its help, and what it does.

pub(crate) mod bench;
pub(crate) mod cleanup;
pub(crate) mod config;
mod dead;
pub(crate) mod demo;
pub(crate) mod discard;
pub(crate) mod enqueue;
pub(crate) mod list;
pub(crate) mod migrate;
pub(crate) mod partitions;
pub(crate) mod purge;
pub(crate) mod redrive;
pub(crate) mod relay;
pub(crate) mod show;
pub(crate) mod status;

use posthaste::MessageId;

/// Parses the id of a message that may be in the table. Rows that other programs inserted may have ids of any
/// version of UUID.
fn stored_id(text: &str) -> Result<MessageId, String> {
    uuid::Uuid::parse_str(text).map(MessageId::from_stored).map_err(|_| {
        "is no message id; ids are UUIDs such as 01890a5d-ac96-774b-bcce-b302099a8057".to_owned()
    })
}
