//! Why something did not work: reasons chosen by us, which may be stored and shown.

use std::io;

use lapin::ErrorKind;
use posthaste::{FailureClass, PublishError};

pub(crate) const UNROUTABLE: &str = "unroutable";
pub(crate) const NACKED: &str = "nacked";
pub(crate) const NOT_CONFIRMED: &str = "not confirmed in time";
pub(crate) const CHANNEL_CLOSED: &str = "channel closed";

/// Why the destination is unavailable.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    reason: &'static str,
    source: Option<lapin::Error>,
    /// Whether a message that was under way may have caused it.
    blames: bool,
}

impl Trouble {
    pub(crate) const BLOCKED: Self = Self::new("blocked by the broker");
    pub(crate) const CLOSED: Self = Self::new("publisher is closed");
    pub(crate) const EXCHANGE_MISSING: Self = Self::new("exchange missing");
    pub(crate) const LOST: Self = Self::new("connection lost");
    pub(crate) const NO_ANSWER: Self = Self::new("no answer from the broker");
    pub(crate) const NOT_CONNECTED: Self = Self::new("not connected");
    pub(crate) const ACCESS_REFUSED: Self = Self::new("access refused by the broker");
    pub(crate) const CHANNEL_CLOSED: Self = Self::new(CHANNEL_CLOSED);
    pub(crate) const DECLARATION_REFUSED: Self = Self::new("declaration refused");

    const fn new(reason: &'static str) -> Self {
        Self { reason, source: None, blames: false }
    }

    pub(crate) fn because(mut self, source: lapin::Error) -> Self {
        self.source = Some(source);
        self
    }

    pub(crate) fn reason(&self) -> &'static str {
        self.reason
    }

    pub(crate) fn source(&self) -> Option<&lapin::Error> {
        self.source.as_ref()
    }

    pub(crate) fn blames(&self) -> bool {
        self.blames
    }

    /// For a record that is not to blame.
    pub(crate) fn unavailable(&self) -> PublishError {
        let error = PublishError::unavailable(self.reason);
        match &self.source {
            Some(source) => error.with_source(source.clone()),
            None => error,
        }
    }

    /// What went wrong between here and the broker's door.
    pub(crate) fn of_socket(error: io::Error) -> Self {
        let reason = match error.kind() {
            io::ErrorKind::ConnectionRefused => "connection refused",
            io::ErrorKind::TimedOut => return Self::NO_ANSWER.because(error.into()),
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => "TLS handshake failed",
            _ => "cannot connect",
        };
        Self::new(reason).because(error.into())
    }

    /// What the broker said at the door.
    pub(crate) fn of_login(error: lapin::Error) -> Self {
        let reason = match code(&error) {
            Some(403) => "login refused: user or password",
            Some(402 | 530) => "vhost missing or not allowed",
            Some(_) => "connection closed by the broker",
            None => "cannot connect",
        };
        Self::new(reason).because(error)
    }

    /// Why a connection ended.
    pub(crate) fn of_connection(error: lapin::Error) -> Self {
        let trouble = match code(&error) {
            // What the broker answers to a frame that it cannot make sense of.
            Some(501 | 502 | 541) => Self { blames: true, ..Self::new("connection closed over a message") },
            Some(_) => Self::new("connection closed by the broker"),
            None => Self::LOST,
        };
        trouble.because(error)
    }
}

/// The class and the reason for the message over which a channel or connection was closed.
pub(crate) fn blamed(code: u16) -> (FailureClass, &'static str) {
    match code {
        406 => (FailureClass::Rejected, "refused by the broker: precondition failed (406)"),
        403 => (FailureClass::Failed, "refused by the broker: access refused (403)"),
        501 | 502 => (FailureClass::Rejected, "refused by the broker: frame or syntax error"),
        541 => (FailureClass::Failed, "refused by the broker: internal error (541)"),
        _ => (FailureClass::Failed, "refused by the broker"),
    }
}

/// The reply code with which the broker closed a channel or connection.
pub(crate) fn code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}
