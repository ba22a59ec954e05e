//! The publisher.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Error, PublishError, Publisher, Record};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::content::Content;
use crate::failure::Trouble;
use crate::in_flight::Job;
use crate::link::Link;
use crate::options::RabbitOptions;
use crate::settings::Settings;
use crate::supervisor::{State, Supervisor};
use crate::target::invalid;

/// A channel tells what became of a publish when its time is over. If it does not, something is wrong with us.
const GRACE: Duration = Duration::from_millis(500);

/// Publishes records to an exchange of RabbitMQ, and is done with one only when the broker has confirmed it.
///
/// It keeps one connection with a few channels, on which many records are under way at once. A connection that is gone
/// is replaced in the background. Clones are the same publisher; it is closed with the last of them.
///
/// What a failed publish means is documented in `docs/rabbitmq.md`; in short: where the broker, the connection, the
/// exchange or the login is at fault, the destination is unavailable and no attempt is counted; where the broker
/// answers for this record (`unroutable`, `nacked`), the record has failed; what AMQP has no room for is rejected.
///
/// Every publish ends within [`publish_timeout`](RabbitOptions::publish_timeout), half a second more at the very most.
/// A record may be published twice if its confirmation is lost with the connection; its message id is the same.
///
/// # Cancel safety
/// A publish may be dropped at any time. What was sent of it is published nevertheless, and harms no other.
///
/// ```no_run
/// # async fn example() -> Result<(), posthaste::BoxError> {
/// use std::sync::Arc;
/// use posthaste::{MemoryStore, Relay};
/// use posthaste_rabbitmq::{RabbitOptions, RabbitPublisher};
///
/// let options = RabbitOptions::new("amqp://relay:password@rabbit/shop").exchange("events");
/// let publisher = RabbitPublisher::start(options)?;
/// let relay = Relay::builder(Arc::new(MemoryStore::new(64))).publisher(publisher.clone()).build()?;
/// relay.drain().await?;
/// publisher.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RabbitPublisher(Arc<Inner>);

struct Inner {
    settings: Arc<Settings>,
    state: watch::Receiver<State>,
    stop: watch::Sender<bool>,
}

impl RabbitPublisher {
    /// Starts a publisher. It connects in the background: a broker that is not there does not fail this, but makes
    /// publishes fail as unavailable until it is.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](posthaste::ErrorKind::InvalidInput) if an option makes no sense, a file with
    /// certificates cannot be read, or this is not called on a tokio runtime.
    pub fn start(options: RabbitOptions) -> Result<Self, Error> {
        let runtime = Handle::try_current().map_err(|source| {
            invalid("a RabbitMQ publisher has to be started on a tokio runtime").with_source(source)
        })?;
        let settings = Arc::new(Settings::check(options)?);
        let (state, states) = watch::channel(State::Connecting);
        let (stop, stops) = watch::channel(false);
        let supervisor = Supervisor { settings: settings.clone(), state, stop: stops, reported: None };
        runtime.spawn(supervisor.run());
        Ok(Self(Arc::new(Inner { settings, state: states, stop })))
    }

    /// Waits until there is a connection that can be published on, or it is known that there is none now.
    ///
    /// # Errors
    /// Why there is none, as a publish would say it.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn connected(&self) -> Result<(), PublishError> {
        let link = self.link().await.map_err(|trouble| trouble.unavailable())?;
        link.check().map_err(|trouble| trouble.unavailable())
    }

    /// What keeps publishes from being made at this moment: no connection, an alarm of the broker, a missing exchange.
    /// `None`: nothing that is known of.
    pub fn trouble(&self) -> Option<&'static str> {
        match &*self.0.state.borrow() {
            State::Connecting => Some("connecting"),
            State::Up(link) => link.check().err().map(|trouble| trouble.reason()),
            State::Down(trouble) => Some(trouble.reason()),
            State::Closed => Some("closed"),
        }
    }

    /// Closes the connection and waits until that is done, a second or two at most. Publishes that are under way, and
    /// all later ones, fail as unavailable: stop the relay first.
    ///
    /// # Cancel safety
    /// Once called, it is closed, whether it is waited for or not.
    pub async fn close(&self) {
        self.0.stop.send_replace(true);
        let mut state = self.0.state.clone();
        // `changed` fails when the supervisor is gone, with the connection.
        while state.changed().await.is_ok() {}
    }

    /// Waits until the connection is there, or known not to be.
    async fn link(&self) -> Result<Arc<Link>, Trouble> {
        let mut state = self.0.state.clone();
        let state = state.wait_for(|state| !matches!(state, State::Connecting)).await;
        match state.as_deref() {
            Ok(State::Up(link)) => Ok(link.clone()),
            Ok(State::Down(trouble)) => Err(trouble.clone()),
            Ok(State::Connecting) => Err(Trouble::NOT_CONNECTED),
            Ok(State::Closed) | Err(_) => Err(Trouble::CLOSED),
        }
    }

    async fn send(&self, content: Content, deadline: Instant) -> Result<(), PublishError> {
        let link = self.link().await.map_err(|trouble| trouble.unavailable())?;
        link.check().map_err(|trouble| trouble.unavailable())?;
        if content.properties_size > link.frame_max() {
            return Err(PublishError::rejected(format!(
                "headers have more bytes than a frame of this broker ({})",
                link.frame_max()
            )));
        }
        let suspect = link.suspects.contains(content.id);
        let (reply, answer) = oneshot::channel();
        let job = Job { content, deadline, reply };
        // Held until there is an answer, so that one at a time is under way there.
        let mut alone = None;
        let sent =
            if suspect { alone.insert(link.alone.lock().await).send(job) } else { link.channel().send(job) };
        let answer = match sent {
            Ok(()) => answer.await.unwrap_or_else(|_| Err(Trouble::LOST.unavailable())),
            Err(_) => Err(link.check().err().unwrap_or(Trouble::LOST).unavailable()),
        };
        drop(alone);
        answer
    }
}

#[async_trait]
impl Publisher for RabbitPublisher {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        let settings = &self.0.settings;
        let content = Content::of(&record, &settings.routing_key, settings.persistent)?;
        drop(record);
        let deadline = Instant::now() + settings.publish_timeout;
        match timeout_at(deadline + GRACE, self.send(content, deadline)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(Trouble::NO_ANSWER.unavailable()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

impl fmt::Debug for RabbitPublisher {
    /// Says nothing about the URL, which may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.trouble().unwrap_or("up");
        f.debug_struct("RabbitPublisher")
            .field("exchange", &self.0.settings.exchange)
            .field("state", &state)
            .finish_non_exhaustive()
    }
}
