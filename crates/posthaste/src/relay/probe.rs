//! Whether any message in the table is due that this relay could publish, whoever holds its lane.

use std::collections::HashSet;
use std::sync::Arc;

use super::Parts;
use super::gaps::{KeyHash, MOST_KEYS};
use super::route::{Course, Routing};
use crate::error::Error;
use crate::record::{Lane, Position, Record};
use crate::store::{DueRecords, Keys, ReadRequest, Scan};

const SCANNED_ROWS: usize = 4_096;
/// How many records to look at in one read where some are not for this relay.
const PAGE_ROWS: usize = 256;
const PAGE_BYTES: usize = 1024 * 1024;
/// How many due records that are not for this relay are looked past.
const MOST_PASSED: usize = 64 * 1_024;

/// Looks through all lanes until something is found.
pub(super) async fn any_due(parts: Arc<Parts>, lanes: usize) -> Result<bool, Error> {
    let lanes = u16::try_from(lanes).unwrap_or(u16::MAX);
    let from_start = |lane| Scan { lane: Lane(lane), after: None, until: None, due: DueRecords::All };
    let mut scans: Vec<_> = (0..lanes).map(from_start).collect();
    let mut passed_over = PassedOver::default();
    while !scans.is_empty() {
        let request = ReadRequest {
            scans,
            keys: Keys::Except(Vec::new()),
            in_hand: passed_over.due.clone(),
            max_rows: if parts.routing.is_partial() { PAGE_ROWS } else { 1 },
            max_per_key: 1,
            max_bytes: if parts.routing.is_partial() { PAGE_BYTES } else { 1 },
            max_scanned: SCANNED_ROWS,
        };
        let page = parts.store.read(&request).await?;
        let due_before = passed_over.due.len();
        if page.records.iter().any(|record| passed_over.is_for_us(record, &parts.routing)) {
            return Ok(true);
        }
        passed_over.due.sort_unstable();
        let more_due = due_before < passed_over.due.len() && passed_over.due.len() < MOST_PASSED;
        let due = if more_due { DueRecords::All } else { DueRecords::Skip };
        let open = request.scans.into_iter().zip(page.reached);
        let open = open.filter(|(_, reached)| !reached.end || more_due);
        scans = open
            .map(|(scan, reached)| Scan { after: reached.position.max(scan.after), due, ..scan })
            .collect();
    }
    Ok(false)
}

/// What is not for this relay, or stands behind such a message of its key.
#[derive(Default)]
struct PassedOver {
    keys: HashSet<KeyHash>,
    /// Where records stand that were held back and are due.
    due: Vec<Position>,
}

impl PassedOver {
    fn is_for_us(&mut self, record: &Record, routing: &Routing) -> bool {
        let key = record.key().map(KeyHash::of);
        let is_full = self.keys.len() >= MOST_KEYS;
        let waits = key.is_some_and(|key| is_full || self.keys.contains(&key));
        if !waits && matches!(routing.of(record), Course::To(_)) {
            return true;
        }
        if let Some(key) = key.filter(|_| !is_full) {
            self.keys.insert(key);
        }
        if record.held_back {
            self.due.push(record.position);
        }
        false
    }
}
