//! The conformance suite of publishers, on a real broker behind a proxy.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use lapin::message::BasicGetMessage;
use lapin::types::{AMQPValue, FieldTable};
use posthaste::{Key, Publisher, Record};
use posthaste_rabbitmq::RabbitPublisher;
use posthaste_testkit::{
    Arrival, Capabilities, Fault, FaultProxy, Outage, PublisherFixture, publisher_conformance,
};
use tokio::sync::Mutex;

use support::{Place, at, options};

const LIMIT: Duration = Duration::from_millis(1_500);

struct Fixture {
    place: Place,
    queue: String,
    proxy: FaultProxy,
    publisher: RabbitPublisher,
    arrived: Mutex<Vec<Arrival>>,
}

#[async_trait]
impl PublisherFixture for Fixture {
    async fn new() -> Option<Self> {
        let place = Place::new().await;
        // Everything that the suite publishes, but not what is spoiled.
        let queue = place.queue("thing.#", FieldTable::default()).await;
        for key in ["order.#", "grüße 🦀", "it's \"quoted\"", "semi;colon, comma", "new\r\nline", " spaces "]
        {
            place.bind(&queue, key).await;
        }
        let proxy = FaultProxy::start(support::address(&place.url));
        let options = options(&at(&place.url, proxy.address()))
            .exchange(&place.exchange)
            .routing_key("{event_type}")
            .publish_timeout(LIMIT)
            .connect_timeout(Duration::from_millis(1_000));
        let publisher = RabbitPublisher::start(options).unwrap();
        Some(Self { place, queue, proxy, publisher, arrived: Mutex::default() })
    }

    fn publisher(&self) -> Arc<dyn Publisher> {
        Arc::new(self.publisher.clone())
    }

    fn capabilities(&self) -> Capabilities {
        // AMQP has no other word for a tombstone than an empty payload.
        Capabilities { tombstones: false, ..Capabilities::ALL }
    }

    fn time_limit(&self) -> Duration {
        LIMIT + Duration::from_millis(500)
    }

    async fn arrived(&self) -> Vec<Arrival> {
        let mut arrived = self.arrived.lock().await;
        arrived.extend(self.place.take(&self.queue).await.into_iter().map(arrival));
        arrived.clone()
    }

    async fn break_down(&self, outage: Outage) {
        self.proxy.set(match outage {
            Outage::Refusing => Fault::Refuse,
            Outage::Silent => Fault::Blackhole,
        });
    }

    async fn heal(&self) {
        self.proxy.heal();
    }

    async fn spoil(&self, record: Record) -> Record {
        Record { event_type: "nobody.listens".into(), ..record }
    }
}

fn arrival(message: BasicGetMessage) -> Arrival {
    let delivery = message.delivery;
    let properties = &delivery.properties;
    let text = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => text.to_string(),
        other => panic!("a header arrived as {other:?}"),
    };
    let mut headers = properties.headers().clone().unwrap_or_default().inner().clone();
    assert!(headers.remove("x-outbox-attempt").is_some());
    let key = headers.remove("x-outbox-aggregate-key").map(|key| {
        let (key, kind) = (text(&key), text(&headers.remove("x-outbox-aggregate-type").unwrap()));
        Key::new(&kind, key.strip_prefix(&format!("{kind}/")).unwrap())
    });
    assert_eq!(
        properties.kind().as_ref().map(ToString::to_string).as_deref(),
        Some(delivery.routing_key.as_str())
    );
    Arrival {
        message_id: properties.message_id().as_ref().map(ToString::to_string),
        event_type: Some(delivery.routing_key.to_string()),
        key,
        payload: Some(Bytes::from(delivery.data)),
        content_type: properties.content_type().as_ref().map(ToString::to_string),
        headers: headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
    }
}

publisher_conformance!(Fixture);
