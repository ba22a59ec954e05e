//! The trace that a message belongs to, as W3C Trace Context headers.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::message::Message;

/// The headers that the current span adds to messages that are enqueued. Without the feature there are none.
#[derive(Debug, Clone, Default)]
pub(crate) struct TraceContext {
    headers: Vec<(&'static str, String)>,
}

pub(crate) const TRACEPARENT: &str = "traceparent";
#[cfg(any(test, feature = "opentelemetry-0_33"))]
pub(crate) const TRACESTATE: &str = "tracestate";

impl TraceContext {
    /// That of the current span.
    pub(crate) fn current() -> Self {
        #[cfg(feature = "opentelemetry-0_33")]
        let headers = crate::telemetry::current_headers();
        #[cfg(not(feature = "opentelemetry-0_33"))]
        let headers = Vec::new();
        Self { headers }
    }

    /// The headers of a message with those of the trace. What the message says itself stands.
    pub(crate) fn add_to<'a>(&self, message: &'a Message) -> Cow<'a, BTreeMap<String, String>> {
        let mut headers = Cow::Borrowed(message.headers());
        if !message.headers().contains_key(TRACEPARENT) {
            for (name, value) in &self.headers {
                headers.to_mut().insert((*name).to_owned(), value.clone());
            }
        }
        headers
    }

    /// The message with the headers of the trace.
    pub(crate) fn added_to<'a>(&self, message: &'a Message) -> Cow<'a, Message> {
        match self.add_to(message) {
            Cow::Borrowed(_) => Cow::Borrowed(message),
            Cow::Owned(headers) => {
                let mut message = message.clone();
                for (name, value) in headers {
                    message = message.header(name, value);
                }
                Cow::Owned(message)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_message_says_itself_stands() {
        let trace =
            TraceContext { headers: vec![(TRACEPARENT, "00-1".to_owned()), (TRACESTATE, "a=b".to_owned())] };
        let message = Message::new("e").header("tenant", "acme");
        let headers: Vec<_> = trace.add_to(&message).keys().cloned().collect();
        assert_eq!(headers, ["tenant", "traceparent", "tracestate"]);
        let message = message.header(TRACEPARENT, "00-2");
        assert_eq!(trace.add_to(&message).as_ref(), message.headers());
        assert!(matches!(TraceContext::default().added_to(&message), Cow::Borrowed(_)));
    }
}
