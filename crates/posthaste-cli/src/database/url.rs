//! Which database is meant, and keeping passwords out of what is printed.

use std::path::PathBuf;

use crate::failure::Failure;

/// A database URL that this build has a store for.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub(crate) enum DatabaseUrl {
    /// `sqlite:` and the path of a file.
    Sqlite(PathBuf),
    /// `postgres://`, whole.
    Postgres(String),
    /// `mysql://` or `mariadb://`, whole.
    MySql(String),
}

impl DatabaseUrl {
    /// Reads a URL. Errors name its scheme only: the rest may hold a password.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let text = text.trim();
        if text.is_empty() {
            return Err(Failure::bad_input("the database URL is empty").hint(EXAMPLE));
        }
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if is_scheme(scheme) => (scheme.to_ascii_lowercase(), rest),
            _ => {
                let failure =
                    Failure::bad_input("the database URL has no scheme, such as sqlite: or postgres:");
                return Err(failure.hint(EXAMPLE));
            }
        };
        match scheme.as_str() {
            "sqlite" => sqlite_path(rest).map(Self::Sqlite),
            "postgres" | "postgresql" if rest.starts_with("//") => {
                Ok(Self::Postgres(format!("{scheme}:{rest}")))
            }
            "postgres" | "postgresql" => {
                Err(Failure::bad_input("the PostgreSQL URL names no server").hint(EXAMPLE))
            }
            "mysql" | "mariadb" if rest.starts_with("//") => Ok(Self::MySql(format!("{scheme}:{rest}"))),
            "mysql" | "mariadb" => Err(Failure::bad_input("the MySQL URL names no server").hint(EXAMPLE)),
            _ => {
                let text = format!("unknown database scheme {scheme:?}; known are {KNOWN}");
                Err(Failure::bad_input(text).hint(EXAMPLE))
            }
        }
    }
}

const KNOWN: &str = "sqlite:, postgres: and mysql: (or mariadb:)";
const EXAMPLE: &str = "a SQLite file is written sqlite:outbox.db or sqlite:///var/lib/app/outbox.db, a PostgreSQL \
                       server postgres://user@host/database, a MySQL or MariaDB server mysql://user@host/database";

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
}

fn sqlite_path(rest: &str) -> Result<PathBuf, Failure> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    if path.is_empty() {
        return Err(Failure::bad_input("the SQLite URL names no file").hint(EXAMPLE));
    }
    if path == ":memory:" {
        return Err(Failure::bad_input(
            "a SQLite database in memory ends with the command that made it; name a file",
        )
        .hint(EXAMPLE));
    }
    if path.contains('?') {
        return Err(Failure::bad_input("a SQLite URL takes a path and no options behind a question mark")
            .hint(EXAMPLE));
    }
    Ok(PathBuf::from(path))
}

/// Replaces what may be a password by `***`, in a URL or in any text that may quote one.
pub(crate) fn redact(text: &str) -> String {
    text.lines().map(|line| redact_options(&redact_user_info(line))).collect::<Vec<_>>().join("\n")
}

/// Whether a URL holds a password.
pub(crate) fn has_password(url: &str) -> bool {
    redact(url) != url.lines().collect::<Vec<_>>().join("\n")
}

/// `scheme://user:password@host`. Passwords may hold anything, `@` and quotes too, so everything up to the last
/// `@` of the line goes.
fn redact_user_info(line: &str) -> String {
    let Some(start) = line.find("://").map(|at| at + 3) else { return line.to_owned() };
    let Some(end) = line.rfind('@').filter(|end| *end > start) else { return line.to_owned() };
    match line[start..end].find(':') {
        Some(colon) => format!("{}:***{}", &line[..start + colon], &line[end..]),
        None => line.to_owned(),
    }
}

/// `?password=…` and its like.
fn redact_options(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.to_ascii_lowercase().find("password=") {
        let value = at + "password=".len();
        kept.push_str(&rest[..value]);
        kept.push_str("***");
        let end = rest[value..].find(['&', ' ', '\'', '"']).map_or(rest.len(), |length| value + length);
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(url: &str) -> PathBuf {
        match DatabaseUrl::parse(url) {
            Ok(DatabaseUrl::Sqlite(path)) => path,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn postgres_urls_are_kept_whole() {
        let cases = [
            ("postgres://ann@host/db?schema=x", "postgres://ann@host/db?schema=x"),
            ("PostgreSQL://Host/DB", "postgresql://Host/DB"),
        ];
        for (url, kept) in cases {
            assert_eq!(DatabaseUrl::parse(url).unwrap(), DatabaseUrl::Postgres(kept.to_owned()));
        }
    }

    #[test]
    fn mysql_urls_are_kept_whole() {
        for url in ["mysql://ann@host/db?ssl-mode=required", "mariadb://host/DB"] {
            assert_eq!(DatabaseUrl::parse(url).unwrap(), DatabaseUrl::MySql(url.to_owned()));
        }
    }

    #[test]
    fn sqlite_paths_are_relative_or_absolute() {
        assert_eq!(path("sqlite:outbox.db"), PathBuf::from("outbox.db"));
        assert_eq!(path("sqlite:./data/outbox.db"), PathBuf::from("./data/outbox.db"));
        assert_eq!(path("sqlite:/var/outbox.db"), PathBuf::from("/var/outbox.db"));
        assert_eq!(path("sqlite://outbox.db"), PathBuf::from("outbox.db"));
        assert_eq!(path("sqlite:///var/outbox.db"), PathBuf::from("/var/outbox.db"));
        assert_eq!(path("SQLite:a b:c.db"), PathBuf::from("a b:c.db"));
    }

    #[test]
    fn what_is_no_known_url_is_refused_without_being_quoted() {
        let bad = [
            "",
            "outbox.db",
            "/var/outbox.db",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "sqlite:outbox.db?mode=ro",
            "postgres:ann:secret@host/db",
            "postgresql:",
            "mysql:ann:secret@host/db",
            "oracle://ann:secret@host/db",
            "://ann:secret@host/db",
        ];
        for url in bad {
            let failure = DatabaseUrl::parse(url).unwrap_err();
            assert!(!format!("{failure:?}").contains("secret"), "{failure:?}");
        }
    }

    #[test]
    fn passwords_are_replaced() {
        let cases = [
            ("postgres://ann:secret@host:5432/db", "postgres://ann:***@host:5432/db"),
            ("postgres://ann:se@cr:et/x@host/db", "postgres://ann:***@host/db"),
            ("postgres://:secret@host/db", "postgres://:***@host/db"),
            (
                "argument 'postgres://ann:se cr'et@host/db' found",
                "argument 'postgres://ann:***@host/db' found",
            ),
            ("postgres://ann@host/db", "postgres://ann@host/db"),
            (
                "postgres://host/db?user=ann&password=secret&x=1",
                "postgres://host/db?user=ann&password=***&x=1",
            ),
            ("postgres://h/d?sslPassword=secret", "postgres://h/d?sslPassword=***"),
            ("sqlite:outbox.db", "sqlite:outbox.db"),
            ("sqlite:a@b:c.db", "sqlite:a@b:c.db"),
            ("two\nlines", "two\nlines"),
        ];
        for (text, redacted) in cases {
            assert_eq!(redact(text), redacted);
            assert_eq!(has_password(text), text != redacted, "{text}");
        }
    }

    #[test]
    fn no_damaged_url_panics_or_shows_its_password() {
        let valid = [
            "postgres://ann:Geh3im@host:5432/db?schema=x",
            "mysql://ann:Geh3im@host/db?ssl-mode=required",
            "sqlite:./data/outbox.db",
        ];
        posthaste_testkit::damaged_text(&valid, |url| {
            let _ = (redact(url), has_password(url));
            if let Err(failure) = DatabaseUrl::parse(url) {
                assert!(!format!("{failure:?}").contains("Geh3im"), "{failure:?}");
            }
        });
    }
}
