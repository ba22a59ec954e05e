//! Measuring. Each run works in a schema (or file) of its own, accounts for every message, and is told beside what the
//! database does without an outbox: the *floor*.
//!
//! [`load`] says what is to be done, [`ground`] where; [`enqueue`], [`drain`], [`mixed`], [`floor`] and [`idle`] do it;
//! [`book`] accounts for the messages, [`gauge`] for the cost, [`report`] for the result; [`suite`] does many of them, and makes
//! charts.

mod book;
mod broker;
mod destination;
mod drafts;
pub(crate) mod drain;
pub(crate) mod enqueue;
pub(crate) mod floor;
mod gauge;
mod ground;
pub(crate) mod idle;
mod latency;
pub(crate) mod load;
pub(crate) mod mixed;
mod produce;
pub(crate) mod repeat;
mod report;
pub(crate) mod suite;
mod watched;
