//! Calls to the store.

use tokio::task::JoinError;

use crate::error::{Error, ErrorKind};

/// Makes a call to the store on a task of its own, so that its future is never dropped half-way and a panic in it
/// is an error like any other.
pub(super) async fn store_call<T: Send + 'static>(
    call: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    match tokio::spawn(call).await {
        Ok(result) => result,
        Err(failed) => Err(died(failed)),
    }
}

/// The error of a call whose task did not come to its end.
pub(super) fn died(failed: JoinError) -> Error {
    Error::new(ErrorKind::Database, "the store adapter panicked or was shut down").with_source(failed)
}
