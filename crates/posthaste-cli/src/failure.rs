//! How a command ends when it does not end well: one line `error: …`, maybe one line `hint: …`, an exit code.

use std::error::Error as StdError;
use std::io::{self, Write};
use std::process::ExitCode;

use posthaste::ErrorKind;

use crate::database::redact;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    place: Option<String>,
    message: String,
    hint: Option<String>,
    /// Whether it may go away by itself.
    may_pass: bool,
}

const FAILED: u8 = 1;
const BAD_INPUT: u8 = 2;

impl Failure {
    /// The command could not be carried out: exit code 1.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { code: FAILED, place: None, message: message.into(), hint: None, may_pass: false }
    }

    /// The command was asked for something that makes no sense: exit code 2.
    pub(crate) fn bad_input(message: impl Into<String>) -> Self {
        Self { code: BAD_INPUT, place: None, message: message.into(), hint: None, may_pass: false }
    }

    /// Everything that is to be said has been said: exit code 1.
    pub(crate) fn silent() -> Self {
        Self { code: FAILED, place: None, message: String::new(), hint: None, may_pass: false }
    }

    /// The reader of the output went away. There is nobody to tell, and nothing went wrong.
    fn reader_gone() -> Self {
        Self { code: 0, place: None, message: String::new(), hint: None, may_pass: false }
    }

    /// Adds what to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says where it happened, as in `line 7: …`, if that was not said before.
    pub(crate) fn at(mut self, place: impl std::fmt::Display) -> Self {
        self.place.get_or_insert_with(|| place.to_string());
        self
    }

    /// As [`at`](Self::at), for a line of the input; `None` where there are no lines.
    pub(crate) fn at_line(self, line: Option<u64>) -> Self {
        match line {
            Some(line) => self.at(format_args!("line {line}")),
            None => self,
        }
    }

    /// Whether it may go away by itself: a server that cannot be reached may be there later.
    pub(crate) fn may_pass(&self) -> bool {
        self.may_pass
    }

    /// What went wrong, without passwords.
    pub(crate) fn text(&self) -> String {
        redact(&self.message)
    }

    /// Leaves only the exit code: the rest has been said, in the log.
    pub(crate) fn said(self) -> Self {
        Self { message: String::new(), place: None, hint: None, ..self }
    }

    /// Tells the user, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match &self.place {
            Some(place) => tell("error", &format!("{place}: {}", self.message)),
            None if self.message.is_empty() => {}
            None => tell("error", &self.message),
        }
        if let Some(hint) = &self.hint {
            tell("hint", hint);
        }
        ExitCode::from(self.code)
    }
}

/// Writes one line `label: text` to stderr, without passwords. Where stderr is closed, nobody wants to know.
pub(crate) fn tell(label: &str, text: &str) {
    let one_line = redact(text).split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr(), "{label}: {one_line}");
}

/// Writes one line to stderr that is neither an error nor a hint.
pub(crate) fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{}", redact(text));
}

impl From<posthaste::Error> for Failure {
    fn from(error: posthaste::Error) -> Self {
        let message = with_sources(&error);
        let mut failure = match error.kind() {
            ErrorKind::InvalidMessage | ErrorKind::PayloadTooLarge | ErrorKind::InvalidInput => {
                Self::bad_input(message)
            }
            _ => Self::failed(message),
        };
        failure.may_pass = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Conflict);
        match hint_for(error.kind()) {
            // The store may have said it already, and better.
            Some(hint)
                if !["posthaste migrate", "this takes"].iter().any(|said| failure.message.contains(said)) =>
            {
                failure.hint(hint)
            }
            _ => failure,
        }
    }
}

fn hint_for(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::PayloadTooLarge => {
            Some("send a reference to the data instead of the data, or raise --max-payload-bytes")
        }
        ErrorKind::DuplicateKey => Some("the message was enqueued before; if this is a repeat, all is well"),
        ErrorKind::NotMigrated => Some("run `posthaste migrate` (with the same --database-url and --table)"),
        ErrorKind::SchemaTooNew => Some("upgrade this program; a newer version has migrated the table"),
        ErrorKind::ForeignTable => Some("choose another name with --table"),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnly => {
            Some("check the rights of the user, or those of the database file and its directory")
        }
        ErrorKind::Conflict => Some("another transaction got in between; run the command again"),
        _ => None,
    }
}

/// The error's text, and those of its causes where they say more. What PostgreSQL reports, the store has said already.
fn with_sources(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source.filter(|cause| !cause.is::<tokio_postgres::Error>()) {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

/// An error while writing a command's output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::reader_gone()
        } else {
            Self::failed(format!("the output cannot be written: {error}"))
        }
    }
}
