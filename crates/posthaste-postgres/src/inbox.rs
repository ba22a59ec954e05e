//! The inbox's upkeep; noting messages is the core's.

use std::time::Duration;

use posthaste::Error;

use crate::store::PostgresStore;

impl PostgresStore {
    /// Deletes entries of the inbox that are older than an age, oldest first, in one step of at most `limit`. Returns
    /// how many. Keep them longer than a message may be delivered again, redriven ones included.
    ///
    /// # Errors
    /// What the database reports.
    ///
    /// # Cancel safety
    /// The step is either done or undone.
    pub async fn purge_inbox(&self, older_than: Duration, limit: usize) -> Result<usize, Error> {
        self.0.purge_old(&self.0.sql.purge_inbox, older_than, limit).await
    }
}
