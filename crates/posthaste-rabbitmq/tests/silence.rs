//! Brokers that do not answer, and what must not be left behind.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use lapin::types::FieldTable;
use posthaste_rabbitmq::RabbitPublisher;
use posthaste_testkit::{Fault, FaultProxy};
use tokio::net::TcpListener;
use tokio::time::Instant;

use support::{
    Place, at, eventually, options, outcome, publish, publish_all, record, unavailable, until_published,
};

/// The threads that lapin runs a connection on.
fn connection_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|name| name.starts_with("lapin-io-loop")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_accepts_and_never_answers_holds_nothing_up_and_costs_no_threads() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("amqp://{}", listener.local_addr().unwrap());
    let options = options(&url)
        .connect_timeout(Duration::from_millis(200))
        .publish_timeout(Duration::from_millis(600))
        .reconnect_max(Duration::from_millis(100));
    let publisher = RabbitPublisher::start(options).unwrap();
    let mut connections = Vec::new();
    while connections.len() < 6 {
        let began = Instant::now();
        for result in publish_all(&publisher, (0..20).map(|n| record(&n.to_string()))).await {
            assert_eq!(outcome(&result), unavailable("no answer from the broker"));
        }
        assert!(began.elapsed() < Duration::from_secs(5), "all at once, not one after another");
        let accept = tokio::time::timeout(Duration::from_secs(5), listener.accept()).await;
        // Kept open: only we can end it.
        connections.push(accept.unwrap().unwrap());
        assert!(connection_threads() <= 2, "{} threads", connection_threads());
    }
    publisher.close().await;
    eventually("no thread is left", async || connection_threads() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_in_the_middle_ends_in_time_and_leaves_no_old_connection_behind() {
    let place = Place::new().await;
    let queue = place.queue("#", FieldTable::default()).await;
    let others = connection_threads();
    let proxy = FaultProxy::start(support::address(&place.url));
    let options = options(&at(&place.url, proxy.address()))
        .exchange(&place.exchange)
        .connect_timeout(Duration::from_secs(1))
        .publish_timeout(Duration::from_secs(1));
    let publisher = RabbitPublisher::start(options).unwrap();
    for round in 0..3 {
        until_published(&publisher, record(&format!("before {round}"))).await;
        proxy.set(Fault::Blackhole);
        for result in publish_all(&publisher, (0..50).map(|n| record(&format!("lost {n}")))).await {
            assert_eq!(outcome(&result), unavailable("no answer from the broker"));
        }
        proxy.heal();
    }
    until_published(&publisher, record("after")).await;
    eventually("one connection", async || connection_threads() == others + 1).await;
    let mut arrived = place.payloads(&queue).await;
    arrived.retain(|payload| !payload.starts_with("lost"));
    arrived.dedup();
    assert_eq!(arrived, ["before 0", "before 1", "before 2", "after"]);
    // A connection that is silent when it is closed is closed as well.
    proxy.set(Fault::Blackhole);
    tokio::time::timeout(Duration::from_secs(5), publisher.close()).await.unwrap();
    eventually("none", async || connection_threads() == others).await;
}

#[tokio::test]
async fn an_idle_connection_that_goes_silent_is_replaced() {
    let place = Place::new().await;
    place.queue("#", FieldTable::default()).await;
    let proxy = FaultProxy::start(support::address(&place.url));
    let options = options(&at(&place.url, proxy.address()))
        .exchange(&place.exchange)
        .heartbeat(Duration::from_secs(1))
        .connect_timeout(Duration::from_millis(500));
    let publisher = RabbitPublisher::start(options).unwrap();
    until_published(&publisher, record("r")).await;
    proxy.set(Fault::Blackhole);
    eventually("it is noticed without a publish", async || !format!("{publisher:?}").contains("\"up\""))
        .await;
    proxy.heal();
    let began = Instant::now();
    until_published(&publisher, record("r")).await;
    assert!(began.elapsed() < Duration::from_secs(8), "it did not take a publish's time limit");
}

#[tokio::test]
async fn a_broker_that_comes_late_is_waited_for() {
    let place = Place::new().await;
    place.queue("#", FieldTable::default()).await;
    let proxy = FaultProxy::start(support::address(&place.url));
    proxy.set(Fault::Blackhole);
    let options = options(&at(&place.url, proxy.address())).exchange(&place.exchange);
    let publisher = RabbitPublisher::start(options).unwrap();
    let (result, ()) = tokio::join!(publish(&publisher, record("r")), async {
        proxy.until_open(|open| open > 0).await;
        proxy.heal();
    });
    assert_eq!(outcome(&result), Ok(()));
}
