//! Traces: the current one goes along with messages, and a publish is linked to it.

use std::collections::BTreeMap;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use opentelemetry_0_33 as opentelemetry;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::outbox::{TRACEPARENT, TRACESTATE};
use crate::record::Record;

/// `traceparent` and `tracestate` of the current span, of `tracing` or else of OpenTelemetry itself.
pub(crate) fn current_headers() -> Vec<(&'static str, String)> {
    let of_tracing = Span::current().context().span().span_context().clone();
    let context =
        if of_tracing.is_valid() { of_tracing } else { Context::current().span().span_context().clone() };
    if !context.is_valid() {
        return Vec::new();
    }
    let (trace, span, flags) = (context.trace_id(), context.span_id(), context.trace_flags().to_u8());
    let mut headers = vec![(TRACEPARENT, format!("00-{trace}-{span}-{flags:02x}"))];
    let state = context.trace_state().header();
    // A state that nothing could carry is left out: a trace must not make an enqueue fail.
    if !state.is_empty() && !state.contains(char::is_control) {
        headers.push((TRACESTATE, state));
    }
    headers
}

/// The span in which a record is published. It is linked to the one in which it was enqueued, not its child: that one
/// may be long over.
pub(crate) fn publish_span(record: &Record) -> Span {
    let span = tracing::info_span!(
        "publish",
        otel.kind = "producer",
        messaging.system = "posthaste",
        messaging.message.id = %record.id,
        event_type = record.event_type,
        attempt = record.attempt(),
    );
    if let Some(enqueued_in) = context_of(&record.headers) {
        span.add_link(enqueued_in);
    }
    span
}

/// The span that the headers of a record name. What is no valid `traceparent` is none.
fn context_of(headers: &BTreeMap<String, String>) -> Option<SpanContext> {
    let mut parts = headers.get(TRACEPARENT)?.trim().split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let lengths = [version, trace, span, flags].map(str::len);
    let has_more = parts.next().is_some();
    if lengths != [2, 32, 16, 2] || version == "ff" || (version == "00" && has_more) {
        return None;
    }
    if ![version, trace, span, flags].into_iter().all(is_hex) {
        return None;
    }
    let state =
        headers.get(TRACESTATE).and_then(|state| state.parse::<TraceState>().ok()).unwrap_or_default();
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    let (trace, span) = (TraceId::from_hex(trace).ok()?, SpanId::from_hex(span).ok()?);
    Some(SpanContext::new(trace, span, flags, true, state)).filter(SpanContext::is_valid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(traceparent: &str) -> Option<(String, String, u8)> {
        let headers = BTreeMap::from([(TRACEPARENT.to_owned(), traceparent.to_owned())]);
        let context = context_of(&headers)?;
        let flags = context.trace_flags().to_u8();
        Some((context.trace_id().to_string(), context.span_id().to_string(), flags))
    }

    #[test]
    fn traceparents_are_read_strictly() {
        let (trace, span) = ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331");
        let expected = Some((trace.to_owned(), span.to_owned(), 1));
        assert_eq!(parsed(&format!("00-{trace}-{span}-01")), expected);
        assert_eq!(parsed(&format!("cc-{trace}-{span}-01-later")), expected, "a later version");
        for bad in [
            "",
            "00",
            &format!("00-{trace}-{span}"),
            &format!("00-{trace}-{span}-01-more"),
            &format!("ff-{trace}-{span}-01"),
            &format!("00-{}-{span}-01", trace.to_uppercase()),
            &format!("00-{}-{span}-01", "0".repeat(32)),
            &format!("00-{trace}-{}-01", "0".repeat(16)),
            &format!("00-{trace}é-{span}-01"),
        ] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
