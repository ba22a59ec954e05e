//! `bench`.

use std::process::Stdio;

use serde_json::Value;

use crate::mysql_server::KINDS;
use crate::support::{Bed, Running};

const SMALL: [&str; 6] = ["--messages", "200", "--warm-up", "20", "--repeats", "2"];

/// Runs a benchmark, and checks what every report has.
fn bench(bed: &Bed, options: &[&str]) -> Value {
    let report: Value =
        serde_json::from_str(&bed.ok(&[&["bench"], options, &SMALL, &["--json", "--quiet"]].concat()))
            .unwrap();
    assert_eq!(report["runs"].as_array().unwrap().len(), 2, "{report}");
    assert_eq!(report["grounds"].as_array().unwrap().len(), 2);
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
    let drain = bench(bed, &["drain", "--keys", "10", "--relays", "2", "--in-flight", "8"]);
    let delete = bench(bed, &["drain", "--delete", "--keys", "10", "--blocked-keys", "3"]);
    assert_eq!(delete["median"]["messages"], 140);
    for report in [&enqueue, &drain, &delete] {
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
    vec![enqueue, drain, delete, mixed, floor]
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
    let text = bed.ok(&[&["bench", "drain", "--quiet"][..], &SMALL].concat());
    for part in
        ["drain on SQLite 3.", "median of 2 runs", "msgs/s", "rows marked by the server alone", "; ratio "]
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
        (&[], "Usage"),
    ];
    for (options, part) in cases {
        bed.run(&[&["bench"], *options].concat()).failed_with(2, &[part]);
    }
}
