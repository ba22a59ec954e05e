//! The file's values as defaults of the options that they stand for.

use clap::builder::OsStr;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};

use super::file::{Entry, File, Value};
use super::keys::{KEYS, Key};
use super::outlets;
use crate::failure::Failure;

/// A value of the file, and what it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Given {
    pub(crate) key: &'static Key,
    pub(crate) text: String,
}

/// The commands whose options a file sets.
const COMMANDS: [&[&str]; 2] = [&["relay"], &["config", "check"]];

/// Checks a file: every key is known, and every value is one that the option takes.
pub(crate) fn check(file: &File, entries: &[Entry], command: &Command) -> Result<Vec<Given>, Failure> {
    let options = options(command);
    let mut given = Vec::new();
    for entry in entries {
        if let Some(checked) = outlets::check(file, entry) {
            checked?;
            continue;
        }
        let name = entry.name();
        let Some(key) = KEYS.iter().find(|key| key.path() == name) else {
            let known: Vec<_> = KEYS.iter().map(Key::path).collect();
            return Err(file.unknown(entry, known.iter().map(String::as_str)));
        };
        let option = options.iter().find(|option| option.get_id() == key.option);
        check_value(option, entry).map_err(|text| file.wrong(entry.value_at, &format!("{name}: {text}")))?;
        given.push(Given { key, text: entry.value.text() });
    }
    Ok(given)
}

/// All options of a relay, the global ones included.
fn options(command: &Command) -> Vec<Arg> {
    let relay = command.find_subcommand("relay").into_iter().flat_map(Command::get_arguments);
    command.get_arguments().chain(relay).cloned().collect()
}

/// Lets the option itself look at the value.
pub(crate) fn check_value(option: Option<&Arg>, entry: &Entry) -> Result<(), String> {
    let Some(option) = option else { return Err("cannot be set".to_owned()) };
    let is_switch = matches!(option.get_action(), ArgAction::SetTrue);
    match (is_switch, &entry.value) {
        (true, Value::Switch(_)) => return Ok(()),
        (true, _) => return Err("must be true or false, without quotes".to_owned()),
        (false, Value::Switch(_)) if !takes_switch(option) => {
            return Err("takes a text or a number, not true or false".to_owned());
        }
        (false, Value::List(_)) if option.get_value_delimiter().is_none() => {
            return Err("takes one value, not a list".to_owned());
        }
        (false, _) => {}
    }
    let long = option.get_long().unwrap_or_default();
    let argument = format!("--{long}={}", entry.value.text());
    let probe = Command::new("probe").no_binary_name(true).arg(option.clone().global(false));
    probe.try_get_matches_from([argument]).map(|_| ()).map_err(|error| reason(&error))
}

/// Whether it is an option with the values `true` and `false`.
fn takes_switch(option: &Arg) -> bool {
    option.get_possible_values().iter().any(|value| value.get_name() == "true")
}

/// What an option has against a value, without quoting it.
pub(super) fn reason(error: &clap::Error) -> String {
    if let Some(source) = std::error::Error::source(error) {
        return source.to_string();
    }
    match error.get(ContextKind::ValidValue) {
        Some(ContextValue::Strings(values)) => format!("must be one of {}", values.join(", ")),
        _ => "has a value that makes no sense".to_owned(),
    }
}

/// The command, with the file's values in the place of its own defaults.
pub(crate) fn with_defaults(command: Command, given: &[Given]) -> Command {
    let (global, own): (Vec<_>, Vec<_>) = given
        .iter()
        .partition(|given| command.get_arguments().any(|option| option.get_id() == given.key.option));
    let command = global.into_iter().fold(command, set);
    COMMANDS
        .iter()
        .fold(command, |command, path| at(command, path, &|sub| own.iter().copied().fold(sub, set)))
}

/// Changes the subcommand at a path.
fn at(command: Command, path: &[&str], change: &dyn Fn(Command) -> Command) -> Command {
    match path {
        [] => change(command),
        [name, rest @ ..] => {
            let rest = rest.to_vec();
            command.mut_subcommand(*name, |sub| at(sub, &rest, change))
        }
    }
}

fn set(command: Command, given: &Given) -> Command {
    command.mut_arg(given.key.option, |option| option.default_value(OsStr::from(given.text.clone())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn checked(text: &str) -> Result<Vec<Given>, String> {
        let file = File::of(text);
        file.entries()
            .and_then(|entries| check(&file, &entries, &Cli::command()))
            .map_err(|failure| format!("{failure:?}"))
    }

    #[test]
    fn values_are_checked_by_the_options() {
        let given = checked("[relay]\nlease = \"5s\"\nmax_in_flight = 7\nfail_fast = true\n").unwrap();
        let texts: Vec<_> = given.iter().map(|given| (given.key.option, given.text.as_str())).collect();
        assert_eq!(texts, [("lease", "5s"), ("max_in_flight", "7"), ("fail_fast", "true")]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            ("[relay]\nlease = 5\n", "line 2, column 9", "needs a unit, as in 5s"),
            ("[relay]\n  leese = \"5s\"\n", "line 2, column 3", "the nearest key is relay.lease"),
            ("[relya]\nlease = \"5s\"\n", "line 2, column 1", "the nearest key is relay.lease"),
            ("lease = \"5s\"\n", "line 1, column 1", "the nearest key is relay.lease"),
            ("[relay]\nfail_fast = \"true\"\n", "line 2", "without quotes"),
            ("[relay]\nlease = true\n", "line 2", "not true or false"),
            ("[relay]\nlease = [\"5s\"]\n", "line 2", "not a list"),
            ("[relay]\nlease = 2026-01-01\n", "line 2", "a date"),
            ("[relay]\nmax_in_flight = 0x10\n", "line 2", "another base"),
            ("[relay]\nmax_in_flight = 0\n", "line 2", "at least 1"),
            ("[relay]\non_dead = \"stop\"\n", "line 2", "must be one of skip, park"),
            ("[log]\nlevel = \"loud\"\n", "line 2", "must be one of error"),
            ("[relay]\nlease = \"5s\"\nlease = \"6s\"\n", "line 3", "duplicate key"),
            ("[relay\n", "line 1", "expected"),
            ("[[relay]]\nlease = \"5s\"\n", "line 2", "there is no key relay.0.lease"),
        ];
        for (text, place, said) in cases {
            let failure = checked(text).unwrap_err();
            assert!(failure.contains(place) && failure.contains(said), "{text}: {failure}");
        }
    }

    #[test]
    fn the_sample_has_every_key() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../posthaste.toml");
        let sample = std::fs::read_to_string(path).unwrap();
        let is_setting = |first: char| first.is_ascii_lowercase() || first == '[';
        let all = sample.lines().fold(String::new(), |text, line| {
            let setting = line.strip_prefix('#').filter(|rest| rest.starts_with(is_setting));
            text + setting.unwrap_or(line) + "\n"
        });
        let file = File::of(&all);
        let entries = file.entries().unwrap();
        check(&file, &entries, &Cli::command()).unwrap();
        let held: BTreeSet<_> = entries.iter().map(Entry::name).collect();
        let destination =
            outlets::destination_keys().into_iter().map(|key| format!("destinations.rabbit.{key}"));
        let routes = outlets::ROUTE_KEYS.map(|key| format!("routes.0.{key}"));
        let keys: BTreeSet<_> = KEYS.iter().map(Key::path).chain(destination).chain(routes).collect();
        assert_eq!(held, keys);
    }

    #[test]
    fn a_value_is_never_quoted() {
        for text in [
            "[database]\nurl = \"postgres://ann:s3cret@host/db\nx\"",
            "[database]\nurl = [\"postgres://ann:s3cret@host/db\"]",
            "[database]\nurl_fiel = \"s3cret\"",
            "[relay]\nlease = \"s3cret\"",
            "[relay]\non_dead = \"s3cret\"",
            "[relay]\nto = s3cret",
        ] {
            let failure = checked(text).unwrap_err();
            assert!(!failure.contains("s3cret"), "{failure}");
        }
    }

    #[test]
    fn no_damaged_file_panics_or_shows_a_value() {
        let valid = [
            "[database]\nurl = \"postgres://ann:Geh3im@host/db\"\n\n[relay]\nlease = \"5s\"\nmax_in_flight = 7\n",
            "[log]\nlevel = \"warn\"\n[relay]\nfail_fast = true\non_dead = \"park\"\n# a remark\n",
        ];
        // Damage may have made a key of it, and keys that are not known are named.
        let in_its_place = |text: &str| {
            let line = "\nurl = \"postgres://ann:Geh3im@host/db\"\n";
            text.matches("Geh3im").count() == 1 && text.contains(line)
        };
        posthaste_testkit::damaged_text(&valid, |text| {
            if let Err(failure) = checked(text) {
                assert!(!in_its_place(text) || !failure.contains("Geh3im"), "{failure}");
            }
        });
    }
}
