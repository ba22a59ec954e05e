//! The statements, with the table's names filled in.

use posthaste::dialect::PostgresTable as TableName;

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Every statement of this crate, for one table.
        #[derive(Debug)]
        pub(crate) struct Sql {
            $(pub(crate) $name: String,)*
        }

        impl Sql {
            pub(crate) fn new(table: &TableName) -> Self {
                Self { $($name: fill(table, include_str!(concat!("sql/", stringify!($name), ".sql"))),)* }
            }

            /// The statements with their names, for tests that look at all of them.
            #[cfg(test)]
            pub(crate) fn all(&self) -> Vec<(&'static str, &str)> {
                vec![$((stringify!($name), self.$name.as_str())),*]
            }
        }
    };
}

statements! {
    version, migrations,
    lease_renew, lease_held, lease_give_back, lease_free, lease_take, lease_lanes, leave_lanes, leave_relay,
    fetch, payloads, given_out, holders, begin_attempt, settle, settle_processed, settle_delete, mark_places, delete_places,
    lock_wake, set_idle, set_wake,
    upkeep_lease, purge_processed, purge_keys, purge_relays, purge_inbox,
    list_by_id, list_dead, list_pending, show, dead, redrive, discard, stats, relays,
    partitions_wanted, partitions_found,
}

/// Parts that several statements share, by their placeholder: `{wanted:l}` is `wanted.sql` for the row `l`.
const PARTS: [(&str, &str); 2] =
    [("wanted", include_str!("sql/wanted.sql")), ("info", include_str!("sql/info.sql"))];

fn fill(table: &TableName, template: &str) -> String {
    let mut whole = template.to_owned();
    for (name, part) in PARTS {
        let start = format!("{{{name}:");
        while let Some((before, behind)) = whole.split_once(&start) {
            let (row, behind) = behind.split_once('}').unwrap_or((behind, ""));
            let part: Vec<_> = part.lines().filter(|line| !line.starts_with("--")).collect();
            whole = format!("{before}{}{behind}", part.join("\n").replace("{row}", row));
        }
    }
    table.fill(&whole, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_is_filled_in() {
        let table = TableName::parse("app.events").unwrap();
        for (name, sql) in Sql::new(&table).all() {
            assert!(!sql.contains(['{', '}']), "{name} has a placeholder left: {sql}");
            assert!(!sql.is_empty() && !sql.contains("--"), "{name} is sent without its comments: {sql}");
        }
    }
}
