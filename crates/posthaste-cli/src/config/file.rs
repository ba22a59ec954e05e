//! The file: TOML, read into values with their places. What is wrong is said with its place, and never quotes a value.

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::nearest::nearest;
use crate::failure::Failure;

/// A file as it was read.
#[derive(Debug)]
pub(crate) struct File {
    name: String,
    text: String,
}

/// A value with its key.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// The tables around it, and its own name.
    pub(crate) path: Vec<String>,
    pub(crate) value: Value,
    /// Where its key stands.
    pub(crate) key_at: usize,
    /// Where the value itself stands.
    pub(crate) value_at: usize,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number(String),
    Switch(bool),
    List(Vec<String>),
}

impl Value {
    /// As an option on the command line takes it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Text(text) | Self::Number(text) => text.clone(),
            Self::Switch(on) => on.to_string(),
            Self::List(items) => items.join(","),
        }
    }
}

impl Entry {
    /// The path with dots.
    pub(crate) fn name(&self) -> String {
        self.path.join(".")
    }
}

impl File {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            Failure::bad_input(format!("the configuration {name} cannot be read: {error}"))
        })?;
        Ok(Self { name, text })
    }

    #[cfg(test)]
    pub(crate) fn of(text: &str) -> Self {
        Self { name: "posthaste.toml".to_owned(), text: text.to_owned() }
    }

    /// Everything that stands in it, in the order of the text.
    pub(crate) fn entries(&self) -> Result<Vec<Entry>, Failure> {
        let table = DeTable::parse(&self.text).map_err(|error| {
            let at = error.span().map_or(0, |span: Range<usize>| span.start);
            self.wrong(at, error.message())
        })?;
        let mut entries = Vec::new();
        self.walk(&mut Vec::new(), table.get_ref(), &mut entries)?;
        entries.sort_by_key(|entry| entry.key_at);
        Ok(entries)
    }

    fn walk(
        &self,
        path: &mut Vec<String>,
        table: &DeTable<'_>,
        entries: &mut Vec<Entry>,
    ) -> Result<(), Failure> {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            let key_at = key.span().start;
            match value.get_ref() {
                DeValue::Table(table) => self.walk(path, table, entries)?,
                DeValue::Array(array)
                    if array.iter().any(|item| matches!(item.get_ref(), DeValue::Table(_))) =>
                {
                    for (index, item) in array.iter().enumerate() {
                        let DeValue::Table(table) = item.get_ref() else {
                            return Err(self.wrong(
                                item.span().start,
                                &format!("{} mixes tables and values", path.join(".")),
                            ));
                        };
                        path.push(index.to_string());
                        self.walk(path, table, entries)?;
                        path.pop();
                    }
                }
                _ => entries.push(Entry {
                    path: path.clone(),
                    value: self.value(path, value)?,
                    key_at,
                    value_at: value.span().start,
                }),
            }
            path.pop();
        }
        Ok(())
    }

    fn value(&self, path: &[String], value: &Spanned<DeValue<'_>>) -> Result<Value, Failure> {
        let refuse = |what: &str| {
            let text = format!("{} is {what}; write a text, a number, or true or false", path.join("."));
            self.wrong(value.span().start, &text)
        };
        match value.get_ref() {
            DeValue::String(text) => Ok(Value::Text(text.to_string())),
            DeValue::Integer(number) if number.radix() == 10 => Ok(Value::Number(number.as_str().to_owned())),
            DeValue::Integer(_) => Err(refuse("a number in another base than ten")),
            DeValue::Float(number) => Ok(Value::Number(number.as_str().to_owned())),
            DeValue::Boolean(on) => Ok(Value::Switch(*on)),
            DeValue::Datetime(_) => Err(refuse("a date")),
            DeValue::Table(_) => Err(refuse("a table")),
            DeValue::Array(array) => {
                let items = array.iter().map(|item| match item.get_ref() {
                    DeValue::String(text) => Ok(text.to_string()),
                    _ => {
                        Err(self.wrong(item.span().start, &format!("{} is a list of texts", path.join("."))))
                    }
                });
                Ok(Value::List(items.collect::<Result<_, _>>()?))
            }
        }
    }

    /// What is wrong at a place.
    pub(crate) fn wrong(&self, at: usize, text: &str) -> Failure {
        let before = &self.text[..self.text.floor_char_boundary(at)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Failure::bad_input(text).at(format_args!("{}, line {line}, column {column}", self.name))
    }

    /// A key that is not known.
    pub(crate) fn unknown<'a>(&self, entry: &Entry, known: impl IntoIterator<Item = &'a str>) -> Failure {
        let name = entry.name();
        let failure = self.wrong(entry.key_at, &format!("there is no key {name}"));
        match nearest(&name, known) {
            Some(nearest) => failure.hint(format!("the nearest key is {nearest}")),
            None => failure,
        }
    }
}
