//! What was published arrives, and arrives as it was.

use std::collections::BTreeMap;

use bytes::Bytes;
use posthaste::{Key, MessageId, Record};

use super::fixture::PublisherFixture;
use super::support::{
    deliver, deliver_at_once, labels, only_arrival, payloads, publish, record, records, sorted_payloads,
};

/// The relay settles a record as soon as its publish returns, and never publishes it again.
pub async fn ok_means_that_the_destination_has_it(f: &dyn PublisherFixture) {
    for n in 1..=5 {
        deliver(f, record(&format!("r{n}"))).await;
        assert_eq!(f.arrived().await.len(), n, "it is there at once, not some time later");
    }
    assert_eq!(sorted_payloads(f).await, ["r1", "r2", "r3", "r4", "r5"]);
}

pub async fn payloads_arrive_byte_for_byte(f: &dyn PublisherFixture) {
    let mut payloads: Vec<Vec<u8>> = vec![
        (0..=255).collect(),
        b"\0".to_vec(),
        b"\xff\xfe\xed\xa0\x80".to_vec(),
        br#"{"b":1, "a":1.0,"a":2,"nul":"\u0000"}"#.to_vec(),
        b"line\r\nbreak\n".to_vec(),
        b" ".to_vec(),
    ];
    if f.capabilities().large_payloads {
        let mut large = vec![0; 512 * 1024];
        fastrand::Rng::with_seed(1).fill(&mut large);
        payloads.push(large);
    }
    for payload in &payloads {
        deliver(f, Record { payload: Some(payload.clone().into()), ..record("bytes") }).await;
    }
    let arrived: Vec<_> = f.arrived().await.into_iter().map(|arrival| arrival.payload).collect();
    assert_eq!(arrived.len(), payloads.len());
    for (n, (arrived, payload)) in arrived.iter().zip(&payloads).enumerate() {
        assert!(arrived.as_deref() == Some(payload), "payload {n} arrived as something else");
    }
}

pub async fn a_json_payload_is_not_rewritten(f: &dyn PublisherFixture) {
    let text = r#"{ "b":1,"a":1.0, "a":2 ,"surrogate":"\ud800" }"#;
    let json = Record {
        payload: Some(Bytes::from_static(text.as_bytes())),
        content_type: Some(posthaste::JSON.into()),
        ..record("json")
    };
    deliver(f, json).await;
    assert_eq!(payloads(f).await, [text]);
}

pub async fn an_empty_payload_arrives(f: &dyn PublisherFixture) {
    deliver(f, Record { payload: Some(Bytes::new()), ..record("empty") }).await;
    let payload = only_arrival(f).await.payload;
    if f.capabilities().tombstones {
        assert_eq!(payload, Some(Bytes::new()), "an empty payload is not a tombstone");
    } else {
        assert!(payload.is_none_or(|payload| payload.is_empty()));
    }
}

pub async fn a_tombstone_arrives(f: &dyn PublisherFixture) {
    deliver(f, Record { payload: None, content_type: None, ..record("tombstone") }).await;
    let payload = only_arrival(f).await.payload;
    if f.capabilities().tombstones {
        assert_eq!(payload, None, "a tombstone is not an empty payload");
    } else {
        assert!(payload.is_none_or(|payload| payload.is_empty()));
    }
}

pub async fn the_id_arrives_as_the_message_id(f: &dyn PublisherFixture) {
    let record = record("r");
    deliver(f, record.clone()).await;
    if f.capabilities().message_id {
        assert_eq!(only_arrival(f).await.message_id, Some(record.id.to_string()));
    }
}

pub async fn an_idempotency_key_arrives_as_the_message_id(f: &dyn PublisherFixture) {
    deliver(f, Record { idempotency_key: Some("order 7, once".into()), ..record("r") }).await;
    if f.capabilities().message_id {
        assert_eq!(only_arrival(f).await.message_id.as_deref(), Some("order 7, once"));
    }
}

/// So that who receives it can tell a repeat.
pub async fn every_attempt_has_the_same_message_id(f: &dyn PublisherFixture) {
    let first = record("r");
    for attempts in 0..3 {
        // Destinations that remove repeats themselves may keep only the first.
        deliver(f, Record { attempts, ..first.clone() }).await;
    }
    let arrived = f.arrived().await;
    assert!(!arrived.is_empty());
    if f.capabilities().message_id {
        for arrival in arrived {
            assert_eq!(arrival.message_id, Some(first.id.to_string()));
        }
    }
}

pub async fn event_type_key_and_content_type_arrive(f: &dyn PublisherFixture) {
    let record = Record {
        event_type: "order.created".into(),
        aggregate: Key::new("order", "no. 7"),
        content_type: Some("application/json; charset=utf-8".into()),
        ..record("r")
    };
    deliver(f, record.clone()).await;
    let (arrival, can) = (only_arrival(f).await, f.capabilities());
    if can.event_type {
        assert_eq!(arrival.event_type, Some(record.event_type));
    }
    if can.key {
        assert_eq!(arrival.key, Some(record.aggregate));
    }
    if can.content_type {
        assert_eq!(arrival.content_type, record.content_type);
    }
}

pub async fn headers_arrive(f: &dyn PublisherFixture) {
    let headers: BTreeMap<_, _> = [
        ("tenant", "acme"),
        ("empty", ""),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("long", &"x".repeat(2_000)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .collect();
    deliver(f, Record { headers: headers.clone(), ..record("r") }).await;
    if f.capabilities().headers {
        assert_eq!(only_arrival(f).await.headers, headers);
    }
}

/// What a destination has no room for must not be lost in silence: either it arrives, or the record is refused.
pub async fn strange_text_arrives_or_is_refused(f: &dyn PublisherFixture) {
    let strange = ["grüße 🦀", "it's \"quoted\"", "semi;colon, comma", "new\r\nline", " spaces "];
    for (n, text) in strange.iter().enumerate() {
        let record = Record {
            event_type: (*text).into(),
            aggregate: Key::new("thing", text),
            content_type: Some((*text).into()),
            headers: BTreeMap::from([("strange".to_owned(), (*text).to_owned())]),
            payload: Some(Bytes::from(format!("strange {n}"))),
            ..record("r")
        };
        let result = publish(f, record.clone()).await;
        let arrived = f.arrived().await;
        let arrival = arrived.iter().find(|arrival| arrival.payload == record.payload);
        if let Err(error) = result {
            super::failure::assert_blames_the_record(&error);
            assert_eq!(arrival, None, "what is refused does not arrive");
            continue;
        }
        let arrival = arrival.unwrap_or_else(|| panic!("what is published arrives: {text:?}"));
        let can = f.capabilities();
        if can.headers {
            assert_eq!(arrival.headers, record.headers, "the headers");
        }
        if can.key {
            assert_eq!(arrival.key, Some(record.aggregate), "the key");
        }
        if can.event_type {
            assert_eq!(arrival.event_type, Some(record.event_type), "the event type");
        }
    }
    deliver(f, record("after")).await;
}

pub async fn a_bare_record_arrives(f: &dyn PublisherFixture) {
    let bare = Record { aggregate: Key::new("", ""), content_type: None, ..record("bare") };
    deliver(f, bare).await;
    let arrival = only_arrival(f).await;
    assert_eq!(arrival.payload.as_deref(), Some(&b"bare"[..]));
    if f.capabilities().headers {
        assert_eq!(arrival.headers, BTreeMap::new());
    }
}

pub async fn many_records_at_once_arrive_once_each(f: &dyn PublisherFixture) {
    for round in 0..3 {
        deliver_at_once(f, records(&format!("round {round} no. "), 200)).await;
    }
    let mut expected: Vec<_> =
        (0..3).flat_map(|round| labels(&records(&format!("round {round} no. "), 200))).collect();
    expected.sort_unstable();
    assert_eq!(sorted_payloads(f).await, expected);
}

/// The relay publishes the records of a key one after another, and those of different keys at once.
pub async fn the_order_within_a_key_is_kept(f: &dyn PublisherFixture) {
    let (keys, each) = (20, 15);
    let of_key = |key: usize, n: usize| Record {
        id: MessageId::generate(),
        aggregate: Key::new("thing", &key.to_string()),
        ..record(&format!("{key}/{n:02}"))
    };
    for n in 0..each {
        deliver_at_once(f, (0..keys).map(|key| of_key(key, n)).collect()).await;
    }
    let arrived = payloads(f).await;
    assert_eq!(arrived.len(), keys * each);
    for key in 0..keys {
        let prefix = format!("{key}/");
        let of_key: Vec<_> = arrived.iter().filter(|payload| payload.starts_with(&prefix)).collect();
        assert_eq!(of_key.len(), each, "key {key}");
        assert!(!f.capabilities().order || of_key.is_sorted(), "the order of key {key}: {of_key:?}");
    }
}
