//! Waiting for locks, and time limits of an operation: kept by SQLite's callbacks.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;

/// How many steps of SQLite's virtual machine pass between two looks at the time: well under a millisecond.
const STEPS: i32 = 10_000;
/// The longest pause between two attempts to get the write lock.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// Real time, which no test moves: it limits real work on the connection's own thread.
pub(crate) fn real_now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads real time, for time limits")]
    Instant::now()
}

/// Has a producer's connection wait for the write lock for up to `timeout`, with as good a chance as any other.
///
/// SQLite's own busy timeout sleeps for up to 100 ms between two attempts, and so loses, time and again, against
/// connections that write without a break: measured with eight of those and a relay on two cores, one transaction in
/// a thousand was refused after 5 s. With this, which tries every millisecond, none waited for much longer than 1 s.
///
/// # Errors
/// Those of the driver.
pub fn fair_busy_timeout(connection: &mut Connection, timeout: Duration) -> rusqlite::Result<()> {
    connection.busy_handler(Some(handler_of(timeout)))
}

/// A busy handler is a plain function (rusqlite takes closures only since 0.41), so it cannot carry a timeout: there is a
/// handler for each of as many different timeouts as a program can have use for.
fn handler_of(timeout: Duration) -> fn(i32) -> bool {
    let millis = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).max(1);
    let take = |(taken, _): &&Handler| {
        let before = taken.compare_exchange(0, millis, Ordering::Relaxed, Ordering::Relaxed);
        before.is_ok() || before == Err(millis)
    };
    // When there are more, the nearest one has to do.
    let distance = |(taken, _): &&Handler| taken.load(Ordering::Relaxed).abs_diff(millis);
    let handler = HANDLERS.iter().find(take).or_else(|| HANDLERS.iter().min_by_key(distance));
    handler.map_or(wait::<0>, |(_, handler)| *handler)
}

/// A busy handler, and how long it waits, in milliseconds; 0: it is free.
type Handler = (AtomicU64, fn(i32) -> bool);

static HANDLERS: [Handler; 16] = [
    (AtomicU64::new(0), wait::<0>),
    (AtomicU64::new(0), wait::<1>),
    (AtomicU64::new(0), wait::<2>),
    (AtomicU64::new(0), wait::<3>),
    (AtomicU64::new(0), wait::<4>),
    (AtomicU64::new(0), wait::<5>),
    (AtomicU64::new(0), wait::<6>),
    (AtomicU64::new(0), wait::<7>),
    (AtomicU64::new(0), wait::<8>),
    (AtomicU64::new(0), wait::<9>),
    (AtomicU64::new(0), wait::<10>),
    (AtomicU64::new(0), wait::<11>),
    (AtomicU64::new(0), wait::<12>),
    (AtomicU64::new(0), wait::<13>),
    (AtomicU64::new(0), wait::<14>),
    (AtomicU64::new(0), wait::<15>),
];

thread_local! {
    /// Since when this thread has waited for a lock: it can wait for one only.
    static SINCE: Cell<Instant> = Cell::new(real_now());
    /// The limits of the store whose connection this thread is, if it is that of one.
    static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
}

fn wait<const HANDLER: usize>(attempt: i32) -> bool {
    let limit = HANDLERS.get(HANDLER).map_or(0, |(millis, _)| millis.load(Ordering::Relaxed));
    wait_up_to(attempt, |waited| waited < Duration::from_millis(limit))
}

/// The busy handler of a store's connection.
fn wait_as_watched(attempt: i32) -> bool {
    WATCH.with_borrow(|watch| {
        watch.as_ref().is_some_and(|watch| wait_up_to(attempt, |waited| watch.may_wait(waited)))
    })
}

fn wait_up_to(attempt: i32, may_wait: impl Fn(Duration) -> bool) -> bool {
    if attempt == 0 {
        SINCE.set(real_now());
    }
    let waits = may_wait(SINCE.get().elapsed());
    if waits {
        pause(attempt);
    }
    waits
}

/// Ends operations that take too long. Clones share their limits.
#[derive(Debug, Clone)]
pub(crate) struct Watch(Arc<Limits>);

#[derive(Debug)]
struct Limits {
    base: Instant,
    time_limit: Duration,
    busy_timeout: Duration,
    /// When the operation has to end, in microseconds after `base`.
    end: AtomicU64,
    /// How long it may wait for a lock, in microseconds.
    wait: AtomicU64,
}

/// The answer of a method that cannot fail in some versions of rusqlite.
trait Done {
    fn done(self) -> rusqlite::Result<()>;
}

impl Done for () {
    fn done(self) -> rusqlite::Result<()> {
        Ok(self)
    }
}

impl Done for rusqlite::Result<()> {
    fn done(self) -> rusqlite::Result<()> {
        self
    }
}

impl Watch {
    pub(crate) fn new(time_limit: Duration, busy_timeout: Duration) -> Self {
        let base = real_now();
        let (end, wait) = (AtomicU64::new(u64::MAX), AtomicU64::new(micros(busy_timeout)));
        Self(Arc::new(Limits { base, time_limit, busy_timeout, end, wait }))
    }

    /// Has a connection keep the limits. It has to be used on this thread alone.
    pub(crate) fn install(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let watch = self.clone();
        connection.progress_handler(STEPS, Some(move || watch.is_over())).done()?;
        WATCH.set(Some(self.clone()));
        connection.busy_handler(Some(wait_as_watched))
    }

    /// An operation begins that was asked for at a time.
    pub(crate) fn start(&self, asked: Instant) {
        let end = asked.saturating_duration_since(self.0.base).saturating_add(self.0.time_limit);
        self.0.end.store(micros(end), Ordering::Relaxed);
        self.wait_for_locks(self.0.busy_timeout);
    }

    /// Limits how long this operation waits for a lock.
    pub(crate) fn wait_for_locks(&self, wait: Duration) {
        self.0.wait.store(micros(wait), Ordering::Relaxed);
    }

    /// Lets this operation take as long as it needs, but for locks.
    pub(crate) fn no_time_limit(&self) {
        self.0.end.store(u64::MAX, Ordering::Relaxed);
    }

    fn may_wait(&self, waited: Duration) -> bool {
        micros(waited) < self.0.wait.load(Ordering::Relaxed) && !self.is_over()
    }

    fn is_over(&self) -> bool {
        micros(self.0.base.elapsed()) >= self.0.end.load(Ordering::Relaxed)
    }
}

/// Sleeps for a moment, longer with every attempt.
pub(crate) fn pause(attempt: i32) {
    let pause = Duration::from_micros(50).saturating_mul(1 << attempt.clamp(0, 7)).min(LONGEST_PAUSE);
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the connection's own thread, and it waits for a lock"
    )]
    thread::sleep(pause);
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
