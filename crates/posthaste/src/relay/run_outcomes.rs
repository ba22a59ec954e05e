//! What the loop does when something it started comes to its end.

use std::time::Duration;

use tokio::task::JoinError;
use tokio::time::Instant;

use super::events::Event;
use super::lanes::Lanes;
use super::plan::Plan;
use super::publish::{AttemptResult, Attempted};
use super::run::Run;
use super::settings::DeadPolicy;
use super::window::{KeyGoes, Queued};
use crate::error::Error;
use crate::publisher::{FailureClass, PublishError};
use crate::retry::full_jitter;
use crate::store::{Outcome, Page, RecordRef, SettleReport};
use crate::validate::MAX_DELAY;

/// What is written down about a record that was given up without being tried once more.
const OUT_OF_ATTEMPTS: &str = "no attempts left: a relay died while publishing it, or fewer are allowed now";

impl Run {
    /// Some attempts are over.
    pub(super) fn on_attempts(&mut self, first: Result<Attempted, JoinError>) {
        let mut next = Some(first);
        while let Some(done) = next {
            match done {
                Ok(attempted) => self.on_attempt(attempted),
                // Not the publisher's panic, but the relay's own: nobody knows where its record stands, so the loop is
                // started anew.
                Err(failed) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
                // An attempt that was aborted has no outcome; its record was given up before.
                Err(_) => {}
            }
            next = self.attempts.try_join_next();
        }
        self.give_back_empty_lanes();
    }

    fn on_attempt(&mut self, attempted: Attempted) {
        let Attempted { queued, result, took } = attempted;
        self.under_way.remove(&queued.record.position);
        match result {
            AttemptResult::Published => self.on_published(&queued, took),
            AttemptResult::Failed(error) => self.on_failed(queued, error),
            AttemptResult::NotBegun => {
                self.outlets[queued.to].breaker.gave_up();
                self.put_back(queued);
            }
            AttemptResult::Refused => self.on_refused(&queued),
        }
    }

    /// The record is not there any more, or its lane is not ours any more, which a renewal shows.
    fn on_refused(&mut self, queued: &Queued) {
        self.care.landed(queued.record.position);
        self.outlets[queued.to].breaker.gave_up();
        self.window.give_up(&queued.record, queued.token);
        self.drop_queued(queued.record.lane);
        self.lanes.restart(queued.record.lane);
        self.keeper.renew();
    }

    fn on_published(&mut self, queued: &Queued, took: Duration) {
        self.destination_answered(queued.to);
        super::add(&self.parts.counters.published, 1);
        self.outlets[queued.to].succeeded_at = Some(Instant::now());
        self.parts.hooks.tell(&Event::Published {
            destination: &self.parts.targets[queued.to].name,
            record: &queued.record,
            took,
        });
        tracing::trace!(id = %queued.record.id, event_type = queued.record.event_type, "published");
        self.window.published(&queued.record, queued.token);
        self.settle(queued, Outcome::Processed, KeyGoes::On);
    }

    fn on_failed(&mut self, queued: Queued, mut error: PublishError) {
        self.parts.hooks.failed(&queued.record, &mut error);
        match error.class() {
            FailureClass::Unavailable | FailureClass::Throttled { .. } => self.on_unavailable(queued, &error),
            FailureClass::Failed => self.on_message_failed(&queued, &error),
            FailureClass::Rejected => {
                self.destination_answered(queued.to);
                self.die(&queued, &error);
            }
        }
    }

    fn on_unavailable(&mut self, queued: Queued, error: &PublishError) {
        if let Some(pause) =
            self.outlets[queued.to].breaker.pause(error.class(), Instant::now(), &mut self.random)
        {
            let destination = &*self.parts.targets[queued.to].name;
            self.parts.hooks.tell(&Event::Paused {
                destination: &self.parts.targets[queued.to].name,
                pause,
                reason: error.reason(),
            });
            tracing::warn!(
                destination,
                ?pause,
                reason = error.reason(),
                "the destination is unavailable; pausing"
            );
        }
        self.care.landed(queued.record.position);
        self.put_back(queued);
    }

    fn put_back(&mut self, queued: Queued) {
        if self.stopping_until.is_some() || !self.lanes.may_publish(queued.record.lane, queued.token) {
            self.window.give_up(&queued.record, queued.token);
            self.drop_queued(queued.record.lane);
            if queued.begun {
                self.release(&queued);
            }
            return;
        }
        self.window.put_back(queued);
    }

    fn on_message_failed(&mut self, queued: &Queued, error: &PublishError) {
        self.destination_answered(queued.to);
        let policy = *self.parts.targets[queued.to].retries.of(&queued.record.event_type);
        let attempts = queued.record.attempt();
        if policy.is_exhausted(attempts) {
            self.die(queued, error);
            return;
        }
        let after = policy.delay(attempts, &mut self.random).min(MAX_DELAY);
        super::add(&self.parts.counters.retried, 1);
        self.parts.hooks.tell(&Event::Retried {
            destination: &self.parts.targets[queued.to].name,
            record: &queued.record,
            error,
            after,
        });
        tracing::warn!(
            id = %queued.record.id, event_type = queued.record.event_type, attempts, ?after,
            reason = error.reason(), "publishing failed; trying again later"
        );
        self.fail(queued, KeyGoes::NoFurther);
        let error = error.reason().to_owned();
        self.settle(queued, Outcome::Retry { after, attempts, error }, KeyGoes::NoFurther);
    }

    fn die(&mut self, queued: &Queued, error: &PublishError) {
        super::add(&self.parts.counters.dead, 1);
        self.parts.hooks.tell(&Event::Died {
            destination: &self.parts.targets[queued.to].name,
            record: &queued.record,
            error,
        });
        tracing::error!(
            id = %queued.record.id, event_type = queued.record.event_type, attempts = queued.record.attempt(),
            reason = error.reason(), "the message is dead"
        );
        self.settle_dead(queued, queued.record.attempt(), error.reason());
    }

    /// The record has no attempts left, although nobody wrote down that it is dead: a relay died trying.
    pub(super) fn give_up_untried(&mut self, queued: &Queued) {
        let error = PublishError::failed(OUT_OF_ATTEMPTS);
        super::add(&self.parts.counters.dead, 1);
        self.parts.hooks.tell(&Event::Died {
            destination: &self.parts.targets[queued.to].name,
            record: &queued.record,
            error: &error,
        });
        tracing::error!(id = %queued.record.id, event_type = queued.record.event_type, "the message is dead: {OUT_OF_ATTEMPTS}");
        self.settle_dead(queued, queued.record.attempts, OUT_OF_ATTEMPTS);
    }

    fn settle_dead(&mut self, queued: &Queued, attempts: u32, error: &str) {
        let (park, key_goes) = match self.parts.settings.on_dead {
            DeadPolicy::Park => (true, KeyGoes::NoFurther),
            DeadPolicy::Skip => (false, KeyGoes::On),
        };
        self.fail(queued, key_goes);
        self.settle(queued, Outcome::Dead { attempts, error: error.to_owned(), park }, key_goes);
    }

    /// The key of a failed record waits until the failure is settled.
    fn fail(&mut self, queued: &Queued, key_goes: KeyGoes) {
        let dropped = self.window.failed(&queued.record, queued.token, key_goes);
        dropped.iter().filter(|queued| queued.begun).for_each(|queued| self.release(queued));
    }

    fn destination_answered(&mut self, to: usize) {
        if self.outlets[to].breaker.answered() {
            let destination = &*self.parts.targets[to].name;
            self.parts.hooks.tell(&Event::Resumed { destination });
            tracing::info!(destination, "the destination is back");
        }
    }

    /// A page was read.
    pub(super) fn on_page(&mut self, page: Result<Page, Error>) {
        let now = Instant::now();
        let Some(plan) = self.plan.take() else { return };
        self.note_read(page.is_ok(), now);
        match page {
            Ok(page) => self.take_page(&plan, page, now),
            Err(error) => {
                Lanes::read_failed(&plan, &mut self.window);
                self.read_again_at = now + self.store_backoff("read", &error);
            }
        }
        self.window.read_over();
    }

    fn note_read(&self, succeeded: bool, now: Instant) {
        let mut health = self.parts.health();
        health.reads_fail = !succeeded;
        if succeeded {
            health.read_at = Some(now);
        }
    }

    fn take_page(&mut self, plan: &Plan, page: Page, now: Instant) {
        self.store_failures = 0;
        let taken = self.lanes.take_in(plan, page, &mut self.window, &self.parts.routing, now);
        for lane in taken.restarted {
            self.drop_queued(lane);
        }
        if taken.records > 0 {
            self.probes_in_vain = 0;
            self.parts.hooks.tell(&Event::Read { records: taken.records, took: now - plan.began });
            tracing::debug!(records = taken.records, "read");
            self.poll.worked(now);
        } else if self.lanes.at_end() {
            self.poll.found_nothing(now);
        }
        self.round_read = true;
    }

    /// A batch of outcomes was written, or was not.
    pub(super) fn on_settled(&mut self, result: Result<SettleReport, Error>) {
        let now = Instant::now();
        let report = match result {
            Ok(report) => report,
            Err(error) => {
                let wait = self.store_backoff("settle", &error);
                self.settles.failed(now + wait);
                return;
            }
        };
        self.store_failures = 0;
        self.parts.health().settled_at = Some(now);
        self.parts.hooks.tell(&Event::Settled { report: &report, took: now - self.settle_began });
        tracing::debug!(applied = report.applied, stale = report.stale, gone = report.gone, "settled");
        let settled = self.settles.done(now);
        if report.gone > 0 {
            // Somebody else's hand was in the table: what was hidden behind these records may be visible now.
            settled.iter().for_each(|outcome| self.lanes.restart(outcome.settlement.record.lane));
        }
        for outcome in &settled {
            let RecordRef { lane, position, token, .. } = outcome.settlement.record;
            self.care.landed(position);
            if report.stale_lanes.contains(&lane) {
                self.count_stale(&outcome.settlement.outcome);
                self.on_stale(lane, token);
            }
            match outcome.settlement.outcome {
                Outcome::Retry { after, .. } => self.poll.due(now + after),
                // It was passed over until now.
                Outcome::Released { .. } => self.lanes.restart(lane),
                Outcome::Processed | Outcome::Dead { .. } => {}
            }
            self.window.settled(position, outcome.key.as_ref(), token, outcome.key_goes);
        }
        self.give_back_empty_lanes();
    }

    /// An outcome was refused: the lane went to another relay in the meantime.
    fn on_stale(&mut self, lane: crate::record::Lane, token: i64) {
        if self.lanes.get(lane).is_some_and(|state| state.token == token) {
            self.lose_lane(lane);
            self.tell_lanes_lost(1);
            tracing::warn!(lane = lane.0, "a lane went to another relay while records of it were in flight");
            self.keeper.renew();
        }
    }

    /// Draining: it is known whether anything is due.
    pub(super) fn on_probed(&mut self, result: Result<bool, Error>) {
        let now = Instant::now();
        match result {
            Ok(any) => self.drained = !any && self.window.is_empty() && self.settles.is_empty(),
            Err(error) => self.read_again_at = now + self.store_backoff("read", &error),
        }
        self.lanes.poll();
        // What is due lies in lanes of other relays, unless the next read brings it.
        self.probes_in_vain = (self.probes_in_vain + 1).min(5);
        let wait = Duration::from_millis(10) * (1 << self.probes_in_vain);
        self.read_again_at = self.read_again_at.max(now + wait);
    }

    pub(super) fn on_told_idle(&mut self, result: Result<(), Error>) {
        match result {
            // What was enqueued before the producers knew is found by looking once more.
            Ok(()) => self.poll.hint(Instant::now()),
            Err(error) => {
                self.told_idle = !self.told_idle;
                self.tell_idle_at = Instant::now() + super::run::TURN;
                self.parts.store_failed("set idle", &error);
            }
        }
    }

    /// How long to leave the store alone after it failed.
    fn store_backoff(&mut self, operation: &'static str, error: &Error) -> Duration {
        self.parts.store_failed(operation, error);
        self.store_failures = self.store_failures.saturating_add(1);
        let (base, cap) = (Duration::from_millis(50), Duration::from_secs(2));
        base / 5 + full_jitter(base, cap, self.store_failures, &mut self.random)
    }
}
