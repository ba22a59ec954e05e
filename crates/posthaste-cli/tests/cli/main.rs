//! Drives the real binary, each test on a database of its own.
#![allow(clippy::unwrap_used, reason = "all of it is tests")]

mod admin;
mod bad_input;
mod bench;
#[path = "../../../posthaste-postgres/tests/support/cluster.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is shared, and used in part")]
mod cluster;
mod config;
mod crash;
mod crowd;
mod demo;
mod enqueue;
mod everywhere;
mod migrate;
mod mysql;
mod mysql_server;
mod output;
mod postgres;
mod rabbitmq;
mod relay;
mod server;
mod support;
