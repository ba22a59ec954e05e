//! Enqueueing, in a transaction that others do not see until it commits.

use std::fmt;
use std::slice;
use std::time::SystemTime;

use super::MemoryStore;
use super::table::{Row, Status, Table, deadline};
use crate::error::{Error, ErrorKind};
use crate::message::{Due, Message};
use crate::outbox::{Answer, Dialect, DriverError, Memory, OutboxTransaction, Pending, Progress, Work};
use crate::record::{Key, Record};
use crate::wake::Receipt;

/// A producer's transaction on a [`MemoryStore`]. Dropping it rolls it back.
///
/// Messages take their position when they are enqueued and become visible when the transaction commits, all at
/// once: one that commits late stands before messages that were read already, as in a database.
pub struct MemoryTransaction {
    store: MemoryStore,
    number: u64,
    rows: Vec<Row>,
    /// What its consumers have seen.
    seen: Vec<(String, String)>,
}

impl MemoryStore {
    /// Begins a producer's transaction.
    pub fn begin(&self) -> MemoryTransaction {
        let number = self.table().next_transaction();
        MemoryTransaction { store: self.clone(), number, rows: Vec::new(), seen: Vec::new() }
    }
}

impl MemoryTransaction {
    /// Enqueues a message. After an error the transaction is as it was before, and stays usable.
    ///
    /// # Errors
    /// - What [`Rules::check`](crate::Rules::check) finds.
    /// - [`ErrorKind::DuplicateKey`] and [`ErrorKind::DuplicateId`] if a committed message, or one of this
    ///   transaction, has the same.
    /// - [`ErrorKind::Conflict`] if another open transaction has enqueued the same (where a database would wait
    ///   to see what becomes of it).
    pub fn enqueue(&mut self, message: &Message) -> Result<Receipt, Error> {
        self.enqueue_all(slice::from_ref(message))?;
        Ok(Receipt::new(message.id(), self.store.waker.clone()))
    }

    /// Enqueues messages in the order given; all or, on an error, none of them.
    ///
    /// # Errors
    /// As [`enqueue`](Self::enqueue).
    pub fn enqueue_all(&mut self, messages: &[Message]) -> Result<Vec<Receipt>, Error> {
        messages.iter().try_for_each(|message| self.store.rules.check(message))?;
        let before = self.rows.len();
        for message in messages {
            if let Err(error) = self.add(message) {
                self.undo(before);
                return Err(error);
            }
        }
        Ok(messages.iter().map(|message| Receipt::new(message.id(), self.store.waker.clone())).collect())
    }

    /// Makes the messages visible, and wakes a relay in this process.
    pub fn commit(mut self) {
        let mut table = self.store.table();
        for row in self.rows.drain(..) {
            table.close(&row);
            if let Some(key) = &row.record.idempotency_key {
                table.keys.insert(key.clone(), row.record.enqueued_at);
            }
            table.insert(row);
        }
        for seen in self.seen.drain(..) {
            table.open_inbox.remove(&seen);
            table.inbox.insert(seen);
        }
        drop(table);
        self.store.waker.wake();
    }

    /// Forgets the messages, as dropping does.
    pub fn rollback(self) {
        drop(self);
    }

    fn add(&mut self, message: &Message) -> Result<(), Error> {
        let now = self.store.clock.now();
        let mut table = self.store.table();
        table.open(message, self.number)?;
        let row = table.new_row(message, now);
        drop(table);
        self.rows.push(row);
        Ok(())
    }

    fn undo(&mut self, to: usize) {
        let mut table = self.store.table();
        for row in self.rows.drain(to..) {
            table.close(&row);
        }
    }
}

impl Drop for MemoryTransaction {
    fn drop(&mut self) {
        self.undo(0);
        let mut table = self.store.table();
        for seen in self.seen.drain(..) {
            table.open_inbox.remove(&seen);
        }
    }
}

/// As with an asynchronous driver: a service that is written for one can be handed this in its tests. Whoever wants
/// results calls [`MemoryTransaction::enqueue`] itself.
impl OutboxTransaction for &mut MemoryTransaction {
    type Outcome<'a, R: Send + 'a>
        = Pending<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Pending<'a, R>
    where
        Self: 'a,
    {
        let mut script = work.begin(Dialect::Memory);
        Box::pin(async move {
            loop {
                match script.next() {
                    Progress::Run(step) => script.answer(self.take(step.memory)),
                    Progress::Done(result) => return result,
                }
            }
        })
    }
}

impl MemoryTransaction {
    fn take(&mut self, asked: Option<Memory<'_>>) -> Result<Answer, DriverError> {
        match asked {
            Some(Memory::Enqueue(messages)) => {
                self.enqueue_all(&messages)?;
                Ok(Answer::default())
            }
            Some(Memory::FirstTime(consumer, id)) => {
                let is_new = self.first_time(consumer.into_owned(), id)?;
                Ok(Answer { row: is_new.then(Vec::new) })
            }
            None => Ok(Answer::default()),
        }
    }

    fn first_time(&mut self, consumer: String, id: String) -> Result<bool, Error> {
        let seen = (consumer, id);
        let mut table = self.store.table();
        if table.inbox.contains(&seen) || self.seen.contains(&seen) {
            return Ok(false);
        }
        if !table.open_inbox.insert(seen.clone()) {
            return Err(Error::new(ErrorKind::Conflict, "another open transaction notes the same message"));
        }
        drop(table);
        self.seen.push(seen);
        Ok(true)
    }
}

impl fmt::Debug for MemoryTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTransaction").field("messages", &self.rows.len()).finish_non_exhaustive()
    }
}

impl Table {
    /// Notes the id and the idempotency key as those of an open transaction.
    fn open(&mut self, message: &Message, transaction: u64) -> Result<(), Error> {
        let id = message.id();
        if self.ids.contains_key(&id) || self.open_ids.get(&id) == Some(&transaction) {
            return Err(Error::new(ErrorKind::DuplicateId, "a message with this id was enqueued before"));
        }
        if self.open_ids.contains_key(&id) {
            return Err(Error::new(ErrorKind::Conflict, "another open transaction enqueues this id"));
        }
        if let Some(key) = message.idempotency_key_str() {
            if self.keys.contains_key(key) || self.open_keys.get(key) == Some(&transaction) {
                let text = "a message with this idempotency key was enqueued before";
                return Err(Error::new(ErrorKind::DuplicateKey, text));
            }
            if self.open_keys.contains_key(key) {
                let text = "another open transaction enqueues this idempotency key";
                return Err(Error::new(ErrorKind::Conflict, text));
            }
            self.open_keys.insert(key.to_owned(), transaction);
        }
        self.open_ids.insert(id, transaction);
        Ok(())
    }

    /// Forgets what [`open`](Self::open) noted.
    fn close(&mut self, row: &Row) {
        self.open_ids.remove(&row.record.id);
        self.open_positions.remove(&row.record.position);
        if let Some(key) = &row.record.idempotency_key {
            self.open_keys.remove(key);
        }
    }

    fn new_row(&mut self, message: &Message, now: SystemTime) -> Row {
        let record = Record {
            id: message.id(),
            lane: self.lane_of(message),
            position: self.next_position(),
            event_type: message.event_type().to_owned(),
            aggregate: Key::new(message.aggregate_type(), message.aggregate_id()),
            payload: message.payload_bytes().cloned(),
            content_type: message.content_type_str().map(str::to_owned),
            headers: message.headers().clone(),
            idempotency_key: message.idempotency_key_str().map(str::to_owned),
            attempts: 0,
            enqueued_at: now,
            held_back: false,
        };
        let next_attempt_at = match message.due() {
            Due::Now => None,
            Due::After(delay) => Some(deadline(now, delay)),
            Due::At(at) => (at > now).then_some(at),
        };
        Row { record, status: Status::Pending, next_attempt_at, settled_at: None, last_error: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_open_transaction_enqueues_is_a_conflict() {
        let store = MemoryStore::new(4);
        let (message, twin) =
            (Message::new("a").idempotency_key("key"), Message::new("b").idempotency_key("key"));
        let (mut first, mut second) = (store.begin(), store.begin());
        first.enqueue(&message).unwrap();
        for other in [&message, &twin] {
            assert_eq!(second.enqueue(other).unwrap_err().kind(), ErrorKind::Conflict);
        }
        first.rollback();
        second.enqueue(&twin).unwrap();
        second.commit();
        let mut third = store.begin();
        assert_eq!(third.enqueue(&twin).unwrap_err().kind(), ErrorKind::DuplicateId);
        assert_eq!(third.enqueue(&message).unwrap_err().kind(), ErrorKind::DuplicateKey);
        let keys: Vec<_> = store.messages().into_iter().map(|message| message.idempotency_key).collect();
        assert_eq!(keys, [Some("key".to_owned())]);
    }

    #[test]
    fn nothing_is_firm_from_the_first_position_of_an_open_transaction() {
        let store = MemoryStore::new(4);
        let firm = || store.table().firm().major;
        assert_eq!(firm(), 0);
        let (mut slow, mut fast) = (store.begin(), store.begin());
        slow.enqueue(&Message::new("slow")).unwrap();
        fast.enqueue_all(&[Message::new("fast"), Message::new("fast")]).unwrap();
        fast.commit();
        assert_eq!(firm(), 0, "the slow one took position 1");
        slow.enqueue(&Message::new("slow")).unwrap();
        slow.commit();
        assert_eq!(firm(), 4, "all positions were given out by transactions that are over");
        let types: Vec<_> = store.messages().into_iter().map(|message| message.info.event_type).collect();
        assert_eq!(types, ["slow", "fast", "fast", "slow"], "each stands where it was enqueued");
    }

    #[tokio::test]
    async fn a_service_can_be_handed_its_transactions() {
        let store = MemoryStore::new(4);
        let (outbox, inbox) = (store.outbox("outbox").unwrap(), crate::Inbox::new("outbox").unwrap());
        let keyed = || Message::new("keyed").idempotency_key("key");
        let mut tx = store.begin();
        outbox.enqueue(&mut tx, &Message::new("one")).await.unwrap();
        outbox.enqueue_all(&mut tx, &[keyed(), Message::new("all")]).await.unwrap();
        let error = outbox.enqueue(&mut tx, &keyed()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DuplicateKey);
        let error = outbox.enqueue_all(&mut tx, &[Message::new("lost"), Message::new("")]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidMessage);
        assert!(error.to_string().starts_with("message 1 "), "{error}");
        assert!(inbox.first_time(&mut tx, "c", 1).await.unwrap());
        assert!(!inbox.first_time(&mut tx, "c", 1).await.unwrap());
        let mut other = store.begin();
        assert_eq!(inbox.first_time(&mut other, "c", 1).await.unwrap_err().kind(), ErrorKind::Conflict);
        tx.commit();
        assert!(!inbox.first_time(&mut other, "c", 1).await.unwrap());
        assert!(inbox.first_time(&mut other, "d", 1).await.unwrap());
        drop(other);
        assert!(inbox.first_time(&mut store.begin(), "d", 1).await.unwrap(), "it was rolled back");
        let types: Vec<_> = store.messages().into_iter().map(|message| message.info.event_type).collect();
        assert_eq!(types, ["one", "keyed", "all"]);
    }

    #[tokio::test]
    async fn a_commit_wakes_a_relay() {
        let store = MemoryStore::new(1);
        let mut transaction = store.begin();
        transaction.enqueue(&Message::new("a")).unwrap();
        transaction.commit();
        crate::store::Store::rung(&store).await;
    }

    #[test]
    fn messages_are_listed_as_they_were_enqueued() {
        let store = MemoryStore::new(16);
        let mut transaction = store.begin();
        for n in 0..20 {
            transaction.enqueue(&Message::new("e").aggregate("thing", n)).unwrap();
        }
        assert!(store.messages().is_empty(), "not committed yet");
        transaction.commit();
        let keys: Vec<_> = store.messages().into_iter().map(|message| message.info.aggregate_id).collect();
        assert_eq!(keys, (0..20).map(|n| n.to_string()).collect::<Vec<_>>());
    }
}
