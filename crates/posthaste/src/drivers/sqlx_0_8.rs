//! sqlx 0.8: PostgreSQL, MySQL and MariaDB, SQLite.

use sqlx_0_8 as sqlx;

fn text(sql: &str) -> &str {
    sql
}

sqlx_adapter!(where for<'q> DB::Arguments<'q>: IntoArguments<'q, DB>);
