//! What diesel and diesel-async have in common: a step as a query of diesel's.

use diesel::backend::Backend;
use diesel::deserialize::{self, FromSql, QueryableByName};
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::row::NamedRow;
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, Binary, HasSqlType, Nullable, Text, Untyped};
use diesel::{QueryResult, RunQueryDsl};
use diesel_2 as diesel;

use crate::error::Error;
use crate::outbox::{Answer, Dialect, Step, Value};

/// A statement with its values. Diesel numbers the placeholders itself, so the text is cut at ours. Unlike diesel's own
/// `sql_query`, it is kept prepared.
pub struct StepQuery {
    parts: Vec<Part>,
    end: String,
}

/// Some text, and the value that follows.
struct Part {
    text: String,
    value: Owned,
}

#[derive(Clone)]
enum Owned {
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    Integer(Option<i64>),
}

impl StepQuery {
    pub(super) fn new(step: &Step<'_>) -> Self {
        let (mut parts, mut rest, mut place) = (Vec::new(), &*step.sql, 0);
        while let Some((text, number, behind)) = next_placeholder(rest) {
            place = number.unwrap_or(place + 1);
            let value = step.values.get(place - 1).map_or(Owned::Integer(None), Owned::new);
            parts.push(Part { text: text.to_owned(), value });
            rest = behind;
        }
        Self { parts, end: rest.to_owned() }
    }
}

/// The text before the next placeholder (`$1`, `?1` or `?`), its number, and the text behind it. What is in quotes, as
/// names and literals are, is text.
fn next_placeholder(sql: &str) -> Option<(&str, Option<usize>, &str)> {
    let mut quote = None;
    for (at, character) in sql.char_indices() {
        match (quote, character) {
            (None, '$' | '?') => {
                let behind = &sql[at + 1..];
                let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
                let number = behind[..digits].parse().ok().filter(|number| *number > 0);
                return Some((&sql[..at], number, &behind[digits..]));
            }
            (None, '"' | '\'' | '`') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    None
}

impl Owned {
    fn new(value: &Value<'_>) -> Self {
        match value {
            Value::Text(text) => Self::Text(text.clone().map(String::from)),
            Value::Bytes(bytes) => Self::Bytes(bytes.clone().map(Vec::from)),
            Value::Integer(integer) => Self::Integer(*integer),
        }
    }
}

impl<DB> QueryFragment<DB> for StepQuery
where
    DB: Backend + HasSqlType<Text> + HasSqlType<Binary> + HasSqlType<BigInt>,
    Option<String>: ToSql<Nullable<Text>, DB>,
    Option<Vec<u8>>: ToSql<Nullable<Binary>, DB>,
    Option<i64>: ToSql<Nullable<BigInt>, DB>,
{
    fn walk_ast<'b>(&'b self, mut pass: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        for part in &self.parts {
            pass.push_sql(&part.text);
            match &part.value {
                Owned::Text(text) => pass.push_bind_param::<Nullable<Text>, _>(text)?,
                Owned::Bytes(bytes) => pass.push_bind_param::<Nullable<Binary>, _>(bytes)?,
                Owned::Integer(integer) => pass.push_bind_param::<Nullable<BigInt>, _>(integer)?,
            }
        }
        pass.push_sql(&self.end);
        Ok(())
    }
}

impl QueryId for StepQuery {
    type QueryId = ();

    // Told apart by its text.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl Query for StepQuery {
    type SqlType = Untyped;
}

impl<Conn> RunQueryDsl<Conn> for StepQuery {}

/// The integers that any of our statements returns.
pub struct Columns(Vec<(&'static str, Option<i64>)>);

const COLUMNS: [&str; 6] = ["messages", "keys", "first_time", "version", "found", "most"];

impl<DB> QueryableByName<DB> for Columns
where
    DB: Backend + HasSqlType<BigInt>,
    Option<i64>: FromSql<Nullable<BigInt>, DB>,
{
    fn build<'a>(row: &impl NamedRow<'a, DB>) -> deserialize::Result<Self> {
        let get = |name: &'static str| Some((name, NamedRow::get::<Nullable<BigInt>, _>(row, name).ok()?));
        Ok(Self(COLUMNS.into_iter().filter_map(get).collect()))
    }
}

impl Columns {
    fn get(&self, name: &str) -> Option<i64> {
        self.0.iter().find(|(column, _)| *column == name)?.1
    }
}

pub(super) fn answer(step: &Step<'_>, rows: &[Columns]) -> Answer {
    let read = |row: &Columns| step.columns.iter().map(|name| row.get(name)).collect();
    Answer { row: rows.first().map(read) }
}

/// The dialect, by the type of the backend: their names are part of diesel's interface, and do not need their libraries.
pub(super) fn dialect_of<DB: Backend>() -> Result<Dialect, Error> {
    let name = std::any::type_name::<DB>();
    match name.rsplit("::").next() {
        Some("Pg") => Ok(Dialect::Postgres),
        Some("Mysql") => Ok(Dialect::MySql),
        Some("Sqlite") => Ok(Dialect::Sqlite),
        _ => Err(super::run::other_database(name)),
    }
}
