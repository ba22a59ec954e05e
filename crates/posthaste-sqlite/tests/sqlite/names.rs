//! Table names of all kinds.

use posthaste::{
    Admin, DeadSelection, ErrorKind, Message, Mode, Outbox, Outcome, Purge, Store, UpkeepRequest,
};
use posthaste_sqlite::{SqliteOptions, SqliteStore};

use crate::support::{Database, Holder, begin};
use std::time::Duration;

const NAMES: &[&str] = &[
    "events",
    "My \"Outbox\"",
    "select",
    "ausgangskörbchen 📮",
    "it's; DROP TABLE orders --",
    "{outbox_lane}",
    "a.b",
    "0",
    "[x]",
    "`",
    "%s ?1 :a",
];

/// Every statement of the crate, on a table of a name.
async fn go_through_everything(table: &str) {
    let database = Database::migrated_with(SqliteOptions::default().table(table)).await;
    let mut connection = database.connect();
    let tx = begin(&mut connection);
    let outbox = Outbox::new(table).unwrap();
    let messages = [
        Message::new("first").aggregate("order", 1).idempotency_key("key"),
        Message::new("second").aggregate("order", 1),
        Message::new("third").aggregate("order", 2).delay(Duration::from_secs(1)),
        Message::new("fourth"),
    ];
    outbox.enqueue_all(&tx, &messages).unwrap();
    tx.commit().unwrap();
    database.clock.advance(Duration::from_secs(3));

    let store = &database.store;
    let holder = Holder::new(store).await;
    let records = database.read().await;
    assert_eq!(records.len(), 4, "{table}");
    holder.give_up(&records[..1], true).await;
    holder.settle(&records[2..3], &Outcome::Processed).await;
    let retry = Outcome::Retry { after: Duration::ZERO, attempts: 1, error: "later".to_owned() };
    holder.settle(&records[3..], &retry).await;
    holder.settle(&records[3..], &Outcome::Released { attempts: 0 }).await;
    assert_eq!(store.stats(Some(10)).await.unwrap().blocked.count, 1);
    assert_eq!(store.redrive(&DeadSelection::All, Mode::UpTo(9)).await.unwrap(), 1);
    let info = store.show(records[0].id).await.unwrap().unwrap().info;
    assert_eq!(info.event_type, "first");
    let filter = posthaste::ListFilter { state: None, event_type: None, limit: 9 };
    assert_eq!(store.list(&filter).await.unwrap().len(), 4);
    holder.give_up(&records[..1], false).await;
    assert_eq!(store.discard(&DeadSelection::All, Mode::UpTo(9)).await.unwrap(), 1);
    database.clock.advance(Duration::from_mins(1));
    let purge = Purge { older_than: Duration::from_secs(1), include_dead: true, limit: 9 };
    assert_eq!(store.purge(&purge).await.unwrap().processed, 1);
    let upkeep = UpkeepRequest {
        relay: holder.relay,
        lease: Duration::from_secs(1),
        keep_processed: Some(Duration::from_secs(1)),
        keep_keys: Some(Duration::from_secs(1)),
        keep_inbox: Some(Duration::from_secs(1)),
        limit: 9,
    };
    assert_eq!(store.upkeep(&upkeep).await.unwrap().keys_purged, 1);
    store.leave(holder.relay).await.unwrap();

    let names: Vec<String> = connection
        .prepare("SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(names.iter().all(|name| name.starts_with(table)), "{names:?}");
}

#[tokio::test]
async fn every_name_works_everywhere() {
    for name in NAMES {
        go_through_everything(name).await;
    }
    go_through_everything(&"x".repeat(63)).await;
}

#[test]
fn names_that_cannot_work_are_refused() {
    for name in ["", "a\0b", "two\nlines", "sqlite_sequence", &"x".repeat(64)] {
        // What another database could take is refused where SQLite is to take it.
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        let tx = connection.transaction().unwrap();
        let enqueue = |outbox: Outbox| outbox.enqueue(&tx, &Message::new("e")).map(drop);
        let error = Outbox::new(name).and_then(enqueue).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name:?}");
        assert!(error.to_string().contains("table name"), "{error}");
        let options = SqliteOptions::default().table(name);
        assert_eq!(SqliteStore::open("outbox.db", options).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[tokio::test]
async fn two_outboxes_in_one_file_do_not_meet() {
    let one = Database::migrated_with(SqliteOptions::default().table("one")).await;
    let options = one.options.clone().table("two");
    let two = SqliteStore::open(one.path(), options).unwrap();
    two.migrate().await.unwrap();
    let mut connection = one.connect();
    let tx = begin(&mut connection);
    let message = Message::new("e").idempotency_key("same");
    one.store.outbox().enqueue(&tx, &message).unwrap();
    two.outbox().enqueue(&tx, &message).unwrap();
    tx.commit().unwrap();
    let holder = Holder::new(&one.store).await;
    assert_eq!(holder.settle(&one.read().await, &Outcome::Processed).await.applied, 1);
    assert_eq!(crate::support::read_from(&two, None).await.len(), 1);
    Holder::new(&two).await;
}
