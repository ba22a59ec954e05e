//! Where records go.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::BoxError;
use crate::record::Record;

/// A destination, or the user's own handler.
///
/// `Ok` means that the destination took responsibility for the record (broker confirm, acknowledgement, 2xx): only
/// then is it settled as processed. `publisher_conformance!` of `posthaste-testkit` is the contract as tests.
///
/// # Cancel safety
/// The relay drops the future when the publish timeout is over, when its lease is lost, and when a shutdown is
/// abandoned. The record may then be published again.
#[async_trait]
pub trait Publisher: Send + Sync + 'static {
    /// Publishes one record. The relay calls it for many records at the same time, but never for two of one key.
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError>;
}

/// Why a record was not published, in the only four ways that make a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureClass {
    /// The destination is down. It is paused with backoff; the record is not to blame and no attempt is counted.
    Unavailable,
    /// The destination wants to be left alone for a while; otherwise as `Unavailable`.
    Throttled {
        /// For how long, or `None` for the relay's own backoff.
        retry_after: Option<Duration>,
    },
    /// This record failed; it is tried again with backoff until its attempts are used up.
    Failed,
    /// This record can never be published; it is dead at once.
    Rejected,
}

/// A failed publish.
///
/// Its reason is stored with the message and shown to operators, so it must be safe: no payload, no secret. The
/// original error goes only to the error callback and the log.
///
/// ```
/// use posthaste::PublishError;
///
/// let error = PublishError::failed("unroutable");
/// assert_eq!(error.reason(), "unroutable");
/// ```
#[derive(Debug)]
pub struct PublishError {
    class: FailureClass,
    reason: Cow<'static, str>,
    source: Option<BoxError>,
}

impl PublishError {
    /// An error of a class, with a safe reason.
    pub fn new(class: FailureClass, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { class, reason: reason.into(), source: None }
    }

    /// The destination is down.
    pub fn unavailable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FailureClass::Unavailable, reason)
    }

    /// The destination wants to be left alone for a while.
    pub fn throttled(retry_after: Option<Duration>, reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FailureClass::Throttled { retry_after }, reason)
    }

    /// This record failed, and may succeed later.
    pub fn failed(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FailureClass::Failed, reason)
    }

    /// This record can never be published.
    pub fn rejected(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::new(FailureClass::Rejected, reason)
    }

    /// Adds the original error, for the error callback and the log.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The class.
    pub fn class(&self) -> FailureClass {
        self.class
    }

    /// The safe reason.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn set_class(&mut self, class: FailureClass) {
        self.class = class;
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for PublishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}

/// Makes a [`Publisher`] of a closure: the user's own handler.
///
/// An error of the closure counts as [`FailureClass::Failed`] with the reason `handler failed`, whatever its text;
/// a [`PublishError`] is taken as it is.
///
/// ```
/// use posthaste::{PublishError, publish_fn};
///
/// let handler = publish_fn(|record| async move {
///     if record.event_type == "order.created" { Ok(()) } else { Err(PublishError::rejected("unknown event type")) }
/// });
/// # let _: Box<dyn posthaste::Publisher> = Box::new(handler);
/// ```
pub fn publish_fn<F, Fut, E>(handler: F) -> PublishFn<F>
where
    F: Fn(Arc<Record>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Into<BoxError>,
{
    PublishFn(handler)
}

/// The publisher that [`publish_fn`] makes.
pub struct PublishFn<F>(F);

impl<F> fmt::Debug for PublishFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PublishFn")
    }
}

#[async_trait]
impl<F, Fut, E> Publisher for PublishFn<F>
where
    F: Fn(Arc<Record>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send,
    E: Into<BoxError>,
{
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        (self.0)(record).await.map_err(|error| match error.into().downcast::<PublishError>() {
            Ok(error) => *error,
            Err(source) => PublishError::failed(HANDLER_FAILED).with_source(source),
        })
    }
}

pub(crate) const HANDLER_FAILED: &str = "handler failed";
pub(crate) const HANDLER_PANICKED: &str = "handler panicked";
pub(crate) const HANDLER_TIMED_OUT: &str = "handler timed out";
