//! The adapters: one small file for each driver, behind the feature of its name and version.
//!
//! Those of sqlx, diesel and diesel-async are generic over the database, so that they need no backend's library.

#[cfg(any(feature = "diesel-2", feature = "diesel-async-0_9"))]
mod diesel;
#[cfg(any(feature = "diesel-2", feature = "diesel-async-0_9"))]
mod diesel_error;
mod run;
#[cfg(any(feature = "sea-orm-1", feature = "sea-orm-2"))]
#[macro_use]
mod sea_orm;
#[cfg(any(feature = "sqlx-0_8", feature = "sqlx-0_9", feature = "sea-orm-1", feature = "sea-orm-2"))]
#[macro_use]
mod sqlx;

#[cfg(feature = "deadpool-postgres-0_14")]
mod deadpool_postgres_0_14;
#[cfg(feature = "diesel-2")]
pub mod diesel_2;
#[cfg(feature = "diesel-async-0_9")]
pub mod diesel_async_0_9;
#[cfg(feature = "mysql_async-0_37")]
pub mod mysql_async_0_37;
#[cfg(feature = "rusqlite-0_32")]
pub mod rusqlite;
#[cfg(feature = "sea-orm-1")]
mod sea_orm_1;
#[cfg(feature = "sea-orm-2")]
mod sea_orm_2;
#[cfg(any(feature = "sqlx-0_8", feature = "sea-orm-1"))]
pub mod sqlx_0_8;
#[cfg(any(feature = "sqlx-0_9", feature = "sea-orm-2"))]
pub mod sqlx_0_9;
#[cfg(feature = "tokio-postgres-0_7")]
pub mod tokio_postgres_0_7;
