//! `relay --to amqp://…`: from the table to a real broker, and what is said where that does not work.

use std::collections::BTreeSet;

use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::FieldTable;
use lapin::{Channel, Connection, ConnectionProperties, ExchangeKind};

use crate::support::{Bed, numbered_lines};

/// The broker that the tests are given. Without one they fail.
pub(crate) fn broker() -> String {
    std::env::var("POSTHASTE_TEST_RABBITMQ").unwrap_or_else(|_| {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ci/rabbitmq-server");
        let output = std::process::Command::new(script).arg("start").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    })
}

/// A topic exchange that is gone with the connection, and a queue with everything that is published to it.
async fn exchange(connection: &Connection) -> (Channel, String, String) {
    let channel = connection.create_channel().await.unwrap();
    let name = format!("posthaste_test_{}", posthaste::MessageId::generate());
    let options = ExchangeDeclareOptions { auto_delete: true, ..ExchangeDeclareOptions::default() };
    let (kind, none) = (ExchangeKind::Topic, FieldTable::default);
    channel.exchange_declare(name.as_str().into(), kind, options, none()).await.unwrap();
    let options = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare("".into(), options, none()).await.unwrap().name().clone();
    let (options, key) = (QueueBindOptions::default(), "#".into());
    channel.queue_bind(queue.clone(), name.as_str().into(), key, options, none()).await.unwrap();
    (channel, name, queue.to_string())
}

#[tokio::test]
async fn messages_go_to_the_broker() {
    let url = broker();
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let (channel, exchange, queue) = exchange(&connection).await;
    let bed = Bed::new();
    bed.enqueue(&numbered_lines(500, 7));
    let to = format!("{url}?exchange={exchange}&routing_key=eu.%7Bevent_type%7D");
    let run = tokio::task::spawn_blocking(move || {
        let ran = bed.run(&["relay", "--drain", "--to", &to]);
        (bed, ran)
    });
    let (bed, ran) = run.await.unwrap();
    assert!(ran.stderr.contains("published 500 messages in "), "{}", ran.stderr);
    assert!(ran.stderr.contains("better set POSTHASTE_TO"), "the password can be seen: {}", ran.stderr);
    assert!(!ran.stderr.contains("guest:guest"), "{}", ran.stderr);
    assert_eq!(ran.succeeded(), "");
    assert_eq!(bed.status()["ready"], 0);
    let (mut ids, options) = (BTreeSet::new(), BasicGetOptions { no_ack: true });
    while let Some(message) = channel.basic_get(queue.as_str().into(), options).await.unwrap() {
        assert!(message.delivery.routing_key.as_str().starts_with("eu."));
        ids.insert(message.delivery.properties.message_id().as_ref().unwrap().to_string());
    }
    assert_eq!(ids.len(), 500);
}

#[test]
fn a_broker_that_is_away_counts_no_attempts_and_shows_no_password() {
    let bed = Bed::new();
    bed.enqueue(&numbered_lines(5, 2));
    let mut command = bed.command(&["relay", "--for", "2s", "--max-attempts", "1"]);
    command.env("POSTHASTE_TO", "amqp://ann:s3cret@127.0.0.1:1/?exchange=x");
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("connection refused") && !stderr.contains("s3cret"), "{stderr}");
    let left = bed.list(&["--state", "ready"]);
    assert_eq!(left.len(), 5);
    assert!(left.iter().all(|message| message["attempts"] == 0), "{left:?}");
}

#[test]
fn what_is_wrong_with_the_url_is_said_without_the_password() {
    let bed = Bed::new();
    for (url, said) in [
        ("amqp://ann:s3cret@host/?exchnage=x", "\"exchnage\""),
        ("amqp://ann:s3cret@host/?exchange=x&routing_key=%7Btype%7D", "known are event_type"),
        ("amqp://ann:s3cret@host/a/b", "%2F"),
        ("amqps://ann:s3cret@host/?cacertfile=/nowhere.pem", "/nowhere.pem"),
        ("rabbit://ann:s3cret@host/", "--to names no destination"),
    ] {
        let ran = bed.run(&["relay", "--drain", "--to", url]);
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
        ran.failed_with(2, &[said]);
    }
}
