//! The name of the outbox table, and the names that are made from it.

use posthaste::{Error, ErrorKind};

/// The longest name that MySQL takes, in characters.
const MAX_NAME_CHARS: usize = 64;

/// A checked table name, with its database where one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableName {
    database: Option<String>,
    table: String,
}

impl TableName {
    /// Takes `table` or `database.table`, as they are. A name that holds a dot is written in backticks.
    pub(crate) fn parse(name: &str) -> Result<Self, Error> {
        let mut parts = split(name)?;
        let table = parts.pop().unwrap_or_default();
        let database = parts.pop();
        if !parts.is_empty() {
            return Err(invalid(name, "has more than two parts"));
        }
        for part in database.iter().chain([&table]) {
            check(part)?;
        }
        Ok(Self { database, table })
    }

    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The name of a table that belongs to it: `<table>_<suffix>`. A name that would become too long is shortened, with a
    /// hash of the whole instead of what is cut off.
    pub(crate) fn derived(&self, suffix: &str) -> String {
        if suffix.is_empty() {
            return self.table.clone();
        }
        let whole = format!("{}_{suffix}", self.table);
        if whole.chars().count() <= MAX_NAME_CHARS {
            return whole;
        }
        let room = MAX_NAME_CHARS - suffix.len() - "_12345678_".len();
        let kept: String = self.table.chars().take(room).collect();
        format!("{kept}_{:08x}_{suffix}", fnv1a(&self.table))
    }

    /// The quoted name of a table that belongs to it, with its database if that is known.
    pub(crate) fn qualified(&self, suffix: &str) -> String {
        let table = quote(&self.derived(suffix));
        match &self.database {
            Some(database) => format!("{}.{table}", quote(database)),
            None => table,
        }
    }

    /// A number that stands for it and its database.
    pub(crate) fn hash_in(&self, database: &str) -> u32 {
        fnv1a(&format!("{database}.{}", self.table))
    }

    /// The name of a lock that belongs to it, at most 64 characters.
    pub(crate) fn lock_name(&self, prefix: &str) -> String {
        let table = match &self.database {
            Some(database) => format!("{database}.{}", self.table),
            None => self.table.clone(),
        };
        let whole = format!("{prefix}{table}");
        if whole.chars().count() <= MAX_NAME_CHARS {
            return whole;
        }
        let kept: String = whole.chars().take(MAX_NAME_CHARS - 9).collect();
        format!("{kept}_{:08x}", fnv1a(&whole))
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.qualified(""))
    }
}

/// A name in backticks.
pub(crate) fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn check(name: &str) -> Result<(), Error> {
    if name.is_empty() {
        return Err(invalid(name, "is empty"));
    }
    if name.chars().count() > MAX_NAME_CHARS {
        return Err(invalid(name, "is longer than 64 characters"));
    }
    if name.chars().any(|character| character.is_control() || character > '\u{FFFF}') {
        return Err(invalid(name, "holds a character that the server takes in no name"));
    }
    if name.ends_with(' ') {
        return Err(invalid(name, "ends with a space"));
    }
    Ok(())
}

/// The parts between dots; within backticks a dot belongs to the name.
fn split(name: &str) -> Result<Vec<String>, Error> {
    let mut parts = vec![String::new()];
    let (mut quoted, mut chars) = (false, name.chars().peekable());
    while let Some(character) = chars.next() {
        let part_is_empty = parts.last().is_some_and(String::is_empty);
        match character {
            '`' if quoted && chars.peek() == Some(&'`') => {
                chars.next();
                push(&mut parts, '`');
            }
            '`' if quoted => {
                quoted = false;
                if chars.peek().is_some_and(|next| *next != '.') {
                    return Err(invalid(name, "has text behind a closing backtick"));
                }
            }
            '`' if part_is_empty => quoted = true,
            '.' if !quoted => parts.push(String::new()),
            other => push(&mut parts, other),
        }
    }
    if quoted { Err(invalid(name, "has no closing backtick")) } else { Ok(parts) }
}

fn push(parts: &mut [String], character: char) {
    if let Some(part) = parts.last_mut() {
        part.push(character);
    }
}

fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn invalid(name: &str, complaint: &str) -> Error {
    let text = format!("table name {name:?} {complaint}; give `table` or `database.table`");
    Error::new(ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_they_are() {
        let cases = [
            ("outbox", (None, "outbox")),
            ("app.outbox", (Some("app"), "outbox")),
            ("My Table", (None, "My Table")),
            ("app.`a.b`", (Some("app"), "a.b")),
            ("`a``b`.c`d", (Some("a`b"), "c`d")),
            ("select", (None, "select")),
            ("{outbox}:id", (None, "{outbox}:id")),
        ];
        for (name, (database, table)) in cases {
            let parsed = TableName::parse(name).unwrap();
            assert_eq!((parsed.database(), parsed.table.as_str()), (database, table), "{name}");
        }
        for bad in ["", ".", "a.", ".a", "a.b.c", "a\0b", "`a", "`a`b", "a ", "🦀", &"x".repeat(65)] {
            assert_eq!(TableName::parse(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn derived_names_stay_within_64_characters_and_apart() {
        let long = [format!("{}a", "x".repeat(63)), format!("{}b", "x".repeat(63)), "ü".repeat(64)];
        let mut all = Vec::new();
        for table in &long {
            let name = TableName::parse(table).unwrap();
            all.extend(["lane", "migrations", "inbox"].map(|suffix| name.derived(suffix)));
            all.push(name.lock_name("outbox:partitions:"));
        }
        assert!(all.iter().all(|name| name.chars().count() <= 64), "{all:?}");
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "two names became the same");
        let name = TableName::parse("s.a`b").unwrap();
        assert_eq!(name.qualified("lane"), "`s`.`a``b_lane`");
        assert_eq!(name.lock_name("outbox:cleanup:"), "outbox:cleanup:s.a`b");
    }
}
