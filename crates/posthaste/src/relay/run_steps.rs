//! What the loop starts at each turn: publishing, settling, reading.

use std::time::Duration;

use tokio::time::Instant;
use tracing::Instrument;

use super::care::Care;
use super::events::Event;
use super::lanes::{Lanes, Phase};
use super::leases::Grant;
use super::publish::{attempt, record_ref};
use super::run::{Goal, Run};
use super::settings::Retain;
use super::settle::ToSettle;
use super::window::{KeyGoes, Queued};
use super::{failpoint, probe};
use crate::record::Lane;
use crate::store::{LaneLease, Outcome, Settlement};

/// How long the relay is busy before producers are told. Longer than it polls often after work, so that a message
/// now and then changes nothing.
const BUSY_FOR: Duration = Duration::from_secs(2);

impl Run {
    /// Whether the loop has nothing more to do.
    pub(super) fn is_over(&self) -> bool {
        let settled = self.settles.is_empty();
        if let Some(until) = self.stopping_until {
            return (self.window.in_flight() == 0 && settled) || Instant::now() >= until;
        }
        match self.goal {
            Goal::RunOn => false,
            Goal::Drain => self.drained,
            Goal::OneRound => {
                let nothing_to_read = self.until.is_some() && self.lanes.iter().next().is_none();
                (self.round_read || nothing_to_read) && settled && self.window.is_empty()
            }
        }
    }

    /// One turn: starts everything that may start.
    pub(super) fn turn(&mut self) {
        let now = Instant::now();
        self.turned_at = now;
        self.lapse_if_due(now);
        if self.goal == Goal::OneRound && self.window.in_flight() == 0 && self.is_stuck() {
            self.begin_stop();
        }
        self.outlets.iter_mut().for_each(|outlet| outlet.breaker.tick(now));
        self.start_read(now);
        self.start_attempts(now);
        // Now that all in hand may be in flight, there may be reason to make room for others.
        self.start_read(now);
        self.start_settle(now);
        self.start_probe(now);
        self.tell_idle(now);
        self.note_health(now);
    }

    fn note_health(&self, now: Instant) {
        let mut health = self.parts.health();
        health.turned_at = Some(now);
        health.lease_until = self.until;
        // Without a lane there is nothing to read.
        health.reads_fail &= self.lanes.any_active();
        health.lanes_held = self.lanes.count();
        health.lanes_total = self.total_lanes;
        let taken = self.window.in_flight() + self.settles.len();
        health.queued = self.window.in_hand().saturating_sub(taken);
        health.unsettled = self.settles.len();
        health.retries_known = self.poll.due_known();
        health.unrouted = self.lanes.unrouted();
        health.destinations.clear();
        let outlets = self.outlets.iter().enumerate();
        let healths = outlets.map(|(to, outlet)| outlet.health(self.window.in_flight_to(to), now));
        health.destinations.extend(healths);
    }

    /// Whether a destination is away, and there is nothing to do for the others.
    fn is_stuck(&self) -> bool {
        let mut outlets = self.outlets.iter().enumerate();
        self.outlets.iter().any(|outlet| !outlet.breaker.is_open())
            && outlets.all(|(to, outlet)| !outlet.breaker.is_open() || !self.window.has_next_to(to))
    }

    fn is_stopping(&self) -> bool {
        self.stopping_until.is_some()
    }

    /// Whether a read could begin now, as far as the loop is concerned.
    pub(super) fn can_read(&self) -> bool {
        self.reading.is_none()
            && !self.is_stopping()
            && self.until.is_some()
            && !(self.goal == Goal::OneRound && self.round_read)
            && Lanes::has_room(&self.window)
    }

    /// Whether a hint that there may be work would be of use.
    pub(super) fn is_waiting_for_work(&self) -> bool {
        self.can_read() && self.lanes.any_active() && self.lanes.at_end()
    }

    fn start_read(&mut self, now: Instant) {
        if self.reading.is_some()
            || self.is_stopping()
            || self.until.is_none()
            || now < self.read_again_at
            || (self.goal == Goal::OneRound && self.round_read)
        {
            return;
        }
        if self.lanes.at_end() && self.poll.is_due(now) {
            self.lanes.poll();
        }
        let Some(plan) = self.lanes.plan(&mut self.window, now) else { return };
        self.window.read_begins();
        let (store, request) = (self.parts.store.clone(), plan.request.clone());
        self.plan = Some(plan);
        let span = tracing::debug_span!("read", lanes = request.scans.len(), in_hand = request.in_hand.len());
        let read = async move {
            failpoint::hit(failpoint::BEFORE_READ);
            let page = store.read(&request).await;
            failpoint::hit(failpoint::AFTER_READ);
            page
        };
        self.reading = Some(tokio::spawn(read.instrument(span)));
    }

    fn start_attempts(&mut self, now: Instant) {
        if self.is_stopping() || self.until.is_none_or(|until| now >= until) {
            return;
        }
        while self.may_start_any(now) && self.care_allows(now) {
            let outlets = &self.outlets;
            let Some(mut queued) = self.window.start(|to| outlets[to].may_start(now)) else { return };
            queued.careful &= self.care.is_on();
            if self.parts.targets[queued.to]
                .retries
                .of(&queued.record.event_type)
                .is_exhausted(queued.record.attempts)
            {
                self.give_up_untried(&queued);
                continue;
            }
            if queued.careful {
                self.care.started(queued.record.position, now);
            }
            self.outlets[queued.to].started(now);
            let (position, to) = (queued.record.position, queued.to);
            let handle = self.attempts.spawn(attempt(self.parts.clone(), self.relay, queued));
            self.under_way.insert(position, (handle, to));
        }
    }

    /// Whether any destination may take a record.
    fn may_start_any(&self, now: Instant) -> bool {
        let mut outlets = self.outlets.iter().enumerate();
        outlets.any(|(to, outlet)| self.window.has_free_place(to) && outlet.may_start(now))
    }

    /// Whether the next record may start although some records are to be tried alone.
    fn care_allows(&mut self, now: Instant) -> bool {
        if !self.care.is_on() {
            return true;
        }
        if self.reading.is_none() && now >= self.read_again_at {
            // No room to read more: what is in hand is all there is to be careful with.
            self.lanes.end_care();
        }
        let nothing_left = !self.lanes.wants_care() && !self.window.next_needs_care(|_| true);
        if self.care.end(nothing_left, now) {
            self.window.end_care();
            self.lanes.end_care();
            return true;
        }
        let may_start = |to: usize| self.outlets[to].may_start(now);
        !self.care.is_waiting(now) && (self.window.next_needs_care(may_start) || !self.lanes.wants_care())
    }

    fn start_settle(&mut self, now: Instant) {
        let delete = self.parts.settings.retain == Retain::DeleteOnSettle;
        let nothing_follows = self.window.in_flight() == 0 && !self.window.has_next();
        let hurry = self.is_stopping() || nothing_follows || self.care.is_waiting(now);
        let Some(request) = self.settles.begin(self.relay, delete, hurry, now) else { return };
        let store = self.parts.store.clone();
        self.settle_began = now;
        let span = tracing::debug_span!("settle", outcomes = request.settlements.len());
        let settle = async move {
            failpoint::hit(failpoint::BEFORE_SETTLE);
            let report = store.settle(&request).await;
            failpoint::hit(failpoint::AFTER_SETTLE);
            report
        };
        self.settling = Some(tokio::spawn(settle.instrument(span)));
    }

    /// Draining: when nothing is in hand, asks whether anything in the table is due.
    fn start_probe(&mut self, now: Instant) {
        let idle = self.window.is_empty() && self.settles.is_empty() && self.reading.is_none();
        if self.goal == Goal::Drain
            && idle
            && self.probing.is_none()
            && self.total_lanes > 0
            && self.lanes.at_end()
            && now >= self.read_again_at
        {
            self.probing = Some(tokio::spawn(probe::any_due(self.parts.clone(), self.total_lanes)));
        }
    }

    /// Tells producers whether this relay wants to be woken, when that has changed for a while.
    fn tell_idle(&mut self, now: Instant) {
        if !self.poll.is_idle() {
            self.busy_since = self.busy_since.min(now);
        }
        let idle = self.poll.is_idle();
        let changed = idle != self.told_idle && (idle || now - self.busy_since > BUSY_FOR);
        if idle {
            self.busy_since = now;
        }
        let may_tell = self.telling_idle.is_none() && self.until.is_some() && now >= self.tell_idle_at;
        if changed && may_tell {
            self.told_idle = idle;
            let (store, relay) = (self.parts.store.clone(), self.relay);
            self.telling_idle = Some(tokio::spawn(async move { store.set_idle(relay, idle).await }));
        }
    }

    /// Stops taking: what has not started is left where it is.
    pub(super) fn begin_stop(&mut self) {
        if self.is_stopping() {
            return;
        }
        self.stopping_until = Some(Instant::now() + self.parts.settings.drain_timeout);
        let lanes: Vec<_> = self.lanes.iter().map(|(lane, _)| lane).collect();
        lanes.into_iter().for_each(|lane| self.drop_queued(lane));
    }

    /// Leaves what has not started of a lane to whoever reads it next.
    pub(super) fn drop_queued(&mut self, lane: Lane) {
        let dropped = self.window.drop_queued(lane);
        dropped.iter().filter(|queued| queued.begun).for_each(|queued| self.release(queued));
    }

    /// Takes back the attempt that was written down for a record that was not tried after all.
    pub(super) fn release(&mut self, queued: &Queued) {
        let outcome = Outcome::Released { attempts: queued.record.attempts };
        if self.settle(queued, outcome, KeyGoes::On) {
            self.window.releasing(queued);
        }
    }

    /// Has an outcome written down, unless its lane is known to have been lost since: then `false`.
    pub(super) fn settle(&mut self, queued: &Queued, outcome: Outcome, key_goes: KeyGoes) -> bool {
        if self.lanes.get(queued.record.lane).is_some_and(|state| state.token != queued.token) {
            self.count_stale(&outcome);
            return false;
        }
        let settlement = Settlement { record: record_ref(queued), outcome };
        let outcome = ToSettle { key: queued.record.key().cloned(), settlement, key_goes };
        self.settles.push(outcome, Instant::now());
        true
    }

    /// A record was published, and nobody will write that down.
    pub(super) fn count_stale(&self, outcome: &Outcome) {
        super::add(&self.parts.counters.stale, usize::from(*outcome == Outcome::Processed));
    }

    /// The lease was renewed.
    pub(super) fn take_grant(&mut self, grant: &Grant) {
        let Some(until) = grant.until else { return };
        let now = Instant::now();
        if until <= now {
            return;
        }
        self.until = Some(until);
        self.total_lanes = grant.leases.total;
        self.drop_lost_lanes(&grant.leases.lanes);
        self.take_new_lanes(&grant.leases.lanes, now);
        self.share_lanes(grant.leases.share);
    }

    fn drop_lost_lanes(&mut self, held: &[LaneLease]) {
        let is_held =
            |lane: Lane, token: i64| held.iter().any(|lease| lease.lane == lane && lease.token == token);
        let gone: Vec<_> = self
            .lanes
            .iter()
            .filter(|(lane, state)| !is_held(*lane, state.token))
            .map(|(lane, _)| lane)
            .collect();
        let lost = gone.iter().filter(|lane| self.lose_lane(**lane)).count();
        if lost > 0 {
            self.tell_lanes_lost(lost);
            tracing::warn!(lanes = lost, "lanes went to another relay because the lease had run out");
        }
    }

    pub(super) fn tell_lanes_lost(&self, lanes: usize) {
        self.parts.health().lanes_lost += lanes as u64;
        self.parts.hooks.tell(&Event::LanesLost { lanes });
    }

    /// Forgets a lane. `true`: it was taken away, not given back.
    pub(super) fn lose_lane(&mut self, lane: Lane) -> bool {
        let abandoned = self.window.drop_lane(lane, true);
        super::add(&self.parts.counters.abandoned, abandoned.len());
        for (handle, to) in abandoned.iter().filter_map(|position| self.under_way.remove(position)) {
            handle.abort();
            self.outlets[to].breaker.gave_up();
        }
        self.lanes.remove(lane).is_some_and(|state| state.phase != Phase::GivenBack)
    }

    fn take_new_lanes(&mut self, held: &[LaneLease], now: Instant) {
        let new: Vec<_> = held.iter().filter(|lease| self.lanes.get(lease.lane).is_none()).collect();
        if new.is_empty() {
            return;
        }
        let expired = new.iter().filter(|lease| lease.from_expired).count();
        if expired > 0 {
            self.care.begin(now);
            self.window.begin_care();
            self.lanes.begin_care(self.parts.settings.max_in_flight.saturating_mul(4));
        }
        for lease in &new {
            self.begin_lane(lease.lane, lease.token);
            self.lanes.insert(lease);
        }
        self.poll.hint(now);
        self.parts.hooks.tell(&Event::LanesTaken { lanes: new.len(), from_expired: expired });
        tracing::info!(lanes = new.len(), from_expired = expired, "lanes taken");
    }

    /// A lane is read from its start. What is left from when it was held before counts only if nobody else had it.
    fn begin_lane(&mut self, lane: Lane, token: i64) {
        self.drop_queued(lane);
        let refused = self.settles.drop_earlier(lane, token);
        refused.iter().for_each(|outcome| self.count_stale(&outcome.settlement.outcome));
        if self.window.holds_earlier(lane, token) {
            self.window.drop_lane(lane, true);
        }
    }

    /// Gives lanes back if this relay has more than its share.
    fn share_lanes(&mut self, share: usize) {
        let active = self.lanes.in_phase(Phase::Active);
        for lane in active.iter().skip(share) {
            self.lanes.set_phase(*lane, Phase::Leaving);
            self.drop_queued(*lane);
        }
        let missing = share.saturating_sub(active.len());
        for lane in self.lanes.in_phase(Phase::Leaving).into_iter().take(missing) {
            self.drop_queued(lane);
            self.lanes.set_phase(lane, Phase::Active);
        }
        self.give_back_empty_lanes();
    }

    /// Gives back the leaving lanes of which nothing is in hand any more.
    pub(super) fn give_back_empty_lanes(&mut self) {
        let leaving = self.lanes.in_phase(Phase::Leaving);
        let owed = |lane: &Lane| self.settles.refs().any(|record| record.lane == *lane);
        let empty: Vec<_> =
            leaving.into_iter().filter(|lane| !self.window.holds(*lane) && !owed(lane)).collect();
        if empty.is_empty() {
            return;
        }
        empty.iter().for_each(|lane| self.lanes.set_phase(*lane, Phase::GivenBack));
        self.keeper.give_back(&empty);
        self.parts.hooks.tell(&Event::LanesGivenBack { lanes: empty.len() });
        tracing::info!(lanes = empty.len(), "lanes given back");
    }

    /// The lease could not be renewed in time: nothing is published any more until it is.
    fn lapse_if_due(&mut self, now: Instant) {
        if self.until.is_none_or(|until| now < until) {
            return;
        }
        self.until = None;
        super::add(&self.parts.counters.abandoned, self.window.in_flight());
        self.attempts.abort_all();
        let lanes: Vec<_> = self.lanes.iter().map(|(lane, _)| lane).collect();
        for lane in lanes {
            self.drop_queued(lane);
            self.window.drop_lane(lane, false);
            self.lanes.remove(lane);
        }
        self.under_way.clear();
        self.outlets.iter_mut().for_each(|outlet| outlet.breaker.gave_up());
        self.care = Care::default();
        self.window.end_care();
        self.parts.health().leases_lapsed += 1;
        self.parts.hooks.tell(&Event::LeaseLapsed);
        tracing::warn!("the lease could not be renewed in time; publishing stopped until it is");
    }

    /// The loop is over: what is still in flight is abandoned.
    pub(super) fn end(&mut self) {
        super::add(&self.parts.counters.abandoned, self.window.in_flight());
        self.attempts.abort_all();
    }
}
