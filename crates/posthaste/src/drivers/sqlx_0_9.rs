//! sqlx 0.9: PostgreSQL, MySQL and MariaDB, SQLite.

use std::sync::Arc;

use sqlx::AssertSqlSafe;
use sqlx_0_9 as sqlx;

/// Our own statements; what is not ours in them are values, and they are bound.
fn text(sql: &Arc<str>) -> AssertSqlSafe<Arc<str>> {
    AssertSqlSafe(sql.clone())
}

sqlx_adapter!(where DB::Arguments: IntoArguments<DB>);
