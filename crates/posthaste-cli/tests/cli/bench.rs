//! `bench`.

use std::process::Stdio;

use serde_json::Value;

use crate::mysql_server::KINDS;
use crate::support::{Bed, Ran, Running};

const SMALL: [&str; 6] = ["--messages", "200", "--warm-up", "20", "--repeats", "1"];

/// Runs a benchmark, and checks what every report has.
fn bench(bed: &Bed, options: &[&str]) -> Value {
    let report: Value =
        serde_json::from_str(&bed.ok(&[&["bench"], options, &SMALL, &["--json", "--quiet"]].concat()))
            .unwrap();
    assert_eq!(report["runs"].as_array().unwrap().len(), 1, "{report}");
    assert_eq!(report["grounds"].as_array().unwrap().len(), 1);
    for run in report["runs"].as_array().unwrap().iter().chain([&report["median"]]) {
        for figure in ["seconds", "cpu_seconds", "cpu_micros_per_message"] {
            assert!(run[figure].as_f64().unwrap() > 0.0, "{figure}: {run}");
        }
    }
    report
}

/// The figures of enqueueing, draining, and both.
fn check_all(bed: &Bed) -> Vec<Value> {
    let enqueue = bench(bed, &["enqueue", "--producers", "3"]);
    assert!(enqueue["median"]["latency"]["p99_ms"].as_f64().unwrap() > 0.0);
    let drain = bench(bed, &["drain", "--delete", "--keys", "10", "--blocked-keys", "3", "--relays", "2"]);
    assert_eq!(drain["median"]["messages"], 140);
    for report in [&enqueue, &drain] {
        let floor = &report["median"]["floors"][0];
        assert!(floor["per_second"].as_f64().unwrap() > 0.0, "{report}");
        assert!(floor["ratio"].as_f64().unwrap() > 0.0, "{report}");
    }
    let mixed = bench(bed, &["mixed", "--producers", "1", "--rate", "2000", "--hold-snapshot"]);
    for latency in ["latency", "enqueue_latency"] {
        assert!(mixed["median"][latency]["max_ms"].as_f64().unwrap() > 0.0, "{mixed}");
    }
    let floor = bench(bed, &["floor"]);
    assert_eq!(floor["median"]["floors"].as_array().unwrap().len(), 2, "{floor}");
    vec![enqueue, drain, mixed, floor]
}

fn grounds(reports: &[Value]) -> Vec<String> {
    let names = reports.iter().flat_map(|report| report["grounds"].as_array().unwrap());
    names.map(|name| name.as_str().unwrap().to_owned()).collect()
}

#[test]
fn sqlite_is_measured_and_its_file_removed() {
    let bed = Bed::bare();
    let reports = check_all(&bed);
    assert!(reports[1]["server"].as_str().unwrap().starts_with("SQLite 3."));
    assert_eq!(std::fs::read_dir(bed.path("")).unwrap().count(), 0);
}

#[test]
fn postgres_is_measured_and_its_schemas_removed() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    let reports = check_all(&bed);
    assert!(reports[1]["server"].as_str().unwrap().starts_with("PostgreSQL "));
    assert!(reports[1]["median"]["log_bytes_per_message"].as_f64().unwrap() > 0.0);
    for name in grounds(&reports) {
        let count = bed.schema().sql(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{name}'"));
        assert_eq!(count, "0", "{name}");
    }
    bench(&bed, &["drain", "--partition", "day", "--no-floor", "--skewed", "--payload", "fixed"]);
    bench(&bed, &["enqueue", "--unprepared", "--batch", "7", "--keys", "0", "--no-floor"]);
}

#[test]
fn mysql_is_measured_and_its_databases_removed() {
    for kind in KINDS {
        let bed = Bed::bare_on_mysql(kind);
        let reports = check_all(&bed);
        for name in grounds(&reports) {
            let sql =
                format!("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '{name}'");
            let count = bed.mysql().sql(&format!("SELECT IF(({sql}) = 0, 'gone', 'there')"));
            assert_eq!(count, "gone", "{name}");
        }
        bench(&bed, &["drain", "--layout", "binary", "--no-floor"]);
    }
}

#[test]
fn people_read_a_table() {
    let bed = Bed::bare();
    let text =
        bed.ok(&["bench", "drain", "--quiet", "--messages", "50", "--in-flight", "3", "--repeats", "3"]);
    for part in
        ["drain on SQLite 3.", "median of 3 runs", "msgs/s", "rows marked by the server alone", "; ratio "]
    {
        assert!(text.contains(part), "{text}");
    }
}

/// A benchmark that takes long, once it works in what it made.
fn long(bed: &Bed, options: &[&str]) -> (Running, String) {
    let load =
        ["bench", "mixed", "--rate", "200", "--messages", "1000000", "--warm-up", "0", "--repeats", "1"];
    let mut command = bed.command(&[&load[..], options].concat());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running::of(child);
    let line = running.wait_for_log("working in ");
    running.wait_for_log(" published");
    let name = line.split_once("working in ").unwrap().1.trim().to_owned();
    (running, name)
}

#[test]
fn an_interrupted_benchmark_removes_what_it_made() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    let gone = |name: &str| {
        bed.schema().sql(&format!("SELECT count(*) FROM pg_namespace WHERE nspname = '{name}'")) == "0"
    };
    let (running, name) = long(&bed, &[]);
    assert!(!gone(&name));
    running.signal("INT");
    let (code, stdout, stderr) = running.end();
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("error: interrupted"), "{stderr}");
    assert!(gone(&name));
    // And so does one whose parent is gone.
    let (mut running, name) = long(&bed, &["--with-parent"]);
    running.close_stdin();
    assert_eq!(running.end().0, Some(1));
    assert!(gone(&name));
    let bed = Bed::bare();
    let (running, _) = long(&bed, &[]);
    running.signal("TERM");
    assert_eq!(running.end().0, Some(1));
    assert_eq!(std::fs::read_dir(bed.path("")).unwrap().count(), 0);
}

#[test]
fn what_is_there_is_left_alone() {
    let bed = Bed::new();
    bed.enqueue_one(&["--event-type", "precious"]);
    bed.run(&["bench", "drain"]).failed_with(2, &["is there already", "name a file that is not there"]);
    bed.run(&["bench", "drain", "--table", "mine"]).failed_with(2, &["no table of yours"]);
    assert_eq!(bed.drain().len(), 1);
}

#[test]
fn loads_that_make_no_sense_are_refused() {
    let bed = Bed::bare();
    let cases: &[(&[&str], &str)] = &[
        (&["drain", "--payload-bytes", "31"], "--payload-bytes must be 32 to 1048576"),
        (&["drain", "--messages", "100000001"], "at most 100000000"),
        (&["drain", "--keys", "5", "--blocked-keys", "5"], "fewer than --keys"),
        (&["drain", "--blocked-keys", "5", "--skewed"], "cannot be used with"),
        (&["drain", "--messages", "0"], "at least 1"),
        (&["drain", "--partition", "day"], "no --partition"),
        (&["drain", "--layout", "json"], "no --layout"),
        (&["enqueue", "--rate", "0"], "at least 1"),
        (&["enqueue", "--to", "amqp://localhost"], "--to is for drain and mixed"),
        (&["drain", "--to", "kafka://localhost"], "null or an amqp:// URL"),
        (&["suite", "--resume", "--out", "nowhere"], "no nowhere/results.jsonl to go on with"),
        (&[], "Usage"),
    ];
    for (options, part) in cases {
        bed.run(&[&["bench"], *options].concat()).failed_with(2, &[part]);
    }
}

#[test]
fn a_broker_is_published_to() {
    let bed = Bed::bare();
    let url = crate::rabbitmq::broker();
    let drain = bench(&bed, &["drain", "--to", &url, "--keys", "10"]);
    assert!(drain["median"]["latency"]["p50_ms"].as_f64().unwrap() > 0.0, "{drain}");
    let floor = &drain["median"]["floors"][1];
    assert!(floor["what"].as_str().unwrap().starts_with("confirmed publishes"), "{drain}");
    bench(&bed, &["mixed", "--to", &url, "--rate", "1000", "--no-floor"]);
}

/// Runs the suite in the bed's directory.
fn suite(bed: &Bed, options: &[&str]) -> std::process::Command {
    let out = bed.path("out");
    bed.command(&[&["bench", "suite", "--plan", "tiny", "--out", out.to_str().unwrap()], options].concat())
}

/// A suite may take longer than other commands.
fn ran(mut command: std::process::Command) -> Ran {
    Ran::of(command.output().unwrap())
}

/// A suite is killed, and goes on where it was.
fn killed_and_resumed(bed: &Bed) {
    let child =
        suite(bed, &[]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running::of(child);
    running.wait_for_log("4 of ");
    running.signal("KILL");
    assert_eq!(running.end().0, None);
    let file = bed.path("out/results.jsonl");
    let before = std::fs::read_to_string(&file).unwrap();
    ran(suite(bed, &[])).failed_with(2, &["is there already", "--resume"]);
    ran(suite(bed, &["--resume"])).succeeded();
    let after = std::fs::read_to_string(&file).unwrap();
    let whole = before.rfind('\n').map_or("", |end| &before[..=end]);
    assert!(after.starts_with(whole), "{before} {after}");
    let report = std::fs::read_to_string(bed.path("out/report.md")).unwrap();
    for part in ["# Benchmarks on ", "plan `tiny`", "## Enqueueing", "![Enqueueing](enqueue.svg)"] {
        assert!(report.contains(part), "{part}: {report}");
    }
    assert!(!report.contains("failed"), "{report}");
    let csv = std::fs::read_to_string(bed.path("out/results.csv")).unwrap();
    assert_eq!(csv.lines().count(), after.lines().count());
    assert!(std::fs::read_to_string(bed.path("out/backlog.svg")).unwrap().contains("</svg>"));
    // The benchmark that was under way when its suite was killed has cleared up by itself.
    while std::fs::read_dir(bed.path("")).unwrap().count() > 1 {
        std::thread::yield_now();
    }
    // There is nothing left to do.
    ran(suite(bed, &["--resume"])).succeeded();
    ran(suite(bed, &["--resume", "--plan", "mini"])).failed_with(2, &["cannot be used multiple times"]);
}

#[test]
fn a_suite_that_is_killed_goes_on_where_it_was_on_sqlite() {
    killed_and_resumed(&Bed::bare());
}

#[test]
fn a_suite_that_is_killed_goes_on_where_it_was_on_postgres() {
    if let Some(bed) = Bed::bare_on_postgres() {
        killed_and_resumed(&bed);
    }
}
