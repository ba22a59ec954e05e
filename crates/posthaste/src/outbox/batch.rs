//! What enqueueing has in common on all databases.

use std::collections::BTreeSet;

use super::trace::TraceContext;
use crate::error::{Error, ErrorKind};
use crate::message::Message;

/// How many messages and how many bytes one statement takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkLimits {
    pub(super) messages: usize,
    pub(super) bytes: usize,
}

/// Splits messages so that no statement becomes too large. A message that is larger than the limit goes alone.
pub(super) fn chunks(messages: &[Message], limits: ChunkLimits) -> Vec<&[Message]> {
    let mut chunks = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (n, message) in messages.iter().enumerate() {
        let size = size(message);
        if n > start && (bytes + size > limits.bytes || n - start == limits.messages) {
            chunks.push(&messages[start..n]);
            (start, bytes) = (n, 0);
        }
        bytes += size;
    }
    chunks.push(&messages[start..]);
    chunks
}

/// About how many bytes a message takes in a statement.
pub(super) fn size(message: &Message) -> usize {
    let headers: usize = message.headers().iter().map(|(name, value)| name.len() + value.len()).sum();
    message.payload_bytes().map_or(0, bytes::Bytes::len) + headers + 512
}

/// Finds ids and keys that occur twice in a batch, as the table would.
pub(super) fn check_duplicates(messages: &[Message]) -> Result<(), Error> {
    let mut keys = BTreeSet::new();
    for (n, key) in
        messages.iter().enumerate().filter_map(|(n, message)| Some((n, message.idempotency_key_str()?)))
    {
        if !keys.insert(key) {
            return Err(at(n, duplicate_key(Some(key))));
        }
    }
    let mut ids = BTreeSet::new();
    match messages.iter().position(|message| !ids.insert(message.id())) {
        Some(n) => Err(at(n, duplicate_id(Some(&messages[n])))),
        None => Ok(()),
    }
}

/// Says which of many messages an error is about.
pub(super) fn at(index: usize, error: Error) -> Error {
    Error::new(error.kind(), format!("message {index} (counting from 0): {error}")).with_source(error)
}

pub(super) fn duplicate_key(key: Option<&str>) -> Error {
    let text = match key {
        Some(key) => format!("idempotency key {key:?} is there already: its message was enqueued before"),
        None => "a message with one of these idempotency keys was enqueued before".to_owned(),
    };
    Error::new(ErrorKind::DuplicateKey, text)
}

pub(super) fn duplicate_id(message: Option<&Message>) -> Error {
    let text = match message {
        Some(message) => format!("id {} is there already: the message was enqueued before", message.id()),
        None => "a message with one of these ids was enqueued before".to_owned(),
    };
    Error::new(ErrorKind::DuplicateId, text)
}

/// Headers as JSON text, with those of the trace.
pub(super) fn headers_json(message: &Message, trace: &TraceContext) -> Result<String, Error> {
    serde_json::to_string(trace.add_to(message).as_ref()).map_err(|source| {
        let text = "the headers cannot be written as JSON";
        Error::new(ErrorKind::InvalidMessage, text).with_source(source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_keep_the_order_and_the_limits() {
        let sizes = [100, 3_000, 10, 20_000, 5, 5, 5];
        let messages: Vec<_> =
            sizes.iter().map(|size| Message::new("e").payload(vec![0_u8; *size])).collect();
        let chunks = chunks(&messages, ChunkLimits { messages: 2, bytes: 5_000 });
        let lengths: Vec<_> = chunks.iter().map(|chunk| chunk.len()).collect();
        assert_eq!(lengths, [2, 1, 1, 2, 1]);
        assert_eq!(chunks.concat(), messages);
    }

    #[test]
    fn twins_in_a_batch_are_found() {
        let message = Message::new("e");
        let error = check_duplicates(&[message.clone(), message]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DuplicateId);
        assert!(error.to_string().starts_with("message 1 "), "{error}");
        let key = || Message::new("e").idempotency_key("k");
        assert_eq!(check_duplicates(&[key(), key()]).unwrap_err().kind(), ErrorKind::DuplicateKey);
        assert!(check_duplicates(&[Message::new("e"), key(), Message::new("e")]).is_ok());
    }
}
