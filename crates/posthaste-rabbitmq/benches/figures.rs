//! Confirmed publishes a second, against lapin alone with the same number in flight, in one run; and how long one takes.
//!
//! `cargo bench -p posthaste-rabbitmq` prints them. The broker is the one that the tests use.
#![allow(clippy::unwrap_used, reason = "a benchmark may panic")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};
use posthaste::{Publisher, Record};
use posthaste_rabbitmq::RabbitPublisher;
use tokio::time::{Instant, MissedTickBehavior, interval};

use support::{Place, long, record};

const CHANNELS: usize = 4;
const TIME: Duration = Duration::from_secs(4);

fn sample() -> Record {
    Record { payload: Some(Bytes::from(vec![b'x'; 512])), ..record("7") }
}

/// So many workers, each with one publish after another.
async fn rate<F>(in_flight: usize, publish: impl Fn(usize) -> F + Send + Sync + 'static) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let publish = Arc::new(publish);
    let (count, until) = (Arc::new(AtomicU64::new(0)), Instant::now() + TIME);
    let began = Instant::now();
    let workers: Vec<_> = (0..in_flight)
        .map(|worker| {
            let (count, publish) = (count.clone(), publish.clone());
            tokio::spawn(async move {
                while Instant::now() < until {
                    publish(worker).await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.unwrap();
    }
    count.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()
}

/// The usual way to publish with lapin, with the same properties as ours.
async fn lapin_alone(place: &Place, in_flight: usize, persistent: bool) -> f64 {
    let connection = Connection::connect(&place.url, ConnectionProperties::default()).await.unwrap();
    let mut channels: Vec<Arc<Channel>> = Vec::new();
    for _ in 0..CHANNELS {
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        channels.push(Arc::new(channel));
    }
    let (exchange, sample) = (place.exchange.clone(), sample());
    rate(in_flight, move |worker| {
        let (channel, exchange) = (channels[worker % CHANNELS].clone(), exchange.clone());
        let payload = sample.payload.clone().unwrap();
        async move {
            let mut headers = FieldTable::default();
            headers.insert("x-outbox-attempt".into(), AMQPValue::LongLongInt(1));
            headers.insert("x-outbox-aggregate-key".into(), long("thing/7"));
            headers.insert("x-outbox-aggregate-type".into(), long("thing"));
            let properties = BasicProperties::default()
                .with_message_id("0198c7b2-0000-7000-8000-000000000000".into())
                .with_type("thing.happened".into())
                .with_content_type("text/plain".into())
                .with_timestamp(1_767_225_600)
                .with_delivery_mode(if persistent { 2 } else { 1 })
                .with_headers(headers);
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            let key = "thing.happened".into();
            let confirm =
                channel.basic_publish(exchange.as_str().into(), key, options, &payload, properties).await;
            assert!(confirm.unwrap().await.unwrap().is_ack());
        }
    })
    .await
}

async fn ours(place: &Place, in_flight: usize, persistent: bool) -> f64 {
    let publisher = RabbitPublisher::start(place.options().persistent(persistent)).unwrap();
    let sample = sample();
    let shared = publisher.clone();
    let rate = rate(in_flight, move |_| {
        let (publisher, sample) = (shared.clone(), sample.clone());
        async move {
            let record = Record { id: posthaste::MessageId::generate(), ..sample };
            publisher.publish(Arc::new(record)).await.unwrap();
        }
    })
    .await;
    publisher.close().await;
    rate
}

/// How long a publish takes at 500 a second.
async fn latency(place: &Place) {
    let publisher = place.publisher();
    let mut ticks = interval(Duration::from_millis(2));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut tasks = Vec::new();
    for _ in 0..2_000 {
        ticks.tick().await;
        let publisher = publisher.clone();
        tasks.push(tokio::spawn(async move {
            let began = Instant::now();
            publisher.publish(Arc::new(sample())).await.unwrap();
            began.elapsed()
        }));
    }
    let mut took = Vec::new();
    for task in tasks {
        took.push(task.await.unwrap());
    }
    took.sort_unstable();
    println!("500/s: p50 {:?}  p99 {:?}", took[took.len() / 2], took[took.len() * 99 / 100]);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let place = Place::new().await;
    let mut bounded = FieldTable::default();
    bounded.insert("x-max-length".into(), AMQPValue::LongInt(1_000));
    place.queue("#", bounded).await;
    for (in_flight, persistent) in [(256, false), (256, true), (32, false)] {
        let mut rates = [0.0; 2];
        for _ in 0..2 {
            rates[0] += lapin_alone(&place, in_flight, persistent).await / 2.0;
            rates[1] += ours(&place, in_flight, persistent).await / 2.0;
        }
        let [lapin, ours] = rates;
        println!(
            "{in_flight} in flight, persistent {persistent}: lapin {lapin:.0}/s  ours {ours:.0}/s  ratio {:.2}",
            ours / lapin
        );
    }
    latency(&place).await;
}
