//! The statements, with the table's name filled in.

use posthaste::dialect::SqliteTable as TableName;

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Every statement of this crate, for one table.
        #[derive(Debug)]
        pub(crate) struct Sql {
            $(pub(crate) $name: String,)*
            pub(crate) table: TableName,
        }

        impl Sql {
            pub(crate) fn new(table: TableName) -> Self {
                Self {
                    $($name: table.fill(include_str!(concat!("sql/", stringify!($name), ".sql"))),)*
                    table,
                }
            }
        }
    };
}

statements! {
    version, tables,
    lease_renew, lane, lane_restore, lane_take, leave_lanes, leave_relay, fence,
    fetch, fetch_due, fetch_row, held_any, held_before, revision, revise,
    settle_processed, settle_processed_held, settle_delete, settle_retry, settle_dead, settle_attempts,
    upkeep_lease, purge_scan, purge_processed, purge_dead, purge_keys, purge_inbox, purge_relays,
    count_ready, count_dead, first_ready, walk_ready, walk_waiting, relays,
    list_all, list_processed, list_pending, list_dead, dead_event_type, info, details, by_id, redrive, discard,
}
