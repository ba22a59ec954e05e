//! Bad usage and bad input: exit code 2, one line that says what is wrong, and nothing is changed.

use crate::support::{Bed, bare_command, run};

/// Refused with exit code 2 and a line that has these parts, and the outbox stays empty.
fn refused(arguments: &[&str], parts: &[&str]) {
    let bed = Bed::new();
    bed.run(arguments).failed_with(2, parts);
    assert_eq!(bed.status()["ready"], 0);
}

#[test]
fn names_that_are_empty_or_too_long() {
    let long = "x".repeat(129);
    refused(&["enqueue", "--event-type", ""], &["event_type is empty"]);
    refused(&["enqueue", "--event-type", &long], &["event_type has 129 characters"]);
    let aggregate = format!("order/{long}");
    refused(
        &["enqueue", "--event-type", "e", "--aggregate", &aggregate],
        &["aggregate_id has 129 characters"],
    );
    let aggregate = format!("{long}/7");
    refused(&["enqueue", "--event-type", "e", "--aggregate", &aggregate], &["aggregate_type has 129"]);
    let fits = "é".repeat(128);
    Bed::new().ok(&["enqueue", "--event-type", &fits]);
}

#[test]
fn an_aggregate_without_a_type_or_an_id() {
    for aggregate in ["7", "/7", "order/", "", "/"] {
        refused(&["enqueue", "--event-type", "e", "--aggregate", aggregate], &["TYPE/ID"]);
    }
    let bed = Bed::new();
    let line = "{\"event_type\":\"e\",\"aggregate_id\":\"7\"}\n";
    bed.run_with_input(&["enqueue", "--ndjson", "-"], line)
        .failed_with(2, &["line 1: aggregate_id is set but aggregate_type is empty"]);
}

#[test]
fn ids_that_are_no_uuid_of_version_7() {
    refused(&["enqueue", "--event-type", "e", "--id", "7"], &["not a UUID"]);
    let version_4 = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    refused(&["enqueue", "--event-type", "e", "--id", version_4], &["version 7"]);
    for command in ["show", "redrive", "discard"] {
        refused(&[command, "7"], &["no message id"]);
    }
}

#[test]
fn json_that_is_none_is_refused_before_sql_unless_told_otherwise() {
    let bed = Bed::bare();
    let broken =
        ["enqueue", "--event-type", "e", "--content-type", "application/json", "--payload", "{\"a\":"];
    // There is no database: the payload was looked at first.
    bed.run(&broken).failed_with(2, &["not valid JSON"]);
    bed.ok(&["migrate"]);
    bed.ok(&[&broken[..], &["--no-validate-payload"]].concat());
    assert_eq!(bed.drain()[0]["payload"], "{\"a\":");
}

#[test]
fn headers_that_are_no_flat_object() {
    let bed = Bed::new();
    let cases = [
        (r#"{"a": 1}"#, "flat object of texts"),
        (r#"{"a": {"b": "c"}}"#, "flat object of texts"),
        (r#"{"a": null}"#, "flat object of texts"),
        (r#"["a"]"#, "flat object"),
        (r#""a""#, "flat object"),
        (r#"{"a": "1", "a": "2"}"#, "twice"),
        ("", "EOF"),
        (r#"{"": "x"}"#, "header name"),
    ];
    for (content, part) in cases {
        let file = bed.file("headers.json", content);
        bed.run(&["enqueue", "--event-type", "e", "--headers-file", &file]).failed_with(2, &[part]);
    }
    bed.run(&["enqueue", "--event-type", "e", "--headers-file", "nowhere.json"])
        .failed_with(2, &["nowhere.json cannot be read"]);
    bed.run(&["enqueue", "--event-type", "e", "--header", "a"]).failed_with(2, &["NAME=VALUE"]);
    bed.run(&["enqueue", "--event-type", "e", "--header", "a=1", "--header", "a=2"])
        .failed_with(2, &["twice"]);
    assert_eq!(bed.status()["ready"], 0);
    bed.ok(&[
        "enqueue",
        "--event-type",
        "e",
        "--headers-file",
        &bed.file("h", r#"{"": "x"}"#),
        "--no-validate-headers",
    ]);
}

#[test]
fn a_payload_over_the_limit() {
    let bed = Bed::new();
    let big = "x".repeat(1024 * 1024 + 1);
    let file = bed.file("big", &big);
    for source in [file.as_str(), "-"] {
        let arguments = ["enqueue", "--event-type", "e", "--payload-file", source];
        bed.run_with_input(&arguments, &big).failed_with(2, &["max_payload_bytes", "hint: "]);
    }
    bed.ok(&["enqueue", "--event-type", "e", "--payload-file", &file, "--max-payload-bytes", "2000000"]);
    bed.run(&["enqueue", "--event-type", "e", "--payload", "abc", "--max-payload-bytes", "2"])
        .failed_with(2, &["payload has 3 bytes"]);
    assert_eq!(bed.status()["ready"], 1);
}

pub(crate) fn a_bad_line_7_is_named_and_nothing_is_enqueued(bed: &Bed) {
    let good = "{\"event_type\":\"e\"}\n";
    let bad = [
        "{",
        "7",
        "[]",
        "{\"event_type\":\"e\",\"typo\":1}",
        "{\"event_type\":\"\"}",
        "{\"event_type\":\"e\",\"payload\":7}",
        "{\"event_type\":\"e\",\"payload\":\"x\",\"payload_base64\":\"AA==\"}",
        "{\"event_type\":\"e\",\"payload_base64\":\"!\"}",
        "{\"event_type\":\"e\",\"headers\":{\"a\":1}}",
        "{\"event_type\":\"e\",\"delay\":\"0s\"}",
        "{\"event_type\":\"e\",\"delay\":-1}",
        "{\"event_type\":\"e\",\"delay\":\"soon\"}",
        "{\"event_type\":\"e\",\"id\":\"7\"}",
        "{\"event_type\":\"e\",\"content_type\":\"application/json\",\"payload\":\"{\"}",
    ];
    for line in bad {
        let input = format!("{}{line}\n{good}", good.repeat(6));
        let ran = bed.run_with_input(&["enqueue", "--ndjson", "-"], &input);
        ran.failed_with(2, &["line 7: "]);
        let file = bed.file("messages.ndjson", &input);
        bed.run(&["enqueue", "--ndjson", &file]).failed_with(2, &["line 7: "]);
    }
    let not_utf8 = [good.repeat(6).as_bytes(), b"{\"event_type\":\"\xff\"}\n"].concat();
    bed.run_with_input(&["enqueue", "--ndjson", "-"], not_utf8).failed_with(2, &["line 7: "]);
    assert_eq!(bed.status()["ready"], 0);
}

pub(crate) fn a_duplicate_in_ndjson_is_named_and_nothing_is_enqueued(bed: &Bed) {
    let id = bed.enqueue_one(&["--event-type", "e", "--idempotency-key", "k"]);
    let lines = [
        r#"{"event_type":"e","idempotency_key":"k"}"#.to_owned(),
        format!(r#"{{"event_type":"e","id":"{id}"}}"#),
    ];
    for line in lines {
        let input = format!("{{\"event_type\":\"e\"}}\n\n{line}\n{{\"event_type\":\"e\"}}\n");
        bed.run_with_input(&["enqueue", "--ndjson", "-"], input).failed_with(1, &["line 3: "]);
    }
    assert_eq!(bed.status()["ready"], 1);
}

#[test]
fn durations_and_numbers_that_are_zero_or_negative() {
    let options = [
        (&["enqueue", "--event-type", "e", "--delay"][..], "duration"),
        (&["purge", "--older-than"], "duration"),
        (&["partitions", "--lookahead"], "duration"),
        (&["partitions", "--retention"], "duration"),
        (&["partitions", "--check-every"], "duration"),
        (&["migrate", "--lanes"], "number"),
        (&["relay", "--for"], "duration"),
        (&["relay", "--lease"], "duration"),
        (&["relay", "--publish-timeout"], "duration"),
        (&["relay", "--drain-timeout"], "duration"),
        (&["relay", "--idle-poll"], "duration"),
        (&["relay", "--retry-base"], "duration"),
        (&["relay", "--retry-cap"], "duration"),
        (&["relay", "--retain"], "duration"),
        (&["relay", "--max-in-flight"], "number"),
        (&["relay", "--window-rows"], "number"),
        (&["relay", "--window-bytes"], "number"),
        (&["relay", "--max-attempts"], "number"),
        (&["list", "--limit"], "number"),
        (&["purge", "--older-than", "1d", "--limit"], "number"),
        (&["redrive", "--all", "--rate"], "number"),
        (&["enqueue", "--event-type", "e", "--max-payload-bytes"], "number"),
        (&["demo", "--messages"], "number"),
        (&["demo", "--keys"], "number"),
    ];
    let bed = Bed::new();
    for (arguments, kind) in options {
        let (values, zero) = match kind {
            "duration" => (["0s", "-1s", "soon"], "longer than zero"),
            _ => (["0", "-1", "many"], "at least 1"),
        };
        for (value, part) in values.into_iter().zip([zero, "negative", "invalid value"]) {
            bed.run(&[arguments, &[value]].concat()).failed_with(2, &[part]);
        }
    }
    for fail in ["-0.1", "1.1", "often"] {
        bed.run(&["demo", "--fail", fail]).failed_with(2, &["from 0 (never) to 1 (always)"]);
    }
}

#[test]
fn settings_that_contradict_each_other() {
    let bed = Bed::new();
    bed.run(&["relay", "--drain", "--retry-base", "10s", "--retry-cap", "5s"]).failed_with(2, &["cap"]);
    let usage_errors: &[&[&str]] = &[
        &["relay", "--once", "--drain"],
        &["relay", "--drain", "--for", "1s"],
        &["relay", "--to", "nowhere"],
        &["relay", "-v", "-q"],
        &["enqueue"],
        &["enqueue", "--payload", "x"],
        &["enqueue", "--event-type", "e", "--ndjson", "-"],
        &["enqueue", "--ndjson", "-", "--payload", "x"],
        &["enqueue", "--event-type", "e", "--payload", "x", "--payload-file", "y"],
        &["migrate", "--print", "--check"],
        &["migrate", "--inbox-only", "--lanes", "8"],
        &["migrate", "--partition", "week"],
        &["partitions", "--once", "--check-every", "1h"],
        &["redrive"],
        &["redrive", "--all", "--event-type", "e"],
        &["redrive", "--all", "01890a5d-ac96-774b-bcce-b302099a8057"],
        &["discard"],
        &["discard", "--all-dead", "--event-type", "e"],
        &["purge"],
        &["list", "--state", "asleep"],
        &["show"],
        &["nonsense"],
        &["status", "--nonsense"],
    ];
    for arguments in usage_errors {
        bed.run(arguments).failed_with(2, &[]);
    }
    assert_eq!(run(bare_command(&[]), b"").code, 2);
}

#[test]
fn urls_that_are_none() {
    let cases = [
        ("", "database URL is empty"),
        ("outbox.db", "has no scheme"),
        ("oracle://host/db", "unknown database scheme \"oracle\""),
        ("postgres:host/db", "names no server"),
        ("mysql:host/db", "names no server"),
        ("sqlite:", "names no file"),
        ("sqlite::memory:", "name a file"),
    ];
    for (url, part) in cases {
        for command in ["status", "migrate"] {
            run(bare_command(&[command, "--database-url", url]), b"").failed_with(2, &[part, "hint: "]);
        }
    }
    run(bare_command(&["status"]), b"").failed_with(2, &["no database is named", "POSTHASTE_DATABASE_URL"]);
}

#[test]
fn table_names_that_are_none() {
    for table in ["", "sqlite_outbox", "a\nb", &"x".repeat(64)] {
        let bed = Bed::bare();
        for command in ["migrate", "status"] {
            assert_eq!(bed.run(&[command, "--table", table]).failed_with(2, &[]).code, 2);
        }
    }
}

#[test]
fn a_password_is_never_printed() {
    let urls = [
        "postgres://ann:s3cret@host/db",
        "mysql://ann:s3cret@host/db",
        "oracle://ann:s3cret@host/db",
        "postgres://ann:p/w@s3cret@host/db",
        "postgres://host/db?password=s3cret",
    ];
    let commands: &[&[&str]] = &[
        &["status"],
        &["migrate"],
        // It would wait for the server otherwise.
        &["relay", "--fail-fast"],
        &["list"],
        &["enqueue", "--event-type", "e"],
        &["redrive", "--all"],
        &["status", "--nonsense"],
        &["status", "--help"],
    ];
    let secretive = |ran: &crate::support::Ran| {
        assert!(!ran.stdout.contains("s3cret") && !ran.stderr.contains("s3cret"), "{ran:?}");
    };
    for url in urls {
        for arguments in commands {
            let mut command = bare_command(arguments);
            command.env("POSTHASTE_DATABASE_URL", url);
            let ran = run(command, b"");
            secretive(&ran);
            assert!(!ran.stderr.contains("warning"), "the environment is the right place: {ran:?}");

            let ran = run(bare_command(&[arguments, &["--database-url", url][..]].concat()), b"");
            secretive(&ran);
        }
        let ran = run(bare_command(&["--database-url", url, "status"]), b"");
        assert!(ran.stderr.starts_with("warning: the password"), "{ran:?}");
        let ran = run(bare_command(&["status", url]), b"");
        assert_eq!(ran.code, 2);
        secretive(&ran);
    }
}
