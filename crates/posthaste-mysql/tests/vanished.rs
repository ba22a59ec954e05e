//! A relay that vanishes in the middle of a transaction: what it has locked is free again after a short time.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use posthaste::{
    Admin, ErrorKind, LeaseRequest, Message, Outcome, RecordRef, RelayId, SettleRequest, Settlement, Store,
};
use posthaste_mysql::MySqlStore;
use posthaste_testkit::{Fault, FaultProxy};
use support::{Database, SERVERS, enqueue, everything};
use tokio::time::Instant;

fn lease(relay: RelayId) -> LeaseRequest {
    let duration = Duration::from_secs(2);
    LeaseRequest { relay, name: "vanished".into(), duration, give_back: Vec::new() }
}

/// Polls until something is so: not too often, because what the server tells of transactions is as old as the last look at it, and
/// older where looks follow within 100 ms.
async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so().await {
        assert!(Instant::now() < deadline, "{what}: not in a minute");
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test]
async fn the_lanes_of_a_relay_that_vanished_while_settling_go_to_another_one() {
    for server in SERVERS {
        let database = Database::new(server).await;
        let direct = MySqlStore::new(database.options()).unwrap();
        direct.migrate().await.unwrap();
        enqueue(&database, &direct.outbox(), &[Message::new("e").aggregate("k", 1).payload("1")]).await;
        let proxy = FaultProxy::start(server.address());
        let mut options = database.options().statement_timeout(Duration::from_secs(2));
        options.url = options.url.replace(&server.address(), &proxy.address().to_string());
        let vanishing = MySqlStore::new(options).unwrap();
        let relay = RelayId::random();
        let lanes = vanishing.lease(&lease(relay)).await.unwrap().lanes;
        let record = vanishing.read(&everything()).await.unwrap().records.remove(0);
        let token = lanes.iter().find(|lease| lease.lane == record.lane).unwrap().token;
        let record = RecordRef { id: record.id, position: record.position, lane: record.lane, token };

        // What it asks arrives, and no answer goes back; once the locks are there, not even its end arrives any more.
        proxy.set(Fault::Mute);
        let settlements = vec![Settlement { record, outcome: Outcome::Processed }];
        let request = SettleRequest { relay, delete_processed: false, settlements };
        let settling = tokio::spawn(async move { vanishing.settle(&request).await });
        let open = "SELECT count(*) FROM information_schema.innodb_trx t JOIN information_schema.processlist p \
                    ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()";
        until("it is in a transaction", async || database.value::<i64>(open).await == 1).await;
        proxy.set(Fault::Blackhole);
        assert_eq!(settling.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
        assert_eq!(database.value::<i64>(open).await, 1, "the server does not know that nobody is there");

        let other = RelayId::random();
        until("another relay has all lanes", async || {
            direct.lease(&lease(other)).await.unwrap().lanes.len() == 64
        })
        .await;
    }
}
