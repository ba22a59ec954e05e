//! Whether any message in the table is due, whoever holds its lane.

use std::sync::Arc;

use crate::error::Error;
use crate::record::Lane;
use crate::store::{DueRecords, Keys, ReadRequest, Scan, Store};

const SCANNED_ROWS: usize = 4_096;

/// Looks through all lanes until something is found.
pub(super) async fn any_due(store: Arc<dyn Store>, lanes: usize) -> Result<bool, Error> {
    let lanes = u16::try_from(lanes).unwrap_or(u16::MAX);
    let from_start = |lane| Scan { lane: Lane(lane), after: None, until: None, due: DueRecords::All };
    let mut scans: Vec<_> = (0..lanes).map(from_start).collect();
    while !scans.is_empty() {
        let request = ReadRequest {
            scans,
            keys: Keys::Except(Vec::new()),
            in_hand: Vec::new(),
            max_rows: 1,
            max_per_key: 1,
            max_bytes: 1,
            max_scanned: SCANNED_ROWS,
        };
        let page = store.read(&request).await?;
        if !page.records.is_empty() {
            return Ok(true);
        }
        let open = request.scans.into_iter().zip(page.reached).filter(|(_, reached)| !reached.end);
        scans = open
            .map(|(scan, reached)| Scan {
                after: reached.position.max(scan.after),
                due: DueRecords::Skip,
                ..scan
            })
            .collect();
    }
    Ok(false)
}
