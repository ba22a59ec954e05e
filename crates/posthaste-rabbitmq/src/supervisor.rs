//! Keeps a connection: makes it, watches it, and makes another one when it is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::channel;
use crate::failure::Trouble;
use crate::link::{Link, Suspects};
use crate::settings::Settings;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How often the connection is looked at. Publishes notice by themselves; this is for the time in between.
const LOOK: Duration = Duration::from_millis(250);
/// A connection that lasted so long was a good one.
const GOOD: Duration = Duration::from_secs(5);

/// What publishes can know of the connection.
#[derive(Clone)]
pub(crate) enum State {
    /// The first one, or one after a good one, is being made.
    Connecting,
    Up(Arc<Link>),
    /// There is none, and the last attempt failed.
    Down(Trouble),
    /// There will be none.
    Closed,
}

pub(crate) struct Supervisor {
    pub(crate) settings: Arc<Settings>,
    pub(crate) state: watch::Sender<State>,
    pub(crate) stop: watch::Receiver<bool>,
    /// The reason that was logged last, so that an outage does not fill the log.
    pub(crate) reported: Option<&'static str>,
}

impl Supervisor {
    /// Works until it is asked to stop, or nobody is left who could.
    pub(crate) async fn run(mut self) {
        let suspects = Arc::new(Suspects::default());
        let mut failures: u32 = 0;
        loop {
            let good = self.connection(&suspects).await;
            failures = if good { 0 } else { failures.saturating_add(1) };
            let mut stop = self.stop.clone();
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                () = sleep(pause(failures, self.settings.reconnect_max)) => {}
            }
        }
        self.state.send_replace(State::Closed);
    }

    /// The life of one connection. Returns whether it was a good one.
    async fn connection(&mut self, suspects: &Arc<Suspects>) -> bool {
        let limit = self.settings.connect_timeout;
        let open = timeout(limit, Link::open(self.settings.clone(), suspects.clone()));
        let mut stop = self.stop.clone();
        let opened = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return true,
            opened = open => opened.unwrap_or(Err(Trouble::NO_ANSWER)),
        };
        let (link, jobs) = match opened {
            Ok(opened) => opened,
            Err(trouble) => {
                self.report("RabbitMQ cannot be reached", &trouble);
                self.state.send_replace(State::Down(trouble));
                return false;
            }
        };
        tracing::info!(host = %self.settings.uri.authority.host, "connected to RabbitMQ");
        let opened = Instant::now();
        let mut channels = JoinSet::new();
        for jobs in jobs {
            channels.spawn(channel::run(link.clone(), jobs));
        }
        self.state.send_replace(State::Up(link.clone()));
        let trouble = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => Trouble::CLOSED,
            trouble = watch_over(&link) => trouble,
        };
        let good = link.has_confirmed() || opened.elapsed() >= GOOD;
        link.end(trouble);
        let trouble = link.ended().await;
        let state = match (*stop.borrow(), good) {
            (true, _) => State::Closed,
            (false, true) => State::Connecting,
            (false, false) => State::Down(trouble.clone()),
        };
        self.state.send_replace(state);
        while channels.join_next().await.is_some() {}
        link.close().await;
        let stopping = *self.stop.borrow();
        if !stopping {
            self.reported = None;
            self.report("the connection to RabbitMQ is gone", &trouble);
        }
        good
    }

    fn report(&mut self, what: &str, trouble: &Trouble) {
        let (host, reason) = (&self.settings.uri.authority.host, trouble.reason());
        let source = trouble.source().map(ToString::to_string).unwrap_or_default();
        if self.reported.replace(reason) == Some(reason) {
            tracing::debug!(%host, reason, source, "{what}");
        } else {
            tracing::warn!(%host, reason, source, "{what}");
        }
    }
}

/// Returns when the connection is gone.
async fn watch_over(link: &Link) -> Trouble {
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut blocked, mut missing, mut looked) = (false, false, 0_u32);
    let mut exchange = link.exchange();
    loop {
        tokio::select! {
            biased;
            trouble = link.ended() => return trouble,
            _ = looks.tick() => {}
            _ = exchange.changed() => {}
        }
        if !link.is_connected() {
            return Trouble::LOST;
        }
        if std::mem::replace(&mut blocked, link.is_blocked()) != blocked {
            tracing::warn!(blocked, "RabbitMQ's alarm: the connection's state has changed");
        }
        let now_missing = *exchange.borrow_and_update();
        if std::mem::replace(&mut missing, now_missing) != missing {
            tracing::warn!(missing, exchange = %link.settings.exchange, "the exchange's state has changed");
            looked = 0;
        } else if missing && !blocked {
            // Each look that finds nothing is an error in the broker's log.
            looked = looked.saturating_add(1);
            if looked.is_power_of_two() || looked.is_multiple_of(8) {
                link.look_for_exchange().await;
            }
        }
    }
}

/// Doubles with each failure, with jitter, so that many relays do not come at once.
fn pause(failures: u32, longest: Duration) -> Duration {
    let whole = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(longest);
    whole / 2 + (whole / 2).mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_limit() {
        let longest = Duration::from_secs(5);
        for failures in 0..40 {
            let pause = pause(failures, longest);
            let whole = FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(longest);
            assert!(pause >= whole / 2 && pause <= whole, "{failures}: {pause:?}");
        }
    }
}
