//! What the outbox looks like, and what an outbox that somebody else made lacks.

use posthaste::{Error, ErrorKind};

use crate::options::{MySqlOptions, Payload};
use posthaste::dialect::MySqlTable;

/// The columns that are ours, with which an outbox of velmie's is completed: each has a default, so that who does not know
/// them goes on writing.
const COLUMNS: [(&str, &str); 7] = [
    ("next_attempt_at", "DATETIME(6) NULL"),
    ("parked", "BOOLEAN NOT NULL DEFAULT FALSE"),
    ("tombstone", "BOOLEAN NOT NULL DEFAULT FALSE"),
    ("content_type", "VARCHAR(128) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL"),
    ("idempotency_key", "VARBINARY(255) NULL"),
    (
        "lane",
        "SMALLINT UNSIGNED GENERATED ALWAYS AS (IF(OCTET_LENGTH(aggregate_id) = 0, CRC32(id), \
         CRC32(aggregate_id) + 31 * CRC32(aggregate_type)) MOD {lanes}) VIRTUAL",
    ),
    (
        "held_key",
        "BIGINT UNSIGNED GENERATED ALWAYS AS (IF(OCTET_LENGTH(aggregate_id) > 0 AND ((status = 0 AND \
         next_attempt_at IS NOT NULL) OR (status = -1 AND parked)), CRC32(aggregate_id) + 31 * CRC32(aggregate_type), \
         NULL)) VIRTUAL",
    ),
];

/// What a change is marked with for which the server copies the table.
const COPIES: &str = "/* copies the whole table */";

/// The indexes besides the primary key.
const INDEXES: [(&str, &str); 3] = [
    ("idx_status_id", "status, id"),
    ("posthaste_ready", "status, lane, next_attempt_at, created_at, id"),
    ("posthaste_held", "held_key, created_at, id"),
];

/// The columns without which a table is no outbox, and how their types begin.
const EXPECTED: [(&str, &[&str]); 13] = [
    ("id", &["binary(16)"]),
    ("aggregate_type", &["varchar"]),
    ("aggregate_id", &["varchar"]),
    ("event_type", &["varchar"]),
    ("payload", &["json", "longblob", "longtext", "mediumblob", "blob"]),
    ("headers", &["json", "longtext"]),
    ("status", &["smallint", "tinyint", "int"]),
    ("attempt_count", &["int", "bigint", "smallint"]),
    ("last_error", &["varchar", "text"]),
    ("created_at", &["timestamp(6)"]),
    ("updated_at", &["timestamp"]),
    ("processed_at", &["timestamp"]),
    ("created_ts", &["bigint"]),
];

/// The statements that make an outbox with all that belongs to it. Its generated columns are stored: a settle and the purge
/// behind it need not reckon them again. An outbox that is there is not copied for that; it gets them virtual.
pub(crate) fn outbox(table: &MySqlTable, options: &MySqlOptions) -> String {
    let stored = |what: String| what.replace("VIRTUAL", "STORED");
    let columns: Vec<_> =
        columns(options.lanes).map(|(name, what)| format!("    {name} {}", stored(what))).collect();
    let indexes: Vec<_> = INDEXES.iter().map(|(name, on)| format!("    KEY {name} ({on})")).collect();
    let partition = match options.partition {
        None => "",
        Some(_) => "\nPARTITION BY RANGE (created_ts) (PARTITION pmax VALUES LESS THAN MAXVALUE)",
    };
    let payload = match options.payload {
        Payload::Json => "JSON    ",
        Payload::Binary => "LONGBLOB",
    };
    let lanes: Vec<_> = (-1..i32::from(options.lanes)).map(|lane| format!("({lane})")).collect();
    let template = include_str!("migrations/0001_outbox.sql");
    // Names come last: one that looks like a placeholder is left alone.
    let template = [
        ("{payload}", payload),
        ("{columns}", &columns.join(",\n")),
        ("{indexes}", &indexes.join(",\n")),
        ("{partition}", partition),
        ("{lane_rows}", &lanes.join(", ")),
    ]
    .iter()
    .fold(template.to_owned(), |template, (name, part)| template.replace(name, part));
    with_names(table, &template)
}

/// The statements that make an inbox.
pub(crate) fn inbox(table: &MySqlTable) -> String {
    with_names(table, include_str!("migrations/0002_inbox.sql"))
}

fn with_names(table: &MySqlTable, template: &str) -> String {
    let mut sql = String::with_capacity(template.len() + 256);
    let mut rest = template;
    while let Some((before, behind)) = rest.split_once("{outbox") {
        let (suffix, behind) = behind.split_once('}').unwrap_or((behind, ""));
        sql.push_str(before);
        sql.push_str(&table.qualified(suffix.trim_start_matches('_')));
        rest = behind;
    }
    sql.push_str(rest);
    sql
}

/// The statements of a script, without comments that no server runs.
pub(crate) fn statements(script: &str) -> Vec<String> {
    let is_code = |line: &&str| !line.trim_start().starts_with("-- ") && line.trim() != "--";
    let code: Vec<_> = script.lines().filter(is_code).collect();
    // No name ends a line with a semicolon, nor does any other part of a statement.
    let statements = code.join("\n");
    statements
        .split(";\n")
        .map(|it| it.trim().trim_end_matches(';').to_owned())
        .filter(|it| !it.is_empty())
        .collect()
}

fn columns(lanes: u16) -> impl Iterator<Item = (&'static str, String)> {
    COLUMNS.iter().map(move |(name, what)| (*name, what.replace("{lanes}", &lanes.to_string())))
}

/// Refuses a table of an engine that knows no transactions.
pub(crate) fn check_engine(table: &str, engine: &str) -> Result<(), Error> {
    if engine.eq_ignore_ascii_case("InnoDB") {
        return Ok(());
    }
    let engine = if engine.is_empty() { "a view" } else { engine };
    let text = format!(
        "{table} is {engine}, not an InnoDB table: it would not be part of a transaction; \
         ALTER TABLE {table} ENGINE=InnoDB, or choose another name"
    );
    Err(Error::new(ErrorKind::ForeignTable, text))
}

/// What a table that is there has.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) engine: String,
    /// Whether the server copies the table to add a generated column: MariaDB does where it is partitioned.
    pub(crate) copies_for_generated: bool,
    /// Names and types, in lower case.
    pub(crate) columns: Vec<(String, String)>,
    /// Names, and the columns they are on.
    pub(crate) indexes: Vec<(String, String)>,
}

impl Found {
    /// Whether the table can be an outbox: with `InnoDB`, and the columns of velmie's.
    pub(crate) fn check(&self, table: &MySqlTable) -> Result<(), Error> {
        let refused = |text: String| Err(Error::new(ErrorKind::ForeignTable, text));
        check_engine(&table.to_string(), &self.engine)?;
        for (name, types) in EXPECTED {
            match self.columns.iter().find(|(column, _)| column == name) {
                None => {
                    return refused(format!(
                        "{table} exists but is no outbox: it has no column {name}; choose another name"
                    ));
                }
                Some((_, found)) if !types.iter().any(|it| found.starts_with(it)) => {
                    let types = types.join(" or ");
                    return refused(format!(
                        "{table} exists but is no outbox: {name} is {found}, not {types}"
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Whether it has all that is ours.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing_columns().next().is_none() && self.missing_indexes().next().is_none()
    }

    fn missing_columns(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        COLUMNS.iter().filter(|(name, _)| !self.columns.iter().any(|(column, _)| column == name))
    }

    fn missing_indexes(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        INDEXES.iter().filter(|(name, _)| !self.indexes.iter().any(|(index, _)| index == name))
    }

    /// The changes that complete it, each to be made in the first of the ways that the server takes.
    pub(crate) fn changes(&self, lanes: u16) -> Vec<String> {
        let column = |(name, what): &(&str, &str)| {
            format!("ADD COLUMN {name} {}", what.replace("{lanes}", &lanes.to_string()))
        };
        let index = |(name, on): &(&str, &str)| format!("ADD INDEX {name} ({on})");
        let is_copied = |it: &&(&str, &str)| self.copies_for_generated && it.1.contains("GENERATED");
        let (copied, others): (Vec<_>, Vec<_>) = self.missing_columns().partition(is_copied);
        let mut changes: Vec<_> = others.into_iter().map(column).collect();
        if !copied.is_empty() {
            // Together, so that it is copied once.
            let columns: Vec<_> = copied.into_iter().map(column).collect();
            changes.push(format!("{} {COPIES}", columns.join(", ")));
        }
        changes.extend(self.missing_indexes().map(index));
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str) -> MySqlTable {
        MySqlTable::parse(name).unwrap()
    }

    #[test]
    fn each_layout_is_printed_whole() {
        for payload in [Payload::Json, Payload::Binary] {
            for partition in [None, Some(crate::Partition::Day)] {
                let mut options = MySqlOptions::new("mysql://h/d").payload(payload).lanes(3);
                options.partition = partition;
                let sql = outbox(&table("app.`odd {name};`"), &options);
                assert!(sql.contains("`app`.`odd {name};_lane`") && sql.contains("MOD 3)"), "{sql}");
                assert!(sql.contains("(-1), (0), (1), (2)"), "{sql}");
                assert_eq!(sql.contains("PARTITION BY"), partition.is_some(), "{sql}");
                assert_eq!(sql.contains("LONGBLOB"), payload == Payload::Binary, "{sql}");
                let statements = statements(&sql);
                assert_eq!(statements.len(), 6, "{statements:#?}");
                assert!(
                    statements
                        .iter()
                        .all(|it| it.starts_with("CREATE TABLE IF NOT") || it.starts_with("INSERT IGNORE"))
                );
            }
        }
        assert_eq!(statements(&inbox(&table("outbox"))).len(), 2);
    }

    #[test]
    fn what_is_no_outbox_is_told_by_its_columns() {
        let column = |(name, types): &(&str, &[&str])| ((*name).to_owned(), types[0].to_owned());
        let velmie = || Found {
            engine: "InnoDB".into(),
            columns: EXPECTED.iter().map(column).collect(),
            ..Found::default()
        };
        velmie().check(&table("t")).unwrap();
        assert_eq!(velmie().changes(64).len(), COLUMNS.len() + INDEXES.len());
        for name in EXPECTED.map(|(name, _)| name) {
            let mut found = velmie();
            found.columns.retain(|(column, _)| column != name);
            let error = found.check(&table("t")).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ForeignTable);
            assert!(error.to_string().contains(name), "{error}");
        }
        let mut coarse = velmie();
        coarse
            .columns
            .iter_mut()
            .filter(|(name, _)| name == "created_at")
            .for_each(|it| it.1 = "timestamp".into());
        assert!(coarse.check(&table("t")).is_err(), "without microseconds there is no order");
        let myisam = Found { engine: "MyISAM".into(), ..velmie() };
        assert!(myisam.check(&table("t")).unwrap_err().to_string().contains("InnoDB"));
    }
}
