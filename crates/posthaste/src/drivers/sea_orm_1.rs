//! sea-orm 1: PostgreSQL, MySQL and MariaDB, SQLite, over sqlx 0.8.

use sea_orm_1 as sea_orm;

use super::sqlx_0_8::describe;

sea_orm_adapter!(execute, query_one);
