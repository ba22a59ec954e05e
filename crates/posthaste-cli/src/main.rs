//! The command-line tool and standalone relay of Posthaste, a transactional outbox.
//!
//! A command's way: [`cli`] parses it, its file under [`commands`] carries it out on a [`database`], and
//! [`output`] prints the result. [`failure`] says how it ends when it does not end well.

mod bench;
mod cli;
mod commands;
mod config;
mod database;
mod demo;
mod durations;
mod failure;
mod health;
mod http;
mod logging;
mod metrics;
mod ndjson;
mod numbers;
mod output;
mod progress;
mod service;
mod shutdown;
mod stdout_check;
mod stdout_publisher;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::commands::config::What;
use crate::config::{Sources, Trouble};
use crate::database::{Settings, Target, has_password, redact};
use crate::failure::{Failure, note, tell};

fn main() -> ExitCode {
    let Parsed { cli, sources, with_password } = match parse() {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    for (_, option, variable) in URLS.iter().filter(|(id, ..)| with_password.contains(id)) {
        let text = format!(
            "the password in {option} can be seen by other users of this machine; better set {variable}"
        );
        tell("warning", &text);
    }
    let target =
        Target { url: cli.global.database_url, table: cli.global.table, settings: Settings::default() };
    match run(&target, cli.command, &sources) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(target: &Target, command: Command, sources: &Sources) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("threads cannot be started: {error}")))?;
    let result = runtime.block_on(dispatch(target, command, sources));
    // A thread that is stuck in a write to a stalled pipe must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn dispatch(target: &Target, command: Command, sources: &Sources) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => commands::demo::run(args).await,
        Command::Migrate(args) => commands::migrate::run(target, args).await,
        Command::Enqueue(args) => commands::enqueue::run(target, args).await,
        Command::Relay(args) => commands::relay::run(target, *args, sources).await,
        Command::Config(args) => {
            let What::Check(check) = args.command;
            commands::config::run(target, &check, sources)
        }
        Command::Status(args) => commands::status::run(target, args).await,
        Command::List(args) => commands::list::run(target, args).await,
        Command::Show(args) => commands::show::run(target, args).await,
        Command::Redrive(args) => commands::redrive::run(target, args).await,
        Command::Discard(args) => commands::discard::run(target, args).await,
        Command::Purge(args) => commands::purge::run(target, args).await,
        Command::Cleanup(args) => commands::cleanup::run(target, args).await,
        Command::Partitions(args) => commands::partitions::run(target, args).await,
        Command::Bench(args) => commands::bench::run(target, args).await,
    }
}

/// Options that hold a URL, and the variables in which it is better placed.
const URLS: [(&str, &str, &str); 4] = [
    ("database_url", "--database-url", "POSTHASTE_DATABASE_URL"),
    ("listen_url", "--listen-url", "POSTHASTE_LISTEN_URL"),
    ("to", "--to", "POSTHASTE_TO"),
    ("bench_to", "--to", "POSTHASTE_BENCH_TO"),
];

/// A command line that was parsed.
struct Parsed {
    cli: Cli,
    sources: Sources,
    /// Which options stand on it with a password.
    with_password: Vec<&'static str>,
}

fn parse() -> Result<Parsed, ExitCode> {
    let arguments: Vec<_> = std::env::args_os().collect();
    let (matches, sources) = match config::parse(&Cli::command(), &arguments) {
        Ok(parsed) => parsed,
        Err(Trouble::Usage(error)) => return Err(usage_error(&error)),
        Err(Trouble::File(failure)) => return Err(failure.report()),
    };
    let mut cli = Cli::from_arg_matches(&matches).map_err(|error| usage_error(&error))?;
    cli.resolve(&sources).map_err(|failure| failure.report())?;
    let ids = URLS.iter().map(|(id, ..)| *id);
    let with_password = ids.filter(|id| shows_password(&matches, id)).collect();
    Ok(Parsed { cli, sources, with_password })
}

/// Whether an option stands on the command line and holds a password.
fn shows_password(matches: &ArgMatches, id: &str) -> bool {
    // An error: this command has no such option.
    let url = matches.try_get_one::<String>(id).ok().flatten();
    let is_on_command_line = || matches.value_source(id) == Some(ValueSource::CommandLine);
    url.is_some_and(|url| is_on_command_line() && has_password(url))
        || matches.subcommand().is_some_and(|(_, matches)| shows_password(matches, id))
}

/// Prints help, the version, or what is wrong with the command line. A wrong argument is quoted there, and it
/// may be a URL with a password.
fn usage_error(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        _ if has_password(&error.to_string()) => {
            note(redact(&error.to_string()).trim_end());
            ExitCode::from(2)
        }
        _ => {
            let _ = error.print();
            ExitCode::from(2)
        }
    }
}
