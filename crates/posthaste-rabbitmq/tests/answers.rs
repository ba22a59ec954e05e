//! What the broker answers, and what becomes of the records.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use lapin::types::{AMQPValue, FieldTable};
use posthaste::{FailureClass, Record};
use posthaste_rabbitmq::{ExchangeType, QueueSpec, RabbitPublisher, Topology};
use posthaste_testkit::FaultProxy;

use support::{
    Place, at, failed, long, options, outcome, publish, publish_all, record, unavailable, until,
    until_published, url,
};

/// Returned messages must not be mistaken for others': the broker confirms many at once, and not in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_unroutable_record_fails_and_no_other() {
    let place = Place::new().await;
    let queue = place.queue("here.#", FieldTable::default()).await;
    let publisher = place.publisher();
    let records = |round: usize| {
        (0..400).map(move |n| {
            let event_type = if n % 7 == 3 { "nowhere" } else { "here" };
            Record { event_type: event_type.into(), ..record(&format!("{round}/{n}")) }
        })
    };
    let mut expected = Vec::new();
    for round in 0..5 {
        let results = publish_all(&publisher, records(round)).await;
        for (record, result) in records(round).zip(results) {
            let label = record.aggregate.aggregate_id().to_owned();
            if record.event_type == "nowhere" {
                assert_eq!(outcome(&result), failed("unroutable"), "{label}");
            } else {
                assert_eq!(outcome(&result), Ok(()), "{label}");
                expected.push(label);
            }
        }
    }
    let mut arrived = place.payloads(&queue).await;
    arrived.sort_unstable();
    expected.sort_unstable();
    assert_eq!(arrived, expected);
}

#[tokio::test]
async fn an_unroutable_record_is_published_once_a_queue_takes_it() {
    let place = Place::new().await;
    let publisher = place.publisher();
    let record = record("r");
    for _ in 0..2 {
        assert_eq!(outcome(&publish(&publisher, record.clone()).await), failed("unroutable"));
    }
    let queue = place.queue("thing.happened", FieldTable::default()).await;
    assert_eq!(outcome(&publish(&publisher, record).await), Ok(()));
    assert_eq!(place.payloads(&queue).await, ["r"]);
}

#[tokio::test]
async fn without_mandatory_an_unroutable_record_counts_as_published() {
    let place = Place::new().await;
    let publisher = RabbitPublisher::start(place.options().mandatory(false)).unwrap();
    assert_eq!(outcome(&publish(&publisher, record("r")).await), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_nacks_and_each_record_has_its_own_answer() {
    let place = Place::new().await;
    let mut full = FieldTable::default();
    full.insert("x-max-length".into(), AMQPValue::LongInt(3));
    full.insert("x-overflow".into(), long("reject-publish"));
    let small = place.queue("small", full).await;
    let large = place.queue("large", FieldTable::default()).await;
    let publisher = place.publisher();
    let to = |event_type: &str, n: usize| Record { event_type: event_type.into(), ..record(&n.to_string()) };
    for n in 0..3 {
        assert_eq!(outcome(&publish(&publisher, to("small", n)).await), Ok(()));
    }
    let records = (0..100).map(|n| to(if n % 10 == 4 { "small" } else { "large" }, n));
    for (n, result) in publish_all(&publisher, records).await.iter().enumerate() {
        let expected = if n % 10 == 4 { failed("nacked") } else { Ok(()) };
        assert_eq!(outcome(result), expected, "{n}");
    }
    assert_eq!(place.take(&small).await.len(), 3);
    assert_eq!(place.take(&large).await.len(), 90);
    assert_eq!(outcome(&publish(&publisher, to("small", 3)).await), Ok(()), "there is room again");
}

#[tokio::test]
async fn what_amqp_has_no_room_for_is_rejected_and_costs_nothing() {
    let place = Place::new().await;
    place.queue("#", FieldTable::default()).await;
    let publisher = place.publisher();
    until_published(&publisher, record("before")).await;
    let header = |name: &str, size: usize| BTreeMap::from([(name.to_owned(), "v".repeat(size))]);
    let bad = [
        Record { event_type: "x".repeat(256), ..record("a") },
        Record { event_type: "€".repeat(86), ..record("b") },
        Record { idempotency_key: Some("k".repeat(256)), ..record("c") },
        Record { headers: header(&"h".repeat(256), 1), ..record("d") },
        Record { headers: header("CC", 1), ..record("e") },
        // A frame holds 128 KiB here, and headers have to fit into one.
        Record { headers: header("large", 200_000), ..record("f") },
    ];
    for bad in bad {
        let label = bad.aggregate.aggregate_id().to_owned();
        let class = publish(&publisher, bad).await.unwrap_err().class();
        assert_eq!(class, FailureClass::Rejected, "{label}");
        assert_eq!(
            outcome(&publish(&publisher, record("after")).await),
            Ok(()),
            "the connection is as it was"
        );
    }
    let fits = Record {
        event_type: "x".repeat(255),
        headers: BTreeMap::from([("h".repeat(255), "v".repeat(60_000))]),
        ..record("fits")
    };
    assert_eq!(outcome(&publish(&publisher, fits).await), Ok(()));
}

/// The 404 closes the channel once, with what is under way there; later ones do not come near it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_deleted_under_load_makes_the_destination_unavailable_until_it_is_back() {
    let place = Place::new().await;
    let queue = place.queue("#", FieldTable::default()).await;
    let publisher = place.publisher();
    until_published(&publisher, record("before")).await;
    let load = (0..300).map(|n| record(&n.to_string()));
    let (results, ()) = tokio::join!(publish_all(&publisher, load), place.delete());
    let mut there = vec!["before".to_owned()];
    for (n, result) in results.iter().enumerate() {
        match outcome(result) {
            Ok(()) => there.push(n.to_string()),
            // Deleting takes the bindings first.
            error => assert!(
                [unavailable("exchange missing"), failed("unroutable"), unavailable("channel closed")]
                    .contains(&error),
                "{error:?}"
            ),
        }
    }
    until(&publisher, record("lost"), |outcome| *outcome == unavailable("exchange missing")).await;
    for _ in 0..20 {
        assert_eq!(outcome(&publish(&publisher, record("lost")).await), unavailable("exchange missing"));
    }
    place.declare().await;
    place.bind(&queue, "#").await;
    until_published(&publisher, record("after")).await;
    let mut arrived = place.payloads(&queue).await;
    there.push("after".to_owned());
    arrived.sort_unstable();
    there.sort_unstable();
    arrived.retain(|payload| there.contains(payload));
    arrived.dedup();
    assert_eq!(arrived, there, "what was Ok is there");
}

#[tokio::test]
async fn an_exchange_that_is_missing_from_the_start_is_found_once_it_is_there() {
    let place = Place::new().await;
    place.delete().await;
    let publisher = place.publisher();
    assert_eq!(outcome(&publish(&publisher, record("r")).await), unavailable("exchange missing"));
    place.declare().await;
    place.queue("#", FieldTable::default()).await;
    until_published(&publisher, record("r")).await;
}

#[tokio::test]
async fn the_exchange_and_queues_are_declared_where_that_is_wanted_and_again_when_they_are_gone() {
    let place = Place::new().await;
    place.delete().await;
    let name = format!("{}_queue", place.exchange);
    let queue = QueueSpec::new(&name).bind("thing.*");
    let topology = Topology::new(ExchangeType::Topic).queue(queue);
    let publisher = RabbitPublisher::start(place.options().declare(topology)).unwrap();
    until_published(&publisher, record("first")).await;
    place.delete().await;
    until_published(&publisher, record("second")).await;
    assert_eq!(place.payloads(&name).await, ["first", "second"]);
    let other = Topology::new(ExchangeType::Fanout);
    let other = RabbitPublisher::start(place.options().declare(other)).unwrap();
    assert_eq!(outcome(&publish(&other, record("r")).await), unavailable("declaration refused"));
    place.channel.queue_delete(name.into(), lapin::options::QueueDeleteOptions::default()).await.unwrap();
    place.delete().await;
}

#[tokio::test]
async fn the_default_exchange_takes_the_routing_key_for_a_queue() {
    let place = Place::new().await;
    let queue = place.queue("unused", FieldTable::default()).await;
    let options = options(&place.url).routing_key("{header.queue}");
    let publisher = RabbitPublisher::start(options).unwrap();
    let headers = BTreeMap::from([("queue".to_owned(), queue.clone())]);
    assert_eq!(outcome(&publish(&publisher, Record { headers, ..record("r") }).await), Ok(()));
    assert_eq!(place.payloads(&queue).await, ["r"]);
    let error = publish(&publisher, record("no header")).await.unwrap_err();
    assert_eq!(error.class(), FailureClass::Rejected);
    assert!(error.reason().contains("\"queue\""), "{error}");
}

#[tokio::test]
async fn a_login_that_is_refused_and_a_vhost_that_is_missing_are_told_apart_and_never_leak() {
    let url = url();
    let address = support::address(&url);
    let cases = [
        (format!("amqp://guest:s3cret@{address}"), "login refused: user or password"),
        (format!("{url}/posthaste_missing"), "vhost missing or not allowed"),
        (at(&url, "127.0.0.1:1"), "connection refused"),
    ];
    for (url, reason) in cases {
        let publisher = RabbitPublisher::start(options(&url)).unwrap();
        for _ in 0..3 {
            let result = publish(&publisher, record("r")).await;
            assert_eq!(outcome(&result), unavailable(reason));
            let debug = format!("{result:?} {publisher:?}");
            assert!(!debug.contains("s3cret") && !debug.contains("guest:"), "{debug}");
        }
        publisher.close().await;
    }
}

#[tokio::test]
async fn properties_arrive() {
    let place = Place::new().await;
    let queue = place.queue("#", FieldTable::default()).await;
    let publisher = RabbitPublisher::start(
        place.options().routing_key("eu.{aggregate_type}.{event_type}").persistent(true),
    )
    .unwrap();
    let sent = Record { attempts: 4, payload: Some(Bytes::from_static(b"{}")), ..record("7") };
    assert_eq!(outcome(&publish(&publisher, sent.clone()).await), Ok(()));
    let delivery = place.take(&queue).await.remove(0).delivery;
    let properties = &delivery.properties;
    assert_eq!(delivery.routing_key.as_str(), "eu.thing.thing.happened");
    assert_eq!(properties.kind().as_ref().unwrap().as_str(), "thing.happened");
    assert_eq!(properties.message_id().as_ref().unwrap().as_str(), sent.id.to_string());
    assert_eq!((*properties.delivery_mode(), *properties.timestamp()), (Some(2), Some(1_767_225_600)));
    let headers = properties.headers().as_ref().unwrap().inner();
    assert_eq!(headers["x-outbox-attempt"], AMQPValue::LongLongInt(5));
    assert_eq!(headers["x-outbox-aggregate-key"], long("thing/7"));
}

#[tokio::test]
async fn a_closed_publisher_says_so_and_the_broker_sees_it_go() {
    let place = Place::new().await;
    place.queue("#", FieldTable::default()).await;
    let proxy = FaultProxy::start(support::address(&place.url));
    let start = || {
        let options = options(&at(&place.url, proxy.address())).exchange(&place.exchange);
        RabbitPublisher::start(options).unwrap()
    };
    let publisher = start();
    until_published(&publisher, record("r")).await;
    proxy.until_open(|open| open == 1).await;
    tokio::time::timeout(Duration::from_secs(5), publisher.close()).await.unwrap();
    assert_eq!(outcome(&publish(&publisher, record("r")).await), unavailable("publisher is closed"));
    proxy.until_open(|open| open == 0).await;
    let dropped = start();
    until_published(&dropped, record("r")).await;
    drop(dropped);
    proxy.until_open(|open| open == 0).await;
}
