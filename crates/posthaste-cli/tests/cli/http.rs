//! `relay --http`: health and metrics of the real binary.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use crate::door::Door;
use crate::server::server_url;
use crate::support::{Bed, Running, numbered_lines};

/// For a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(110);
/// So that asking does not keep the machine busy.
const PAUSE: Duration = Duration::from_millis(10);

/// Lets a moment pass between two questions.
fn pause() {
    let (_asking, asked) = mpsc::channel::<()>();
    let _ = asked.recv_timeout(PAUSE);
}

/// A relay that can be asked.
pub(crate) struct Asked {
    pub(crate) relay: Running,
    http: Http,
}

/// Where it can be asked.
pub(crate) struct Http(String);

impl std::ops::Deref for Asked {
    type Target = Http;

    fn deref(&self) -> &Http {
        &self.http
    }
}

impl Asked {
    /// Starts a relay with an HTTP port, to nowhere unless the options say otherwise.
    pub(crate) fn start(bed: &Bed, options: &[&str]) -> Self {
        let http = ["relay", "--http", "127.0.0.1:0", "--count-every", "20ms", "--idle-poll", "20ms"];
        let to: &[&str] = if options.contains(&"--to") { &[] } else { &["--to", "null"] };
        Self::of(bed.start(&[&http[..], to, options].concat()))
    }

    /// Waits until there is something.
    pub(crate) fn until_there_is<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "there never was {what}");
            pause();
        }
    }

    pub(crate) fn of(mut relay: Running) -> Self {
        let http = Http::in_log(&relay.wait_for_log("serving /livez")).unwrap();
        Self { relay, http }
    }
}

impl Http {
    /// The address that a log names.
    pub(crate) fn in_log(log: &str) -> Option<Self> {
        let (_, rest) = log.split_once("address=")?;
        Some(Self(rest.split_once('\n')?.0.trim().to_owned()))
    }

    /// The status and the body of an answer.
    pub(crate) fn ask(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.0).unwrap();
        let _ = write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap_or_default().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!("GET {path}"))
    }

    pub(crate) fn readiness(&self) -> (u16, Value) {
        let (status, body) = self.get("/readyz");
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Asks until the answer is as wished.
    pub(crate) fn until<T: std::fmt::Debug>(
        what: &str,
        mut ask: impl FnMut() -> T,
        wished: impl Fn(&T) -> bool,
    ) -> T {
        let began = Instant::now();
        loop {
            let answer = ask();
            if wished(&answer) {
                return answer;
            }
            assert!(began.elapsed() < PATIENCE, "it never was {what}: {answer:?}");
            pause();
        }
    }

    pub(crate) fn until_ready(&self) {
        Self::until("ready", || self.readiness(), |(status, _)| *status == 200);
    }

    pub(crate) fn until_unready(&self, why: &str) {
        let is_why = |answer: &(u16, Value)| answer.0 == 503 && answer.1["reasons"].to_string().contains(why);
        Self::until(why, || self.readiness(), is_why);
    }

    /// Asks for the metrics until one of them, with its labels, has this value.
    pub(crate) fn until_metric(&self, name: &str, value: f64) {
        self.until_metric_is(&value.to_string(), name, |found| (found - value).abs() < 1e-9);
    }

    /// As `until_metric`, for a value that is as wished.
    pub(crate) fn until_metric_is(&self, what: &str, name: &str, wished: impl Fn(f64) -> bool) {
        let has_come = |text: &String| value_of(text, name).is_some_and(&wished);
        Self::until(&format!("{name} {what}"), || self.get("/metrics").1, has_come);
    }
}

/// The value of a metric with its labels.
fn value_of(metrics: &str, name: &str) -> Option<f64> {
    let line =
        metrics.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')))?;
    line[name.len()..].trim().parse().ok()
}

/// The names of the families.
pub(crate) fn families(metrics: &str) -> BTreeSet<String> {
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn what_was_published_failed_and_waits_is_counted() {
    let bed = Bed::new();
    let asked = Asked::start(&bed, &[]);
    asked.until_ready();
    bed.enqueue(&numbered_lines(20, 3));
    bed.enqueue_one(&["--event-type", "later", "--delay", "1h"]);
    asked.until_metric("posthaste_published_total{destination=\"default\",event_type=\"e\"}", 20.0);
    asked.until_metric("posthaste_messages{state=\"waiting\"}", 1.0);
    asked.until_metric("posthaste_messages{state=\"ready\"}", 0.0);
    // A message that waits for its time is no lag.
    asked.until_metric("posthaste_oldest_ready_age_seconds", 0.0);
    asked.until_metric("posthaste_lanes_held", 1.0);
    asked.until_metric("posthaste_in_flight{destination=\"default\"}", 0.0);
    asked.until_metric("posthaste_destination_state{destination=\"default\",state=\"running\"}", 1.0);
    asked.until_metric("posthaste_settled_total", 20.0);
    asked.until_metric("posthaste_ready", 1.0);
    let (_, text) = asked.get("/metrics");
    let count = |name: &str| format!("{name}_count{{destination=\"default\"}} 20\n");
    assert!(text.contains(&count("posthaste_publish_duration_seconds")), "{text}");
    assert!(text.contains(&count("posthaste_end_to_end_duration_seconds")), "{text}");
    assert_eq!(value_of(&text, "posthaste_messages_capped{state=\"ready\"}"), Some(0.0), "{text}");
    let (status, body) = asked.readiness();
    assert_eq!(status, 200);
    assert_eq!(body["destinations"][0]["state"], "running");
    assert!(body["read"]["last_success_seconds_ago"].is_number(), "{body}");
    assert!(body["destinations"][0]["last_success_seconds_ago"].is_number(), "{body}");
    assert_eq!(asked.get("/livez"), (200, "ok\n".to_owned()));
}

#[test]
fn what_is_asked_wrongly_is_refused() {
    let bed = Bed::new();
    let asked = Asked::start(&bed, &[]);
    assert_eq!(asked.ask("POST /metrics").0, 405);
    assert_eq!(asked.get("/metrics/x").0, 404);
    assert_eq!(asked.get("/").0, 200);
    assert_eq!(asked.ask("HEAD /livez"), (200, String::new()));
    assert_eq!(asked.ask("nonsense").0, 400);
    let port = asked.http.0.clone();
    bed.run(&["relay", "--drain", "--http", &port]).failed_with(1, &["cannot be listened at"]);
    bed.run(&["relay", "--drain", "--http", "9186"]).failed_with(2, &["no address with a port"]);
}

#[test]
fn all_families_are_there_before_anything_has_happened() {
    let bed = Bed::new();
    let asked = Asked::start(&bed, &[]);
    let before = families(&asked.get("/metrics").1);
    asked.until_ready();
    bed.enqueue(&numbered_lines(20, 3));
    asked.until_metric("posthaste_settled_total", 20.0);
    let after = families(&asked.get("/metrics").1);
    assert_eq!(before, after);
    assert!(after.len() > 35, "{after:?}");
    assert!(
        after.contains("posthaste_unrouted") && after.contains("posthaste_duplicate_risk_total"),
        "{after:?}"
    );
}

/// The server's URL through a door, and the door.
fn through_a_door(bed: &Bed) -> (String, Door) {
    let config: tokio_postgres::Config = server_url().parse().unwrap();
    let tokio_postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else { panic!("no TCP") };
    let server = format!("{host}:{}", config.get_ports().first().copied().unwrap_or(5432));
    let door = Door::before(server.clone());
    (bed.url().replace(&server, &door.address().to_string()), door)
}

#[test]
fn a_database_that_is_away_is_waited_for_and_makes_the_relay_unready() {
    let Some(bed) = Bed::on_postgres() else { return };
    let (url, mut door) = through_a_door(&bed);
    let options = ["relay", "--http", "127.0.0.1:0", "--to", "null", "--lease", "2s", "--database-url", &url];
    let mut asked = Asked::of(bed.start(&options));
    asked.until_unready("waiting for the database");
    assert_eq!(asked.get("/livez").0, 200, "a start anew would not help");
    asked.relay.wait_for_log("the database cannot be reached; trying again");
    door.open();
    asked.until_ready();
    bed.enqueue(&numbered_lines(20, 3));
    asked.until_metric("posthaste_settled_total", 20.0);
    door.close();
    asked.until_unready("");
    door.open();
    asked.until_ready();
    asked.relay.signal("TERM");
    assert_eq!(asked.relay.end().0, Some(0));
}

#[test]
fn a_relay_that_is_to_fail_fast_or_to_end_does_not_wait_for_its_database() {
    let Some(bed) = Bed::on_postgres() else { return };
    let (url, _door) = through_a_door(&bed);
    for option in ["--fail-fast", "--drain", "--once"] {
        bed.run(&["relay", option, "--to", "null", "--database-url", &url]).failed_with(1, &["cannot"]);
    }
}

#[test]
fn a_relay_that_waits_for_its_database_can_be_stopped() {
    let Some(bed) = Bed::on_postgres() else { return };
    let (url, _door) = through_a_door(&bed);
    let mut relay = bed.start(&["relay", "--to", "null", "--database-url", &url]);
    relay.wait_for_log("trying again");
    relay.signal("TERM");
    let (code, _, stderr) = relay.end();
    assert_eq!(code, Some(0), "{stderr}");
}

#[test]
fn a_broker_that_is_away_makes_the_relay_unready_unless_it_is_to_fail_fast() {
    let bed = Bed::new();
    let to = ["--to", "amqp://127.0.0.1:1/?exchange=x"];
    let asked = Asked::start(&bed, &to);
    asked.until_unready("destination default: connection refused");
    let ran = bed.run(&[&["relay", "--fail-fast"][..], &to].concat());
    ran.failed_with(1, &["RabbitMQ cannot be reached: connection refused"]);
}
