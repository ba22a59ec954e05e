//! Partitions by time.
use posthaste::{Error, Migration};
use crate::store::MySqlStore;
impl MySqlStore {
    pub(crate) async fn make_first_partitions(&self, _applied: &[Migration]) -> Result<(), Error> { Ok(()) }
}
