//! The statements, and how values get into them.
//!
//! MySQL has no arrays, and a prepared statement costs a round trip of its own and cannot be sent together with others. So
//! values are bound here: each is written as a number, as a hexadecimal literal, or as a list of these (see `value.rs`). No
//! setting of the session changes how they are read, and nothing in a value can end it.

use crate::value::Literal;
use posthaste::dialect::MySqlTable;

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Every statement of this crate, for one table.
        #[derive(Debug)]
        pub(crate) struct Sql {
            $(pub(crate) $name: Statement,)*
        }

        impl Sql {
            pub(crate) fn new(table: &MySqlTable) -> Self {
                Self {
                    $($name: Statement::new(table, include_str!(concat!("sql/", stringify!($name), ".sql"))),)*
                }
            }

            /// The statements with their names, for tests that look at all of them.
            #[cfg(test)]
            pub(crate) fn all(&self) -> Vec<(&'static str, &Statement)> {
                vec![$((stringify!($name), &self.$name)),*]
            }
        }
    };
}

statements! {
    table_found, columns_found, indexes_found, tables_found, migrations, note_migration,
    lease_renew, lease_own, lease_held, lease_live, lease_live_ids, lease_give_back, lease_free, lease_lock, lease_take, lease_lanes,
    leave_lanes, leave_relay,
    begin_read, probe, probe_due, read_lanes, page, page_arm, due, due_arm, payloads,
    fence, held, begin_attempt, settle_processed, settle_delete, settle,
    upkeep_lease, purge_look, purge_delete, purge_keys, purge_relays, purge_inbox,
    list, show, dead, mend_lock_lanes, mend_lock_rows, mend_revise, redrive, discard,
    stats_ready, stats_held, stats_dead, stats_oldest, stats_oldest_due, stats_lanes, relays,
    partitions_found, partition_has_pending, forget_keys, forget_seen,
}

/// A statement with the table's names filled in, and places for values.
#[derive(Debug)]
pub(crate) struct Statement(Vec<Piece>);

#[derive(Debug)]
enum Piece {
    Text(String),
    Value(String),
}

/// Parts that several statements share, by their placeholder: `{blocker:t}` is `blocker.sql` for the row `t`.
const PARTS: [(&str, &str); 3] = [
    ("blocker", include_str!("sql/blocker.sql")),
    ("info", include_str!("sql/info.sql")),
    ("record", include_str!("sql/record.sql")),
];

impl Statement {
    /// Takes a template. Comment lines are left out; `{outbox}` and `{outbox_<suffix>}` stand for a table, `:name` for a
    /// value.
    pub(crate) fn new(table: &MySqlTable, template: &str) -> Self {
        let mut pieces = Vec::new();
        let mut text = String::new();
        let template = with_parts(&without_comments(template));
        let mut rest = template.as_str();
        while let Some(at) = rest.find(['{', ':']) {
            let (before, behind) = rest.split_at(at);
            text.push_str(before);
            if let Some(behind) = behind.strip_prefix('{') {
                let (name, behind) = behind.split_once('}').unwrap_or((behind, ""));
                let suffix = name.strip_prefix("outbox").unwrap_or_else(|| {
                    unreachable!("{{{name}}} is no placeholder of this crate's statements")
                });
                text.push_str(&table.qualified(suffix.trim_start_matches('_')));
                rest = behind;
            } else {
                let behind = &behind[1..];
                let end = behind.find(|it: char| !it.is_ascii_lowercase() && it != '_');
                let (name, behind) = behind.split_at(end.unwrap_or(behind.len()));
                if name.is_empty() {
                    text.push(':');
                } else {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                    pieces.push(Piece::Value(name.to_owned()));
                }
                rest = behind;
            }
        }
        text.push_str(rest);
        pieces.push(Piece::Text(text));
        Self(pieces)
    }

    /// The statement with its values. A value may occur more than once.
    ///
    /// # Panics
    /// Where a value is missing: a fault of this crate, which each use of the statement would show.
    pub(crate) fn bind(&self, values: &[(&str, Literal)]) -> String {
        let mut sql = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => sql.push_str(text),
                Piece::Value(name) => {
                    let value = values.iter().find(|(given, _)| given == name);
                    let value = value.unwrap_or_else(|| unreachable!("the value :{name} is missing"));
                    sql.push_str(value.1.as_sql());
                }
            }
        }
        sql
    }

    /// A statement without values.
    pub(crate) fn text(&self) -> String {
        self.bind(&[])
    }
}

fn without_comments(template: &str) -> String {
    let is_code = |line: &&str| !line.trim_start().starts_with("--") && !line.is_empty();
    template.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

fn with_parts(template: &str) -> String {
    let mut whole = template.to_owned();
    for _ in 0..2 {
        for (name, part) in PARTS {
            let start = format!("{{{name}:");
            while let Some((before, behind)) = whole.split_once(&start) {
                let (row, behind) = behind.split_once('}').unwrap_or((behind, ""));
                let part = without_comments(part).replace("{row}", row);
                whole = format!("{before}{part}{behind}");
            }
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{int, text};

    #[test]
    fn every_statement_is_filled_in_and_says_why() {
        let table = MySqlTable::parse("app.events").unwrap();
        for (name, statement) in Sql::new(&table).all() {
            for piece in &statement.0 {
                if let Piece::Text(text) = piece {
                    assert!(!text.contains(['{', '}', ':']), "{name} has a placeholder left: {text}");
                    assert!(!text.contains("--"), "{name} is sent without its comments: {text}");
                }
            }
        }
    }

    #[test]
    fn neither_names_nor_values_are_taken_for_placeholders() {
        let table = MySqlTable::parse("a:b{outbox}").unwrap();
        let statement =
            Statement::new(&table, "-- why :not\nSELECT :x, :y FROM {outbox}, {outbox_key} -- end");
        let sql = statement.bind(&[("x", text(":y ' \\ {outbox}")), ("y", int(-7))]);
        let hex = "3A792027205C207B6F7574626F787D";
        let expected =
            format!("SELECT _utf8mb4 X'{hex}', -7 FROM `a:b{{outbox}}`, `a:b{{outbox}}_key` -- end");
        assert_eq!(sql, expected);
    }
}
