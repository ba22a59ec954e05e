//! The inbox's upkeep; noting messages is the core's.

use std::time::Duration;

use posthaste::Error;
use rusqlite::params;

use crate::store::SqliteStore;

impl SqliteStore {
    /// Deletes entries of the inbox that are older than an age, oldest first, in one step of at most `limit`. Returns
    /// how many. Keep them longer than a message may be delivered again, redriven ones included.
    ///
    /// # Errors
    /// What the database reports.
    ///
    /// # Cancel safety
    /// The step is either done or undone.
    pub async fn purge_inbox(&self, older_than: Duration, limit: usize) -> Result<usize, Error> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.connection
            .run(move |database| {
                database.write("purging the inbox", |step| {
                    step.execute(&step.sql.purge_inbox, params![limit, step.now.minus(older_than)])
                })
            })
            .await
    }
}
