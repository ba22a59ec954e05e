//! Waking an idle relay.
//!
//! A relay that finds nothing to do says so in a row that every enqueue looks at; only then do producers NOTIFY. One
//! connection listens. Whether calls arrive at all is tried out after each LISTEN: behind a pooler in transaction mode
//! they do not, and the relay polls. A call is a hint, never the truth.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use posthaste::{Error, RelayId, Waker};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::AsyncMessage;
use tokio_postgres::types::Type;

use crate::connection::{Params, Use, refused};
use crate::error::Failure;
use crate::options::PostgresOptions;
use crate::store::Inner;
use crate::target::Target;
use posthaste::dialect::{PostgresTable as TableName, quote};

/// How long a call may take to arrive before it counts as lost.
const CALL_ARRIVES_WITHIN: Duration = Duration::from_secs(2);
/// How often the listening connection is asked whether it still lives.
const CHECK_EVERY: Duration = Duration::from_secs(10);
/// How long to do without before it is tried again whether calls arrive: the first time, and after many.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(10);
const TRY_AGAIN_AFTER_MANY: Duration = Duration::from_mins(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Rings when a producer calls.
pub(crate) struct Bell {
    target: Target,
    channel: String,
    waker: Waker,
    connect_timeout: Duration,
    /// Whether somebody listens and calls arrive.
    is_up: AtomicBool,
    /// Which relays of this store want to be called.
    wanted: Mutex<BTreeMap<RelayId, bool>>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Bell {
    fn drop(&mut self) {
        let listener = self.listener.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(listener) = listener.take() {
            listener.abort();
        }
    }
}

impl Bell {
    pub(crate) fn new(target: Target, table: &TableName, options: &PostgresOptions, waker: Waker) -> Self {
        Self {
            target,
            channel: table.channel(),
            waker,
            connect_timeout: options.connect_timeout,
            is_up: AtomicBool::new(false),
            wanted: Mutex::default(),
            listener: Mutex::default(),
        }
    }

    pub(crate) async fn rung(&self) {
        self.waker.woken().await;
    }

    fn wanted(&self) -> std::sync::MutexGuard<'_, BTreeMap<RelayId, bool>> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Tells producers whether this relay wants to be called.
    pub(crate) async fn set_idle(self: &Arc<Self>, relay: RelayId, idle: bool) -> Result<(), Error> {
        if !self.options.wake {
            return Ok(());
        }
        let was_idle = self.bell.wanted().insert(relay, idle);
        if idle {
            self.start_listening();
        }
        // Without a listener nobody would hear; once there is one, it says so itself.
        if self.bell.is_up.load(Ordering::Acquire) || (!idle && was_idle == Some(true)) {
            self.note_idle(relay, idle).await?;
        }
        Ok(())
    }

    pub(crate) fn forget_idle(&self, relay: RelayId) {
        self.bell.wanted().remove(&relay);
    }

    /// Sets right what a relay left behind that died while it was idle.
    pub(crate) async fn mend_wake(&self) -> Result<(), Error> {
        self.change_wake("tidying up", None).await
    }

    async fn note_idle(&self, relay: RelayId, idle: bool) -> Result<(), Error> {
        let params = [(&relay.0 as _, Type::UUID), (&idle as _, Type::BOOL)];
        self.change_wake("telling producers whether to call", Some(&params)).await
    }

    /// In one round trip: locks the one row, so that relays change it one after another, notes what has changed, and
    /// looks what follows from it.
    async fn change_wake(&self, doing: &str, idle: Option<Params<'_>>) -> Result<(), Error> {
        let mut statements: Vec<(&str, Params<'_>)> = vec![(&self.sql.lock_wake, &[])];
        statements.extend(idle.map(|params| (self.sql.set_idle.as_str(), params)));
        statements.push((&self.sql.set_wake, &[]));
        let session = self.session(Use::Other, doing).await?;
        let result = session.run_all(&self.begin_write, &statements).await;
        session.done(result).map_err(|failure| self.error(doing, failure))?;
        Ok(())
    }

    fn start_listening(self: &Arc<Self>) {
        let mut listener = self.bell.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener.as_ref().is_none_or(JoinHandle::is_finished) {
            *listener = Some(tokio::spawn(keep_listening(Arc::downgrade(self))));
        }
    }

    /// Notes for every idle relay of this store that it wants to be called.
    async fn note_all_idle(&self) -> Result<(), Error> {
        let idle: Vec<_> =
            self.bell.wanted().iter().filter(|(_, idle)| **idle).map(|(relay, _)| *relay).collect();
        for relay in idle {
            self.note_idle(relay, true).await?;
        }
        Ok(())
    }

    /// Calls, with a word by which the call is known.
    async fn call(&self, word: &str) -> Result<(), Error> {
        let params = [(&self.bell.channel as _, Type::TEXT), (&word as _, Type::TEXT)];
        self.run(Use::Other, "calling", "SELECT pg_notify($1, $2)", &params).await?;
        Ok(())
    }
}

/// How listening ended.
enum Ended {
    /// Calls do not arrive here.
    Deaf,
    Failed(Failure),
}

/// Listens for ever, on one connection after another.
async fn keep_listening(store: Weak<Inner>) {
    let (mut failures, mut deaf) = (0_u32, 0_u32);
    loop {
        let Some(inner) = store.upgrade() else { return };
        let (target, channel) = (inner.bell.target.clone(), inner.bell.channel.clone());
        let limit = inner.bell.connect_timeout;
        drop(inner);
        let was_up = AtomicBool::new(false);
        let ended = listen(&store, &target, &channel, limit, &was_up).await;
        if let Some(inner) = store.upgrade() {
            inner.bell.is_up.store(false, Ordering::Release);
        }
        (failures, deaf) = if was_up.into_inner() { (1, 0) } else { (failures.saturating_add(1), deaf) };
        let pause = match ended {
            Ended::Deaf => {
                if deaf == 0 {
                    tracing::info!(
                        "calls of producers do not arrive here (a pooler, perhaps); polling instead"
                    );
                }
                // Once may have been bad luck.
                deaf = deaf.saturating_add(1);
                (TRY_AGAIN_AFTER * (1 << (deaf - 1).min(5))).min(TRY_AGAIN_AFTER_MANY)
            }
            Ended::Failed(failure) => {
                let error = failure.into_error("listening", "LISTEN");
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "listening for producers failed; polling until it works again"
                );
                let longest = (Duration::from_millis(100) * (1 << failures.min(6))).min(LONGEST_PAUSE);
                longest / 2 + longest.mul_f64(fastrand::f64()) / 2
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Listens on one connection until it breaks.
async fn listen(
    store: &Weak<Inner>,
    target: &Target,
    channel: &str,
    limit: Duration,
    was_up: &AtomicBool,
) -> Ended {
    match listen_on(store, target, channel, limit, was_up).await {
        Ok(ended) => ended,
        Err(failure) => Ended::Failed(failure),
    }
}

async fn listen_on(
    store: &Weak<Inner>,
    target: &Target,
    channel: &str,
    limit: Duration,
    was_up: &AtomicBool,
) -> Result<Ended, Failure> {
    let connecting = tokio::time::timeout(limit, target.connect());
    let connected = connecting.await.map_err(|_elapsed| Failure::TimedOut)?;
    let (client, mut connection) = connected.map_err(|error| refused(target, error))?;
    let (words, mut heard) = watch::channel(String::new());
    let waker = store.upgrade().map(|inner| inner.bell.waker.clone()).unwrap_or_default();
    let driver = async move {
        let mut messages = futures_util::stream::poll_fn(|cx| connection.poll_message(cx));
        while let Some(message) = messages.next().await {
            if let AsyncMessage::Notification(call) = message? {
                words.send_replace(call.payload().to_owned());
                waker.wake();
            }
        }
        Err::<(), Failure>(Failure::Ours(Error::new(
            posthaste::ErrorKind::Unavailable,
            "listening: the connection is closed",
        )))
    };
    let talk = async {
        within(limit, client.batch_execute(&format!("LISTEN {}", quote(channel)))).await?;
        let Some(inner) = store.upgrade() else { return Ok(Ended::Deaf) };
        let word = RelayId::random().to_string();
        inner.call(&word).await?;
        let arrived = heard.wait_for(|heard| *heard == word);
        if tokio::time::timeout(CALL_ARRIVES_WITHIN, arrived).await.is_err() {
            return Ok(Ended::Deaf);
        }
        was_up.store(true, Ordering::Relaxed);
        inner.bell.is_up.store(true, Ordering::Release);
        inner.note_all_idle().await?;
        // Whatever was enqueued while nobody listened is found by looking once.
        inner.bell.waker.wake();
        tracing::debug!("listening for producers");
        drop(inner);
        loop {
            tokio::time::sleep(CHECK_EVERY).await;
            within(limit, client.batch_execute("SELECT 1")).await?;
        }
    };
    tokio::select! {
        ended = driver => ended.map(|()| Ended::Deaf),
        ended = talk => ended,
    }
}

async fn within<T>(
    limit: Duration,
    step: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Failure> {
    Ok(tokio::time::timeout(limit, step).await.map_err(|_elapsed| Failure::TimedOut)??)
}
