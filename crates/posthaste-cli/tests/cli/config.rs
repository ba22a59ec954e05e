//! `posthaste.toml`, `config check`, and which of file, environment and command line counts.

use std::process::Command;

use crate::support::{Bed, Ran, run};

const SAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../posthaste.toml");

fn check(bed: &Bed, file: &str, change: impl FnOnce(&mut Command)) -> Ran {
    let mut command = bed.command(&["config", "check", "--config", file]);
    command.env_remove("POSTHASTE_DATABASE_URL");
    change(&mut command);
    run(command, b"")
}

/// The lines that set something, without what is behind `#`.
fn settings(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && line.contains(" = "));
    lines.map(|line| line.split("  #").next().unwrap().to_owned()).collect()
}

#[test]
fn the_sample_holds_every_key_with_its_default() {
    let bed = Bed::bare();
    let sample = std::fs::read_to_string(SAMPLE).unwrap();
    // What is set by the sample is the default, but for the database, which has none.
    let set = settings(&check(&bed, SAMPLE, |_| {}).succeeded());
    let mut defaults = settings(
        &check(&bed, &bed.file("empty.toml", ""), |command| {
            command.env("POSTHASTE_DATABASE_URL", "sqlite:outbox.db");
        })
        .succeeded(),
    );
    defaults.retain(|line| !line.starts_with("name = "));
    assert_eq!(set, defaults);
    assert_eq!(settings(&sample), set);
}

#[test]
fn the_command_line_goes_before_the_environment_and_that_before_the_file() {
    let bed = Bed::bare();
    let file = bed.file("posthaste.toml", "[database]\nurl = \"sqlite:a.db\"\n[relay]\nlease = \"21s\"\nretry_base = \"22s\"\nmax_attempts = 23\n[log]\nformat = \"json\"\n");
    let printed = check(&bed, &file, |command| {
        command.env("POSTHASTE_LEASE", "31s").env("POSTHASTE_RETRY_BASE", "32s").args(["--lease", "41s"]);
    })
    .succeeded();
    for line in [
        "lease = \"41s\"  # command line",
        "retry_base = \"32s\"  # environment",
        "max_attempts = 23  # file",
        "format = \"json\"  # file",
        "retry_cap = \"5m\"  # default",
        "url = \"sqlite:a.db\"  # file",
    ] {
        assert!(printed.lines().any(|printed| printed == line), "no {line} in {printed}");
    }
    // What is printed is a configuration again.
    let again = check(&bed, &bed.file("again.toml", &printed), |_| {}).succeeded();
    assert_eq!(settings(&again), settings(&printed));
}

#[test]
fn no_secret_is_printed() {
    let bed = Bed::bare();
    let database = bed.file("database", "postgres://ann:s3cret@host/db\n");
    let to = "amqp://bob:s3cret@rabbit/?exchange=events";
    let text = format!(
        "[database]\nurl_file = {database:?}\nlisten_url = \"postgres://ann:s3cret@host/db\"\n[relay]\nto = \"{to}\"\n"
    );
    let file = bed.file("posthaste.toml", text);
    let ran = check(&bed, &file, |_| {});
    assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    let printed = ran.succeeded();
    assert!(!printed.contains("s3cret"), "{printed}");
    assert!(printed.contains("to = \"amqp://bob:***@rabbit/?exchange=events\"  # file"), "{printed}");
    assert!(printed.contains("url_file = "), "{printed}");
}

#[test]
fn what_is_wrong_is_said_with_its_place_and_changes_nothing() {
    let bed = Bed::new();
    let cases = [
        ("[relay]\nmax_atempts = 3\n", "posthaste.toml, line 2, column 1: there is no key relay.max_atempts"),
        ("[relay]\nmax_atempts = 3\n", "hint: the nearest key is relay.max_attempts"),
        ("[relay]\nlease = \"soon\"\n", "line 2, column 9: relay.lease: is no length of time"),
        ("[relay]\nretry_base = \"10m\"\n", "the backoff's cap is below its start"),
        ("[relay]\nto = \"rabbit\"\n", "--to names no destination"),
        ("[relay]\nto = \"amqp://ann:s3cret@h/?exchange=x&channels=65\"\n", "channels must be 1 to 64"),
        ("[database]\nno_listen = true\n", "--no-listen is for PostgreSQL"),
        ("[database]\ntable = \"\"\n", "table"),
        ("[relay]\nto_file = \"/nowhere/to\"\n", "relay.to_file: /nowhere/to cannot be read"),
        ("[relay]\nlease = \n", "line 2"),
    ];
    for (text, said) in cases {
        let file = bed.file("posthaste.toml", text);
        for command in [&["config", "check"][..], &["relay", "--drain"]] {
            let ran = bed.run(&[command, &["--config", &file]].concat());
            ran.failed_with(2, &[said]);
            assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
        }
    }
    bed.run(&["status", "--config", "nowhere.toml"]).failed_with(2, &["nowhere.toml cannot be read"]);
}

#[test]
fn every_command_takes_its_database_from_the_file() {
    let bed = Bed::new();
    bed.enqueue_one(&["--event-type", "e"]);
    let secret = bed.file("database-url", format!("{}\n", bed.url()));
    let file = bed
        .file("posthaste.toml", format!("[database]\nurl_file = {secret:?}\n[relay]\nretain = \"delete\"\n"));
    let with_file = |arguments: &[&str]| {
        let mut command = bed.command(arguments);
        command.env_remove("POSTHASTE_DATABASE_URL").env("POSTHASTE_CONFIG", &file);
        run(command, b"").succeeded()
    };
    assert!(with_file(&["status"]).contains("ready"));
    assert_eq!(with_file(&["relay", "--drain", "-q"]).lines().count(), 1);
    assert!(bed.list(&[]).is_empty(), "the file's retention counts");
}

#[test]
fn a_secret_in_the_environment_goes_before_a_file_and_not_beside_one() {
    let bed = Bed::new();
    let file = bed.file("posthaste.toml", "[database]\nurl_file = \"/nowhere\"\n");
    // POSTHASTE_DATABASE_URL is set: the file that is not there does not matter.
    bed.ok(&["status", "--config", &file]);
    let mut command = bed.command(&["status"]);
    command.env("POSTHASTE_DATABASE_URL_FILE", "/nowhere");
    run(command, b"").failed_with(2, &["database.url and database.url_file are both given (environment)"]);
    let empty = bed.file("empty", "\n");
    bed.run(&["status", "--database-url-file", &empty]).failed_with(2, &["is empty"]);
}
