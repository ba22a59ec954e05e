//! The command-line tool and standalone relay of Posthaste, a transactional outbox.
//!
//! A command's way: [`cli`] parses it, its file under [`commands`] carries it out on a [`database`], and
//! [`output`] prints the result. [`failure`] says how it ends when it does not end well.

mod cli;
mod commands;
mod database;
mod demo;
mod durations;
mod failure;
mod logging;
mod ndjson;
mod numbers;
mod output;
mod progress;
mod shutdown;
mod stdout_publisher;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::cli::{Cli, Command};
use crate::database::{Target, has_password, redact};
use crate::failure::{Failure, note, tell};

fn main() -> ExitCode {
    let (cli, url_from_command_line) = match parse() {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let target = Target { url: cli.global.database_url, table: cli.global.table };
    if url_from_command_line && target.url.as_deref().is_some_and(has_password) {
        tell(
            "warning",
            "the password in --database-url can be seen by other users of this machine; better set \
             POSTHASTE_DATABASE_URL",
        );
    }
    match run(&target, cli.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(target: &Target, command: Command) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("threads cannot be started: {error}")))?;
    let result = runtime.block_on(dispatch(target, command));
    // A thread that is stuck in a write to a stalled pipe must not hold up the end.
    runtime.shutdown_background();
    result
}

async fn dispatch(target: &Target, command: Command) -> Result<(), Failure> {
    match command {
        Command::Demo(args) => commands::demo::run(args).await,
        Command::Migrate(args) => commands::migrate::run(target, args).await,
        Command::Enqueue(args) => commands::enqueue::run(target, args).await,
        Command::Relay(args) => commands::relay::run(target, args).await,
        Command::Status(args) => commands::status::run(target, args).await,
        Command::List(args) => commands::list::run(target, args).await,
        Command::Show(args) => commands::show::run(target, args).await,
        Command::Redrive(args) => commands::redrive::run(target, args).await,
        Command::Discard(args) => commands::discard::run(target, args).await,
        Command::Purge(args) => commands::purge::run(target, args).await,
    }
}

/// Parses the command line. The second value says whether the database URL stood on it.
fn parse() -> Result<(Cli, bool), ExitCode> {
    let parsed = Cli::command().try_get_matches().and_then(|matches| {
        let cli = Cli::from_arg_matches(&matches)?;
        Ok((cli, stands_on_command_line(&matches, "database_url")))
    });
    parsed.map_err(|error| usage_error(&error))
}

fn stands_on_command_line(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
        || matches.subcommand().is_some_and(|(_, matches)| stands_on_command_line(matches, id))
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
