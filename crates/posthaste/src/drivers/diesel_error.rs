//! What diesel and diesel-async report.
//!
//! They pass on no codes: of some errors what kind they were, of the others nothing but the text of the server. So here, and
//! nowhere else, a text is looked at (ADR 0020): as the code that says the same, where it is one that a caller would act
//! upon. A server that speaks another language than English is not understood; its errors stay `ErrorKind::Database`.

use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_2 as diesel;

use crate::outbox::{Dialect, DriverError, ErrorCode};

pub(super) fn driver_error(dialect: Dialect, error: DieselError) -> DriverError {
    let DieselError::DatabaseError(kind, information) = &error else {
        let code = match error {
            DieselError::BrokenTransactionManager => ErrorCode::Connection,
            _ => ErrorCode::Unknown,
        };
        return DriverError::new(code, error.to_string(), error);
    };
    let (said, constraint) =
        (information.message().to_owned(), information.constraint_name().map(str::to_owned));
    let code = code_of_kind(dialect, *kind).or_else(|| code_of_text(dialect, &said));
    DriverError::new(code.unwrap_or(ErrorCode::Unknown), said, error).with_constraint(constraint)
}

fn code_of_kind(dialect: Dialect, kind: DatabaseErrorKind) -> Option<ErrorCode> {
    use DatabaseErrorKind as Kind;
    if dialect == Dialect::Sqlite {
        return match kind {
            Kind::NotNullViolation => Some(ErrorCode::Sqlite(1299)),
            Kind::CheckViolation => Some(ErrorCode::Sqlite(275)),
            Kind::UniqueViolation => Some(ErrorCode::Sqlite(2067)),
            _ => None,
        };
    }
    let state = match kind {
        Kind::ClosedConnection | Kind::UnableToSendCommand => return Some(ErrorCode::Connection),
        Kind::UniqueViolation => "23505",
        Kind::SerializationFailure => "40001",
        Kind::ReadOnlyTransaction => "25006",
        Kind::NotNullViolation => "23502",
        Kind::CheckViolation => "23514",
        _ => return None,
    };
    Some(ErrorCode::SqlState(state.into()))
}

/// The first and the last words of a text, and its SQLSTATE.
const POSTGRES: [(&str, &str, &str); 8] = [
    ("deadlock detected", "", "40P01"),
    ("relation \"", "does not exist", "42P01"),
    ("column \"", "does not exist", "42703"),
    ("permission denied for ", "", "42501"),
    ("current transaction is aborted, ", "", "25P02"),
    ("canceling statement due to lock timeout", "", "55P03"),
    ("canceling statement due to ", "", "57014"),
    ("terminating connection due to ", "", "57P01"),
];

/// The first and the last words of a text, and the error number. Most are the same on MySQL and MariaDB.
const MYSQL: [(&str, &str, u16); 15] = [
    ("Deadlock found when trying to get lock", "", 1213),
    // MariaDB, whose snapshots are strict by default from 11.6 on.
    ("Record has changed since last read in table", "", 1213),
    ("Lock wait timeout exceeded", "", 1205),
    ("Table '", "' doesn't exist", 1146),
    ("Unknown column '", "'", 1054),
    ("INSERT command denied to user", "", 1142),
    ("SELECT command denied to user", "", 1142),
    ("DELETE command denied to user", "", 1142),
    ("Query execution was interrupted", "", 1317),
    ("Invalid JSON text", "", 3140),
    ("Check constraint '", "' is violated.", 3819),
    ("CONSTRAINT `", "", 4025),
    ("Data too long for column '", "", 1406),
    ("Got a packet bigger than 'max_allowed_packet' bytes", "", 1153),
    ("The MySQL server is running with the --", "", 1290),
];

/// The client's words for a connection that is gone: libmysqlclient's, and `mysql_async`'s.
const MYSQL_GONE: [&str; 4] =
    ["MySQL server has gone away", "Server has gone away", "Lost connection to ", "Input/output error"];

/// The beginning of a text, and the result code.
const SQLITE: [(&str, i32); 7] = [
    // Both when the lock was not to be had in time and when another transaction wrote since this one began to read. To
    // run the transaction again is right for both, and for the second nothing else is.
    ("database is locked", 517),
    ("database table is locked", 6),
    ("attempt to write a readonly database", 8),
    ("no such table", 1),
    ("interrupted", 9),
    ("disk I/O error", 10),
    ("database or disk is full", 13),
];

fn code_of_text(dialect: Dialect, said: &str) -> Option<ErrorCode> {
    let begins_and_ends = |begin: &str, end: &str| said.starts_with(begin) && said.ends_with(end);
    match dialect {
        Dialect::Postgres => POSTGRES
            .iter()
            .find(|(begin, end, _)| begins_and_ends(begin, end))
            .map(|(.., state)| ErrorCode::SqlState((*state).into())),
        Dialect::MySql if MYSQL_GONE.iter().any(|begin| said.starts_with(begin)) => {
            Some(ErrorCode::Connection)
        }
        Dialect::MySql => MYSQL
            .iter()
            .find(|(begin, end, _)| begins_and_ends(begin, end))
            .map(|(.., number)| ErrorCode::MySql(*number)),
        Dialect::Sqlite => {
            SQLITE.iter().find(|(begin, _)| said.starts_with(begin)).map(|(_, code)| ErrorCode::Sqlite(*code))
        }
        Dialect::Memory => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(dialect: Dialect, kind: DatabaseErrorKind, text: &str) -> ErrorCode {
        let error = DieselError::DatabaseError(kind, Box::new(text.to_owned()));
        driver_error(dialect, error).code().clone()
    }

    #[test]
    fn texts_stand_for_codes_where_there_is_no_kind() {
        use DatabaseErrorKind::Unknown;
        let state = |state: &'static str| ErrorCode::SqlState(state.into());
        for (dialect, text, expected) in [
            (Dialect::Postgres, "deadlock detected", state("40P01")),
            (Dialect::Postgres, "relation \"public.outbox\" does not exist", state("42P01")),
            (Dialect::Postgres, "canceling statement due to lock timeout", state("55P03")),
            (Dialect::Postgres, "canceling statement due to user request", state("57014")),
            (Dialect::Postgres, "Verklemmung entdeckt", ErrorCode::Unknown),
            (
                Dialect::MySql,
                "Deadlock found when trying to get lock; try restarting transaction",
                ErrorCode::MySql(1213),
            ),
            (Dialect::MySql, "Table 'shop.outbox' doesn't exist", ErrorCode::MySql(1146)),
            (Dialect::MySql, "MySQL server has gone away", ErrorCode::Connection),
            (Dialect::MySql, "You have an error in your SQL syntax", ErrorCode::Unknown),
            (Dialect::Sqlite, "database is locked", ErrorCode::Sqlite(517)),
            (Dialect::Sqlite, "no such table: main.outbox_migrations", ErrorCode::Sqlite(1)),
            (Dialect::Sqlite, "cannot start a transaction within a transaction", ErrorCode::Unknown),
        ] {
            assert_eq!(code(dialect, Unknown, text), expected, "{text}");
        }
    }

    #[test]
    fn a_kind_says_more_than_a_text() {
        use DatabaseErrorKind::{ClosedConnection, SerializationFailure, UniqueViolation};
        let text = "relation \"x\" does not exist";
        let state = |state: &'static str| ErrorCode::SqlState(state.into());
        assert_eq!(code(Dialect::Postgres, SerializationFailure, text), state("40001"));
        assert_eq!(code(Dialect::MySql, SerializationFailure, ""), state("40001"));
        assert_eq!(code(Dialect::Postgres, ClosedConnection, text), ErrorCode::Connection);
        assert_eq!(code(Dialect::Sqlite, UniqueViolation, text), ErrorCode::Sqlite(2067));
    }
}
