//! A relay that freezes or vanishes in the middle of something leaves no lock behind for long. The network says nothing of it to
//! the server: what was sent arrives, and then nothing happens any more.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use mysql_async::prelude::Queryable;
use posthaste::{
    Admin, BeginAttempt, DeadSelection, Error, ErrorKind, LeaseRequest, Message, Mode, Outcome, Record,
    RecordRef, RelayId, SettleRequest, Settlement, Store,
};
use posthaste_mysql::MySqlStore;
use posthaste_testkit::{Fault, FaultProxy};
use support::{Fixture, SERVERS, enqueue, everything};

fn lease(relay: RelayId, duration: Duration) -> LeaseRequest {
    LeaseRequest { relay, name: "frozen".into(), duration, give_back: Vec::new() }
}

fn settle(relay: RelayId, record: RecordRef, outcome: Outcome) -> SettleRequest {
    SettleRequest { relay, delete_processed: false, settlements: vec![Settlement { record, outcome }] }
}

fn of(record: &Record, token: i64) -> RecordRef {
    RecordRef { id: record.id, position: record.position, lane: record.lane, token }
}

/// A relay that froze and what it had in hand.
struct Frozen {
    store: MySqlStore,
    relay: RelayId,
    record: RecordRef,
}

#[derive(Debug, Clone, Copy)]
enum When {
    Renewing,
    Settling,
    BeginningAnAttempt,
    Redriving,
}

impl When {
    /// What the relay is at when it freezes.
    async fn work(self, frozen: &Frozen) -> Result<(), Error> {
        let Frozen { store, relay, record } = frozen;
        match self {
            Self::Renewing => store.lease(&lease(*relay, Duration::from_secs(2))).await.map(drop),
            Self::Settling => store.settle(&settle(*relay, *record, Outcome::Processed)).await.map(drop),
            Self::BeginningAnAttempt => {
                let attempt = BeginAttempt { relay: *relay, record: *record, attempts: 1 };
                store.begin_attempt(&attempt).await.map(drop)
            }
            Self::Redriving => store.redrive(&DeadSelection::All, Mode::UpTo(10)).await.map(drop),
        }
    }
}

/// A redrive locks in one round trip and changes in the next. It freezes between them: while it waits for its locks, so that they
/// are granted when nobody is there any more.
async fn freeze_with_locks(fixture: &Fixture, proxy: &FaultProxy, frozen: &Frozen) -> Error {
    let mut blocker = fixture.database.client().await;
    blocker.query_drop("START TRANSACTION").await.unwrap();
    blocker.query_drop("SELECT * FROM outbox_lane FOR UPDATE").await.unwrap();
    let waits = format!(
        "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = '{}' AND INFO LIKE '%outbox_lane%FOR UPDATE%' \
         AND ID NOT IN (CONNECTION_ID(), {})",
        fixture.database.name,
        blocker.id()
    );
    let freeze = async {
        while fixture.database.value::<i64>(&waits).await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        proxy.set(Fault::Mute);
        blocker.query_drop("ROLLBACK").await.unwrap();
        std::future::pending::<()>().await;
    };
    tokio::select! {
        done = When::Redriving.work(frozen) => done.unwrap_err(),
        () = freeze => unreachable!("it never ends"),
    }
}

async fn another_takes_over(server: support::Server, when: When) {
    let fixture = Fixture::migrated(server, |options| options).await;
    let messages = [Message::new("dead").payload("1"), Message::new("ready").payload("1")];
    enqueue(&fixture.database, &fixture.store.outbox(), &messages).await;
    let proxy = FaultProxy::start(server.address());
    // As many connections as there are uses, each made before the fault.
    let mut options = fixture.database.options().connections(4).statement_timeout(Duration::from_secs(1));
    options.url = options.url.replace(&server.address(), &proxy.address().to_string());
    let store = MySqlStore::new(options).unwrap();
    let relay = RelayId::random();
    let mut tries = 0;
    let lanes = loop {
        tries += 1;
        match store.lease(&lease(relay, Duration::from_secs(2))).await {
            Ok(leases) => break leases.lanes,
            // A busy machine may need more than the second.
            Err(error) => assert!(tries < 20, "{error:?}"),
        }
    };
    assert_eq!(lanes.len(), 64);
    let records = fixture.store.read(&everything()).await.unwrap().records;
    let dead = Outcome::Dead { attempts: 1, error: "no".into(), park: false };
    let dead_one = records.iter().find(|it| it.event_type == "dead").unwrap();
    while store.settle(&settle(relay, of(dead_one, 1), dead.clone())).await.is_err() {}
    while store.redrive(&DeadSelection::All, Mode::DryRun).await.is_err() {}
    let record = of(records.iter().find(|it| it.event_type == "ready").unwrap(), 1);
    let frozen = Frozen { store, relay, record };

    let error = if matches!(when, When::Redriving) {
        freeze_with_locks(&fixture, &proxy, &frozen).await
    } else {
        proxy.set(Fault::Mute);
        when.work(&frozen).await.unwrap_err()
    };
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");

    // Whoever is next gets every lane, and can settle in each: no more than the lease has to end.
    let other = RelayId::random();
    let began = tokio::time::Instant::now();
    loop {
        let leases = fixture.store.lease(&lease(other, Duration::from_mins(5))).await;
        if leases.is_ok_and(|leases| leases.lanes.len() == 64) {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{server:?}: locks are left of {when:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let locked: i64 = fixture
        .database
        .value("SELECT COUNT(*) FROM (SELECT lane FROM outbox_lane WHERE lane >= 0 FOR UPDATE SKIP LOCKED) t")
        .await;
    assert_eq!(locked, 64, "{server:?}: all can be locked after {when:?}");
}

#[tokio::test]
async fn in_the_middle_of_a_renewal() {
    for server in SERVERS {
        another_takes_over(server, When::Renewing).await;
    }
}

#[tokio::test]
async fn in_the_middle_of_a_settle() {
    for server in SERVERS {
        another_takes_over(server, When::Settling).await;
    }
}

#[tokio::test]
async fn in_the_middle_of_beginning_an_attempt() {
    for server in SERVERS {
        another_takes_over(server, When::BeginningAnAttempt).await;
    }
}

#[tokio::test]
async fn in_the_middle_of_a_redrive() {
    for server in SERVERS {
        another_takes_over(server, When::Redriving).await;
    }
}
