//! `demo`.

use crate::support::{Bed, Ran, bare_command, json_lines, run};

fn demo(arguments: &[&str]) -> Ran {
    run(bare_command(&[&["demo"], arguments].concat()), b"")
}

/// The number in the line that begins with a name.
fn figure(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no line {name:?} in {text}"));
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn every_promise_is_kept() {
    let text = demo(&["--messages", "400", "--keys", "20"]).succeeded();
    assert_eq!(figure(&text, "committed"), 400);
    assert_eq!(figure(&text, "published") + figure(&text, "dead"), 400, "{text}");
    assert!(figure(&text, "rolled back on purpose") > 0);
    for name in ["rolled back, but published", "lost", "duplicates", "order violations"] {
        assert_eq!(figure(&text, name), 0, "{text}");
    }
    assert!(text.contains("msgs/s") && text.contains("p50") && text.contains("p99"), "{text}");
    assert!(!text.contains("BROKEN"));
}

#[test]
fn extremes_work() {
    let text = demo(&["--messages", "1", "--keys", "1", "--fail", "0"]).succeeded();
    assert_eq!((figure(&text, "committed"), figure(&text, "retried")), (1, 0));
    let text = demo(&["--messages", "30", "--keys", "100", "--fail", "1"]).succeeded();
    assert_eq!((figure(&text, "published"), figure(&text, "dead")), (0, 30), "{text}");
}

#[test]
fn what_it_keeps_can_be_mended_with_the_commands_it_prints() {
    let bed = Bed::bare();
    let mut command = bare_command(&["demo", "--messages", "60", "--keys", "10", "--fail", "0.5", "--keep"]);
    command.env("TMPDIR", bed.path(""));
    let text = run(command, b"").succeeded();
    let dead = figure(&text, "dead");
    assert!(dead > 0, "{text}");
    let path = text.lines().find_map(|line| line.strip_prefix("database: ")).unwrap();
    let url = format!("sqlite:{path}");
    assert!(text.contains(&format!("posthaste --database-url '{url}' redrive --all")), "{text}");
    let other = |arguments: &[&str]| run(bare_command(&[&["--database-url", &url], arguments].concat()), b"");
    assert_eq!(other(&["redrive", "--all"]).succeeded(), format!("redriven {dead} messages\n"));
    assert_eq!(json_lines(&other(&["relay", "--drain", "-q"]).succeeded()).len() as u64, dead);
}

#[test]
fn it_cleans_up_after_itself() {
    let bed = Bed::bare();
    let mut command = bare_command(&["demo", "--messages", "20"]);
    command.env("TMPDIR", bed.path(""));
    run(command, b"").succeeded();
    assert_eq!(std::fs::read_dir(bed.path("")).unwrap().count(), 0);
}
