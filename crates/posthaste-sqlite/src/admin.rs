//! [`Admin`] for SQLite.

use async_trait::async_trait;
use posthaste::{
    Admin, DeadSelection, Error, ErrorKind, ListFilter, MessageDetails, MessageId, MessageInfo, Migration,
    Mode, Purge, Purged, Stats,
};

use crate::mend::{self, Mending};
use crate::store::SqliteStore;
use crate::{list, purge, schema, stats};

#[async_trait]
impl Admin for SqliteStore {
    async fn migrate(&self) -> Result<Vec<Migration>, Error> {
        self.connection.run(schema::migrate).await
    }

    async fn pending_migrations(&self) -> Result<Vec<Migration>, Error> {
        let pending =
            self.connection.run(|database| schema::pending(database.connection(), database.sql())).await;
        match pending {
            // Opening says so where there is no file yet.
            Err(error) if error.kind() == ErrorKind::NotMigrated => Ok(self.migration_sql()),
            pending => pending,
        }
    }

    fn migration_sql(&self) -> Vec<Migration> {
        schema::migrations(&self.connection.settings().sql.table)
    }

    async fn stats(&self, cap: Option<u64>) -> Result<Stats, Error> {
        self.connection.run(move |database| stats::stats(database, cap)).await
    }

    async fn list(&self, filter: &ListFilter) -> Result<Vec<MessageInfo>, Error> {
        let filter = filter.clone();
        self.connection.run(move |database| list::list(database, &filter)).await
    }

    async fn show(&self, id: MessageId) -> Result<Option<MessageDetails>, Error> {
        self.connection.run(move |database| list::show(database, id)).await
    }

    async fn redrive(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error> {
        mend::mend(&self.connection, Mending::Redrive, selection, mode).await
    }

    async fn discard(&self, selection: &DeadSelection, mode: Mode) -> Result<u64, Error> {
        mend::mend(&self.connection, Mending::Discard, selection, mode).await
    }

    async fn purge(&self, request: &Purge) -> Result<Purged, Error> {
        request.check()?;
        purge::purge(&self.connection, request).await
    }
}
