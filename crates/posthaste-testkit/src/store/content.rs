//! What goes in comes out, byte for byte.

use std::collections::BTreeMap;
use std::time::Duration;

use posthaste::{ErrorKind, Key, MAX_NAME_CHARS, Message, Record};

use super::fixture::{Payloads, StoreFixture};
use super::support::{enqueue, enqueue_all, find, find_now, keyed, loose, ok, read_all, refused, show};

/// Enqueues messages, singly and in a batch, and checks that each comes out as it went in.
async fn check_round_trip(f: &dyn StoreFixture, messages: &[Message]) {
    let again: Vec<_> =
        messages.iter().map(|message| message.clone().with_id(posthaste::MessageId::generate())).collect();
    enqueue(f, messages).await;
    enqueue_all(f, &again).await;
    let records = read_all(f).await;
    assert_eq!(records.len(), 2 * messages.len());
    for message in messages.iter().chain(&again) {
        let record = records.iter().find(|record| record.id == message.id());
        check_record(record.unwrap_or_else(|| panic!("{} must be read", message.id())), message);
        check_details(f, message).await;
    }
}

/// Checks that bytes come out as they went in, or are refused by an outbox that takes JSON only.
async fn check_bytes(f: &dyn StoreFixture, messages: &[Message]) {
    if f.payloads() == Payloads::AnyBytes {
        check_round_trip(f, messages).await;
        return;
    }
    let mut transaction = f.begin().await;
    ok(transaction.enqueue(&loose("before")).await, "enqueue");
    for payload in [&b""[..], b"x", b"\0", b"\xff\xfe", b"{\"a\":1", b"\"\xff\""] {
        let message = Message::new("no JSON").payload(payload);
        refused(transaction.enqueue(&message).await, ErrorKind::InvalidMessage, "a payload that is no JSON");
        let batch = [loose("first"), message];
        refused(transaction.enqueue_all(&batch).await, ErrorKind::InvalidMessage, "the same in a batch");
    }
    transaction.commit().await;
    assert_eq!(super::support::labels(&read_all(f).await), ["before"], "the transaction stays usable");
}

#[track_caller]
fn check_record(record: &Record, message: &Message) {
    let name = message.event_type();
    assert_eq!(record.event_type, name);
    assert_eq!(record.aggregate, Key::new(message.aggregate_type(), message.aggregate_id()), "{name}");
    assert_eq!(record.payload.as_ref(), message.payload_bytes(), "the payload of {name}");
    assert_eq!(record.content_type.as_deref(), message.content_type_str(), "the content type of {name}");
    assert_eq!(&record.headers, message.headers(), "the headers of {name}");
    assert_eq!(record.idempotency_key.as_deref(), message.idempotency_key_str(), "the key of {name}");
    assert_eq!((record.attempts, record.held_back), (0, false), "{name} was never tried");
}

async fn check_details(f: &dyn StoreFixture, message: &Message) {
    let details = show(f, message.id()).await;
    let name = message.event_type();
    assert_eq!(details.info.event_type, name);
    assert_eq!(details.info.aggregate_type, message.aggregate_type(), "{name}");
    assert_eq!(details.info.aggregate_id, message.aggregate_id(), "{name}");
    assert_eq!(details.payload.as_ref(), message.payload_bytes(), "the payload of {name}, shown");
    assert_eq!(details.content_type.as_deref(), message.content_type_str(), "{name}");
    assert_eq!(&details.headers, message.headers(), "the headers of {name}, shown");
    assert_eq!(details.idempotency_key.as_deref(), message.idempotency_key_str(), "{name}");
}

pub async fn every_byte_value_comes_out_as_it_went_in(f: &dyn StoreFixture) {
    let all: Vec<u8> = (0..=255).collect();
    let singly = all.iter().map(|byte| Message::new(format!("byte {byte}")).payload(vec![*byte]));
    let together = Message::new("all bytes").payload(all.clone());
    let backwards = Message::new("backwards").payload(all.iter().rev().copied().collect::<Vec<_>>());
    check_bytes(f, &singly.chain([together, backwards]).collect::<Vec<_>>()).await;
}

pub async fn nul_and_invalid_utf8_come_out_as_they_went_in(f: &dyn StoreFixture) {
    let payloads: [&'static [u8]; 6] =
        [b"\0", b"a\0b\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xc3", b"\\x00\\000\\\\"];
    let messages = payloads.map(|payload| Message::new("bytes").payload(payload));
    check_bytes(f, &messages).await;
    if f.payloads() == Payloads::Json {
        return;
    }
    let text =
        payloads.map(|payload| Message::new("said to be text").payload(payload).content_type("text/plain"));
    enqueue_all(f, &text).await;
    let records = read_all(f).await;
    for message in &text {
        let record = records.iter().find(|record| record.id == message.id());
        assert_eq!(record.and_then(|record| record.payload.as_ref()), message.payload_bytes());
    }
}

pub async fn an_empty_payload_is_not_a_tombstone(f: &dyn StoreFixture) {
    // The shortest payload that the outbox takes; "null" stands for itself, too.
    let shortest = if f.payloads() == Payloads::Json { "null" } else { "" };
    check_round_trip(f, &[Message::new("tombstone"), Message::new("shortest").payload(shortest)]).await;
    let records = read_all(f).await;
    assert_eq!(find(&records, "tombstone").payload, None);
    assert_eq!(find(&records, "shortest").payload.as_deref(), Some(shortest.as_bytes()));
}

pub async fn a_payload_of_a_mebibyte_comes_out_as_it_went_in(f: &dyn StoreFixture) {
    let mut payload = vec![0; 1024 * 1024];
    fastrand::Rng::with_seed(1).fill(&mut payload);
    check_bytes(f, &[Message::new("large").payload(payload)]).await;
    let text = super::support::bytes(1024 * 1024);
    enqueue(f, &[Message::new("large text").payload(text.clone())]).await;
    assert_eq!(find_now(f, "large text").await.payload.as_deref(), Some(text.as_bytes()));
}

/// Whoever signs a JSON text, or compares it, needs it as it was.
pub async fn json_is_not_rewritten(f: &dyn StoreFixture) {
    if f.payloads() == Payloads::Json {
        let text = "{\"a\":[1,true,null],\"b\":{\"c\":\"d\"}}";
        enqueue(f, &[Message::new("json").payload(text).content_type(posthaste::JSON)]).await;
        let mut payload = find_now(f, "json").await.payload.unwrap_or_default().to_vec();
        payload.retain(|byte| *byte != b' ');
        assert_eq!(payload, text.as_bytes(), "the same but for its spaces");
        return;
    }
    let texts = [
        r#"{"b":1,"a":1.0,"a":2}"#,
        r#"{ "spaces" :  [ 1,2 , 3 ] }  "#,
        r#"{"nul":"\u0000","surrogate":"\ud800","pair":"\ud83d\ude00","slash":"\/"}"#,
        "[1e2,100,1.00,-0,12345678901234567890123456789012345678901234567890]",
        "\n{\"newline\":\ttrue}\r\n",
        "\"a text\"",
        "null",
    ];
    let messages: Vec<_> =
        texts.iter().map(|text| Message::new("json").payload(*text).content_type(posthaste::JSON)).collect();
    check_round_trip(f, &messages).await;
}

pub async fn every_field_comes_out_as_it_went_in(f: &dyn StoreFixture) {
    let full = Message::new("order.created")
        .aggregate("order", "no. 7")
        .payload("{}")
        .content_type("application/cloudevents+json; charset=utf-8")
        .header("tenant", "acme")
        .header("empty", "")
        .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let type_alone = Message::new("type alone").aggregate("order", "");
    check_round_trip(f, &[full, type_alone, Message::new("bare")]).await;
    let with_key = Message::new("with a key").idempotency_key("order 7, once");
    enqueue(f, std::slice::from_ref(&with_key)).await;
    check_record(&find_now(f, "with a key").await, &with_key);
    check_details(f, &with_key).await;
}

const STRANGE: [&str; 9] = [
    "grüße",
    "日本語",
    "🦀 crab",
    "e\u{301}\u{200d}",
    "it's \"quoted\" `so`",
    r"back\slash \' \0 \n",
    "'; DROP TABLE outbox; --",
    "$1 ? :name %s {} ${x}",
    " spaces around\t\r\n ",
];

pub async fn strange_text_comes_out_as_it_went_in(f: &dyn StoreFixture) {
    let messages = STRANGE.map(|text| {
        Message::new(text).aggregate(text, text).content_type(text).header(text, text).content_type(text)
    });
    check_round_trip(f, &messages).await;
    if f.payloads() == Payloads::AnyBytes {
        check_round_trip_of_text(f).await;
    }
    let with_keys = STRANGE.map(|text| Message::new("with a key").idempotency_key(text));
    enqueue_all(f, &with_keys).await;
    let records = read_all(f).await;
    for message in &with_keys {
        let record = records.iter().find(|record| record.id == message.id());
        assert_eq!(record.and_then(|it| it.idempotency_key.as_deref()), message.idempotency_key_str());
    }
}

async fn check_round_trip_of_text(f: &dyn StoreFixture) {
    let ids = enqueue_all(f, &STRANGE.map(|text| Message::new("text").text(text))).await;
    for (id, text) in ids.iter().zip(STRANGE) {
        assert_eq!(show(f, *id).await.payload.as_deref(), Some(text.as_bytes()));
    }
}

pub async fn names_may_have_128_characters_of_any_size(f: &dyn StoreFixture) {
    let messages = ["x", "ü", "語", "🦀"].map(|character| {
        let longest = character.repeat(MAX_NAME_CHARS);
        Message::new(longest.as_str())
            .aggregate(longest.as_str(), &longest)
            .content_type(longest.as_str())
            .header(longest.as_str(), longest.as_str())
            .payload("1")
    });
    check_round_trip(f, &messages).await;
    let key = Message::new("longest key").idempotency_key("🦀".repeat(63) + "abc");
    enqueue(f, std::slice::from_ref(&key)).await;
    check_record(&find_now(f, "longest key").await, &key);
}

pub async fn many_and_large_headers_come_out_as_they_went_in(f: &dyn StoreFixture) {
    let many = (0..200)
        .fold(Message::new("many"), |message, n| message.header(format!("header-{n}"), format!("value {n}")));
    let large = Message::new("large").header("large", "é".repeat(32_000));
    check_round_trip(f, &[many, large]).await;
    assert_eq!(find_now(f, "many").await.headers.len(), 200);
}

pub async fn no_headers_are_an_empty_map(f: &dyn StoreFixture) {
    enqueue(f, &[Message::new("bare")]).await;
    assert_eq!(find_now(f, "bare").await.headers, BTreeMap::new());
}

pub async fn header_names_keep_their_case(f: &dyn StoreFixture) {
    let message = Message::new("headers").header("Tenant", "upper").header("tenant", "lower");
    check_round_trip(f, &[message]).await;
}

pub async fn the_time_of_enqueueing_is_the_databases(f: &dyn StoreFixture) {
    let hour = Duration::from_hours(1);
    enqueue(f, &[loose("before")]).await;
    f.advance(hour).await;
    let id = enqueue(f, &[keyed("a", "after")]).await[0];
    let records = read_all(f).await;
    let (before, after) = (find(&records, "before").enqueued_at, find(&records, "after").enqueued_at);
    let passed = after.duration_since(before).unwrap_or_default();
    assert!(passed >= hour && passed < hour * 2, "an hour passed between them, not {passed:?}");
    assert_eq!(show(f, id).await.info.enqueued_at, after, "the operator sees the same time");
}
