//! A broker of the test's own: alarms, connections that are closed by hand, limits, rights.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use bytes::Bytes;
use lapin::types::FieldTable;
use posthaste::{FailureClass, Record};
use posthaste_rabbitmq::RabbitPublisher;

use support::node::Node;
use support::{Place, outcome, publish, publish_all, record, unavailable, until, until_published};

const SMALL: usize = 40;
const ROUNDS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_alarm_makes_the_destination_unavailable_and_loses_nothing() {
    let node = Node::start("").await;
    let place = Place::on(&node.url()).await;
    let queue = place.queue("#", FieldTable::default()).await;
    let options = place.options().publish_timeout(Duration::from_secs(2));
    let publisher = RabbitPublisher::start(options).unwrap();
    until_published(&publisher, record("before")).await;
    node.ctl(&["set_vm_memory_high_watermark", "0"]).await;
    // The broker says so once something is published to it.
    let under_way = publish_all(&publisher, (0..20).map(|n| record(&n.to_string()))).await;
    for result in &under_way {
        let class = result.as_ref().map_err(posthaste::PublishError::class).err();
        assert!(class.is_none_or(|class| class == FailureClass::Unavailable), "{result:?}");
    }
    until(&publisher, record("lost"), |outcome| *outcome == unavailable("blocked by the broker")).await;
    for _ in 0..20 {
        assert_eq!(outcome(&publish(&publisher, record("lost")).await), unavailable("blocked by the broker"));
    }
    node.ctl(&["set_vm_memory_high_watermark", "0.4"]).await;
    until_published(&publisher, record("after")).await;
    let mut arrived = place.payloads(&queue).await;
    arrived.retain(|payload| payload == "before" || payload == "after");
    assert_eq!(arrived, ["before", "after"]);
    // It can be closed while it is blocked.
    node.ctl(&["set_vm_memory_high_watermark", "0"]).await;
    until(&publisher, record("lost"), |outcome| *outcome == unavailable("blocked by the broker")).await;
    tokio::time::timeout(Duration::from_secs(5), publisher.close()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_connections_limits_and_rights_are_what_they_are() {
    let node = Node::start("max_message_size = 65536\n").await;
    let place = Place::on(&node.url()).await;
    let queue = place.queue("#", FieldTable::default()).await;
    let publisher = place.publisher();
    until_published(&publisher, record("first")).await;
    too_large_is_rejected_and_takes_no_other_with_it(&place).await;
    closed_by_hand(&node, &publisher).await;
    let mut arrived = place.payloads(&queue).await;
    arrived.sort_unstable();
    arrived.dedup();
    let small = |round| (0..SMALL).map(move |n| format!("{round}/{n}"));
    let mut expected: Vec<_> = (0..ROUNDS).flat_map(small).collect();
    expected.extend(["first", "second", "third"].map(str::to_owned));
    expected.sort_unstable();
    assert_eq!(arrived, expected);
    rights(&node, &place).await;
    rights_by_routing_key(&node).await;
}

fn is_large(record: &Record) -> bool {
    record.payload.as_ref().is_some_and(|payload| payload.len() == 70_000)
}

/// The broker closes the channel over it. Those that were under way with it may have to be published again, and are not
/// to blame; those that come later are not touched, though the large ones come again with them.
async fn too_large_is_rejected_and_takes_no_other_with_it(place: &Place) {
    let publisher = RabbitPublisher::start(place.options().channels(1)).unwrap();
    let large = || Record { payload: Some(Bytes::from(vec![b'x'; 70_000])), ..record("large") };
    let small = |round: usize| (0..SMALL).map(move |n| record(&format!("{round}/{n}")));
    let (mut waiting, mut rejected): (Vec<Record>, _) = ((0..4).map(|_| large()).collect(), 0);
    for round in 0..ROUNDS {
        // The large ones are in the middle.
        let mut batch: Vec<_> = small(round).collect();
        let half = batch.split_off(SMALL / 2);
        batch.append(&mut waiting);
        batch.extend(half);
        let results = publish_all(&publisher, batch.clone()).await;
        for (record, result) in batch.into_iter().zip(results) {
            let fresh = record.aggregate.aggregate_id().starts_with(&format!("{round}/"));
            match result.as_ref().map_err(posthaste::PublishError::class) {
                Ok(()) => assert!(!is_large(&record)),
                Err(FailureClass::Unavailable) => {
                    assert!(round == 0 || !fresh, "{result:?} in round {round}");
                    waiting.push(record);
                }
                Err(FailureClass::Rejected) => {
                    assert!(is_large(&record), "{result:?}");
                    rejected += 1;
                }
                Err(class) => panic!("{class:?}: {result:?}"),
            }
        }
    }
    assert_eq!((rejected, waiting.len()), (4, 0));
    publisher.close().await;
}

async fn closed_by_hand(node: &Node, publisher: &RabbitPublisher) {
    let list = node.ctl(&["list_connections", "pid", "client_properties"]).await;
    let line = list.lines().find(|line| line.contains("Posthaste")).unwrap_or_else(|| panic!("{list}"));
    let pid = line.split_whitespace().next().unwrap();
    node.ctl(&["close_connection", pid, "by hand"]).await;
    until_published(publisher, record("second")).await;
    until_published(publisher, record("third")).await;
}

/// Without the right to write, every publish would be refused: the destination is at fault, not the record.
async fn rights(node: &Node, place: &Place) {
    node.ctl(&["add_user", "reader", "secret"]).await;
    node.ctl(&["set_permissions", "reader", ".*", "^$", ".*"]).await;
    let url = place.url.replace("guest:guest", "reader:secret");
    let options = support::options(&url).exchange(&place.exchange);
    let publisher = RabbitPublisher::start(options).unwrap();
    for _ in 0..5 {
        let result = publish(&publisher, record("r")).await;
        assert_eq!(outcome(&result), unavailable("access refused by the broker"));
    }
    node.ctl(&["set_permissions", "reader", ".*", ".*", ".*"]).await;
    // The broker remembers what it refused on a connection for a while.
    node.ctl(&["close_all_connections", "rights have changed"]).await;
    let place = Place::on(&node.url()).await;
    place.queue("#", FieldTable::default()).await;
    let options = support::options(&url).exchange(&place.exchange);
    let publisher = RabbitPublisher::start(options).unwrap();
    until_published(&publisher, record("r")).await;
}

/// Where others are let in, the record is at fault, and takes nobody with it.
async fn rights_by_routing_key(node: &Node) {
    let place = Place::on(&node.url()).await;
    place.queue("#", FieldTable::default()).await;
    node.ctl(&["add_user", "writer", "secret"]).await;
    node.ctl(&["set_permissions", "writer", ".*", ".*", ".*"]).await;
    node.ctl(&["set_topic_permissions", "writer", &place.exchange, "^thing", ".*"]).await;
    let options = support::options(&place.url.replace("guest:guest", "writer:secret"));
    let publisher = RabbitPublisher::start(options.exchange(&place.exchange)).unwrap();
    let forbidden = Record { event_type: "other.happened".into(), ..record("forbidden") };
    for _ in 0..3 {
        until_published(&publisher, record("allowed")).await;
        let expected = support::failed("refused by the broker: access refused (403)");
        assert_eq!(outcome(&publish(&publisher, forbidden.clone()).await), expected);
    }
}
