//! What is to be done in a transaction, as steps that any driver can run, blocking or not.
//!
//! The order of the steps, and what follows from their answers, is written once, as an `async` block that waits for
//! nothing but answers. A driver polls it through [`Script::next`], and runs what it asks for in its own way.

use std::borrow::Cow;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::failure::DriverError;
use super::transaction::Dialect;
use crate::error::{Error, ErrorKind};
use crate::message::Message;

type Running<'a, R> = Pin<Box<dyn Future<Output = Result<R, Error>> + Send + 'a>>;
type Begin<'a, R> = Box<dyn FnOnce(Dialect, Io<'a>) -> Running<'a, R> + Send + 'a>;

/// Something to be done in a transaction, before it is known in which database.
#[must_use = "nothing is done until it is performed"]
pub struct Work<'a, R>(Begin<'a, R>);

impl<'a, R> Work<'a, R> {
    pub(super) fn new(begin: impl FnOnce(Dialect, Io<'a>) -> Running<'a, R> + Send + 'a) -> Self {
        Self(Box::new(begin))
    }

    /// Begins it.
    pub fn begin(self, dialect: Dialect) -> Script<'a, R> {
        let io = Io::default();
        Script { running: (self.0)(dialect, io.clone()), io }
    }
}

/// What is to be done in a transaction, step by step.
///
/// A blocking driver runs it like this, an asynchronous one with `.await` where the step is run:
///
/// ```
/// use posthaste::driver::{Answer, DriverError, Progress, Script, Step};
/// use posthaste::Error;
///
/// fn run<R>(mut script: Script<'_, R>) -> Result<R, Error> {
///     loop {
///         match script.next() {
///             Progress::Run(step) => script.answer(run_step(&step)),
///             Progress::Done(result) => return result,
///         }
///     }
/// }
///
/// fn run_step(step: &Step<'_>) -> Result<Answer, DriverError> {
///     let row = [Some(1), Some(0)]; // of `step.sql` with `step.values`: the integers in `step.columns`
///     Ok(Answer { row: (!step.columns.is_empty()).then(|| row[..step.columns.len()].to_vec()) })
/// }
/// ```
#[must_use = "nothing is done until it is run to its end"]
pub struct Script<'a, R> {
    running: Running<'a, R>,
    io: Io<'a>,
}

/// How a script goes on.
pub enum Progress<'a, R> {
    /// With a step to run, whose answer it waits for.
    Run(Step<'a>),
    /// It is over.
    Done(Result<R, Error>),
}

impl<'a, R> Script<'a, R> {
    /// The next step, or the end. Every step is to be answered before the next call.
    #[expect(clippy::should_implement_trait, reason = "it is no iterator: each step needs an answer")]
    pub fn next(&mut self) -> Progress<'a, R> {
        if let Poll::Ready(result) = self.running.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return Progress::Done(result);
        }
        match std::mem::take(&mut *self.io.exchange()) {
            Exchange::Asked(step) => Progress::Run(step),
            Exchange::Idle | Exchange::Answered(_) => {
                let text = "the driver went on without an answer to the last step";
                Progress::Done(Err(Error::new(ErrorKind::Database, text)))
            }
        }
    }

    /// Answers the last step.
    pub fn answer(&mut self, answer: Result<Answer, DriverError>) {
        *self.io.exchange() = Exchange::Answered(answer);
    }
}

/// One thing to send to the database.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Step<'a> {
    /// One statement, with the dialect's own placeholders (`$1`, `?1`, or `?`). It is the same text every time, so a
    /// driver with a cache may keep it prepared; but see [`is_plain`](Self::is_plain).
    pub sql: Arc<str>,
    /// The values of its placeholders, in their order.
    pub values: Vec<Value<'a>>,
    /// The names of the integer columns to read from its first row, where it has one. Empty: it returns nothing.
    pub columns: &'static [&'static str],
    /// Whether it is to be sent as it is, by the simplest protocol that there is: it has no values, and is one that
    /// not every database can prepare (`SAVEPOINT`).
    pub is_plain: bool,
    /// A plain statement to run just before, along with it where the driver can pipeline.
    pub before: Option<Arc<str>>,
    /// What [`Dialect::Memory`] takes instead of SQL.
    pub(crate) memory: Option<Memory<'a>>,
}

/// What is asked of a transaction in memory.
#[derive(Debug, Clone)]
pub(crate) enum Memory<'a> {
    Enqueue(Cow<'a, [Message]>),
    FirstTime(Cow<'a, str>, String),
}

/// A value to bind. Every driver knows these three types; where the database needs another one, the statement casts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value<'a> {
    /// Text, or NULL.
    Text(Option<Cow<'a, str>>),
    /// Bytes, or NULL.
    Bytes(Option<Cow<'a, [u8]>>),
    /// A 64-bit integer, or NULL.
    Integer(Option<i64>),
}

/// What came back.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// The integers in the columns that were asked for (`None`: NULL, or there is no such column), or `None` where no
    /// row came back.
    pub row: Option<Vec<Option<i64>>>,
}

impl Answer {
    /// An integer, 0 where there is none.
    pub(super) fn integer(&self, column: usize) -> i64 {
        self.row.as_ref().and_then(|row| *row.get(column)?).unwrap_or_default()
    }

    pub(super) fn count(&self, column: usize) -> usize {
        usize::try_from(self.integer(column)).unwrap_or_default()
    }
}

impl<'a> Step<'a> {
    pub(super) fn new(sql: &Arc<str>, values: Vec<Value<'a>>, columns: &'static [&'static str]) -> Self {
        Self { sql: sql.clone(), values, columns, is_plain: false, before: None, memory: None }
    }

    /// A statement that is sent as it is.
    pub(super) fn plain(sql: &str) -> Self {
        Self { is_plain: true, ..Self::new(&sql.into(), Vec::new(), &[]) }
    }

    pub(super) fn before(mut self, sql: Option<Arc<str>>) -> Self {
        self.before = sql;
        self
    }

    pub(super) fn in_memory(memory: Memory<'a>) -> Self {
        Self { memory: Some(memory), ..Self::plain("") }
    }
}

impl<'a> Value<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text(Some(text.into()))
    }

    pub(super) fn bytes(bytes: impl Into<Cow<'a, [u8]>>) -> Self {
        Self::Bytes(Some(bytes.into()))
    }
}

/// How a script asks for its steps.
#[derive(Clone, Default)]
pub(super) struct Io<'a>(Arc<Mutex<Exchange<'a>>>);

#[derive(Default)]
enum Exchange<'a> {
    #[default]
    Idle,
    Asked(Step<'a>),
    Answered(Result<Answer, DriverError>),
}

impl<'a> Io<'a> {
    pub(super) async fn run(&self, step: Step<'a>) -> Result<Answer, DriverError> {
        *self.exchange() = Exchange::Asked(step);
        poll_fn(|_| {
            let mut exchange = self.exchange();
            match std::mem::take(&mut *exchange) {
                Exchange::Answered(answer) => Poll::Ready(answer),
                waiting => {
                    *exchange = waiting;
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn exchange(&self) -> MutexGuard<'_, Exchange<'a>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
