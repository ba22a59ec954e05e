//! The scenarios of `examples/drivers`, with the versions before the current ones.

#[path = "../../../examples/drivers/tests/drivers/database.rs"]
mod database;
#[path = "../../../examples/drivers/tests/drivers/elsewhere.rs"]
mod elsewhere;
#[path = "../../../examples/drivers/tests/drivers/scenarios.rs"]
mod scenarios;

#[path = "../../../examples/drivers/tests/drivers/rusqlite.rs"]
mod rusqlite;
mod sea_orm;
mod sqlx;
mod together;
