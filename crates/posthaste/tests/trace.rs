//! The trace in which a message was enqueued goes along with it, and the publish is linked to it.

use std::sync::{Arc, Mutex};

use opentelemetry_0_33::trace::{TraceContextExt, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use posthaste::{BoxError, MemoryStore, Message, Outbox, Record, Relay, publish_fn};
use tracing::Instrument;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::layer::SubscriberExt;

/// Publishes what is in a store; returns the records and the spans.
#[expect(clippy::unwrap_used, reason = "it is part of a test")]
async fn publish(store: &MemoryStore, exporter: &InMemorySpanExporter) -> (Vec<Arc<Record>>, Vec<SpanData>) {
    let records = Arc::new(Mutex::new(Vec::new()));
    let handler = publish_fn({
        let records = records.clone();
        move |record| {
            records.lock().unwrap().push(record);
            async { Ok::<_, BoxError>(()) }
        }
    });
    let relay = Relay::builder(Arc::new(store.clone())).publisher(handler).build().unwrap();
    relay.drain().await.unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let records = records.lock().unwrap().clone();
    (records, spans.into_iter().filter(|span| span.name == "publish").collect())
}

#[tokio::test]
async fn the_trace_goes_along_and_the_publish_is_linked_to_it() {
    let exporter = InMemorySpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
    let _guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));

    let (store, outbox) = (MemoryStore::new(4), Outbox::new("outbox").unwrap());
    let request = tracing::info_span!("request");
    let context = request.context().span().span_context().clone();
    let mut tx = store.begin();
    async {
        outbox.enqueue(&mut tx, &Message::new("one").header("tenant", "acme")).await.unwrap();
        outbox.enqueue_all(&mut tx, &[Message::new("all")]).await.unwrap();
        let own = Message::new("own").header("traceparent", "what the message says itself stands");
        outbox.enqueue(&mut tx, &own).await.unwrap();
    }
    .instrument(request)
    .await;
    outbox.enqueue(&mut tx, &Message::new("outside")).await.unwrap();
    tx.commit();

    let (records, spans) = publish(&store, &exporter).await;
    let expected = format!("00-{}-{}-01", context.trace_id(), context.span_id());
    assert_eq!(spans.len(), 4);
    for record in records {
        let traceparent = record.headers.get("traceparent").map(String::as_str);
        let id = record.id.to_string();
        let of_record =
            |span: &&SpanData| span.attributes.iter().any(|attribute| attribute.value.as_str() == id);
        let span = spans.iter().find(of_record).unwrap();
        let linked: Vec<_> = span.links.iter().map(|link| link.span_context.trace_id()).collect();
        match record.event_type.as_str() {
            "one" | "all" => {
                assert_eq!(traceparent, Some(expected.as_str()), "{}", record.event_type);
                assert_eq!(linked, [context.trace_id()]);
                assert_ne!(span.span_context.trace_id(), context.trace_id(), "linked, not a child");
            }
            "own" => assert_eq!(traceparent, Some("what the message says itself stands")),
            _ => assert_eq!((traceparent, linked.len()), (None, 0), "{}", record.event_type),
        }
    }
    assert_eq!(store.messages()[0].headers["tenant"], "acme");
}
