//! The inbox's upkeep; noting messages is the core's.

use std::time::Duration;

use posthaste::Error;

use crate::store::MySqlStore;

impl MySqlStore {
    /// Deletes entries of the inbox that are older than an age, oldest first, in one step of at most `limit`. Returns
    /// how many. Keep them longer than a message may be delivered again, redriven ones included.
    ///
    /// # Errors
    /// What the database reports.
    ///
    /// # Cancel safety
    /// What was deleted stays deleted.
    pub async fn purge_inbox(&self, older_than: Duration, limit: usize) -> Result<usize, Error> {
        self.0.purge_inbox(older_than, limit).await
    }
}
