//! The name of the outbox table, and SQL with it filled in.

use crate::error::{Error, ErrorKind};

/// The longest name MySQL takes.
const MAX_NAME_CHARS: usize = 64;
/// The longest of the endings that side tables have.
const LONGEST_SUFFIX: usize = "_migrations".len();

/// A checked table name, with its database where one is named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MySqlTable {
    database: Option<String>,
    table: String,
}

impl MySqlTable {
    /// Takes `table` (in the connection's own database) or `database.table`, as they are.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if a name is empty or too long (64 characters, side tables included), or has more
    /// than two parts.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let (database, table) = match name.split_once('.') {
            Some((database, table)) => (Some(database), table),
            None => (None, name),
        };
        if table.contains('.') {
            return Err(invalid(name, "has more than two parts"));
        }
        check(name, table, MAX_NAME_CHARS - LONGEST_SUFFIX)?;
        database.map_or(Ok(()), |database| check(name, database, MAX_NAME_CHARS))?;
        Ok(Self { database: database.map(str::to_owned), table: table.to_owned() })
    }

    /// The quoted name of the table, or of one that belongs to it.
    pub fn qualified(&self, suffix: &str) -> String {
        let table = if suffix.is_empty() { self.table.clone() } else { format!("{}_{suffix}", self.table) };
        match &self.database {
            Some(database) => format!("{}.{}", quote(database), quote(&table)),
            None => quote(&table),
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
}

fn check(whole: &str, part: &str, most: usize) -> Result<(), Error> {
    if part.is_empty() {
        return Err(invalid(whole, "is empty, or has an empty part"));
    }
    if part.chars().count() > most {
        return Err(invalid(whole, &format!("is longer than {most} characters")));
    }
    if part.chars().any(char::is_control) || part.ends_with(' ') {
        return Err(invalid(whole, "holds a control character, or ends with a space"));
    }
    Ok(())
}

fn quote(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn invalid(name: &str, complaint: &str) -> Error {
    let text = format!("table name {name:?} {complaint}; give `table` or `database.table`");
    Error::new(ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_quoted() {
        let fill =
            |name: &str| MySqlTable::parse(name).unwrap().fill("-- why\nSELECT {outbox}, {outbox_key}");
        assert_eq!(fill("outbox"), "SELECT `outbox`, `outbox_key`");
        assert_eq!(fill("shop.o`{outbox}"), "SELECT `shop`.`o``{outbox}`, `shop`.`o``{outbox}_key`");
        for bad in ["", ".", "a.", ".a", "a.b.c", "a\0", "a ", &"x".repeat(54)] {
            assert_eq!(MySqlTable::parse(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }
}
