//! Several destinations, and the routes that lead to them: `[destinations.NAME]` and `[[routes]]`.
//!
//! A destination has options as a command has, and so they are parsed: the file's values are defaults, then come
//! variables (`POSTHASTE_DESTINATION_NAME_KEY`), then `--set destinations.NAME.KEY=VALUE`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use clap::builder::OsStr;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use super::file::{Entry, File};
use super::layer::{check_value, reason};
use super::nearest::nearest;
use super::sources::{Sourced, Sources};
use crate::durations;
use crate::failure::Failure;
use crate::numbers::{at_least_one, at_least_one_u32};

/// What can be set about one destination. What is not set is as for the relay.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct DestinationArgs {
    /// `stdout`, `null`, or the URL of a RabbitMQ broker
    #[arg(long)]
    pub(crate) to: Option<String>,
    /// A file with it
    #[arg(long)]
    pub(crate) to_file: Option<String>,
    /// RabbitMQ: the exchange
    #[arg(long)]
    pub(crate) exchange: Option<String>,
    /// RabbitMQ: the template of the routing key
    #[arg(long)]
    pub(crate) routing_key: Option<String>,
    /// RabbitMQ: whether a message that no queue takes has failed
    #[arg(long)]
    pub(crate) mandatory: Option<bool>,
    /// RabbitMQ: whether messages survive a restart of the broker
    #[arg(long)]
    pub(crate) persistent: Option<bool>,
    /// RabbitMQ: how many channels share the work
    #[arg(long)]
    pub(crate) channels: Option<u16>,
    /// RabbitMQ: how often both sides show that they are alive
    #[arg(long, value_parser = durations::parse)]
    pub(crate) heartbeat: Option<Duration>,
    /// RabbitMQ: how long making a connection may take
    #[arg(long, value_parser = durations::parse)]
    pub(crate) connect_timeout: Option<Duration>,
    /// RabbitMQ: a PEM file with the certificates to trust
    #[arg(long)]
    pub(crate) ca_file: Option<String>,
    /// The most messages being published at the same time
    #[arg(long, value_parser = at_least_one, allow_hyphen_values = true)]
    pub(crate) max_in_flight: Option<NonZeroUsize>,
    /// The most messages a second
    #[arg(long, value_parser = at_least_one_u32, allow_hyphen_values = true)]
    pub(crate) rate_limit: Option<NonZeroU32>,
    /// How long one attempt may take
    #[arg(long, value_parser = durations::parse)]
    pub(crate) publish_timeout: Option<Duration>,
    /// Give a message up after so many failed attempts
    #[arg(long, value_parser = at_least_one_u32, allow_hyphen_values = true)]
    pub(crate) max_attempts: Option<NonZeroU32>,
    /// The longest wait after the first failed attempt
    #[arg(long, value_parser = durations::parse)]
    pub(crate) retry_base: Option<Duration>,
    /// The longest wait after any failed attempt
    #[arg(long, value_parser = durations::parse)]
    pub(crate) retry_cap: Option<Duration>,
}

impl DestinationArgs {
    /// A key that is set, and that only RabbitMQ has.
    pub(crate) fn of_rabbitmq(&self) -> Option<&'static str> {
        let keys = [
            ("exchange", self.exchange.is_some()),
            ("routing_key", self.routing_key.is_some()),
            ("mandatory", self.mandatory.is_some()),
            ("persistent", self.persistent.is_some()),
            ("channels", self.channels.is_some()),
            ("heartbeat", self.heartbeat.is_some()),
            ("connect_timeout", self.connect_timeout.is_some()),
            ("ca_file", self.ca_file.is_some()),
        ];
        keys.into_iter().find_map(|(key, is_set)| is_set.then_some(key))
    }
}

/// A destination.
#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) name: String,
    pub(crate) args: DestinationArgs,
    /// Its settings as text, and where they come from.
    pub(crate) sources: Sources,
}

/// A route; a pattern that is not given matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Route {
    pub(crate) event_type: Option<String>,
    pub(crate) aggregate_type: Option<String>,
    pub(crate) to: String,
}

/// Where messages go, if not all to one place.
#[derive(Debug, Default)]
pub(crate) struct Outlets {
    pub(crate) destinations: Vec<Destination>,
    pub(crate) routes: Vec<Route>,
}

/// The keys of a route.
pub(super) const ROUTE_KEYS: [&str; 3] = ["event_type", "aggregate_type", "to"];

fn command() -> Command {
    DestinationArgs::augment_args(Command::new("destination").no_binary_name(true).disable_help_flag(true))
}

/// The keys of a destination.
pub(crate) fn destination_keys() -> Vec<String> {
    command().get_arguments().map(|option| option.get_id().to_string()).collect()
}

/// Whether an entry of the file is about a destination or a route, and not wrong; `None`: it is about something else.
pub(super) fn check(file: &File, entry: &Entry) -> Option<Result<(), Failure>> {
    let path: Vec<&str> = entry.path.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["destinations", name, key] => Some(check_destination(file, entry, name, key)),
        ["routes", _, key] => Some(check_route(file, entry, key)),
        _ => None,
    }
}

fn check_destination(file: &File, entry: &Entry, name: &str, key: &str) -> Result<(), Failure> {
    check_name(name).map_err(|text| file.wrong(entry.key_at, &text))?;
    let command = command();
    let Some(option) = command.get_arguments().find(|option| option.get_id() == key) else {
        let known: Vec<_> =
            destination_keys().iter().map(|key| format!("destinations.{name}.{key}")).collect();
        return Err(file.unknown(entry, known.iter().map(String::as_str)));
    };
    check_value(Some(option), entry)
        .map_err(|text| file.wrong(entry.value_at, &format!("{}: {text}", entry.name())))
}

fn check_route(file: &File, entry: &Entry, key: &str) -> Result<(), Failure> {
    if !ROUTE_KEYS.contains(&key) {
        return Err(file.unknown(
            entry,
            ROUTE_KEYS.map(|key| match key {
                "event_type" => "routes.event_type",
                "aggregate_type" => "routes.aggregate_type",
                _ => "routes.to",
            }),
        ));
    }
    match &entry.value {
        super::file::Value::Text(_) => Ok(()),
        _ => Err(file.wrong(entry.value_at, &format!("{} is a text", entry.name()))),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_fine = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_fine) {
        return Err(format!(
            "{name:?} is no name of a destination: letters, digits, _, - and . (64 at most)"
        ));
    }
    Ok(())
}

impl Outlets {
    /// What the file, the environment and the command line say together.
    pub(super) fn of(entries: &[Entry], matches: &ArgMatches) -> Result<Self, Failure> {
        let sets = sets(matches)?;
        let in_file =
            entries.iter().filter(|entry| entry.path[0] == "destinations").map(|entry| &*entry.path[1]);
        let mut names: Vec<&str> = Vec::new();
        for name in in_file.chain(sets.keys().map(String::as_str)) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        check_variables(&names)?;
        let none = Vec::new();
        let destinations = names
            .into_iter()
            .map(|name| Destination::of(name, entries, sets.get(name).unwrap_or(&none)))
            .collect::<Result<Vec<_>, _>>()?;
        let given = given_routes(matches)?;
        let routes = if given.is_empty() { file_routes(entries)? } else { given };
        let outlets = Self { destinations, routes };
        outlets.check_routes()?;
        Ok(outlets)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.destinations.is_empty()
    }

    fn check_routes(&self) -> Result<(), Failure> {
        let names = || self.destinations.iter().map(|destination| destination.name.as_str());
        for route in &self.routes {
            if !names().any(|name| name == route.to) {
                let failure =
                    Failure::bad_input(format!("a route leads to {}, which is no destination", route.to));
                return Err(match nearest(&route.to, names()) {
                    Some(nearest) => failure.hint(format!("the nearest destination is {nearest}")),
                    None => failure.hint("a destination is a table [destinations.NAME]"),
                });
            }
        }
        if self.routes.is_empty() && self.destinations.len() > 1 {
            let failure = Failure::bad_input(
                "there are several destinations, and no route says which message goes where",
            );
            return Err(failure.hint("add [[routes]] with event_type or aggregate_type, and to"));
        }
        Ok(())
    }
}

impl Destination {
    fn of(name: &str, entries: &[Entry], sets: &[OsString]) -> Result<Self, Failure> {
        let of_this = |entry: &&Entry| entry.path[0] == "destinations" && entry.path[1] == name;
        let given: BTreeMap<&str, String> =
            entries.iter().filter(of_this).map(|entry| (&*entry.path[2], entry.value.text())).collect();
        let prepare = |option: Arg| {
            let id = option.get_id().to_string();
            let option = option.env(OsStr::from(variable(name, &id))).hide_env_values(true);
            match given.get(&*id) {
                Some(text) => option.default_value(OsStr::from(text.clone())),
                None => option,
            }
        };
        let matches =
            command().mut_args(prepare).try_get_matches_from(sets).map_err(|error| wrong(name, &error))?;
        let mut args = DestinationArgs::from_arg_matches(&matches).map_err(|error| wrong(name, &error))?;
        let values = destination_keys().into_iter().filter_map(|key| {
            let sourced = Sourced::of(&matches, &key, given.contains_key(&*key))?;
            Some((key, sourced))
        });
        let sources = Sources::of_destination(name, values.collect());
        if let Some(to) = sources.secret("to", "to_file")? {
            args.to = Some(to);
        }
        if args.to.is_none() {
            let failure = Failure::bad_input(format!("destinations.{name} has no `to`"));
            return Err(failure.hint("to = \"stdout\", \"null\" or the URL of a RabbitMQ broker, or to_file"));
        }
        Ok(Self { name: name.to_owned(), args, sources })
    }
}

/// What is wrong about a variable or a `--set`; the file was checked before.
fn wrong(name: &str, error: &clap::Error) -> Failure {
    use clap::error::{ContextKind, ContextValue};
    let option = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => option.split(' ').next().unwrap_or_default(),
        _ => "",
    };
    let key = option.trim_start_matches('-').replace('-', "_");
    let failure = match error.kind() {
        clap::error::ErrorKind::UnknownArgument => {
            Failure::bad_input(format!("there is no key destinations.{name}.{key}"))
        }
        _ => return Failure::bad_input(format!("destinations.{name}.{key}: {}", reason(error))),
    };
    let keys = destination_keys();
    match nearest(&key, keys.iter().map(String::as_str)) {
        Some(nearest) => failure.hint(format!("the nearest key is destinations.{name}.{nearest}")),
        None => failure,
    }
}

/// The variable of a destination's setting.
fn variable(name: &str, key: &str) -> String {
    let upper = |text: &str| text.to_uppercase().replace(['-', '.'], "_");
    format!("POSTHASTE_DESTINATION_{}_{}", upper(name), upper(key))
}

/// Two destinations must not share their variables.
fn check_variables(names: &[&str]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(variable(name, ""))) {
        Some(name) => Err(Failure::bad_input(format!(
            "two destinations would have the same variables: {name} and another that differs by case or punctuation"
        ))),
        None => Ok(()),
    }
}

/// `--set destinations.NAME.KEY=VALUE`, as options of each destination.
fn sets(matches: &ArgMatches) -> Result<BTreeMap<String, Vec<OsString>>, Failure> {
    let mut sets = BTreeMap::<String, Vec<OsString>>::new();
    for text in many(matches, "set") {
        let failure = || {
            Failure::bad_input("--set is written destinations.NAME.KEY=VALUE")
                .hint("everything else has an option of its own")
        };
        let (path, value) = text.split_once('=').ok_or_else(failure)?;
        let path = path.trim().strip_prefix("destinations.").ok_or_else(failure)?;
        let (name, key) = path.rsplit_once('.').ok_or_else(failure)?;
        check_name(name).map_err(Failure::bad_input)?;
        sets.entry(name.to_owned()).or_default().push(format!("--{}={value}", key.replace('_', "-")).into());
    }
    Ok(sets)
}

/// `--route EVENT_TYPE[@AGGREGATE_TYPE]=DESTINATION`.
fn given_routes(matches: &ArgMatches) -> Result<Vec<Route>, Failure> {
    many(matches, "route")
        .into_iter()
        .map(|text| {
            let (pattern, to) = text.rsplit_once('=').ok_or_else(|| {
                Failure::bad_input(
                    "--route is written EVENT_TYPE=DESTINATION or EVENT_TYPE@AGGREGATE_TYPE=DESTINATION",
                )
            })?;
            let (event_type, aggregate_type) = match pattern.split_once('@') {
                Some((event_type, aggregate_type)) => (event_type, Some(aggregate_type.to_owned())),
                None => (pattern, None),
            };
            Ok(Route { event_type: Some(event_type.to_owned()), aggregate_type, to: to.trim().to_owned() })
        })
        .collect()
}

fn many(matches: &ArgMatches, option: &str) -> Vec<String> {
    let mut innermost = matches;
    while let Some((_, matches)) = innermost.subcommand() {
        innermost = matches;
    }
    // An error: this command has no such option.
    innermost.try_get_many::<String>(option).ok().flatten().into_iter().flatten().cloned().collect()
}

fn file_routes(entries: &[Entry]) -> Result<Vec<Route>, Failure> {
    let mut routes = BTreeMap::<usize, Route>::new();
    for entry in entries.iter().filter(|entry| entry.path[0] == "routes") {
        let route = routes.entry(entry.path[1].parse().unwrap_or_default()).or_default();
        let text = entry.value.text();
        match &*entry.path[2] {
            "event_type" => route.event_type = Some(text),
            "aggregate_type" => route.aggregate_type = Some(text),
            _ => route.to = text,
        }
    }
    match routes.iter().find(|(_, route)| route.to.is_empty()) {
        Some((index, _)) => {
            Err(Failure::bad_input(format!("route {} has no `to`", index + 1)).hint("it names a destination"))
        }
        None => Ok(routes.into_values().collect()),
    }
}
