//! `status`, `list`, `show`, `redrive`, `discard`, `purge`.

use serde_json::{Value, json};

use crate::support::Bed;

/// Three dead messages (two event types), one ready, one waiting; published ones besides.
fn mixed(bed: &Bed) {
    bed.enqueue(concat!(
        r#"{"event_type":"bad.order","aggregate_type":"order","aggregate_id":"1","payload":{"n": 1}}"#,
        "\n",
        r#"{"event_type":"bad.order","aggregate_type":"order","aggregate_id":"2","payload":"two"}"#,
        "\n",
        r#"{"event_type":"bad.user","payload_base64":"AP8="}"#,
        "\n",
        r#"{"event_type":"good"}"#,
        "\n",
    ));
    bed.kill_bad_messages();
    bed.enqueue_one(&["--event-type", "ready.order"]);
    bed.enqueue_one(&["--event-type", "late.order", "--delay", "1h"]);
}

fn ids(lines: &[Value]) -> Vec<String> {
    lines.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn status_of_an_empty_outbox_is_zero_not_absent() {
    let status = Bed::new().status();
    let expected = json!({
        "ready": 0,
        "waiting": 0,
        "blocked": 0,
        "dead": 0,
        "oldest_ready_age_seconds": 0.0,
        "capped": [],
        "cap": 10_000,
        "lanes": { "total": status["lanes"]["total"], "leased": 0 },
        "relays": [],
    });
    assert_eq!(status, expected);
    assert!(status["lanes"]["total"].as_u64().unwrap() >= 1);
}

pub(crate) fn status_counts_each_state(bed: &Bed) {
    mixed(bed);
    bed.enqueue_one(&["--event-type", "e", "--aggregate", "cart/1", "--delay", "1h"]);
    bed.enqueue_one(&["--event-type", "e", "--aggregate", "cart/1"]);
    let status = bed.status();
    let counts: Vec<_> =
        ["ready", "waiting", "blocked", "dead"].iter().map(|name| status[name].clone()).collect();
    assert_eq!(counts, [1, 3, 1, 3]);
    assert!(status["oldest_ready_age_seconds"].as_f64().unwrap() >= 0.0);
    let exact: Value = serde_json::from_str(&bed.ok(&["status", "--json", "--exact"])).unwrap();
    assert_eq!(exact["cap"], Value::Null);
    let text = bed.ok(&["status"]);
    for part in ["ready", "waiting", "1 of them blocked", "dead", "list --state dead", "no relay is running"]
    {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

pub(crate) fn list_filters_by_state_and_event_type_oldest_first(bed: &Bed) {
    mixed(bed);
    let types = |arguments: &[&str]| -> Vec<Value> {
        bed.list(arguments).iter().map(|line| line["event_type"].clone()).collect()
    };
    assert_eq!(types(&["--state", "dead"]), ["bad.order", "bad.order", "bad.user"]);
    assert_eq!(types(&["--state", "ready"]), ["ready.order"]);
    assert_eq!(types(&["--state", "waiting"]), ["late.order"]);
    assert_eq!(types(&["--state", "processed"]), ["good"]);
    assert_eq!(
        types(&["--event-type", "*.order", "--limit", "3"]),
        ["bad.order", "bad.order", "ready.order"]
    );
    assert_eq!(types(&["--event-type", "bad.?ser"]), ["bad.user"]);
    assert_eq!(types(&["--event-type", "nothing"]), Vec::<Value>::new());
    assert_eq!(bed.ok(&["list", "--event-type", "nothing"]), "no messages\n");
    let text = bed.ok(&["list"]);
    assert!(text.contains("order/1") && text.contains("refused by the test"), "{text}");
}

pub(crate) fn list_json_has_every_field(bed: &Bed) {
    mixed(bed);
    let mut dead = bed.list(&["--state", "dead", "--limit", "1"]);
    for name in ["id", "enqueued_at", "settled_at"] {
        assert!(dead[0][name].take().is_string(), "{name}");
    }
    assert_eq!(
        dead,
        [json!({
            "id": null,
            "state": "dead",
            "event_type": "bad.order",
            "aggregate_type": "order",
            "aggregate_id": "1",
            "attempts": 1,
            "enqueued_at": null,
            "next_attempt_at": null,
            "settled_at": null,
            "last_error": "refused by the test",
        })]
    );
}

pub(crate) fn show_has_the_payload_and_what_blocks_it(bed: &Bed) {
    mixed(bed);
    let dead = ids(&bed.list(&["--state", "dead"]));
    assert_eq!(bed.show(&dead[0])["payload"], "{\"n\": 1}");
    assert_eq!(bed.show(&dead[2])["payload_base64"], "AP8=");
    let first = bed.enqueue_one(&["--event-type", "e", "--aggregate", "cart/1", "--delay", "1h"]);
    let second = bed.enqueue_one(&["--event-type", "e", "--aggregate", "cart/1", "--header", "a=b"]);
    let shown = bed.show(&second);
    assert_eq!(shown["state"], "waiting");
    assert_eq!(shown["blocked_by"], first.as_str());
    assert_eq!(shown["headers"], json!({ "a": "b" }));
    assert_eq!((shown.get("payload"), shown.get("payload_base64")), (None, None));
    let text = bed.ok(&["show", &second]);
    assert!(text.contains(&format!("{first}, an earlier message")) && text.contains("tombstone"), "{text}");
    let text = bed.ok(&["show", &dead[1]]);
    assert!(text.contains("3 bytes:") && text.ends_with("\ntwo\n"), "{text}");
    let nowhere = "01890a5d-ac96-774b-bcce-b302099a8057";
    bed.run(&["show", nowhere]).failed_with(1, &["there is no message", "hint: "]);
}

pub(crate) fn redrive_by_id_names_those_that_are_not_dead(bed: &Bed) {
    mixed(bed);
    let dead = ids(&bed.list(&["--state", "dead"]));
    let ready = ids(&bed.list(&["--state", "ready"])).remove(0);
    let nowhere = "01890a5d-ac96-774b-bcce-b302099a8057";
    let dry = bed.run(&["redrive", "--dry-run", &dead[0], &dead[0], &ready]);
    assert_eq!((dry.code, dry.stdout.as_str()), (1, "would redrive 1 message\n"));
    assert_eq!(bed.status()["dead"], 3);
    let ran = bed.run(&["redrive", &dead[0], &ready, nowhere, &dead[1]]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "redriven 2 messages\n"), "{ran:?}");
    assert!(ran.stderr.contains(&format!("{ready} is ready, not dead")), "{ran:?}");
    assert!(ran.stderr.contains(&format!("{nowhere} is not there")), "{ran:?}");
    let shown = bed.show(&dead[0]);
    assert_eq!((&shown["state"], &shown["attempts"]), (&json!("ready"), &json!(0)));
    assert_eq!(bed.ok(&["redrive", &dead[2]]), "redriven 1 message\n");
    assert_eq!(bed.drain().len(), 4);
}

pub(crate) fn redrive_by_event_type_and_all(bed: &Bed) {
    mixed(bed);
    assert_eq!(bed.ok(&["redrive", "--event-type", "*.order", "--dry-run"]), "would redrive 2 messages\n");
    assert_eq!(bed.ok(&["redrive", "--event-type", "*.order"]), "redriven 2 messages\n");
    assert_eq!(bed.status()["dead"], 1);
    assert_eq!(bed.ok(&["redrive", "--all"]), "redriven 1 message\n");
    assert_eq!(bed.ok(&["redrive", "--all"]), "redriven 0 messages\n");
    assert_eq!(bed.status()["dead"], 0);
    assert_eq!(bed.drain().len(), 4);
}

pub(crate) fn redrive_in_steps_takes_each_message_once(bed: &Bed) {
    bed.enqueue(&"{\"event_type\":\"bad\"}\n".repeat(2_500));
    bed.kill_bad_messages();
    assert_eq!(bed.ok(&["redrive", "--all", "--rate", "1000000"]), "redriven 2500 messages\n");
    bed.kill_bad_messages();
    assert_eq!(bed.ok(&["redrive", "--all"]), "redriven 2500 messages\n");
    assert_eq!(bed.drain().len(), 2_500);
}

pub(crate) fn redrive_can_be_stopped_and_run_again(bed: &Bed) {
    bed.enqueue(&"{\"event_type\":\"bad\"}\n".repeat(50));
    bed.kill_bad_messages();
    let running = bed.start(&["redrive", "--all", "--rate", "1"]);
    bed.wait_for_status("redriven in part", |status| status["ready"].as_u64() > Some(0));
    running.signal("INT");
    let (code, stdout, stderr) = running.end();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stdout.starts_with("redriven ") && stderr.contains("stopped after"), "{stdout}{stderr}");
    bed.ok(&["redrive", "--all"]);
    let published = bed.drain();
    assert_eq!(ids(&published).iter().collect::<std::collections::BTreeSet<_>>().len(), 50);
    assert_eq!(published.len(), 50);
}

pub(crate) fn discard_deletes_dead_messages_only(bed: &Bed) {
    mixed(bed);
    let dead = ids(&bed.list(&["--state", "dead"]));
    let ready = ids(&bed.list(&["--state", "ready"])).remove(0);
    let ran = bed.run(&["discard", &dead[0], &ready]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, "discarded 1 message\n"), "{ran:?}");
    bed.run(&["show", &dead[0]]).failed_with(1, &["there is no message"]);
    assert_eq!(bed.ok(&["discard", "--event-type", "bad.*", "--dry-run"]), "would discard 2 messages\n");
    assert_eq!(bed.ok(&["discard", "--event-type", "bad.u*"]), "discarded 1 message\n");
    assert_eq!(bed.ok(&["discard", "--all-dead"]), "discarded 1 message\n");
    assert_eq!(bed.status()["dead"], 0);
    assert_eq!(bed.drain().len(), 1, "what was ready is still there");
}

#[test]
fn purge_deletes_what_was_settled_long_ago() {
    let bed = Bed::new();
    mixed(&bed);
    assert_eq!(bed.ok(&["purge", "--older-than", "1d"]), "purged 0 messages\n");
    let database = rusqlite::Connection::open(bed.database()).unwrap();
    let back = "UPDATE outbox SET status_at = status_at - 30 * 24 * 3600 * 1000 WHERE status <> 0";
    database.execute_batch(back).unwrap();
    assert_eq!(bed.ok(&["purge", "--older-than", "7d"]), "purged 1 message\n");
    let text = bed.ok(&["purge", "--older-than", "7d", "--include-dead", "--limit", "2"]);
    assert_eq!(text, "purged 2 messages (2 dead)\nthe limit was reached; there may be more\n");
    assert_eq!(bed.ok(&["purge", "--older-than", "7d", "--include-dead"]), "purged 1 message (1 dead)\n");
    assert_eq!((&bed.status()["ready"], &bed.status()["waiting"]), (&json!(1), &json!(1)));
}
