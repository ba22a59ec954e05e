//! Enqueuing in the caller's transaction.

use std::collections::HashSet;

use posthaste::{ErrorKind, Message, MessageId, Outbox, Rules, Waker};

use posthaste_sqlite::rusqlite::{Connection, TransactionBehavior};

use crate::support::{Database, begin};

fn count(connection: &Connection, table: &str) -> i64 {
    connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[tokio::test]
async fn a_message_shares_the_fate_of_its_transaction() {
    let database = Database::migrated().await;
    let outbox = database.store.outbox();
    let mut connection = database.connect();
    connection.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)").unwrap();
    for commits in [false, true, false, true] {
        let tx = begin(&mut connection);
        tx.execute("INSERT INTO orders DEFAULT VALUES", []).unwrap();
        outbox.enqueue(&tx, &Message::new("order.created")).unwrap();
        if commits { tx.commit() } else { tx.rollback() }.unwrap();
    }
    assert_eq!((count(&connection, "orders"), count(&connection, "outbox")), (2, 2));
}

#[tokio::test]
async fn a_message_shares_the_fate_of_its_savepoint() {
    let database = Database::migrated().await;
    let outbox = database.store.outbox();
    let mut connection = database.connect();
    let mut tx = begin(&mut connection);
    let mut undone = tx.savepoint().unwrap();
    outbox.enqueue(&undone, &Message::new("undone").idempotency_key("k")).unwrap();
    undone.rollback().unwrap();
    undone.finish().unwrap();
    let kept = tx.savepoint().unwrap();
    outbox.enqueue(&kept, &Message::new("kept").idempotency_key("k")).unwrap();
    kept.commit().unwrap();
    tx.commit().unwrap();
    let records = database.read().await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].event_type, "kept");
}

#[tokio::test]
async fn a_connection_that_breaks_between_two_statements_rolls_back() {
    let database = Database::migrated().await;
    let outbox = database.store.outbox();
    for enqueued in 0..4 {
        let connection = database.connect();
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut connection = connection;
        let savepoint = connection.savepoint().unwrap();
        for number in 0..enqueued {
            outbox.enqueue(&savepoint, &Message::new("e").idempotency_key(format!("{number}"))).unwrap();
        }
        savepoint.commit().unwrap();
        drop(connection);
        assert_eq!(database.read().await, []);
        assert_eq!(count(&database.connect(), "outbox_key"), 0);
    }
}

#[tokio::test]
async fn a_failed_enqueue_leaves_nothing_behind() {
    let database = Database::migrated().await;
    let outbox = database.store.outbox();
    let mut connection = database.connect();
    let id = MessageId::generate();
    let tx = begin(&mut connection);
    outbox.enqueue(&tx, &Message::new("first").with_id(id).idempotency_key("a")).unwrap();
    let failing = [
        (Message::new("e").with_id(id), ErrorKind::DuplicateId),
        (Message::new("e").with_id(id).idempotency_key("b"), ErrorKind::DuplicateId),
        (Message::new("e").idempotency_key("a"), ErrorKind::DuplicateKey),
        (Message::new(""), ErrorKind::InvalidMessage),
        (Message::new("e").payload(vec![0; 2_000_000]), ErrorKind::PayloadTooLarge),
    ];
    for (message, kind) in &failing {
        assert_eq!(outbox.enqueue(&tx, message).unwrap_err().kind(), *kind);
        let batch = [Message::new("e").idempotency_key("c"), message.clone(), Message::new("e")];
        let error = outbox.enqueue_all(&tx, &batch).unwrap_err();
        assert_eq!(error.kind(), *kind);
        assert!(error.to_string().starts_with("message 1 (counting from 0): "), "{error}");
        assert_eq!((count(&tx, "outbox"), count(&tx, "outbox_key")), (1, 1), "{kind:?}");
    }
    outbox.enqueue(&tx, &Message::new("last").idempotency_key("b")).unwrap();
    tx.commit().unwrap();
    let types: Vec<_> = database.read().await.into_iter().map(|record| record.event_type).collect();
    assert_eq!(types, ["first", "last"]);
}

#[tokio::test]
async fn a_hundred_thousand_messages_are_enqueued_in_one_call() {
    const MESSAGES: usize = 100_000;
    let database = Database::migrated().await;
    let messages: Vec<_> =
        (0..MESSAGES).map(|number| Message::new(format!("e{number}")).aggregate("order", 1)).collect();
    let mut connection = database.connect();
    let tx = begin(&mut connection);
    let receipts = database.store.outbox().enqueue_all(&tx, &messages).unwrap();
    tx.commit().unwrap();
    assert!(receipts.iter().map(posthaste::Receipt::id).eq(messages.iter().map(Message::id)));
    let mut after = None;
    let mut number = 0;
    while number < MESSAGES {
        for record in crate::support::read_from(&database.store, after).await {
            assert_eq!(record.event_type, format!("e{number}"));
            after = Some(record.position);
            number += 1;
        }
    }
}

#[tokio::test]
async fn the_rules_can_be_set() {
    let database = Database::migrated().await;
    let outbox = database.store.outbox().with_rules(Rules::default().max_payload_bytes(3));
    let mut connection = database.connect();
    let tx = begin(&mut connection);
    outbox.enqueue(&tx, &Message::new("e").payload("abc")).unwrap();
    let error = outbox.enqueue(&tx, &Message::new("e").payload("abcd")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PayloadTooLarge);
}

#[tokio::test]
async fn a_receipt_wakes_the_relay_of_the_store() {
    use posthaste::Store;

    let database = Database::migrated().await;
    let mut connection = database.connect();
    let tx = begin(&mut connection);
    let receipt = database.store.outbox().enqueue(&tx, &Message::new("e")).unwrap();
    tx.commit().unwrap();
    receipt.wake();
    database.store.rung().await;

    let waker = Waker::default();
    let outbox = Outbox::new("outbox").unwrap().with_waker(waker.clone());
    let tx = begin(&mut connection);
    outbox.enqueue(&tx, &Message::new("e")).unwrap().wake();
    waker.woken().await;
}

#[tokio::test]
async fn a_deferred_transaction_may_enqueue_first() {
    let database = Database::migrated().await;
    let outbox = database.store.outbox();
    let (mut one, mut other) = (database.connect(), database.connect());
    let tx = one.transaction().unwrap();
    // A check of the schema before the insert would make a reader of it, which the next commit locks out.
    outbox.enqueue(&tx, &Message::new("e").idempotency_key("k")).unwrap();
    tx.commit().unwrap();

    let reader = one.transaction_with_behavior(TransactionBehavior::Deferred).unwrap();
    assert_eq!(count(&reader, "outbox"), 1);
    let tx = begin(&mut other);
    outbox.enqueue(&tx, &Message::new("e")).unwrap();
    tx.commit().unwrap();
    let error = outbox.enqueue(&reader, &Message::new("too late")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("BEGIN IMMEDIATE"), "{error}");
}

#[tokio::test]
async fn positions_are_never_used_again() {
    let database = Database::migrated().await;
    let outbox = database.store.outbox();
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let mut connection = database.connect();
        let tx = begin(&mut connection);
        outbox.enqueue_all(&tx, &[Message::new("e"), Message::new("e")]).unwrap();
        tx.commit().unwrap();
        for record in database.read().await {
            assert!(seen.insert(record.position));
        }
        connection.execute_batch("DELETE FROM outbox; VACUUM").unwrap();
    }
    assert_eq!(seen.len(), 6);
}

#[tokio::test]
async fn a_small_statement_cache_is_no_trouble() {
    let database = Database::migrated().await;
    let mut connection = database.connect();
    connection.set_prepared_statement_cache_capacity(0);
    let tx = begin(&mut connection);
    let outbox = database.store.outbox();
    outbox.enqueue(&tx, &Message::new("e").idempotency_key("k")).unwrap();
    outbox.enqueue_all(&tx, &[Message::new("e"), Message::new("e").idempotency_key("l")]).unwrap();
    tx.commit().unwrap();
    assert_eq!(database.read().await.len(), 3);
}

#[tokio::test]
async fn a_full_disk_is_no_fault_of_the_message() {
    let database = Database::migrated().await;
    let outbox = database.store.outbox();
    let mut connection = database.connect();
    let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
    let limit = |connection: &Connection, pages: i64| {
        connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(())).unwrap();
    };
    limit(&connection, pages + 2);
    let large = || Message::new("e").payload(vec![0; 100_000]).idempotency_key("k");
    let tx = begin(&mut connection);
    let error = outbox.enqueue(&tx, &large()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("disk is full"), "{error}");
    drop(tx);
    limit(&connection, 1_000_000);
    let tx = begin(&mut connection);
    outbox.enqueue(&tx, &large()).unwrap();
    tx.commit().unwrap();
    assert_eq!(database.read().await.len(), 1);
}
