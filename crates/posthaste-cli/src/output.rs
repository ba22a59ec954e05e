//! What commands print: lines, tables and JSON on stdout; colours only on a terminal.

use std::fmt::Write as _;
use std::io::{self, BufWriter, IsTerminal, Stdout, Write};
use std::time::SystemTime;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

/// Buffered stdout. An error while writing ends the command: quietly where the reader went away.
pub(crate) struct Output {
    stdout: BufWriter<Stdout>,
    colours: bool,
}

/// How a cell or a word is set off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Plain,
    Heading,
    Good,
    Warning,
    Bad,
    Faint,
}

impl Style {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Heading => Some("\x1b[1m"),
            Self::Good => Some("\x1b[32m"),
            Self::Warning => Some("\x1b[33m"),
            Self::Bad => Some("\x1b[31m"),
            Self::Faint => Some("\x1b[2m"),
        }
    }
}

impl Output {
    pub(crate) fn new() -> Self {
        let stdout = io::stdout();
        let colours = wants_colours(stdout.is_terminal());
        Self { stdout: BufWriter::with_capacity(64 * 1024, stdout), colours }
    }

    /// A line of text.
    pub(crate) fn line(&mut self, text: impl std::fmt::Display) -> io::Result<()> {
        writeln!(self.stdout, "{text}")
    }

    /// One JSON object on one line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut self.stdout, value)?;
        self.stdout.write_all(b"\n")
    }

    /// A table. Nothing is cut, however long it is.
    pub(crate) fn table(&mut self, table: &Table) -> io::Result<()> {
        let text = table.render(self.colours);
        self.stdout.write_all(text.as_bytes())
    }

    /// Writes out what is buffered so far.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.stdout.flush()
    }

    /// Writes out what is buffered. Every command ends with it, so that a full disk does not go unnoticed.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.stdout.flush()
    }
}

/// Whether to use colours on a stream: on a terminal, unless `NO_COLOR` is set or the terminal is dumb.
pub(crate) fn wants_colours(is_terminal: bool) -> bool {
    let unset_or_empty = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    is_terminal && unset_or_empty("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

fn paint(text: &str, style: Style, colours: bool) -> String {
    match style.code() {
        Some(code) if colours && !text.is_empty() => format!("{code}{text}\x1b[0m"),
        _ => text.to_owned(),
    }
}

/// Rows under headings, in columns as wide as they need to be.
pub(crate) struct Table {
    rows: Vec<Vec<(String, Style)>>,
}

impl Table {
    /// A table without headings.
    pub(crate) fn new() -> Self {
        Self { rows: Vec::new() }
    }

    /// A table with headings.
    pub(crate) fn with_headings(headings: &[&str]) -> Self {
        let cells = headings.iter().map(|heading| ((*heading).to_owned(), Style::Heading)).collect();
        Self { rows: vec![cells] }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<(String, Style)>) {
        self.rows.push(cells);
    }

    /// Adds a row of a name and its value.
    pub(crate) fn field(&mut self, name: &str, value: impl Into<String>) {
        self.row(vec![(name.to_owned(), Style::Faint), (value.into(), Style::Plain)]);
    }

    fn render(&self, colours: bool) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width_of = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.0.chars().count()).max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width_of(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let used = row.iter().rposition(|cell| !cell.0.is_empty()).map_or(0, |last| last + 1);
            for (column, (cell, style)) in row[..used].iter().enumerate() {
                text.push_str(&paint(cell, *style, colours));
                if column + 1 < used {
                    let padding = widths[column] - cell.chars().count() + 2;
                    let _ = write!(text, "{:padding$}", "");
                }
            }
            text.push('\n');
        }
        text
    }
}

/// Text from the database, made safe for a terminal: control characters are written as escapes.
pub(crate) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, letter| {
        if letter.is_control() {
            let _ = write!(safe, "{}", letter.escape_default());
        } else {
            safe.push(letter);
        }
        safe
    })
}

/// A time as `2026-01-31T12:00:00.000Z`.
pub(crate) fn timestamp(time: SystemTime) -> String {
    // Times before 1970 and after 9999 cannot be written so; no database makes them by itself.
    let latest = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(253_402_300_799);
    humantime::format_rfc3339_millis(time.clamp(SystemTime::UNIX_EPOCH, latest)).to_string()
}

/// A payload in JSON: `payload` holds its text, `payload_base64` its bytes where they are no UTF-8, and a
/// tombstone has neither.
#[derive(Serialize)]
pub(crate) struct PayloadFields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

impl<'a> PayloadFields<'a> {
    pub(crate) fn new(payload: Option<&'a [u8]>) -> Self {
        let Some(bytes) = payload else { return Self { payload: None, payload_base64: None } };
        match std::str::from_utf8(bytes) {
            Ok(text) => Self { payload: Some(text), payload_base64: None },
            Err(_) => Self { payload: None, payload_base64: Some(BASE64_STANDARD.encode(bytes)) },
        }
    }
}

/// `None` for an empty text: absent values are `null` in JSON.
pub(crate) fn non_empty(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

/// `1 message`, `2 messages`.
pub(crate) fn messages(count: u64) -> String {
    format!("{count} {}", if count == 1 { "message" } else { "messages" })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn columns_line_up_with_and_without_colours() {
        let mut table = Table::with_headings(&["id", "state"]);
        table.row(vec![("long-é".into(), Style::Plain), ("dead".into(), Style::Bad)]);
        table.row(vec![("x".into(), Style::Plain), (String::new(), Style::Bad)]);
        assert_eq!(table.render(false), "id      state\nlong-é  dead\nx\n");
        assert_eq!(
            table.render(true),
            "\x1b[1mid\x1b[0m      \x1b[1mstate\x1b[0m\nlong-é  \x1b[31mdead\x1b[0m\nx\n"
        );
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(printable("a\x1b[31mb\nc\u{9b}é"), "a\\u{1b}[31mb\\nc\\u{9b}é");
    }

    #[test]
    fn times_have_milliseconds_and_extremes_do_not_panic() {
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_millis(1_500)), "1970-01-01T00:00:01.500Z");
        assert_eq!(timestamp(UNIX_EPOCH + Duration::from_hours(90_000_000)), "9999-12-31T23:59:59.000Z");
        assert_eq!(timestamp(UNIX_EPOCH - Duration::from_secs(5)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn payloads_are_text_or_base64_or_absent() {
        let json = |payload: Option<&[u8]>| serde_json::to_string(&PayloadFields::new(payload)).unwrap();
        assert_eq!(json(Some(b"{\"a\": \"\xc3\xa9\"}")), r#"{"payload":"{\"a\": \"é\"}"}"#);
        assert_eq!(json(Some(b"")), r#"{"payload":""}"#);
        assert_eq!(json(Some(b"\xff\x00")), r#"{"payload_base64":"/wA="}"#);
        assert_eq!(json(None), "{}");
    }
}
