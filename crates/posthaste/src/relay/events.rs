//! What a relay tells the program around it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::error::Error;
use crate::publisher::{FailureClass, PublishError};
use crate::record::Record;
use crate::store::{SettleReport, UpkeepReport};

/// Something that happened in a relay.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The relay took lanes.
    LanesTaken {
        /// How many.
        lanes: usize,
        /// How many of them belonged to a relay whose lease had run out.
        from_expired: usize,
    },
    /// The relay gave lanes back, to share them or to stop.
    LanesGivenBack {
        /// How many.
        lanes: usize,
    },
    /// Another relay has lanes that this one held, because its lease had run out.
    LanesLost {
        /// How many.
        lanes: usize,
    },
    /// The lease could not be renewed in time; publishing stopped.
    LeaseLapsed,
    /// Records were read.
    Read {
        /// How many were taken in.
        records: usize,
        /// How long it took.
        took: Duration,
    },
    /// A destination took responsibility for a record.
    Published {
        /// Where it went.
        destination: &'a str,
        /// The record.
        record: &'a Record,
        /// How long the publish took.
        took: Duration,
    },
    /// A record failed and is tried again.
    Retried {
        /// Where it was to go.
        destination: &'a str,
        /// The record.
        record: &'a Record,
        /// The failure.
        error: &'a PublishError,
        /// After what time.
        after: Duration,
    },
    /// A record was given up.
    Died {
        /// Where it was to go.
        destination: &'a str,
        /// The record.
        record: &'a Record,
        /// The last failure.
        error: &'a PublishError,
    },
    /// A destination is down or throttling and is left alone for a while.
    Paused {
        /// Which one.
        destination: &'a str,
        /// For how long.
        pause: Duration,
        /// Why.
        reason: &'a str,
    },
    /// A destination is back.
    Resumed {
        /// Which one.
        destination: &'a str,
    },
    /// Outcomes were written down.
    Settled {
        /// What the settle did.
        report: &'a SettleReport,
        /// How long it took.
        took: Duration,
    },
    /// The database failed; the relay tries again.
    StoreFailed {
        /// What was tried: `lease`, `read`, `settle`, `upkeep`, …
        operation: &'static str,
        /// Why it failed.
        error: &'a Error,
    },
    /// A task of the relay panicked and is started anew.
    TaskRestarted {
        /// Which one.
        task: &'static str,
    },
    /// Upkeep was done.
    Upkeep {
        /// What it did.
        report: &'a UpkeepReport,
    },
}

/// Gets told what happens in a relay: for metrics, logs and tests.
///
/// It is called in the relay's own tasks, so it must be quick and must not block. A panic in it is caught and
/// logged.
pub trait Observer: Send + Sync + 'static {
    /// Something happened.
    fn event(&self, event: &Event<'_>);
}

/// Calls the user's hook with every failed publish, its original error included.
pub(super) type ErrorCallback = Box<dyn Fn(&Record, &PublishError) + Send + Sync>;
/// Lets the user decide what class a failure is of.
pub(super) type Classifier = Box<dyn Fn(&Record, &PublishError) -> FailureClass + Send + Sync>;

/// The user's hooks.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) observer: Option<Box<dyn Observer>>,
    pub(super) on_error: Option<ErrorCallback>,
    pub(super) classify: Option<Classifier>,
}

impl Hooks {
    pub(super) fn tell(&self, event: &Event<'_>) {
        if let Some(observer) = &self.observer {
            guard("observer", || observer.event(event));
        }
    }

    /// Lets the classifier decide the class of a failure, and hands the failure to the error callback.
    pub(super) fn failed(&self, record: &Record, error: &mut PublishError) {
        if let Some(classify) = &self.classify
            && let Some(class) = guard("failure classifier", || classify(record, error))
        {
            error.set_class(class);
        }
        if let Some(on_error) = &self.on_error {
            guard("error callback", || on_error(record, error));
        }
    }
}

fn guard<T>(hook: &'static str, call: impl FnOnce() -> T) -> Option<T> {
    let outcome = catch_unwind(AssertUnwindSafe(call));
    if outcome.is_err() {
        tracing::error!(hook, "a hook of the relay panicked");
    }
    outcome.ok()
}
