//! Writing down what became of records.

use std::time::SystemTime;

use super::table::{Row, Status, Table, deadline};
use crate::store::{BeginAttempt, Outcome, SettleReport, SettleRequest};

/// The most characters of an error text that are kept.
const MAX_ERROR_CHARS: usize = 1024;

impl Table {
    pub(super) fn begin_attempt(&mut self, attempt: &BeginAttempt) -> bool {
        let record = &attempt.record;
        if !self.holds(attempt.relay, record.lane, record.token) {
            return false;
        }
        let Some(row) = self.pending((record.lane, record.position), record.id) else { return false };
        row.record.attempts = attempt.attempts;
        true
    }

    pub(super) fn settle(&mut self, request: &SettleRequest, now: SystemTime) -> SettleReport {
        let mut report = SettleReport::default();
        for settlement in &request.settlements {
            let record = &settlement.record;
            let place = (record.lane, record.position);
            if !self.holds(request.relay, record.lane, record.token) {
                report.stale += 1;
                if !report.stale_lanes.contains(&record.lane) {
                    report.stale_lanes.push(record.lane);
                }
                continue;
            }
            let Some(row) = self.pending(place, record.id) else {
                report.gone += 1;
                continue;
            };
            row.settle(&settlement.outcome, now);
            report.applied += 1;
            if request.delete_processed && settlement.outcome == Outcome::Processed {
                self.remove(place);
            }
        }
        report
    }
}

impl Row {
    fn settle(&mut self, outcome: &Outcome, now: SystemTime) {
        match outcome {
            Outcome::Processed => {
                self.status = Status::Processed;
                self.next_attempt_at = None;
                self.settled_at = Some(now);
            }
            Outcome::Retry { after, attempts, error } => {
                self.record.attempts = *attempts;
                self.last_error = Some(cut(error));
                self.next_attempt_at = Some(deadline(now, *after));
            }
            Outcome::Dead { attempts, error, park } => {
                self.status = Status::Dead;
                self.record.attempts = *attempts;
                self.last_error = Some(cut(error));
                self.next_attempt_at = park.then_some(now);
                self.settled_at = Some(now);
            }
            Outcome::Released { attempts } => self.record.attempts = *attempts,
        }
    }
}

fn cut(error: &str) -> String {
    error.chars().take(MAX_ERROR_CHARS).collect()
}
