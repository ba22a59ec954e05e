//! How output behaves: readers that go away, full disks, no colours where there is no terminal.

use std::fs::OpenOptions;
use std::process::Stdio;

use crate::support::{Bed, Ran, bare_command, run};

const READING: &[&[&str]] = &[
    &["status"],
    &["status", "--json"],
    &["list"],
    &["list", "--json"],
    &["migrate", "--print"],
    &["migrate", "--check"],
    &["redrive", "--all"],
    &["purge", "--older-than", "1d"],
    &["enqueue", "--event-type", "e"],
    &["--help"],
    &["--version"],
];

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let bed = Bed::new();
    for arguments in READING {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = bed.command(arguments).stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        let ran = Ran::of(child.wait_with_output().unwrap());
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let bed = Bed::new();
    bed.enqueue_one(&["--event-type", "e"]);
    for arguments in READING.iter().filter(|arguments| !arguments[0].starts_with("--")) {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let child = bed.command(arguments).stdout(full).stderr(Stdio::piped()).spawn().unwrap();
        Ran::of(child.wait_with_output().unwrap()).failed_with(1, &["the output cannot be written"]);
    }
}

#[test]
fn a_closed_stderr_is_nothing_to_panic_about() {
    let bed = Bed::new();
    bed.enqueue_one(&["--event-type", "e"]);
    for (arguments, code) in
        [(&["relay", "--drain", "-v"][..], 0), (&["status", "--nonsense"], 2), (&["show", "7"], 2)]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = bed.command(arguments).stdout(Stdio::piped()).stderr(writer).spawn().unwrap();
        assert_eq!(Ran::of(child.wait_with_output().unwrap()).code, code, "{arguments:?}");
    }
}

#[test]
fn there_are_no_colours_without_a_terminal() {
    let bed = Bed::new();
    bed.enqueue_one(&["--event-type", "bad"]);
    bed.kill_bad_messages();
    for arguments in READING.iter().chain([&["relay", "--drain", "-v"][..]].iter()) {
        let ran = bed.run(arguments);
        assert!(!ran.stdout.contains('\x1b') && !ran.stderr.contains('\x1b'), "{ran:?}");
    }
}

#[test]
fn text_from_the_database_cannot_steer_the_terminal() {
    let bed = Bed::new();
    let id = bed.enqueue_one(&["--event-type", "a\x1b[31mb", "--payload", "c\x1b[2Jd", "--header", "e=\x07"]);
    for text in [bed.ok(&["list"]), bed.ok(&["show", &id])] {
        assert!(!text.contains(['\x1b', '\x07']), "{text:?}");
    }
    assert_eq!(bed.show(&id)["payload"], "c\x1b[2Jd");
}

#[test]
fn every_command_has_help_and_a_version_exists() {
    let commands =
        ["demo", "migrate", "enqueue", "relay", "status", "list", "show", "redrive", "discard", "purge"];
    let help = run(bare_command(&["--help"]), b"").succeeded();
    for command in commands {
        assert!(help.contains(&format!("\n  {command} ")), "{command} is not in {help}");
        let help = run(bare_command(&[command, "--help"]), b"").succeeded();
        assert!(help.contains("Examples:") && help.contains("--database-url"), "{help}");
    }
    assert!(run(bare_command(&["--version"]), b"").succeeded().starts_with("posthaste "));
}

#[test]
fn a_stdout_that_cannot_be_written_publishes_nothing() {
    let bed = Bed::new();
    bed.enqueue_one(&["--event-type", "e"]);
    let null = OpenOptions::new().read(true).open("/dev/null").unwrap();
    let child = bed.command(&["relay", "--drain"]).stdout(null).stderr(Stdio::piped()).spawn().unwrap();
    Ran::of(child.wait_with_output().unwrap()).failed_with(1, &["stdout is open for reading only"]);
    assert_eq!(bed.status()["ready"], 1);
}

#[test]
fn a_closed_stdout_is_warned_of() {
    let bed = Bed::new();
    bed.enqueue_one(&["--event-type", "e"]);
    let null = OpenOptions::new().read(true).write(true).open("/dev/null").unwrap();
    let child = bed.command(&["relay", "--once"]).stdout(null).stderr(Stdio::piped()).spawn().unwrap();
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert!(ran.stderr.contains("stdout is closed or the null device"), "{}", ran.stderr);
}
