//! What the relay does never makes a producer wait for long or lose its transaction, and never loses its own.
#![allow(clippy::unwrap_used, reason = "all of it is tests")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mysql_async::TxOpts;
use mysql_async::prelude::Queryable;
use posthaste::{
    Admin, DeadSelection, DueRecords, Lane, LeaseRequest, Message, Mode, Outbox, Outcome, ReadRequest,
    Record, RecordRef, RelayId, Scan, SettleRequest, Settlement, Store, UpkeepRequest,
};
use posthaste_mysql::MySqlStore;
use support::{Database, SERVERS, Server, enqueue, everything};

const PRODUCERS: usize = 50;
const RELAYS: usize = 10;
const EACH: usize = 20;

/// A transaction that does business and enqueues; what it meets is not to be an error.
async fn produce(database: Arc<Database>, outbox: Arc<Outbox>, producer: usize) {
    let mut conn = database.client().await;
    // The server's own default, with its gap locks: what most producers use.
    conn.query_drop(
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; SET innodb_lock_wait_timeout = 5",
    )
    .await
    .unwrap();
    for n in 0..EACH {
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        tx.query_drop(format!("UPDATE account SET balance = balance + 1 WHERE id = {producer}"))
            .await
            .unwrap();
        let key = (producer * 7 + n) % 40;
        let messages: Vec<_> =
            (0..=n % 3).map(|_| Message::new("e").aggregate("a", key).payload("1")).collect();
        outbox
            .enqueue_all(&mut tx, &messages)
            .await
            .unwrap_or_else(|error| panic!("a producer met {error:?}"));
        let loose = Message::new("l").payload("1").idempotency_key(format!("{producer}-{n}"));
        outbox.enqueue(&mut tx, &loose).await.unwrap_or_else(|error| panic!("a producer met {error:?}"));
        tx.commit().await.unwrap();
    }
}

/// A relay that settles what it reads, in every way there is.
async fn relay(store: MySqlStore, done: Arc<AtomicBool>, settled: Arc<AtomicUsize>) {
    let me = RelayId::random();
    let mut round = 0_usize;
    let mut give_back = Vec::new();
    while !done.load(Ordering::SeqCst) {
        round += 1;
        let duration = Duration::from_secs(20);
        let request = LeaseRequest { relay: me, name: "r".into(), duration, give_back: give_back.clone() };
        let leases = store.lease(&request).await.unwrap();
        give_back = leases.lanes.iter().skip(leases.share).map(|lease| lease.lane).collect();
        let scan = |lane| Scan { lane, after: None, until: None, due: DueRecords::All };
        let scans: Vec<_> = leases.lanes.iter().map(|lease| scan(lease.lane)).collect();
        let page = store.read(&ReadRequest { scans, max_rows: 50, ..everything() }).await.unwrap();
        let token = |lane: Lane| leases.lanes.iter().find(|it| it.lane == lane).unwrap().token;
        let settle = |(n, record): (usize, &Record)| Settlement {
            record: RecordRef {
                id: record.id,
                position: record.position,
                lane: record.lane,
                token: token(record.lane),
            },
            outcome: match (n + round) % 11 {
                0 => Outcome::Retry { after: Duration::ZERO, attempts: 1, error: "x".into() },
                1 => Outcome::Dead { attempts: 1, error: "x".into(), park: n % 2 == 0 },
                _ => Outcome::Processed,
            },
        };
        let settlements = page.records.iter().enumerate().map(settle).collect();
        let request = SettleRequest { relay: me, delete_processed: round.is_multiple_of(2), settlements };
        settled.fetch_add(store.settle(&request).await.unwrap().applied, Ordering::SeqCst);
        if round.is_multiple_of(5) {
            store.redrive(&DeadSelection::All, Mode::UpTo(100)).await.unwrap();
            let keep = Some(Duration::ZERO);
            let upkeep = UpkeepRequest {
                relay: me,
                lease: duration,
                keep_processed: keep,
                keep_keys: keep,
                keep_inbox: None,
                limit: 50,
            };
            store.upkeep(&upkeep).await.unwrap();
        }
        tokio::task::yield_now().await;
    }
    store.leave(me).await.unwrap();
}

async fn nobody_loses(server: Server, rows_before: usize) {
    let database = Arc::new(Database::new(server).await);
    let store = MySqlStore::new(database.options()).unwrap();
    store.migrate().await.unwrap();
    database.execute("CREATE TABLE account (id INT PRIMARY KEY, balance INT NOT NULL)").await;
    let accounts: Vec<_> = (0..PRODUCERS).map(|id| format!("({id}, 0)")).collect();
    database.execute(&format!("INSERT INTO account VALUES {}", accounts.join(", "))).await;
    if rows_before > 0 {
        let messages: Vec<_> =
            (0..rows_before).map(|n| Message::new("old").aggregate("a", n % 40).payload("1")).collect();
        enqueue(&database, &store.outbox(), &messages).await;
        database.execute("ANALYZE TABLE outbox").await;
    }
    let outbox = Arc::new(store.outbox());
    let (done, settled) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let relays: Vec<_> = (0..RELAYS)
        .map(|_| {
            let store = MySqlStore::new(database.options()).unwrap();
            tokio::spawn(relay(store, done.clone(), settled.clone()))
        })
        .collect();
    let producers: Vec<_> =
        (0..PRODUCERS).map(|n| tokio::spawn(produce(database.clone(), outbox.clone(), n))).collect();
    for producer in producers {
        producer.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    for relay in relays {
        relay.await.unwrap();
    }
    assert!(settled.load(Ordering::SeqCst) > 100, "the relays were at work");
    let balance: u64 = database.value("SELECT CAST(SUM(balance) AS UNSIGNED) FROM account").await;
    assert_eq!(balance, (PRODUCERS * EACH) as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_producers_and_ten_relays_never_lose_on_a_small_table() {
    for server in SERVERS {
        nobody_loses(server, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_producers_and_ten_relays_never_lose_on_a_larger_table() {
    for server in SERVERS {
        nobody_loses(server, 5_000).await;
    }
}

/// A settle waits for no row but its own, on a table that is nearly empty too, where a scan looks cheap.
#[tokio::test]
async fn an_open_transaction_beside_the_rows_holds_up_no_settle() {
    for server in SERVERS {
        for (delete_processed, is_processed) in [(false, true), (true, true), (false, false)] {
            let database = Database::new(server).await;
            let store =
                MySqlStore::new(database.options().statement_timeout(Duration::from_secs(3))).unwrap();
            store.migrate().await.unwrap();
            let message = || Message::new("e").aggregate("a", 1).payload("1");
            let mut conn = database.client().await;
            for n in 0..3 {
                // Rows of an open transaction lie before, between and behind those that are settled.
                let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
                store.outbox().enqueue(&mut tx, &message()).await.unwrap();
                let committed = [message(), message()];
                enqueue(&database, &store.outbox(), &committed).await;
                store.outbox().enqueue(&mut tx, &message()).await.unwrap();
                let me = RelayId::random();
                let (duration, give_back) = (Duration::from_secs(20), Vec::new());
                let request = LeaseRequest { relay: me, name: String::new(), duration, give_back };
                let leases = store.lease(&request).await.unwrap();
                let records = store.read(&everything()).await.unwrap().records;
                assert_eq!(records.len(), 2, "{server:?} {n}");
                let settle = |record: &Record| Settlement {
                    record: RecordRef {
                        id: record.id,
                        position: record.position,
                        lane: record.lane,
                        token: leases.lanes.iter().find(|it| it.lane == record.lane).unwrap().token,
                    },
                    outcome: if is_processed {
                        Outcome::Processed
                    } else {
                        Outcome::Dead { attempts: 1, error: String::new(), park: false }
                    },
                };
                let settlements = records.iter().map(settle).collect();
                let request = SettleRequest { relay: me, delete_processed, settlements };
                assert_eq!(store.settle(&request).await.unwrap().applied, 2);
                store.leave(me).await.unwrap();
                tx.rollback().await.unwrap();
            }
        }
    }
}
