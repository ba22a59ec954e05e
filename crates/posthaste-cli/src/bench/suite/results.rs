//! The results of a suite on disk, one JSON object a line. They are the checkpoint too: what is there is done.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::report::Report;
use super::plan::{Plan, Point};
use crate::failure::Failure;

/// The first line: what the results are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heading {
    pub(crate) plan: Plan,
    /// Without a password.
    pub(crate) database: String,
    pub(crate) version: String,
    pub(crate) machine: String,
}

/// One point that was measured, or failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) id: String,
    pub(crate) group: String,
    pub(crate) series: String,
    pub(crate) x: String,
    pub(crate) arguments: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

impl Entry {
    pub(crate) fn of(point: &Point, result: Result<Report, String>) -> Self {
        let (report, error) = match result {
            Ok(report) => (Some(report), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            id: point.id(),
            group: point.group.to_owned(),
            series: point.series.clone(),
            x: point.x.clone(),
            arguments: point.arguments.clone(),
            report,
            error,
        }
    }
}

/// The file of results, and what is in it.
pub(crate) struct Results {
    path: PathBuf,
    file: File,
    pub(crate) entries: Vec<Entry>,
}

impl Results {
    /// Begins anew. Results that are there are somebody's work, and are left alone.
    pub(crate) fn begin(directory: &Path, heading: &Heading) -> Result<Self, Failure> {
        fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
        let path = directory.join("results.jsonl");
        let file = File::create_new(&path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => {
                Failure::bad_input(format!("{} is there already", path.display()))
                    .hint("go on with --resume, or name another directory with --out")
            }
            _ => failed(&path, &error),
        })?;
        let mut results = Self { path, file, entries: Vec::new() };
        results.write(heading)?;
        Ok(results)
    }

    /// Goes on where it was cut off. A last line that was not written whole is forgotten, and so are failures.
    pub(crate) fn resume(directory: &Path, heading: &Heading) -> Result<Self, Failure> {
        let path = directory.join("results.jsonl");
        let old = File::open(&path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::bad_input(format!("there is no {} to go on with", path.display()))
                    .hint("leave --resume out to begin")
            }
            _ => failed(&path, &error),
        })?;
        let lines: Result<Vec<_>, _> = BufReader::new(old).lines().collect();
        let lines = lines.map_err(|error| failed(&path, &error))?;
        let found = lines.first().and_then(|line| serde_json::from_str::<Heading>(line).ok());
        if found.as_ref() != Some(heading) {
            let text = format!("{} is of another plan, database, version or machine", path.display());
            return Err(
                Failure::bad_input(text).hint("figures of one report must be comparable; begin a new one")
            );
        }
        let entries = lines[1..].iter().filter_map(|line| serde_json::from_str::<Entry>(line).ok());
        let entries: Vec<_> = entries.filter(|entry| entry.error.is_none()).collect();
        Self::rewrite(&path, heading, entries)
    }

    /// Writes what is known into a new file beside the old one, and puts it in its place.
    fn rewrite(path: &Path, heading: &Heading, entries: Vec<Entry>) -> Result<Self, Failure> {
        let new = path.with_extension("new");
        let file = OpenOptions::new().create(true).write(true).truncate(true).open(&new);
        let file = file.map_err(|error| failed(&new, &error))?;
        let mut results = Self { path: path.to_owned(), file, entries: Vec::new() };
        results.write(heading)?;
        entries.into_iter().try_for_each(|entry| results.add(entry))?;
        fs::rename(&new, path).map_err(|error| failed(path, &error))?;
        Ok(results)
    }

    /// Adds a point; from now on it is done.
    pub(crate) fn add(&mut self, entry: Entry) -> Result<(), Failure> {
        self.write(&entry)?;
        self.entries.push(entry);
        Ok(())
    }

    fn write(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(value).map_err(|error| failed(&self.path, &error.into()))?;
        line.push(b'\n');
        let written = self.file.write_all(&line).and_then(|()| self.file.sync_data());
        written.map_err(|error| failed(&self.path, &error))
    }

    /// The points that are done.
    pub(crate) fn done(&self) -> BTreeSet<&str> {
        self.entries.iter().filter(|entry| entry.error.is_none()).map(|entry| entry.id.as_str()).collect()
    }

    /// The medians as a table for other programs.
    pub(crate) fn csv(&self) -> String {
        let mut text = String::from(
            "benchmark,group,series,x,messages,payload_bytes,per_second,floor_per_second,ratio,p50_ms,p95_ms,p99_ms,\
             max_ms,cpu_micros_per_message,peak_rss_bytes,database_cpu_micros_per_message,statements_per_message,\
             log_bytes_per_message,dead_rows_per_message\n",
        );
        for (entry, report) in self.entries.iter().filter_map(|entry| Some((entry, entry.report.as_ref()?))) {
            let run = &report.median;
            let floor = run.floors.first();
            let figures = [
                Some(run.per_second),
                floor.map(|floor| floor.per_second),
                floor.and_then(|floor| floor.ratio),
                run.latency.map(|latency| latency.p50_ms),
                run.latency.map(|latency| latency.p95_ms),
                run.latency.map(|latency| latency.p99_ms),
                run.latency.map(|latency| latency.max_ms),
                Some(run.cpu_micros_per_message),
                run.peak_rss_bytes.map(|bytes| bytes as f64),
                run.database_cpu_micros_per_message,
                run.statements_per_message,
                run.log_bytes_per_message,
                run.dead_rows_per_message,
            ];
            let names = [&report.benchmark, &entry.group, &entry.series, &entry.x].map(|name| quoted(name));
            let _ = write!(text, "{},{},{}", names.join(","), run.messages, report.load.payload_bytes);
            for figure in figures {
                let _ = match figure {
                    Some(figure) => write!(text, ",{figure:.3}"),
                    None => write!(text, ","),
                };
            }
            text.push('\n');
        }
        text
    }
}

/// A field of CSV.
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::super::plan::{Engine, points};
    use super::*;

    fn heading(plan: Plan) -> Heading {
        let text = |text: &str| text.to_owned();
        Heading { plan, database: text("d"), version: text("v"), machine: text("m") }
    }

    #[test]
    fn what_was_cut_off_or_failed_is_done_again() {
        let directory = tempfile::tempdir().unwrap();
        let heading = heading(Plan::Tiny);
        let points = points(Plan::Tiny, Engine::Sqlite);
        let mut results = Results::begin(directory.path(), &heading).unwrap();
        let mut done = Entry::of(&points[0], Err(String::new()));
        done.error = None;
        results.add(done).unwrap();
        results.add(Entry::of(&points[1], Err("no room".to_owned()))).unwrap();
        results.file.write_all(b"{\"id\":\"half").unwrap();
        drop(results);
        assert!(Results::begin(directory.path(), &heading).is_err());
        for _ in 0..2 {
            let results = Results::resume(directory.path(), &heading).unwrap();
            assert_eq!(results.done().into_iter().collect::<Vec<_>>(), [points[0].id()]);
        }
    }

    #[test]
    fn results_of_something_else_are_not_gone_on_with() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Results::resume(directory.path(), &heading(Plan::Mini)).is_err());
        Results::begin(directory.path(), &heading(Plan::Mini)).unwrap();
        assert!(Results::resume(directory.path(), &heading(Plan::Full)).is_err());
        assert!(Results::resume(directory.path(), &heading(Plan::Mini)).is_ok());
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!(quoted("held, rows deleted"), "\"held, rows deleted\"");
        assert_eq!(quoted("kept"), "kept");
    }
}
