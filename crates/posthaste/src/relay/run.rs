//! The relay's loop.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{Instant, sleep_until};

use super::care::Care;
use super::destination::Outlet;
use super::lanes::Lanes;
use super::leases::{Grant, LeaseKeeper};
use super::plan::Plan;
use super::poll::Poll;
use super::publish::Attempted;
use super::settle::Settles;
use super::window::{Limits, Window};
use super::{Parts, Stop};
use crate::error::Error;
use crate::record::Position;
use crate::store::{Page, RelayId, SettleReport};

/// The longest time between two turns of the loop.
pub(super) const TURN: Duration = Duration::from_secs(1);

/// When a run is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    /// When it is told to stop.
    RunOn,
    /// When nothing in the table is due.
    Drain,
    /// After one page.
    OneRound,
}

/// A call to the store under way.
pub(super) type Call<T> = JoinHandle<Result<T, Error>>;

/// The state of the loop. What the arms of the loop do stands in `run_steps.rs` and `run_outcomes.rs`.
pub(super) struct Run {
    pub(super) parts: Arc<Parts>,
    pub(super) relay: RelayId,
    pub(super) keeper: Arc<LeaseKeeper>,
    pub(super) goal: Goal,
    stop: watch::Receiver<Stop>,
    grants: watch::Receiver<Grant>,
    pub(super) random: fastrand::Rng,

    pub(super) lanes: Lanes,
    pub(super) window: Window,
    pub(super) settles: Settles,
    /// The destinations, by their numbers.
    pub(super) outlets: Vec<Outlet>,
    pub(super) care: Care,
    pub(super) poll: Poll,

    pub(super) attempts: JoinSet<Attempted>,
    /// To end the attempts under way, by the position of their records; and to which destination they go.
    pub(super) under_way: HashMap<Position, (AbortHandle, usize)>,
    pub(super) reading: Option<Call<Page>>,
    pub(super) plan: Option<Plan>,
    pub(super) settling: Option<Call<SettleReport>>,
    pub(super) settle_began: Instant,
    pub(super) probing: Option<Call<bool>>,
    pub(super) telling_idle: Option<Call<()>>,

    /// When the last turn began.
    pub(super) turned_at: Instant,
    /// Until when records may be published.
    pub(super) until: Option<Instant>,
    pub(super) total_lanes: usize,
    pub(super) read_again_at: Instant,
    pub(super) store_failures: u32,
    pub(super) told_idle: bool,
    pub(super) tell_idle_at: Instant,
    pub(super) busy_since: Instant,
    pub(super) round_read: bool,
    pub(super) drained: bool,
    pub(super) probes_in_vain: u32,
    pub(super) stopping_until: Option<Instant>,
}

impl Run {
    pub(super) fn new(
        parts: Arc<Parts>,
        relay: RelayId,
        keeper: Arc<LeaseKeeper>,
        goal: Goal,
        stop: watch::Receiver<Stop>,
    ) -> Self {
        let (now, settings) = (Instant::now(), &parts.settings);
        let limits = Limits {
            rows: settings.window_rows,
            bytes: settings.window_bytes,
            in_flight: parts.targets.iter().map(|target| target.max_in_flight).collect(),
        };
        let mut grants = keeper.subscribe();
        grants.mark_changed();
        Self {
            relay,
            goal,
            stop,
            grants,
            random: parts.random(),
            lanes: Lanes::new(parts.targets.len(), now),
            window: Window::new(limits),
            settles: Settles::new(settings.settle_batch, settings.settle_linger, now),
            outlets: parts.targets.iter().map(Outlet::new).collect(),
            care: Care::default(),
            poll: Poll::new(settings.idle_poll, now),
            attempts: JoinSet::new(),
            under_way: HashMap::new(),
            reading: None,
            plan: None,
            settling: None,
            settle_began: now,
            probing: None,
            telling_idle: None,
            turned_at: now,
            until: None,
            total_lanes: 0,
            read_again_at: now,
            store_failures: 0,
            told_idle: false,
            tell_idle_at: now,
            busy_since: now,
            round_read: false,
            drained: false,
            probes_in_vain: 0,
            stopping_until: None,
            keeper,
            parts,
        }
    }

    /// Runs until the goal is reached or it is told to stop.
    pub(super) async fn run(mut self) {
        self.stop.mark_changed();
        while !self.is_over() {
            self.turn();
            let wake_at = self.wake_at();
            let store = self.parts.store.clone();
            tokio::select! {
                biased;
                _ = self.stop.changed() => self.on_stop(),
                _ = self.grants.changed() => self.on_grant(),
                Some(done) = self.attempts.join_next() => self.on_attempts(done),
                done = end_of(&mut self.settling) => self.on_settled(done),
                done = end_of(&mut self.reading) => self.on_page(done),
                done = end_of(&mut self.probing) => self.on_probed(done),
                done = end_of(&mut self.telling_idle) => self.on_told_idle(done),
                () = store.rung(), if self.is_waiting_for_work() => self.poll.hint(Instant::now()),
                () = sleep_until(wake_at) => {}
            }
        }
        self.end();
    }

    fn on_stop(&mut self) {
        let stop = *self.stop.borrow_and_update();
        match stop {
            Stop::Running => {}
            Stop::Stopping => self.begin_stop(),
            Stop::Abandoning => self.stopping_until = Some(Instant::now()),
        }
    }

    fn on_grant(&mut self) {
        let grant = self.grants.borrow_and_update().clone();
        self.take_grant(&grant);
    }

    /// When to take the next turn, if nothing happens before. What was due in this turn has been seen to.
    fn wake_at(&self) -> Instant {
        let can_read = self.can_read() && self.lanes.any_active();
        let times = [
            self.until,
            self.stopping_until,
            self.settles.next_at(),
            self.care.next_at(),
            (can_read && self.lanes.at_end()).then(|| self.poll.at()),
            if can_read { self.lanes.next_at(&self.window) } else { None },
            Some(self.read_again_at),
        ];
        let outlets = self.outlets.iter().enumerate().filter_map(|(to, outlet)| {
            let is_waiting = self.window.has_next_to(to) && self.window.has_free_place(to);
            outlet.next_at(is_waiting, self.turned_at)
        });
        let latest = self.turned_at + TURN;
        times
            .into_iter()
            .flatten()
            .chain(outlets)
            .filter(|at| *at > self.turned_at)
            .min()
            .map_or(latest, |at| at.min(latest))
    }
}

/// Waits for the end of a call to the store, if one is under way.
async fn end_of<T>(call: &mut Option<Call<T>>) -> Result<T, Error> {
    let Some(handle) = call else { return std::future::pending().await };
    let outcome = handle.await;
    *call = None;
    match outcome {
        Ok(result) => result,
        Err(failed) => Err(super::store_call::died(failed)),
    }
}
