//! The name of the outbox table, and SQL with it filled in.

use crate::error::{Error, ErrorKind};

const MAX_TABLE_BYTES: usize = 63;

/// A checked table name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteTable(String);

impl SqliteTable {
    /// Takes a name as it is.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if it is empty, longer than 63 bytes, or none that SQLite takes.
    pub fn new(name: &str) -> Result<Self, Error> {
        let complaint = if name.is_empty() {
            "is empty"
        } else if name.len() > MAX_TABLE_BYTES {
            "is longer than 63 bytes"
        } else if name.chars().any(char::is_control) {
            "holds a control character"
        } else if name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("sqlite_")) {
            "starts with \"sqlite_\", which SQLite keeps for itself"
        } else {
            return Ok(Self(name.to_owned()));
        };
        Err(Error::new(
            ErrorKind::InvalidInput,
            format!("table name {name:?} {complaint}; choose another one"),
        ))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name of a table or an index that belongs to it: `<table>_<suffix>`.
    pub fn derived(&self, suffix: &str) -> String {
        format!("{}_{suffix}", self.0)
    }

    /// Puts the quoted names in place of `{outbox}` and `{outbox_<suffix>}`, and leaves comment lines out, in one
    /// pass: a name that looks like a placeholder is left alone.
    pub fn fill(&self, template: &str) -> String {
        let code: Vec<_> = template
            .lines()
            .filter(|line| !line.trim_start().starts_with("--") && !line.is_empty())
            .collect();
        self.fill_names(&code.join("\n"))
    }

    /// As [`fill`](Self::fill), but keeps the comments.
    pub fn fill_names(&self, template: &str) -> String {
        let mut sql = String::with_capacity(template.len() + 64);
        let mut rest = template;
        while let Some((before, behind)) = rest.split_once('{') {
            sql.push_str(before);
            let (placeholder, behind) = behind.split_once('}').unwrap_or((behind, ""));
            let suffix = placeholder.strip_prefix("outbox").unwrap_or(placeholder);
            sql.push('"');
            sql.push_str(&self.0.replace('"', "\"\""));
            sql.push_str(suffix);
            sql.push('"');
            rest = behind;
        }
        sql.push_str(rest);
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for good in
            ["outbox", "My \"Outbox\"", "select", "ausgangskörbchen", "o", "{outbox}", &"x".repeat(63)]
        {
            assert!(SqliteTable::new(good).is_ok(), "{good}");
        }
        for bad in ["", "a\0b", "a\nb", "sqlite_outbox", "SQLite_x", &"x".repeat(64), &"ü".repeat(32)] {
            let error = SqliteTable::new(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }

    #[test]
    fn names_are_quoted_and_filled_in_once() {
        let table = SqliteTable::new("a\"b{outbox_x}").unwrap();
        let sql = table.fill("-- why\nSELECT 1\n  -- because\nFROM {outbox}, {outbox_lane}");
        assert_eq!(sql, "SELECT 1\nFROM \"a\"\"b{outbox_x}\", \"a\"\"b{outbox_x}_lane\"");
        assert_eq!(table.derived("key"), "a\"b{outbox_x}_key");
    }
}
