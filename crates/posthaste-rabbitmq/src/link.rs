//! One connection to the broker, and what its parts know of each other.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lapin::options::ConfirmSelectOptions;
use lapin::tcp::AsyncTcpStream;
use lapin::{Channel, Connection, ConnectionProperties};
use posthaste::MessageId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::{Instant, timeout};

use crate::failure::{Trouble, code};
use crate::in_flight::Job;
use crate::settings::Settings;
use crate::stream::{self, Socket};
use crate::topology;

/// How long a broker may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// The most suspects that are remembered.
const MAX_SUSPECTS: usize = 10_000;

/// A connection.
pub(crate) struct Link {
    pub(crate) settings: Arc<Settings>,
    connection: Connection,
    socket: Socket,
    /// One for each channel.
    channels: Vec<UnboundedSender<Job>>,
    next: AtomicUsize,
    /// A channel for suspects, for one at a time.
    pub(crate) alone: AsyncMutex<UnboundedSender<Job>>,
    /// Why it ended.
    ended: watch::Sender<Option<Trouble>>,
    exchange_missing: watch::Sender<bool>,
    /// Sent and not settled, on all channels.
    in_flight: AtomicUsize,
    opened: Instant,
    /// When the broker last confirmed something, in milliseconds since it was opened, plus one; 0: never.
    last_confirm: AtomicU64,
    confirmed_since_refusal: AtomicBool,
    pub(crate) suspects: Arc<Suspects>,
}

/// Messages that were under way when the broker closed a channel over one of them. They are published one at a time
/// until it is known which one it was.
#[derive(Debug, Default)]
pub(crate) struct Suspects(Mutex<HashSet<MessageId>>);

impl Suspects {
    pub(crate) fn add(&self, id: MessageId) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.len() >= MAX_SUSPECTS {
            // Most of them have gone to other relays. Those that come here again make themselves known.
            ids.clear();
        }
        ids.insert(id);
    }

    pub(crate) fn clear(&self, id: MessageId) {
        let mut ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !ids.is_empty() {
            ids.remove(&id);
        }
    }

    pub(crate) fn contains(&self, id: MessageId) -> bool {
        let ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        !ids.is_empty() && ids.contains(&id)
    }
}

impl Link {
    /// Connects, logs in, declares what is to be declared, and looks for the exchange. Also returns where the jobs of
    /// each channel come out.
    ///
    /// # Cancel safety
    /// Dropping the future shuts the socket.
    pub(crate) async fn open(
        settings: Arc<Settings>,
        suspects: Arc<Suspects>,
    ) -> Result<(Arc<Self>, Vec<UnboundedReceiver<Job>>), Trouble> {
        let authority = &settings.uri.authority;
        let (stream, socket) = stream::connect(&authority.host, authority.port, settings.tls.as_ref())
            .await
            .map_err(Trouble::of_socket)?;
        let connection = login(&settings, stream).await?;
        let missing = !prepare(&connection, &settings).await?;
        let (mut channels, mut jobs) = (Vec::new(), Vec::new());
        for _ in 0..settings.channels {
            let (sender, receiver) = unbounded_channel();
            channels.push(sender);
            jobs.push(receiver);
        }
        let (alone, receiver) = unbounded_channel();
        jobs.push(receiver);
        let link = Self {
            settings,
            connection,
            socket,
            channels,
            next: AtomicUsize::new(0),
            alone: AsyncMutex::new(alone),
            ended: watch::Sender::new(None),
            exchange_missing: watch::Sender::new(missing),
            in_flight: AtomicUsize::new(0),
            opened: Instant::now(),
            last_confirm: AtomicU64::new(0),
            confirmed_since_refusal: AtomicBool::new(false),
            suspects,
        };
        Ok((Arc::new(link), jobs))
    }

    /// A channel in confirm mode.
    pub(crate) async fn open_channel(&self) -> Result<Channel, Trouble> {
        let open = async {
            let channel = self.connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok::<_, lapin::Error>(channel)
        };
        match timeout(self.settings.connect_timeout, open).await {
            Ok(Ok(channel)) => Ok(channel),
            Ok(Err(error)) => Err(Trouble::of_connection(error)),
            Err(_elapsed) => Err(Trouble::NO_ANSWER),
        }
    }

    /// Looks whether the exchange is there again, and declares it where that is wanted.
    pub(crate) async fn look_for_exchange(&self) {
        match timeout(self.settings.connect_timeout, prepare(&self.connection, &self.settings)).await {
            Ok(Ok(there)) => {
                self.exchange_missing.send_if_modified(|missing| std::mem::replace(missing, !there) == there);
            }
            Ok(Err(trouble)) => self.end(trouble),
            Err(_elapsed) => self.end(Trouble::NO_ANSWER),
        }
    }

    /// The next channel in turn.
    pub(crate) fn channel(&self) -> &UnboundedSender<Job> {
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        &self.channels[next % self.channels.len()]
    }

    /// Whether the broker takes messages now, as far as is known.
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        if let Some(trouble) = &*self.ended.borrow() {
            return Err(trouble.clone());
        }
        if *self.exchange_missing.borrow() {
            return Err(Trouble::EXCHANGE_MISSING);
        }
        if self.is_blocked() { Err(Trouble::BLOCKED) } else { Ok(()) }
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.connection.status().connected()
    }

    /// The largest frame that both sides take, in bytes.
    pub(crate) fn frame_max(&self) -> usize {
        usize::try_from(self.connection.configuration().frame_max()).unwrap_or(usize::MAX)
    }

    /// Ends it, if it has not ended before.
    pub(crate) fn end(&self, trouble: Trouble) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            ended.get_or_insert(trouble);
            first
        });
    }

    pub(crate) async fn ended(&self) -> Trouble {
        let mut ended = self.ended.subscribe();
        let trouble = ended.wait_for(Option::is_some).await;
        trouble.ok().and_then(|trouble| trouble.clone()).unwrap_or(Trouble::LOST)
    }

    pub(crate) fn exchange_is_missing(&self) {
        self.exchange_missing.send_if_modified(|missing| !std::mem::replace(missing, true));
    }

    pub(crate) fn exchange(&self) -> watch::Receiver<bool> {
        self.exchange_missing.subscribe()
    }

    pub(crate) fn sent(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    /// How many are under way on all channels.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// So many are under way no longer.
    pub(crate) fn settled(&self, count: usize) {
        self.in_flight.fetch_sub(count, Ordering::Relaxed);
    }

    pub(crate) fn confirmed(&self) {
        let now = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_confirm.store(now.saturating_add(1), Ordering::Relaxed);
        self.confirmed_since_refusal.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_confirmed(&self) -> bool {
        self.last_confirm.load(Ordering::Relaxed) > 0
    }

    /// Whether the broker has confirmed anything within half the time that a publish may take.
    pub(crate) fn answers(&self) -> bool {
        let Some(last) = self.last_confirm.load(Ordering::Relaxed).checked_sub(1) else { return false };
        let silence = self.opened.elapsed().saturating_sub(Duration::from_millis(last));
        silence < self.settings.publish_timeout / 2
    }

    /// Whether other messages were let in since the last one that was not.
    pub(crate) fn lets_others_in(&self) -> bool {
        self.confirmed_since_refusal.swap(false, Ordering::Relaxed)
    }

    /// Says goodbye, if the broker listens, and shuts the socket.
    pub(crate) async fn close(&self) {
        if self.is_connected() && !self.is_blocked() {
            // An error, or no answer in time: the socket is shut anyway.
            let _ = timeout(GOODBYE, self.connection.close(200, "OK".into())).await;
        }
        self.socket.shut();
    }
}

async fn login(settings: &Settings, stream: stream::Stream) -> Result<Connection, Trouble> {
    let name = settings.connection_name.as_str();
    let properties = ConnectionProperties::default()
        .with_connection_name(name.into())
        .with_client_property("product".into(), "Posthaste".into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
    // lapin may ask again, for a second try. There is none: the next connection is made from scratch.
    let stream = Mutex::new(Some(stream));
    let hand_over = async move |_uri, _runtime| {
        let stream = stream.lock().unwrap_or_else(PoisonError::into_inner).take();
        let gone = || lapin::Error::from(std::io::Error::from(std::io::ErrorKind::NotConnected));
        stream.map(AsyncTcpStream::Plain).ok_or_else(gone)
    };
    Connection::connector(settings.uri.clone(), stream::runtime(), hand_over, properties)
        .await
        .map_err(Trouble::of_login)
}

/// Declares what is to be declared, or asks for the exchange; on a channel of its own, as the broker closes it over
/// what it does not like. `false`: there is no such exchange.
async fn prepare(connection: &Connection, settings: &Settings) -> Result<bool, Trouble> {
    let lost = |error| Trouble::of_connection(error);
    let exchange = &settings.exchange;
    if exchange.as_str().is_empty() && settings.declare.is_none() {
        return Ok(true);
    }
    let channel = connection.create_channel().await.map_err(lost)?;
    let result = match &settings.declare {
        Some(topology) => topology.declare(&channel, exchange).await,
        None => topology::look_for(&channel, exchange).await,
    };
    match result {
        Ok(()) => {
            channel.close(200, "OK".into()).await.map_err(lost)?;
            Ok(true)
        }
        Err(error) => match (code(&error), &settings.declare) {
            (Some(404), None) => Ok(false),
            // Who may not ask may still be allowed to publish.
            (Some(403), None) => Ok(true),
            (Some(_), Some(_)) => Err(Trouble::DECLARATION_REFUSED.because(error)),
            _ => Err(lost(error)),
        },
    }
}
