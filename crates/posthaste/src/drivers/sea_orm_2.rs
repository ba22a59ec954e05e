//! sea-orm 2: PostgreSQL, MySQL and MariaDB, SQLite, over sqlx 0.9.

use sea_orm_2 as sea_orm;

use super::sqlx_0_9::describe;

sea_orm_adapter!(execute_raw, query_one_raw);
