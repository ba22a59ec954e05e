//! sqlx 0.8 on SQLite, and a relay on the same file in the same program.

use std::sync::{Arc, Mutex};

use ::sqlx::SqlitePool;
use posthaste::{Admin, BoxError, Message, Relay, publish_fn};
use posthaste_sqlite::{SqliteOptions, SqliteStore};

#[tokio::test]
async fn what_sqlx_commits_is_published_by_a_relay_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path, SqliteOptions::default().create(true)).unwrap();
    store.migrate().await.unwrap();
    let outbox = store.outbox();

    let pool = SqlitePool::connect(path.to_str().unwrap()).await.unwrap();
    for (event_type, commit) in [("lost", false), ("first", true), ("second", true)] {
        let mut tx = pool.begin().await.unwrap();
        outbox.enqueue(&mut tx, &Message::new(event_type).aggregate("order", 7)).await.unwrap();
        if commit { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
    }

    let published = Arc::new(Mutex::new(Vec::new()));
    let into = published.clone();
    let publisher = publish_fn(move |record| {
        into.lock().unwrap().push(record.event_type.clone());
        async { Ok::<_, BoxError>(()) }
    });
    let relay = Relay::builder(Arc::new(store)).publisher(publisher).build().unwrap();
    assert_eq!(relay.drain().await.unwrap().published, 2);
    assert_eq!(*published.lock().unwrap(), ["first", "second"]);
}
