//! Drives the real binary, each test on a database of its own.
#![allow(clippy::unwrap_used, reason = "all of it is tests")]

mod admin;
mod bad_input;
mod crash;
mod demo;
mod enqueue;
mod everywhere;
mod migrate;
mod mysql;
mod mysql_server;
mod output;
mod postgres;
mod relay;
mod server;
mod support;
