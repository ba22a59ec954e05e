//! Bringing the schema up to date. These behaviours start from a database that was never migrated.

use posthaste::{DeadSelection, ErrorKind, Mode};

use super::fixture::StoreFixture;
use super::support::{Relay, enqueue, everything, labels, loose, ok, read_all, refused};

pub async fn migrations_are_pending_until_they_are_applied(f: &dyn StoreFixture) {
    let admin = f.admin();
    let all = admin.migration_sql();
    assert_eq!(ok(admin.pending_migrations().await, "pending_migrations"), all, "none is applied yet");
    assert_eq!(ok(admin.migrate().await, "migrate"), all, "all are applied now");
    assert_eq!(ok(admin.pending_migrations().await, "pending_migrations"), []);
}

pub async fn migrating_again_does_nothing(f: &dyn StoreFixture) {
    let admin = f.admin();
    ok(admin.migrate().await, "migrate");
    enqueue(f, &[loose("l1")]).await;
    let relay = Relay::join(f).await;
    assert_eq!(ok(admin.migrate().await, "migrate again"), []);
    assert_eq!(labels(&read_all(f).await), ["l1"], "what is there stays");
    let mut again = Relay { id: relay.id, ..Relay::on(f.store()) };
    again.renew().await;
    assert_eq!(again.lanes, relay.lanes, "and so do the leases");
}

pub async fn migrating_at_once_from_many_places_applies_each_migration_once(f: &dyn StoreFixture) {
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let admin = f.admin();
            tokio::spawn(async move { admin.migrate().await })
        })
        .collect();
    let mut applied = Vec::new();
    for task in tasks {
        let result = task.await.unwrap_or_else(|error| panic!("the task failed: {error}"));
        applied.extend(ok(result, "migrate"));
    }
    applied.sort_by_key(|migration| migration.version);
    assert_eq!(applied, f.admin().migration_sql());
    enqueue(f, &[loose("l1")]).await;
    assert_eq!(labels(&read_all(f).await), ["l1"]);
}

pub async fn migrations_have_rising_versions_names_and_statements(f: &dyn StoreFixture) {
    let all = f.admin().migration_sql();
    let applied = ok(f.admin().migrate().await, "migrate");
    assert_eq!(applied, all, "what was applied is what is shown");
    assert!(all.is_sorted_by(|a, b| a.version < b.version), "versions rise: {all:?}");
    for migration in all {
        assert!(!migration.name.is_empty(), "{migration:?}");
        assert!(!migration.sql.trim().is_empty(), "{migration:?}");
    }
}

pub async fn an_outbox_that_was_never_migrated_says_so(f: &dyn StoreFixture) {
    if f.admin().migration_sql().is_empty() {
        return;
    }
    let (store, admin, kind) = (f.store(), f.admin(), ErrorKind::NotMigrated);
    refused(store.read(&everything(f)).await, kind, "read");
    refused(store.leave(posthaste::RelayId::random()).await, kind, "leave");
    refused(admin.stats(None).await, kind, "stats");
    refused(admin.redrive(&DeadSelection::All, Mode::UpTo(1)).await, kind, "redrive");
    let mut transaction = f.begin().await;
    refused(transaction.enqueue(&loose("l1")).await, kind, "enqueue");
}
