//! The name of the outbox table, and SQL with it filled in.

use crate::error::{Error, ErrorKind};

/// The longest name PostgreSQL keeps; it cuts off the rest of a longer one without saying so.
const MAX_NAME_BYTES: usize = 63;

/// A checked table name with its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresTable {
    schema: String,
    table: String,
}

impl PostgresTable {
    /// Takes `table` or `schema.table`, as they are (neither folded to lower case nor unquoted). A name that holds a
    /// dot is written with its schema in double quotes: `public."a.b"`.
    ///
    /// # Errors
    /// As [`new`](Self::new), and if the quotes do not match.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let mut parts = split(name)?;
        let table = parts.pop().unwrap_or_default();
        let schema = parts.pop().unwrap_or_else(|| "public".to_owned());
        if !parts.is_empty() {
            return Err(invalid(name, "has more than two parts"));
        }
        Self::new(&schema, &table)
    }

    /// A table in a schema.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if one of the names is empty, longer than 63 bytes, or PostgreSQL's own.
    pub fn new(schema: &str, table: &str) -> Result<Self, Error> {
        for name in [schema, table] {
            if name.is_empty() {
                return Err(invalid(name, "is empty"));
            }
            if name.len() > MAX_NAME_BYTES {
                return Err(invalid(name, "is longer than 63 bytes"));
            }
            if name.chars().any(char::is_control) {
                return Err(invalid(name, "holds a control character"));
            }
        }
        if schema.starts_with("pg_") || schema == "information_schema" {
            return Err(invalid(schema, "is a schema that PostgreSQL keeps for itself"));
        }
        Ok(Self { schema: schema.to_owned(), table: table.to_owned() })
    }

    /// With another schema.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn in_schema(&self, schema: &str) -> Result<Self, Error> {
        Self::new(schema, &self.table)
    }

    /// The schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The name of a table or an index that belongs to it: `<table>_<suffix>`. A name that would become too long is
    /// shortened, with a hash of the whole instead of what is cut off.
    pub fn derived(&self, suffix: &str) -> String {
        if suffix.is_empty() {
            return self.table.clone();
        }
        let whole = format!("{}_{suffix}", self.table);
        if whole.len() <= MAX_NAME_BYTES {
            return whole;
        }
        let room = MAX_NAME_BYTES - suffix.len() - "_12345678_".len();
        format!("{}_{:08x}_{suffix}", cut(&self.table, room), fnv1a(&self.table))
    }

    /// The quoted name of a table that belongs to it, with its schema.
    pub fn qualified(&self, suffix: &str) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.derived(suffix)))
    }

    /// The channel on which producers call.
    pub fn channel(&self) -> String {
        let whole = format!("{}.{}", self.schema, self.table);
        if whole.len() <= MAX_NAME_BYTES {
            return whole;
        }
        format!("{}_{:08x}", cut(&whole, MAX_NAME_BYTES - 9), fnv1a(&whole))
    }

    /// The key of the advisory lock under which the schema is changed.
    pub fn lock_key(&self) -> i64 {
        // "post" in the upper half keeps clear of other users of advisory locks.
        (0x706f_7374 << 32) | i64::from(fnv1a(&format!("{}.{}", self.schema, self.table)))
    }

    /// Puts the names in place of the placeholders, and leaves comment lines out:
    ///
    /// - `{outbox}` and `{outbox_<suffix>}`: a table, with its schema;
    /// - `{name:outbox_<suffix>}`: the same without its schema;
    /// - `{text:outbox_<suffix>}`: the same with its schema, as a literal;
    /// - `{channel}`: the channel, as a literal; `{lanes}`: the number of lanes.
    ///
    /// All in one pass, so that a name that looks like a placeholder is left alone.
    pub fn fill(&self, template: &str, lanes: u16) -> String {
        let is_code = |line: &&str| !line.trim_start().starts_with("--") && !line.is_empty();
        self.fill_names(&template.lines().filter(is_code).collect::<Vec<_>>().join("\n"), lanes)
    }

    /// As [`fill`](Self::fill), but keeps the comments.
    pub fn fill_names(&self, template: &str, lanes: u16) -> String {
        let mut sql = String::with_capacity(template.len() + 256);
        let mut rest = template;
        while let Some((before, behind)) = rest.split_once('{') {
            let (placeholder, behind) = behind.split_once('}').unwrap_or((behind, ""));
            sql.push_str(before);
            sql.push_str(&self.placeholder(placeholder, lanes));
            rest = behind;
        }
        sql.push_str(rest);
        sql
    }

    fn placeholder(&self, placeholder: &str, lanes: u16) -> String {
        let suffix =
            |name: &str| name.strip_prefix("outbox").map(|suffix| suffix.trim_start_matches('_').to_owned());
        if let Some(suffix) = suffix(placeholder) {
            return self.qualified(&suffix);
        }
        if let Some(suffix) = placeholder.strip_prefix("name:").and_then(suffix) {
            return quote(&self.derived(&suffix));
        }
        if let Some(suffix) = placeholder.strip_prefix("text:").and_then(suffix) {
            return literal(&self.qualified(&suffix));
        }
        match placeholder {
            "lanes" => lanes.to_string(),
            "channel" => literal(&self.channel()),
            other => unreachable!("{{{other}}} is no placeholder of this crate's statements"),
        }
    }
}

impl std::fmt::Display for PostgresTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.qualified(""))
    }
}

/// A name in double quotes.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a literal, whatever `standard_conforming_strings` says.
pub fn literal(text: &str) -> String {
    if text.contains('\\') {
        return format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"));
    }
    format!("'{}'", text.replace('\'', "''"))
}

/// The parts between dots; within double quotes a dot belongs to the name.
fn split(name: &str) -> Result<Vec<String>, Error> {
    let mut parts = vec![String::new()];
    let (mut quoted, mut chars) = (false, name.chars().peekable());
    while let Some(character) = chars.next() {
        let part_is_empty = parts.last().is_some_and(String::is_empty);
        match character {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                push(&mut parts, '"');
            }
            '"' if quoted => {
                quoted = false;
                if chars.peek().is_some_and(|next| *next != '.') {
                    return Err(invalid(name, "has text behind a closing quote"));
                }
            }
            '"' if part_is_empty => quoted = true,
            '.' if !quoted => parts.push(String::new()),
            other => push(&mut parts, other),
        }
    }
    if quoted { Err(invalid(name, "has no closing quote")) } else { Ok(parts) }
}

fn push(parts: &mut [String], character: char) {
    if let Some(part) = parts.last_mut() {
        part.push(character);
    }
}

/// The longest beginning of so many bytes at most.
fn cut(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn invalid(name: &str, complaint: &str) -> Error {
    let text = format!("table name {name:?} {complaint}; give `table` or `schema.table`");
    Error::new(ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> (String, String) {
        let name = PostgresTable::parse(name).unwrap();
        (name.schema, name.table)
    }

    #[test]
    fn names_are_taken_as_they_are() {
        let cases = [
            ("outbox", ("public", "outbox")),
            ("app.outbox", ("app", "outbox")),
            ("My Table", ("public", "My Table")),
            ("app.\"a.b\"", ("app", "a.b")),
            ("\"a\"\"b\".c\"d", ("a\"b", "c\"d")),
            ("select", ("public", "select")),
            ("{outbox}", ("public", "{outbox}")),
        ];
        for (name, (schema, table)) in cases {
            assert_eq!(parsed(name), (schema.to_owned(), table.to_owned()), "{name}");
        }
        for bad in
            ["", ".", "a.", ".a", "a.b.c", "a\0b", "\"a", "\"a\"b", "pg_catalog.outbox", &"x".repeat(64)]
        {
            assert_eq!(PostgresTable::parse(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn derived_names_stay_within_63_bytes_and_apart() {
        let long = [format!("{}a", "x".repeat(62)), format!("{}b", "x".repeat(62)), "ü".repeat(31)];
        let mut all = Vec::new();
        for table in &long {
            let name = PostgresTable::new("public", table).unwrap();
            all.extend(["lane", "migrations", "held_back"].map(|suffix| name.derived(suffix)));
            assert!(name.channel().len() <= 63);
        }
        assert!(all.iter().all(|name| name.len() <= 63), "{all:?}");
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count, "two names became the same");
        assert_eq!(PostgresTable::new("s", "outbox").unwrap().derived("lane"), "outbox_lane");
    }

    #[test]
    fn templates_are_filled_in_one_pass() {
        let name = PostgresTable::new("s", "a\"b{lanes}").unwrap();
        let sql = name
            .fill("-- why {x}\nSELECT {lanes}\nFROM {outbox}, {outbox_lane} -- {name:outbox_x} {channel}", 8);
        let expected = "SELECT 8\nFROM \"s\".\"a\"\"b{lanes}\", \"s\".\"a\"\"b{lanes}_lane\" \
                        -- \"a\"\"b{lanes}_x\" 's.a\"b{lanes}'";
        assert_eq!(sql, expected);
    }

    #[test]
    fn literals_are_escaped() {
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal("a\\'b"), "E'a\\\\''b'");
    }
}
