//! The name of the outbox table, the names that are made from it, and SQL with them filled in.

use crate::error::{Error, ErrorKind};

/// The longest name that MySQL takes, in characters.
const MAX_NAME_CHARS: usize = 64;

/// A checked table name, with its database where one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MySqlTable {
    database: Option<String>,
    table: String,
}

impl MySqlTable {
    /// Takes `table` (in the connection's own database) or `database.table`, as they are. A name that holds a dot is written
    /// in backticks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if a name is empty, longer than 64 characters, holds what the server takes in no name, or
    /// has more than two parts.
    pub fn parse(name: &str) -> Result<Self, Error> {
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

    /// The database, where one was named.
    pub fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// The name of a table that belongs to it: `<table>_<suffix>`. A name that would become too long is shortened, with a
    /// hash of the whole instead of what is cut off.
    pub fn derived(&self, suffix: &str) -> String {
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

    /// The quoted name of the table (for an empty suffix) or of one that belongs to it, with its database if that is known.
    pub fn qualified(&self, suffix: &str) -> String {
        let table = Self::quote(&self.derived(suffix));
        match &self.database {
            Some(database) => format!("{}.{table}", Self::quote(database)),
            None => table,
        }
    }

    /// Puts the quoted names in place of `{outbox}` and `{outbox_<suffix>}`, and leaves comment lines out, in one pass.
    pub fn fill(&self, template: &str) -> String {
        let is_code = |line: &&str| !line.trim_start().starts_with("--") && !line.is_empty();
        let template = template.lines().filter(is_code).collect::<Vec<_>>().join("\n");
        let mut sql = String::with_capacity(template.len() + 64);
        let mut rest = template.as_str();
        while let Some((before, behind)) = rest.split_once("{outbox") {
            let (suffix, behind) = behind.split_once('}').unwrap_or((behind, ""));
            sql.push_str(before);
            sql.push_str(&self.qualified(suffix.trim_start_matches('_')));
            rest = behind;
        }
        sql.push_str(rest);
        sql
    }

    /// Any name, in backticks.
    pub fn quote(name: &str) -> String {
        format!("`{}`", name.replace('`', "``"))
    }

    /// A number that stands for it and its database.
    pub fn hash_in(&self, database: &str) -> u32 {
        fnv1a(&format!("{database}.{}", self.table))
    }

    /// The name of a lock that belongs to it, at most 64 characters.
    pub fn lock_name(&self, prefix: &str) -> String {
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

impl std::fmt::Display for MySqlTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.qualified(""))
    }
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
    fn names_are_filled_in_once() {
        let fill =
            |name: &str| MySqlTable::parse(name).unwrap().fill("-- why\nSELECT {outbox}, {outbox_key}");
        assert_eq!(fill("outbox"), "SELECT `outbox`, `outbox_key`");
        assert_eq!(fill("shop.o`{outbox}"), "SELECT `shop`.`o``{outbox}`, `shop`.`o``{outbox}_key`");
    }

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
            let parsed = MySqlTable::parse(name).unwrap();
            assert_eq!((parsed.database(), parsed.table.as_str()), (database, table), "{name}");
        }
        for bad in ["", ".", "a.", ".a", "a.b.c", "a\0b", "`a", "`a`b", "a ", "🦀", &"x".repeat(65)] {
            assert_eq!(MySqlTable::parse(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn derived_names_stay_within_64_characters_and_apart() {
        let long = [format!("{}a", "x".repeat(63)), format!("{}b", "x".repeat(63)), "ü".repeat(64)];
        let mut all = Vec::new();
        for table in &long {
            let name = MySqlTable::parse(table).unwrap();
            all.extend(["lane", "migrations", "inbox"].map(|suffix| name.derived(suffix)));
            all.push(name.lock_name("outbox:partitions:"));
        }
        assert!(all.iter().all(|name| name.chars().count() <= 64), "{all:?}");
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "two names became the same");
        let name = MySqlTable::parse("s.a`b").unwrap();
        assert_eq!(name.qualified("lane"), "`s`.`a``b_lane`");
        assert_eq!(name.lock_name("outbox:cleanup:"), "outbox:cleanup:s.a`b");
    }
}
