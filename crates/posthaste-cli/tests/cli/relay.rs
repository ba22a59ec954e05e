//! `relay`: ends as told, drains when asked to stop, loses nothing.

use serde_json::Value;

use crate::support::{Bed, check_numbered, json_lines, numbered_lines};

pub(crate) fn drain_publishes_everything_in_order_and_ends(bed: &Bed) {
    bed.enqueue(&numbered_lines(3_000, 7));
    let ran = bed.run(&["relay", "--drain"]);
    assert!(ran.stderr.contains("published 3000 messages in "), "{}", ran.stderr);
    assert_eq!(check_numbered(&json_lines(&ran.succeeded()), 3_000), 0);
    let status = bed.status();
    assert_eq!((&status["ready"], &status["relays"]), (&Value::from(0), &Value::Array(vec![])));
    assert_eq!(bed.drain(), Vec::<Value>::new());
}

pub(crate) fn once_does_one_round_and_null_swallows(bed: &Bed) {
    assert_eq!(bed.ok(&["relay", "--once", "-q"]), "");
    bed.enqueue(&numbered_lines(10, 3));
    let ran = bed.run(&["relay", "--once", "--to", "null"]);
    assert!(ran.stderr.contains("published 10 messages"), "{}", ran.stderr);
    assert_eq!(ran.succeeded(), "");
    assert_eq!(bed.status()["ready"], 0);
}

pub(crate) fn for_a_time_ends_by_itself(bed: &Bed) {
    bed.enqueue(&numbered_lines(10, 3));
    let published = json_lines(&bed.ok(&["relay", "--for", "300ms", "-q"]));
    assert_eq!(check_numbered(&published, 10), 0);
}

pub(crate) fn retain_decides_what_is_kept(bed: &Bed) {
    bed.enqueue(&numbered_lines(5, 1));
    bed.ok(&["relay", "--drain", "-q", "--retain", "delete"]);
    assert_eq!(bed.list(&[]), Vec::<Value>::new());
    for retain in ["forever", "1h"] {
        bed.enqueue(&numbered_lines(1, 1));
        bed.ok(&["relay", "--drain", "-q", "--retain", retain]);
    }
    assert_eq!(bed.list(&["--state", "processed"]).len(), 2);
}

#[test]
fn a_relay_that_runs_publishes_what_comes_and_drains_on_sigterm_and_ctrl_c() {
    for signal in ["TERM", "INT"] {
        let bed = Bed::new();
        let mut relay = bed.start(&["relay", "--idle-poll", "10ms"]);
        let id = bed.enqueue_one(&["--event-type", "first"]);
        assert!(relay.line().contains(&id));
        bed.enqueue(&numbered_lines(2_000, 20));
        let mut text = relay.line();
        relay.signal(signal);
        let (code, rest, stderr) = relay.end();
        assert_eq!(code, Some(0), "{stderr}");
        assert!(stderr.contains("stopping") && stderr.contains("published "), "{stderr}");
        text.push_str(&rest);
        let mut published = json_lines(&text);
        assert_eq!(bed.status()["relays"], Value::Array(vec![]), "the lanes were given back");
        published.extend(bed.drain());
        assert_eq!(check_numbered(&published, 2_000), 0, "no repeats without a kill");
    }
}

pub(crate) fn a_reader_that_goes_away_ends_the_relay_and_nothing_is_lost_or_counted(bed: &Bed) {
    // More than the pipe holds, so that the relay cannot be done before the reader goes.
    bed.enqueue(&big_lines(600));
    let mut relay = bed.start(&["relay", "--drain"]);
    relay.line();
    relay.close_stdout();
    let (code, _, stderr) = relay.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("error: stdout was closed by its reader") && !stderr.contains("panicked"),
        "{stderr}"
    );
    let left = bed.list(&["--state", "ready", "--limit", "1000"]);
    assert!(!left.is_empty() && left.iter().all(|message| message["attempts"] == 0), "{left:?}");
    let processed = bed.list(&["--state", "processed", "--limit", "1000"]).len();
    assert_eq!(left.len() + processed, 600);
    assert_eq!(bed.drain().len(), left.len());
}

pub(crate) fn a_reader_that_stalls_costs_no_attempts_and_makes_no_repeats(bed: &Bed) {
    bed.enqueue(&big_lines(300));
    let mut relay = bed.start(&["relay", "--drain", "-v", "--publish-timeout", "200ms"]);
    relay.wait_for_log("stdout is not being read");
    let (code, stdout, stderr) = relay.end();
    assert_eq!(code, Some(0), "{stderr}");
    let published = json_lines(&stdout);
    assert!(published.iter().all(|line| line["attempt"] == 1));
    assert_eq!(check_numbered(&published, 300), 0);
}

#[test]
fn a_second_signal_abandons() {
    let bed = Bed::new();
    bed.enqueue(&big_lines(300));
    let mut relay = bed.start(&["relay", "--publish-timeout", "10m", "--drain-timeout", "10m"]);
    relay.line();
    relay.signal("TERM");
    relay.wait_for_log("stopping");
    relay.signal("TERM");
    relay.wait_for_log("abandoning");
    let (code, stdout, stderr) = relay.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("error: abandoned "), "{stderr}");
    assert!(stdout.len() < 300 * 10_000);
    let abandoned = bed.list(&["--state", "ready", "--limit", "1000"]);
    assert!(abandoned.iter().all(|message| message["attempts"] == 0));
    assert_eq!(bed.drain().len(), abandoned.len());
}

#[test]
fn of_two_relays_one_works_and_the_other_takes_over() {
    let bed = Bed::new();
    let options = ["relay", "--idle-poll", "10ms", "--lease", "2s"];
    let mut first = bed.start(&[&options[..], &["--name", "first"]].concat());
    bed.wait_for_status("led by the first", |status| status["lanes"]["leased"] == 1);
    let mut second = bed.start(&[&options[..], &["--name", "second"]].concat());
    bed.wait_for_status("with a second relay standing by", |status| {
        let relays = status["relays"].as_array().unwrap();
        let lanes = |name: &str| {
            relays.iter().find(|relay| relay["name"] == name).map(|relay| relay["lanes"].clone())
        };
        lanes("first") == Some(1.into()) && lanes("second") == Some(0.into())
    });
    let text = bed.ok(&["status"]);
    assert!(text.contains("first") && text.contains("second") && text.contains(" left"), "{text}");
    bed.enqueue(&numbered_lines(1_000, 10));
    let mut text = first.line();
    while text.lines().count() < 1_000 {
        text.push_str(&first.line());
    }
    first.signal("TERM");
    let (code, rest, stderr) = first.end();
    assert_eq!((code, rest.as_str()), (Some(0), ""), "{stderr}");
    let id = bed.enqueue_one(&["--event-type", "after"]);
    assert!(second.line().contains(&id), "the second relay goes on, and repeats nothing");
    second.signal("TERM");
    assert_eq!(second.end().0, Some(0));
    assert_eq!(check_numbered(&json_lines(&text), 1_000), 0);
}

pub(crate) fn logs_go_to_stderr_as_text_or_json(bed: &Bed) {
    bed.enqueue_one(&["--event-type", "e", "--payload", "s3cret"]);
    let ran = bed.run(&["relay", "--drain", "-vv", "--log-format", "json", "--name", "test relay"]);
    let logs: Vec<&str> = ran.stderr.lines().filter(|line| line.starts_with('{')).collect();
    assert!(logs.iter().any(|line| line.contains("relay started")), "{}", ran.stderr);
    for line in logs {
        serde_json::from_str::<Value>(line).unwrap();
    }
    assert!(!ran.stderr.contains("s3cret"), "payloads are never logged");
    assert_eq!(json_lines(&ran.succeeded()).len(), 1);
    let quiet = bed.run(&["relay", "--drain", "-q"]);
    assert_eq!(quiet.stderr, "");
}

/// As `numbered_lines`, and some 10 kB each.
fn big_lines(count: usize) -> String {
    let header = format!(",\"headers\":{{\"h\":\"{}\"}}}}\n", "x".repeat(10_000));
    numbered_lines(count, 50).replace("}\n", &header)
}
