//! `migrate`, and databases that are not as they should be.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

use crate::support::{Bed, Ran, bare_command, run};

/// Commands that need a database with tables.
pub(crate) const COMMANDS: &[&[&str]] = &[
    &["status"],
    &["list"],
    &["show", "01890a5d-ac96-774b-bcce-b302099a8057"],
    &["enqueue", "--event-type", "e"],
    &["relay", "--drain"],
    // It would wait for a server that is away otherwise.
    &["relay", "--fail-fast"],
    &["redrive", "--all"],
    &["discard", "--all-dead"],
    &["purge", "--older-than", "1d"],
    &["partitions", "--once"],
];

#[test]
fn migrate_makes_the_file_and_running_it_again_does_nothing() {
    let bed = Bed::bare();
    let applied = bed.ok(&["migrate"]);
    assert!(applied.starts_with("applied 1: "), "{applied}");
    assert_eq!(bed.ok(&["migrate"]), "up to date\n");
    assert_eq!(bed.ok(&["migrate", "--check"]), "up to date\n");
}

#[test]
fn check_fails_while_migrations_are_pending_and_changes_nothing() {
    let bed = Bed::bare();
    bed.run(&["migrate", "--check"]).failed_with(1, &[]);
    assert!(!bed.database().exists());
    rusqlite::Connection::open(bed.database()).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    for _ in 0..2 {
        let ran = bed.run(&["migrate", "--check"]);
        assert_eq!(ran.code, 1);
        assert!(ran.stdout.starts_with("pending 1: "), "{ran:?}");
    }
}

#[test]
fn printed_migrations_make_the_same_tables() {
    let bed = Bed::bare();
    let sql = run(bare_command(&["migrate", "--print"]), b"").succeeded();
    assert!(!bed.database().exists());
    rusqlite::Connection::open(bed.database()).unwrap().execute_batch(&sql).unwrap();
    bed.ok(&["enqueue", "--event-type", "e"]);
    assert_eq!(bed.ok(&["migrate", "--check"]), "up to date\n");
    assert_eq!(bed.drain().len(), 1);
}

#[test]
fn two_tables_in_one_database_do_not_meet() {
    let bed = Bed::new();
    bed.ok(&["migrate", "--table", "other"]);
    bed.ok(&["enqueue", "--event-type", "a"]);
    bed.ok(&["enqueue", "--event-type", "b", "--table", "other"]);
    let lines = bed.ok(&["--table", "other", "relay", "--drain", "-q"]);
    assert!(lines.contains("\"event_type\":\"b\"") && lines.lines().count() == 1, "{lines}");
    assert_eq!(bed.status()["ready"], 1);
}

#[test]
fn many_migrate_at_the_same_time() {
    let bed = Bed::bare();
    let children: Vec<_> = (0..6)
        .map(|_| bed.command(&["migrate"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
        .collect();
    let ran: Vec<_> =
        children.into_iter().map(|child| Ran::of(child.wait_with_output().unwrap()).succeeded()).collect();
    let applied = ran.iter().filter(|stdout| stdout.starts_with("applied 1")).count();
    assert_eq!(applied, 1, "{ran:?}");
    bed.ok(&["migrate", "--check"]);
}

#[test]
fn no_database_at_all() {
    for arguments in COMMANDS {
        let bed = Bed::bare();
        bed.run(arguments).failed_with(1, &["posthaste migrate"]);
        assert!(!bed.database().exists(), "{arguments:?} made a file");
    }
    let bed = Bed::bare();
    let url = format!("sqlite:{}", bed.path("nowhere/outbox.db").display());
    run(bare_command(&["migrate", "--database-url", &url]), b"")
        .failed_with(2, &["directory does not exist"]);
}

#[test]
fn a_database_that_is_not_migrated() {
    let bed = Bed::bare();
    rusqlite::Connection::open(bed.database()).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    for arguments in COMMANDS {
        bed.run(arguments).failed_with(1, &["posthaste migrate"]);
    }
}

#[test]
fn a_schema_newer_than_the_binary() {
    let bed = Bed::new();
    let database = rusqlite::Connection::open(bed.database()).unwrap();
    let columns = "INSERT INTO outbox_migrations (version, name) VALUES (9999, 'from the future')";
    database.execute_batch(columns).unwrap();
    for arguments in COMMANDS.iter().chain([&["migrate"][..], &["migrate", "--check"]].iter()) {
        bed.run(arguments).failed_with(1, &["newer"]);
    }
}

#[test]
fn a_table_of_that_name_that_is_no_outbox() {
    let bed = Bed::bare();
    let database = rusqlite::Connection::open(bed.database()).unwrap();
    database.execute_batch("CREATE TABLE outbox (letter TEXT); INSERT INTO outbox VALUES ('dear')").unwrap();
    bed.run(&["migrate"]).failed_with(1, &["hint: choose another name with --table"]);
    let kept: String = database.query_row("SELECT letter FROM outbox", [], |row| row.get(0)).unwrap();
    assert_eq!(kept, "dear");
}

#[test]
fn a_file_that_is_no_database() {
    let bed = Bed::bare();
    fs::write(bed.database(), "Dear diary, ".repeat(500)).unwrap();
    for arguments in COMMANDS.iter().chain([&["migrate"][..]].iter()) {
        bed.run(arguments).failed_with(2, &["not an SQLite database"]);
    }
    let directory = format!("sqlite:{}", bed.path("").display());
    run(bare_command(&["status", "--database-url", &directory]), b"").failed_with(2, &["directory"]);
}

#[test]
fn a_database_file_that_is_read_only() {
    let bed = Bed::new();
    bed.enqueue_one(&["--event-type", "e"]);
    let binary = bed.path("posthaste");
    fs::copy(env!("CARGO_BIN_EXE_posthaste"), &binary).unwrap();
    let mode =
        |path: &std::path::Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    mode(&binary, 0o755);
    mode(&bed.database(), 0o444);
    mode(&bed.path(""), 0o555);
    // Root may write everything, so the command runs as somebody else.
    let is_root = fs::OpenOptions::new().append(true).open(bed.database()).is_ok();
    for arguments in [&["enqueue", "--event-type", "e"][..], &["relay", "--drain"]] {
        let mut command = std::process::Command::new(&binary);
        command.args(arguments).env("POSTHASTE_DATABASE_URL", bed.url()).env_remove("RUST_LOG");
        if is_root {
            command.uid(65_534).gid(65_534);
        }
        run(command, b"").failed_with(1, &["hint: check the rights"]);
    }
    mode(&bed.path(""), 0o755);
    mode(&bed.database(), 0o644);
    assert_eq!(bed.status()["ready"], 1);
}
