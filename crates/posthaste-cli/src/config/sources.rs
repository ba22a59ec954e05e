//! Where a value comes from, and secrets that stand in files of their own.

use std::collections::HashMap;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::keys::{KEYS, Key};
use super::layer::Given;
use super::outlets::Outlets;
use crate::failure::Failure;

/// Where a value comes from; a later one goes before an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Default,
    File,
    Environment,
    CommandLine,
}

impl Source {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::CommandLine => "command line",
        }
    }
}

/// A value, as text, and where it comes from.
#[derive(Debug, Clone)]
pub(crate) struct Sourced {
    pub(crate) text: String,
    pub(crate) source: Source,
}

/// The values of all settings that have one, by option.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    values: HashMap<String, Sourced>,
    /// The destination that all of them are about, if they are about one.
    destination: Option<String>,
    /// Destinations and routes.
    pub(crate) outlets: Outlets,
}

impl Sources {
    /// What was parsed, with the values of the file.
    pub(super) fn of(matches: &ArgMatches, given: &[Given], outlets: Outlets) -> Self {
        let mut innermost = matches;
        let mut all = vec![innermost];
        while let Some((_, matches)) = innermost.subcommand() {
            innermost = matches;
            all.push(innermost);
        }
        let sourced = |key: &'static Key| {
            let is_given = given.iter().any(|given| given.key.option == key.option);
            let sourced = all.iter().rev().find_map(|matches| Sourced::of(matches, key.option, is_given))?;
            Some((key.option.to_owned(), sourced))
        };
        Self { values: KEYS.iter().filter_map(sourced).collect(), destination: None, outlets }
    }

    /// The values of a destination.
    pub(super) fn of_destination(name: &str, values: HashMap<String, Sourced>) -> Self {
        Self { values, destination: Some(name.to_owned()), outlets: Outlets::default() }
    }

    pub(crate) fn get(&self, option: &str) -> Option<&Sourced> {
        self.values.get(option).filter(|sourced| !sourced.text.is_empty())
    }

    /// The value of an option that may be given by another one that names a file. `None`: by neither, or by itself, so
    /// that nothing is to be read.
    pub(crate) fn secret(&self, option: &str, file_option: &str) -> Result<Option<String>, Failure> {
        let Some(file) = self.get(file_option) else { return Ok(None) };
        let own = self.get(option).map_or(Source::Default, |sourced| sourced.source);
        if own > file.source {
            return Ok(None);
        }
        let path = self.name(file_option);
        if own == file.source {
            let text = format!("{} and {path} are both given ({})", self.name(option), own.as_str());
            return Err(Failure::bad_input(text).hint("leave one of them out"));
        }
        let wrong = |what: String| Failure::bad_input(format!("{path}: {} {what}", file.text));
        let text =
            std::fs::read_to_string(&file.text).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        match text.trim() {
            "" => Err(wrong("is empty".to_owned())),
            secret if secret.lines().count() > 1 => Err(wrong("has more than one line".to_owned())),
            secret => Ok(Some(secret.to_owned())),
        }
    }

    /// The key of an option, with its table.
    fn name(&self, option: &str) -> String {
        match &self.destination {
            Some(destination) => format!("destinations.{destination}.{option}"),
            None => KEYS.iter().find(|key| key.option == option).map_or_else(|| option.to_owned(), Key::path),
        }
    }
}

impl Sourced {
    /// What was parsed. `is_given`: the file has it.
    pub(super) fn of(matches: &ArgMatches, option: &str, is_given: bool) -> Option<Self> {
        // An error: this command has no such option.
        let values = matches.try_get_raw(option).ok().flatten()?;
        let texts: Vec<_> = values.map(|value| value.to_string_lossy().into_owned()).collect();
        let source = match matches.value_source(option)? {
            ValueSource::CommandLine => Source::CommandLine,
            ValueSource::EnvVariable => Source::Environment,
            _ if is_given => Source::File,
            _ => Source::Default,
        };
        // A switch on the command line has no text.
        let text = if texts.is_empty() { "true".to_owned() } else { texts.join(",") };
        Some(Self { text, source })
    }

    /// Whether somebody said so.
    pub(crate) fn is_set(&self) -> bool {
        self.source > Source::Default
    }
}
