//! The relay's spans: one for each read, publish and settle, without payloads.
#![allow(clippy::unwrap_used, reason = "all of it is tests")]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use posthaste::{BoxError, MemoryStore, Message, Relay, publish_fn};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// What the spans and the events are called, with their fields.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<String>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl<S: tracing::Subscriber> Layer<S> for Seen {
    fn on_new_span(&self, attributes: &Attributes<'_>, _id: &Id, _context: Context<'_, S>) {
        let mut seen = self.0.lock().unwrap();
        let _ = write!(seen, "\n{} span {}", attributes.metadata().level(), attributes.metadata().name());
        attributes.record(&mut Fields(&mut seen));
    }

    fn on_event(&self, event: &tracing::Event<'_>, _context: Context<'_, S>) {
        let mut seen = self.0.lock().unwrap();
        let _ = write!(seen, "\n{} event", event.metadata().level());
        event.record(&mut Fields(&mut seen));
    }
}

#[tokio::test(flavor = "current_thread")]
async fn reads_publishes_and_settles_have_spans_without_payloads() {
    let seen = Seen::default();
    let _collecting = tracing::subscriber::set_default(tracing_subscriber::registry().with(seen.clone()));
    let store = MemoryStore::new(1);
    let mut tx = store.begin();
    tx.enqueue(&Message::new("order.created").aggregate("order", 7).text("s3cret")).unwrap();
    tx.commit();
    let publisher = publish_fn(|_| async { Ok::<_, BoxError>(()) });
    let relay = Relay::builder(Arc::new(store)).publisher(publisher).build().unwrap();
    relay.drain().await.unwrap();
    let seen = seen.0.lock().unwrap().clone();
    for line in ["span read lanes=1", "span publish ", "span settle outcomes=1", "message=settled applied=1"]
    {
        assert!(seen.lines().any(|seen| seen.contains(line)), "no {line} in {seen}");
    }
    assert!(seen.contains("event_type=\"order.created\""), "{seen}");
    assert!(!seen.contains("s3cret"), "{seen}");
}
