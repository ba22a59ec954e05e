//! What each role may do and needs, as docs/mysql.md says.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use mysql_async::{Conn, Opts, OptsBuilder, TxOpts};
use posthaste::{
    Admin, ErrorKind, LeaseRequest, Message, Outcome, RecordRef, RelayId, SettleRequest, Settlement, Store,
    UpkeepRequest,
};
use posthaste_mysql::{Cleanup, MySqlStore, Partition, PartitionPlan};
use support::{Database, Fixture, SERVERS, connect, enqueue, everything};

/// A user with rights on tables of a database, dropped in the end.
struct Role {
    user: String,
}

impl Role {
    async fn new(database: &Database, name: &str, grants: &[(&str, &str)]) -> Self {
        let user = format!("pt_{name}_{}", &database.name["posthaste_test_".len()..][..12]);
        database.execute(&format!("CREATE USER '{user}'@'%' IDENTIFIED BY 'x'")).await;
        for (rights, table) in grants {
            database.execute(&format!("GRANT {rights} ON `{}`.{table} TO '{user}'@'%'", database.name)).await;
        }
        Self { user }
    }

    fn store(&self, database: &Database) -> MySqlStore {
        let mut options = database.options();
        options.url = database.server.url_of(&database.name, Some(&format!("{}:x", self.user)));
        MySqlStore::new(options).unwrap()
    }

    async fn connect(&self, database: &Database) -> Conn {
        let url = database.server.url_of(&database.name, Some(&format!("{}:x", self.user)));
        connect(OptsBuilder::from_opts(Opts::from_url(&url).unwrap()).prefer_socket(false).into()).await
    }

    async fn drop(self, database: &Database) {
        database.execute(&format!("DROP USER '{}'@'%'", self.user)).await;
    }
}

fn lease(relay: RelayId) -> LeaseRequest {
    LeaseRequest { relay, name: "role".into(), duration: Duration::from_secs(10), give_back: Vec::new() }
}

#[tokio::test]
async fn a_producer_needs_insert_and_nothing_else() {
    for server in SERVERS {
        let fixture = Fixture::migrated(server, |options| options).await;
        let grants = [("INSERT", "outbox"), ("INSERT", "outbox_key")];
        let role = Role::new(&fixture.database, "prod", &grants).await;
        let mut conn = role.connect(&fixture.database).await;
        let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
        let outbox = fixture.store.outbox();
        let message = || Message::new("e").payload("1").idempotency_key("k");
        outbox.enqueue(&mut tx, &message()).await.unwrap();
        assert_eq!(outbox.enqueue(&mut tx, &message()).await.unwrap_err().kind(), ErrorKind::DuplicateKey);
        let large = Message::new("large").payload(vec![0; 200_000]);
        outbox.enqueue_all(&mut tx, &[large, Message::new("l").payload("1")]).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(fixture.store.read(&everything()).await.unwrap().records.len(), 3);
        let error = role.store(&fixture.database).read(&everything()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("docs/mysql.md"), "{error}");
        role.drop(&fixture.database).await;
    }
}

/// An id that is there already, under a key that is not: the key was written, and is to be taken back.
#[tokio::test]
async fn only_to_take_a_key_back_a_producer_needs_more() {
    for server in SERVERS {
        let fixture = Fixture::migrated(server, |options| options).await;
        let outbox = fixture.store.outbox();
        let message = Message::new("e").payload("1");
        enqueue(&fixture.database, &outbox, std::slice::from_ref(&message)).await;
        let again = message.idempotency_key("k");
        let grants = [("INSERT", "outbox"), ("INSERT", "outbox_key")];
        for (more, kind) in [
            (None, ErrorKind::PermissionDenied),
            (Some(("SELECT, DELETE", "outbox_key")), ErrorKind::DuplicateId),
        ] {
            let grants: Vec<_> = grants.into_iter().chain(more).collect();
            let role = Role::new(&fixture.database, "back", &grants).await;
            let mut conn = role.connect(&fixture.database).await;
            let mut tx = conn.start_transaction(TxOpts::default()).await.unwrap();
            let error = outbox.enqueue(&mut tx, &again).await.unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            tx.rollback().await.unwrap();
            let keys: i64 = fixture.database.value("SELECT COUNT(*) FROM outbox_key").await;
            assert_eq!(keys, 0);
            role.drop(&fixture.database).await;
        }
    }
}

#[tokio::test]
async fn a_relay_needs_rights_on_the_outbox_and_its_side_tables_only() {
    for server in SERVERS {
        let fixture = Fixture::migrated(server, |options| options).await;
        let all = "SELECT, INSERT, UPDATE, DELETE";
        let grants = [
            ("SELECT, UPDATE, DELETE", "outbox"),
            ("SELECT, UPDATE", "outbox_lane"),
            (all, "outbox_relay"),
            ("SELECT, DELETE", "outbox_key"),
            ("SELECT", "outbox_migrations"),
        ];
        let role = Role::new(&fixture.database, "relay", &grants).await;
        let store = role.store(&fixture.database);
        let messages = [Message::new("a").payload("1"), Message::new("b").payload("1")];
        enqueue(&fixture.database, &fixture.store.outbox(), &messages).await;
        let me = RelayId::random();
        let leases = store.lease(&lease(me)).await.unwrap();
        let records = store.read(&everything()).await.unwrap().records;
        let settlements = records.iter().map(|record| Settlement {
            record: RecordRef {
                id: record.id,
                position: record.position,
                lane: record.lane,
                token: leases.lanes.iter().find(|it| it.lane == record.lane).unwrap().token,
            },
            outcome: Outcome::Processed,
        });
        let request =
            SettleRequest { relay: me, delete_processed: false, settlements: settlements.collect() };
        assert_eq!(store.settle(&request).await.unwrap().applied, 2);
        fixture.advance(Duration::from_secs(5)).await;
        let keep = Some(Duration::from_secs(1));
        let upkeep = UpkeepRequest {
            relay: me,
            lease: Duration::from_secs(5),
            keep_processed: keep,
            keep_keys: keep,
            keep_inbox: None,
            limit: 10,
        };
        assert_eq!(store.upkeep(&upkeep).await.unwrap().purged, 2);
        store.stats(None).await.unwrap();
        store.leave(me).await.unwrap();
        assert!(store.migrate().await.unwrap().is_empty(), "what is there needs no right");
        role.drop(&fixture.database).await;
    }
}

#[tokio::test]
async fn a_cleanup_needs_select_and_delete_on_the_outbox() {
    for server in SERVERS {
        let fixture = Fixture::migrated(server, |options| options).await;
        let role = Role::new(&fixture.database, "clean", &[("SELECT, DELETE", "outbox")]).await;
        let store = role.store(&fixture.database);
        let message = |name: &str| Message::new(name).payload("1");
        let messages =
            [message("done"), message("dead"), message("parked"), message("ready"), message("waits")];
        enqueue(&fixture.database, &fixture.store.outbox(), &messages).await;
        for set in [
            "status = 1, processed_at = NOW(6) WHERE event_type = 'done'",
            "status = -1 WHERE event_type IN ('dead', 'parked')",
            "parked = 1 WHERE event_type = 'parked'",
            "next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE event_type = 'waits'",
        ] {
            fixture.database.execute(&format!("UPDATE outbox SET {set}")).await;
        }
        let cleanup =
            Cleanup::new(Duration::from_hours(1)).include_dead(true).lock_name(&fixture.database.name);
        let young = store.clean_up(&cleanup).await.unwrap();
        assert_eq!((young.ours, young.processed, young.dead), (true, 0, 0));
        fixture.advance(Duration::from_hours(2)).await;
        let without_dead = store.clean_up(&cleanup.clone().include_dead(false).limit(0)).await.unwrap();
        assert_eq!((without_dead.processed, without_dead.dead), (1, 0));
        let with_dead = store.clean_up(&cleanup).await.unwrap();
        assert_eq!((with_dead.processed, with_dead.dead), (0, 1));
        let left: Vec<String> =
            fixture.database.values("SELECT event_type FROM outbox ORDER BY event_type").await;
        assert_eq!(left, ["parked", "ready", "waits"]);
        for bad in
            [Cleanup::new(Duration::ZERO), cleanup.clone().lock_name(""), cleanup.lock_name("x".repeat(65))]
        {
            assert_eq!(store.clean_up(&bad).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        role.drop(&fixture.database).await;
    }
}

#[tokio::test]
async fn partitions_need_no_drop_unless_something_is_to_be_dropped() {
    for server in SERVERS {
        let fixture = Fixture::migrated(server, |options| options.partition(Partition::Day)).await;
        let grants = [("SELECT, ALTER, CREATE, INSERT, DROP", "outbox")];
        let without = [("SELECT, ALTER, CREATE, INSERT", "outbox")];
        let plan = PartitionPlan::new(Partition::Day)
            .lock_name(&fixture.database.name)
            .lookahead(Duration::from_hours(40 * 24));
        let role = Role::new(&fixture.database, "part", &without).await;
        let made = role.store(&fixture.database).maintain_partitions(&plan).await;
        // MariaDB asks for DROP to split a partition too.
        if server == support::Server::MySql || made.is_ok() {
            assert_eq!(made.unwrap().created.len(), 10, "{server:?}");
        }
        role.drop(&fixture.database).await;
        let role = Role::new(&fixture.database, "drop", &grants).await;
        fixture
            .database
            .execute(&format!("GRANT LOCK TABLES ON `{}`.* TO '{}'@'%'", fixture.database.name, role.user))
            .await;
        let store = role.store(&fixture.database);
        let keep = Some(Duration::from_hours(24));
        fixture
            .database
            .execute("ALTER TABLE outbox REORGANIZE PARTITION pmax INTO (PARTITION pmax VALUES LESS THAN MAXVALUE)")
            .await;
        let report = store.maintain_partitions(&plan.retention(keep)).await.unwrap();
        assert_eq!(report.dropped, Vec::<String>::new(), "nothing is old");
        role.drop(&fixture.database).await;
    }
}
