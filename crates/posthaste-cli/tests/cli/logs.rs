//! What must not be in a log, whatever `RUST_LOG` asks for.

use crate::mysql_server::KINDS;
use crate::rabbitmq::broker;
use crate::support::{Bed, Ran, run};

const MARK: &str = "m4rk3d-s3cret";

/// A relay's log with everything switched on, of a message that its destination sends back.
fn log(bed: &Bed, to: &str) -> String {
    let line = serde_json::json!({ "event_type": "e", "payload": MARK });
    let mut logs = String::new();
    for filter in [
        "trace",
        "lapin=trace,tokio_postgres=trace,mysql_async=trace,rustls=trace,hyper=trace,posthaste=trace",
    ] {
        bed.enqueue(&format!("{line}\n"));
        let mut command = bed.command(&["relay", "--once", "--http", "127.0.0.1:0"]);
        command.env("RUST_LOG", filter).env("POSTHASTE_TO", to);
        let Ran { stderr, .. } = run(command, b"");
        assert!(stderr.contains("DEBUG"), "{stderr}");
        logs.push_str(&stderr);
    }
    logs
}

fn check(log: &str) {
    let as_bytes = format!("{:?}", MARK.as_bytes());
    let as_numbers = as_bytes.trim_matches(['[', ']']);
    let base64 = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, MARK);
    for secret in [MARK, as_numbers, base64.trim_end_matches('='), "guest:guest"] {
        let place = log.lines().find(|line| line.contains(secret));
        assert_eq!(place, None, "{secret} was logged");
    }
    let foreign = log
        .lines()
        .find(|line| [" lapin", " tokio_postgres", " mysql_async"].iter().any(|name| line.contains(name)));
    assert_eq!(foreign, None);
}

/// An exchange of which no queue takes anything, so that the broker sends messages back.
fn to() -> String {
    format!("{}/?exchange=amq.topic&routing_key=nobody.{}", broker(), posthaste::MessageId::generate())
}

#[test]
fn neither_payloads_nor_passwords_are_logged_on_sqlite() {
    let bed = Bed::new();
    let log = log(&bed, &to());
    assert!(log.contains("unroutable"), "{log}");
    check(&log);
}

#[test]
fn neither_payloads_nor_passwords_are_logged_on_postgres() {
    let Some(bed) = Bed::on_postgres() else { return };
    check(&log(&bed, &to()));
}

#[test]
fn neither_payloads_nor_passwords_are_logged_on_mysql() {
    for kind in KINDS {
        let bed = Bed::on_mysql(kind);
        check(&log(&bed, &to()));
    }
}

#[test]
fn a_log_in_json_holds_nothing_else() {
    let bed = Bed::new();
    bed.enqueue_one(&["--event-type", "e"]);
    let ran = bed.run(&["relay", "--drain", "--to", "null", "--log-format", "json", "--log-level", "debug"]);
    let mut said = false;
    for line in ran.stderr.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        said |= line["message"].as_str().is_some_and(|text| text.starts_with("published 1 message"));
    }
    assert!(said, "{}", ran.stderr);
    ran.succeeded();
    let failing = ["relay", "--drain", "--log-format", "json", "--to", "null", "--http", "192.0.2.1:1"];
    let ran = bed.run(&failing);
    let line: serde_json::Value = serde_json::from_str(ran.stderr.lines().last().unwrap()).unwrap();
    assert_eq!((ran.code, &line["level"]), (1, &"ERROR".into()), "{}", ran.stderr);
    assert!(line["message"].as_str().unwrap().contains("cannot be listened at"), "{}", ran.stderr);
}
