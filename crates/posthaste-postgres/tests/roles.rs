//! What each role may do, with exactly the rights that docs/postgres.md grants.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use posthaste::{
    Admin, ErrorKind, Inbox, LeaseRequest, Message, Outbox, Outcome, RecordRef, RelayId, SettleRequest,
    Settlement, Store, UpkeepRequest,
};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use support::Schema;
use tokio_postgres::{Client, NoTls};

/// A role of its own for a test, dropped with the schema's objects at the end.
struct Role<'a> {
    name: String,
    schema: &'a Schema,
}

impl<'a> Role<'a> {
    async fn new(schema: &'a Schema, kind: &str) -> Self {
        let name = format!("{kind}{}", &schema.name[14..]);
        schema
            .execute(&format!("CREATE ROLE {name} LOGIN; GRANT USAGE ON SCHEMA {} TO {name}", schema.name))
            .await;
        Self { name, schema }
    }

    fn url(&self) -> String {
        support::url_as(&self.name)
    }

    async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    fn store(&self) -> PostgresStore {
        PostgresStore::new(PostgresOptions::new(self.url()).table(self.schema.table())).unwrap()
    }

    /// Runs the statements that the documentation lists for a role, on the test's schema.
    async fn grant(&self, role: &str) {
        let docs = include_str!("../../../docs/postgres.md");
        let start = format!("```sql\n-- {role}\n");
        let (_, behind) =
            docs.split_once(&start).unwrap_or_else(|| panic!("docs/postgres.md has no grants for {role}"));
        let sql = behind.split("```").next().unwrap();
        let sql = sql
            .replace("app.", &format!("{}.", self.schema.name))
            .replace("SCHEMA app", &format!("SCHEMA {}", self.schema.name));
        self.schema.execute(&sql.replace(&format!("TO {role}"), &format!("TO {}", self.name))).await;
    }

    async fn drop(self) {
        self.schema.execute(&format!("DROP OWNED BY {0} CASCADE; DROP ROLE {0}", self.name)).await;
    }
}

async fn migrated() -> Option<Schema> {
    let schema = Schema::new().await?;
    PostgresStore::new(PostgresOptions::new(support::server_url()).table(schema.table()))
        .unwrap()
        .migrate()
        .await
        .unwrap();
    Some(schema)
}

async fn refused(client: &Client, sql: &str) {
    let error = client.batch_execute(sql).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "42501", "{sql}: {error}");
}

#[tokio::test]
async fn a_migrator_needs_no_more_than_create_on_the_schema() {
    let Some(schema) = Schema::new().await else { return };
    let role = Role::new(&schema, "migrator").await;
    let error = role.store().migrate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("CREATE on the schema"), "{error}");
    role.grant("migrator").await;
    assert_eq!(role.store().migrate().await.unwrap().len(), 2);
    role.drop().await;
}

#[tokio::test]
async fn a_producer_can_enqueue_and_neither_read_nor_settle() {
    let Some(schema) = migrated().await else { return };
    let role = Role::new(&schema, "producer").await;
    let outbox = Outbox::new(&schema.table()).unwrap();
    let mut client = role.client().await;
    let tx = client.transaction().await.unwrap();
    let error = outbox.enqueue(&tx, &Message::new("e")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("INSERT on"), "{error}");
    tx.rollback().await.unwrap();

    role.grant("producer").await;
    let tx = client.transaction().await.unwrap();
    outbox.enqueue(&tx, &Message::new("e").aggregate("a", 1)).await.unwrap();
    outbox.enqueue(&tx, &Message::new("e").idempotency_key("k")).await.unwrap();
    let again = outbox.enqueue(&tx, &Message::new("e").idempotency_key("k")).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::DuplicateKey);
    outbox.enqueue_all(&tx, &[Message::new("e"), Message::new("e").idempotency_key("l")]).await.unwrap();
    tx.commit().await.unwrap();
    client.batch_execute(&schema.named("INSERT INTO {}outbox (event_type) VALUES ('plain')")).await.unwrap();
    for sql in [
        "SELECT id FROM {}outbox",
        "UPDATE {}outbox SET status = 1",
        "DELETE FROM {}outbox",
        "SELECT key FROM {}outbox_key",
        "DELETE FROM {}outbox_key",
        "UPDATE {}outbox_lane SET owner = NULL",
        "SELECT * FROM {}outbox_relay",
        "UPDATE {}outbox_wake SET idle = true",
    ] {
        refused(&client, &schema.named(sql)).await;
    }
    let error = role.store().lease(&lease()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    role.drop().await;
}

fn lease() -> LeaseRequest {
    LeaseRequest {
        relay: RelayId::random(),
        name: "r".into(),
        duration: Duration::from_secs(30),
        give_back: Vec::new(),
    }
}

#[tokio::test]
async fn a_relay_can_do_its_work_and_not_change_the_schema() {
    let Some(schema) = migrated().await else { return };
    schema.execute("INSERT INTO {}outbox (event_type) VALUES ('a'), ('b')").await;
    let role = Role::new(&schema, "relay").await;
    role.grant("relay").await;
    let store = role.store();
    let request = lease();
    let lanes = store.lease(&request).await.unwrap().lanes;
    let page = store.read(&support::all_lanes()).await.unwrap();
    assert_eq!(page.records.len(), 2);
    assert!(page.reached[0].firm.is_some(), "the relay may look at the sequence");
    let settlements = page.records.iter().map(|record| Settlement {
        record: RecordRef {
            id: record.id,
            position: record.position,
            lane: record.lane,
            token: lanes[usize::from(record.lane.0)].token,
        },
        outcome: if record.event_type == "a" {
            Outcome::Processed
        } else {
            Outcome::Dead { attempts: 1, error: "no".into(), park: true }
        },
    });
    let settle =
        SettleRequest { relay: request.relay, delete_processed: true, settlements: settlements.collect() };
    assert_eq!(store.settle(&settle).await.unwrap().applied, 2);
    store.set_idle(request.relay, true).await.unwrap();
    let upkeep = UpkeepRequest {
        relay: request.relay,
        lease: Duration::from_secs(9),
        keep_processed: Some(Duration::from_secs(1)),
        keep_keys: Some(Duration::from_secs(1)),
        keep_inbox: Some(Duration::from_secs(1)),
        limit: 10,
    };
    schema
        .execute("INSERT INTO {}outbox_inbox VALUES ('c', 'old', now() - interval '1 hour'), ('c', 'young', now() + interval '1 hour')")
        .await;
    let report = store.upkeep(&upkeep).await.unwrap();
    assert_eq!((report.ours, report.inbox_purged), (true, 1));
    assert_eq!(store.redrive(&posthaste::DeadSelection::All, posthaste::Mode::UpTo(9)).await.unwrap(), 1);
    assert_eq!(store.stats(None).await.unwrap().ready.count, 1);
    assert!(store.pending_migrations().await.unwrap().is_empty());
    store.leave(request.relay).await.unwrap();
    let client = role.client().await;
    refused(&client, &schema.named("CREATE TABLE {}x (n int)")).await;
    assert!(client.batch_execute(&schema.named("DROP TABLE {}outbox")).await.is_err());
    role.drop().await;
}

#[tokio::test]
async fn a_consumer_can_note_messages_and_nothing_else() {
    let Some(schema) = Schema::new().await else { return };
    let owner =
        PostgresStore::new(PostgresOptions::new(support::server_url()).table(schema.table())).unwrap();
    assert_eq!(owner.migrate_inbox().await.unwrap().len(), 1, "the inbox alone");
    assert_eq!(owner.migrate_inbox().await.unwrap().len(), 0);
    let role = Role::new(&schema, "consumer").await;
    role.grant("consumer").await;
    let inbox = Inbox::new(&schema.table()).unwrap();
    let mut client = role.client().await;
    let id = posthaste::MessageId::generate();
    let tx = client.transaction().await.unwrap();
    assert!(inbox.first_time(&tx, "invoicing", id).await.unwrap());
    assert!(!inbox.first_time(&tx, "invoicing", id).await.unwrap());
    assert!(inbox.first_time(&tx, "mailing", id).await.unwrap(), "each consumer has its own");
    tx.rollback().await.unwrap();
    for expected in [true, false] {
        let tx = client.transaction().await.unwrap();
        assert_eq!(inbox.first_time(&tx, "invoicing", id).await.unwrap(), expected);
        tx.commit().await.unwrap();
    }
    refused(&client, &schema.named("SELECT * FROM {}outbox_inbox")).await;
    refused(&client, &schema.named("DELETE FROM {}outbox_inbox")).await;
    schema.execute("UPDATE {}outbox_inbox SET seen_at = now() - interval '2 days'").await;
    assert_eq!(owner.purge_inbox(Duration::from_secs(86_400), 10).await.unwrap(), 1);
    assert_eq!(owner.migrate().await.unwrap().len(), 1, "the outbox can follow");
    role.drop().await;
}

/// Two deliveries of one message at once: the second waits for the first, and takes effect only if that is undone.
#[tokio::test]
async fn of_two_consumers_at_once_one_sees_a_message_for_the_first_time() {
    let Some(schema) = migrated().await else { return };
    let inbox = std::sync::Arc::new(Inbox::new(&schema.table()).unwrap());
    for (id, commits) in [("1", true), ("2", false)] {
        let mut first = support::client().await.unwrap();
        let tx = first.transaction().await.unwrap();
        assert!(inbox.first_time(&tx, "c", id).await.unwrap());
        let second = tokio::spawn({
            let inbox = inbox.clone();
            async move {
                let mut second = support::client().await.unwrap();
                let tx = second.transaction().await.unwrap();
                let is_first = inbox.first_time(&tx, "c", id).await.unwrap();
                tx.commit().await.unwrap();
                is_first
            }
        });
        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!(second.await.unwrap(), !commits);
    }
}
