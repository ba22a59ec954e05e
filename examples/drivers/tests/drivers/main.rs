//! Every driver goes through the same scenarios, on real servers: `scenarios.rs` has them, the other files say how each
//! driver begins, nests and ends a transaction.

mod database;
mod elsewhere;
mod scenarios;

mod deadpool;
mod diesel_async;
mod diesel_sync;
mod mysql_async;
mod rusqlite;
mod sea_orm;
mod sqlx;
mod tokio_postgres;
