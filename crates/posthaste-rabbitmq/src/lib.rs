//! RabbitMQ for [Posthaste](posthaste): [`RabbitPublisher`] publishes to an exchange, with publisher confirms.
//!
//! The way of a record through this crate: `publisher.rs` → `content.rs` (the record as AMQP has it) → `channel.rs` →
//! `in_flight.rs` → the broker → `in_flight.rs` (its answer) → `channel.rs`. `supervisor.rs` keeps the connection that
//! `link.rs` makes.

mod channel;
mod content;
mod failure;
mod in_flight;
mod link;
mod options;
mod publisher;
mod returns;
mod routing_key;
mod settings;
mod stream;
mod supervisor;
mod target;
mod tls;
mod topology;

pub use options::RabbitOptions;
pub use publisher::RabbitPublisher;
pub use topology::{ExchangeType, QueueSpec, Topology};
