//! Drives the real binary, each test on a database of its own.
#![allow(clippy::unwrap_used, reason = "all of it is tests")]

mod admin;
mod bad_input;
mod bench;
mod broker;
#[path = "../../../posthaste-postgres/tests/support/cluster.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is shared, and used in part")]
mod cluster;
mod config;
mod crash;
mod crowd;
mod demo;
mod destinations;
mod door;
mod enqueue;
mod everywhere;
mod http;
mod logs;
mod migrate;
mod mysql;
mod mysql_server;
#[path = "../../../posthaste-rabbitmq/tests/support/node.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is shared, and used in part")]
mod node;
mod ops;
mod output;
mod postgres;
mod rabbitmq;
mod relay;
mod scripted;
mod secrets;
mod server;
mod service;
mod support;
