//! Opening the database, and waiting for one that is not there yet.

use std::time::Duration;

use super::monitor::Monitor;
use crate::database::{Database, Target};
use crate::failure::Failure;
use crate::shutdown::StopRequests;

const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Opens the database. A patient one waits for it; `None`: it was asked to stop while it did.
pub(super) async fn open(
    target: &Target,
    patient: bool,
    monitor: &Monitor,
    requests: &mut StopRequests,
) -> Result<Option<Database>, Failure> {
    let mut pause = FIRST_PAUSE;
    loop {
        let failure = tokio::select! {
            opened = open_once(target) => match opened {
                Ok(database) => return Ok(Some(database)),
                Err(failure) => failure,
            },
            () = requests.next() => return Ok(None),
        };
        if !patient || !failure.may_pass() {
            return Err(failure);
        }
        tracing::warn!(reason = failure.text(), retry_in = ?pause, "the database cannot be reached; trying again");
        monitor.waiting(&format!("waiting for the database: {}", failure.text()));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = requests.next() => return Ok(None),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn open_once(target: &Target) -> Result<Database, Failure> {
    let database = target.open().await?;
    // The relay itself rides out what may go away; a file without write permission will not.
    database.check_writable().await?;
    Ok(database)
}
