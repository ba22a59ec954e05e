//! `enqueue`: what goes in comes out, byte for byte.

use serde_json::{Value, json};

use crate::support::{Bed, json_lines};

pub(crate) fn a_message_with_everything_comes_out_as_it_went_in(bed: &Bed) {
    let id = bed.enqueue_one(&[
        "--event-type",
        "order.created",
        "--aggregate",
        "order/7/a",
        "--payload",
        "{\"total\": 1.0}",
        "--content-type",
        "application/json",
        "--header",
        "tenant=acme",
        "--header",
        "sum=a=b",
        "--idempotency-key",
        "key-1",
    ]);
    let mut lines = bed.drain();
    let enqueued_at = lines[0]["enqueued_at"].take();
    assert_eq!(
        lines,
        [json!({
            "id": id,
            "idempotency_key": "key-1",
            "event_type": "order.created",
            "aggregate_type": "order",
            "aggregate_id": "7/a",
            "content_type": "application/json",
            "headers": { "tenant": "acme", "sum": "a=b" },
            "attempt": 1,
            "enqueued_at": null,
            "payload": "{\"total\": 1.0}",
        })]
    );
    let enqueued_at = enqueued_at.as_str().unwrap();
    assert_eq!((enqueued_at.len(), &enqueued_at[23..]), (24, "Z"), "{enqueued_at}");
}

pub(crate) fn absent_fields_are_null_and_a_tombstone_has_no_payload(bed: &Bed) {
    let id = bed.enqueue_one(&["--event-type", "user.deleted"]);
    let mut lines = bed.drain();
    lines[0]["enqueued_at"].take();
    assert_eq!(
        lines,
        [json!({
            "id": id,
            "idempotency_key": null,
            "event_type": "user.deleted",
            "aggregate_type": null,
            "aggregate_id": null,
            "content_type": null,
            "headers": {},
            "attempt": 1,
            "enqueued_at": null,
        })]
    );
}

pub(crate) fn an_empty_payload_is_no_tombstone(bed: &Bed) {
    bed.enqueue_one(&["--event-type", "e", "--payload", ""]);
    assert_eq!(bed.drain()[0]["payload"], "");
}

pub(crate) fn payloads_come_from_files_and_stdin_byte_for_byte(bed: &Bed) {
    let file = bed.file("payload.bin", b"\xff\x00\r\n");
    bed.enqueue_one(&["--event-type", "file", "--payload-file", &file]);
    bed.run_with_input(&["enqueue", "--event-type", "stdin", "--payload-file", "-"], "a\n\u{2028}é\0")
        .succeeded();
    let lines = bed.drain_by_event_type();
    assert_eq!(lines[0]["payload_base64"], "/wANCg==");
    assert_eq!(lines[0].get("payload"), None);
    assert_eq!(lines[1]["payload"], "a\n\u{2028}é\0");
}

pub(crate) fn headers_come_from_a_file_too(bed: &Bed) {
    let file = bed.file("headers.json", r#"{"a": "1", "b": ""}"#);
    bed.enqueue_one(&["--event-type", "e", "--headers-file", &file, "--header", "c=3"]);
    assert_eq!(bed.drain()[0]["headers"], json!({ "a": "1", "b": "", "c": "3" }));
}

pub(crate) fn an_id_may_be_given_and_is_refused_the_second_time(bed: &Bed) {
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    assert_eq!(bed.enqueue_one(&["--event-type", "e", "--id", id]), id);
    bed.run(&["enqueue", "--event-type", "e", "--id", id]).failed_with(1, &[id]);
    assert_eq!(bed.drain().len(), 1);
}

pub(crate) fn an_idempotency_key_is_taken_once(bed: &Bed) {
    let first = ["enqueue", "--event-type", "e", "--idempotency-key", "k"];
    bed.ok(&first);
    bed.run(&first).failed_with(1, &["hint: the message was enqueued before"]);
    assert_eq!(bed.drain().len(), 1);
}

pub(crate) fn a_delayed_message_waits(bed: &Bed) {
    bed.enqueue_one(&["--event-type", "late", "--delay", "1h"]);
    bed.enqueue("{\"event_type\":\"later\",\"delay\":7200}\n");
    bed.enqueue_one(&["--event-type", "now"]);
    let published: Vec<_> = bed.drain().iter().map(|line| line["event_type"].clone()).collect();
    assert_eq!(published, ["now"]);
    assert_eq!(bed.status()["waiting"], 2);
}

pub(crate) fn ndjson_keeps_bytes_and_order(bed: &Bed) {
    let payloads = [
        (r#"{"b": 1.0,  "a":1e5, "a":2,"é":"\/\u00e9"}"#, None),
        ("[ 1 , 2 ]", None),
        (r#""text with \"quotes\", \n and \u00e9""#, Some("text with \"quotes\", \n and é")),
        (r#""""#, Some("")),
    ];
    let lines: String = payloads
        .iter()
        .map(|(json, _)| {
            format!(r#"{{"event_type":"e","aggregate_type":"t","aggregate_id":"1","payload": {json} }}"#)
                + "\n"
        })
        .collect();
    let ran = bed.run_with_input(&["enqueue", "--ndjson", "-"], format!("\n{lines}\r\n"));
    assert_eq!(ran.succeeded(), "4\n");
    let published = bed.drain();
    assert_eq!(published.len(), payloads.len());
    for ((json, text), line) in payloads.iter().zip(&published) {
        assert_eq!(line["payload"], text.unwrap_or(json));
        let content_type = if text.is_some() { Value::Null } else { json!("application/json") };
        assert_eq!(line["content_type"], content_type);
    }
}

#[test]
fn what_the_relay_writes_can_be_enqueued_again() {
    let bed = Bed::new();
    bed.enqueue(concat!(
        r#"{"event_type":"a","aggregate_type":"t","aggregate_id":"1","payload":{"x": 1}}"#,
        "\n",
        r#"{"event_type":"b","payload_base64":"AP8=","headers":{"k":"v"}}"#,
        "\n"
    ));
    let first = bed.drain_by_event_type();
    let mut lines = String::new();
    for line in &first {
        let mut line = line.clone();
        line.as_object_mut().unwrap().retain(|name, _| !["attempt", "enqueued_at"].contains(&name.as_str()));
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    let other = Bed::new();
    other.enqueue(&lines);
    let without_time = |mut lines: Vec<Value>| {
        for line in &mut lines {
            line["enqueued_at"].take();
        }
        lines
    };
    assert_eq!(without_time(other.drain_by_event_type()), without_time(first));
}

pub(crate) fn ndjson_comes_from_a_file_and_from_nothing(bed: &Bed) {
    let file = bed.file("messages.ndjson", "{\"event_type\":\"a\"}\n{\"event_type\":\"b\"}");
    assert_eq!(bed.ok(&["enqueue", "--ndjson", &file]), "2\n");
    assert_eq!(bed.run_with_input(&["enqueue", "--ndjson", "-"], "").succeeded(), "0\n");
    assert_eq!(bed.drain().len(), 2);
}

#[test]
fn a_row_that_another_program_inserts_is_a_whole_message() {
    let bed = Bed::new();
    let database = rusqlite::Connection::open(bed.database()).unwrap();
    database
        .execute_batch(
            "INSERT INTO outbox (event_type, payload) VALUES ('text', '{\"a\": 1}');
             INSERT INTO outbox (event_type, payload) VALUES ('blob', x'ff00');
             INSERT INTO outbox (event_type) VALUES ('tombstone');",
        )
        .unwrap();
    let lines = bed.drain_by_event_type();
    assert_eq!(lines[0]["payload_base64"], "/wA=");
    assert_eq!(lines[1]["payload"], "{\"a\": 1}");
    assert_eq!((lines[2].get("payload"), lines[2].get("payload_base64")), (None, None));
    let ids: Vec<_> = bed.list(&[]).iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect();
    for id in ids {
        assert_eq!(bed.show(&id)["state"], "processed");
    }
}

pub(crate) fn many_lines_are_enqueued_in_bounded_time(bed: &Bed) {
    let lines = "{\"event_type\":\"e\",\"payload\":{\"a\":1}}\n".repeat(20_000);
    assert_eq!(bed.run_with_input(&["enqueue", "--ndjson", "-"], lines).succeeded(), "20000\n");
    assert_eq!(bed.status()["ready"], 10_000, "counts are capped");
    let exact: Value = serde_json::from_str(&bed.ok(&["status", "--json", "--exact"])).unwrap();
    assert_eq!(exact["ready"], 20_000);
    assert_eq!(json_lines(&bed.ok(&["relay", "--drain", "-q"])).len(), 20_000);
}
