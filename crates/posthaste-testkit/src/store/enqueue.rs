//! What a producer's transaction takes and refuses.

use std::time::Duration;

use posthaste::{Error, ErrorKind, MAX_DELAY, Message, MessageId, Outcome, SettleRequest, State};

use super::fixture::StoreFixture;
use super::support::{
    Relay, bytes, enqueue, enqueue_all, find_now, keyed, label_set, labels, loose, ok, read_all, refused,
    show,
};

const NOTHING: [&str; 0] = [];

fn once(label: &str) -> Message {
    loose(label).idempotency_key("once")
}

pub async fn an_enqueue_returns_the_messages_id(f: &dyn StoreFixture) {
    let messages: Vec<_> = (0..5).map(|n| loose(&format!("l{n}"))).collect();
    let expected: Vec<_> = messages.iter().map(Message::id).collect();
    let mut ids = enqueue(f, &messages[..2]).await;
    ids.extend(enqueue_all(f, &messages[2..]).await);
    assert_eq!(ids, expected);
    for (id, message) in ids.iter().zip(&messages) {
        assert_eq!(show(f, *id).await.info.event_type, message.event_type());
    }
}

pub async fn a_message_is_ready_once_it_is_committed(f: &dyn StoreFixture) {
    let id = enqueue(f, &[loose("l1")]).await[0];
    let info = show(f, id).await.info;
    assert_eq!((info.state, info.attempts), (State::Ready, 0));
    assert_eq!((info.next_attempt_at, info.settled_at, info.last_error), (None, None, None));
}

pub async fn enqueueing_nothing_is_no_trouble(f: &dyn StoreFixture) {
    let ids: [MessageId; 0] = [];
    assert_eq!(enqueue_all(f, &[]).await, ids);
    f.begin().await.commit().await;
    assert_eq!(labels(&read_all(f).await), NOTHING);
}

pub async fn a_batch_of_5000_is_enqueued(f: &dyn StoreFixture) {
    let messages: Vec<_> = (0..5_000).map(|n| keyed("a", &format!("m{n:04}"))).collect();
    let ids = enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    assert_eq!(records.iter().map(|record| record.id).collect::<Vec<_>>(), ids, "all, in their order");
}

/// A batch must be split by its bytes, too.
pub async fn a_batch_of_large_messages_is_enqueued(f: &dyn StoreFixture) {
    let message = |n: usize| keyed("a", &format!("m{n:02}")).payload(bytes(1024 * 1024));
    let messages: Vec<_> = (0..24).map(message).collect();
    let ids = enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    assert_eq!(records.iter().map(|record| record.id).collect::<Vec<_>>(), ids);
}

pub async fn one_transaction_enqueues_for_many_keys(f: &dyn StoreFixture) {
    let messages: Vec<_> = (0..300).map(|n| keyed(&format!("k{n}"), &format!("m{n}"))).collect();
    enqueue(f, &messages[..150]).await;
    enqueue_all(f, &messages[150..]).await;
    assert_eq!(read_all(f).await.len(), 300);
}

fn broken() -> Vec<(&'static str, Message, ErrorKind)> {
    let invalid = ErrorKind::InvalidMessage;
    vec![
        ("an empty event type", Message::new(""), invalid),
        ("a long event type", Message::new("x".repeat(129)), invalid),
        ("a long aggregate type", loose("l").aggregate("x".repeat(129), 1), invalid),
        ("a long aggregate id", loose("l").aggregate("x", "y".repeat(129)), invalid),
        ("an id without a type", loose("l").aggregate("", 1), invalid),
        ("a NUL in a name", loose("l").aggregate("a\0", "b"), invalid),
        ("a NUL in a header", loose("l").header("a", "\0"), invalid),
        ("a header without a name", loose("l").header("", "x"), invalid),
        ("too many headers", loose("l").header("x", "y".repeat(70_000)), invalid),
        ("no JSON", loose("l").payload("{").content_type(posthaste::JSON), invalid),
        ("an empty idempotency key", loose("l").idempotency_key(""), invalid),
        ("a long idempotency key", loose("l").idempotency_key("x".repeat(256)), invalid),
        ("a delay of more than ten years", loose("l").delay(MAX_DELAY + Duration::from_secs(1)), invalid),
        ("a large payload", loose("l").payload(vec![0; 1024 * 1024 + 1]), ErrorKind::PayloadTooLarge),
    ]
}

/// The rules are checked before anything is sent, so the transaction does not suffer.
pub async fn a_message_that_breaks_a_rule_is_refused(f: &dyn StoreFixture) {
    let mut transaction = f.begin().await;
    ok(transaction.enqueue(&loose("before")).await, "enqueue");
    for (what, message, kind) in broken() {
        refused(transaction.enqueue(&message).await, kind, what);
    }
    ok(transaction.enqueue(&loose("after")).await, "enqueue");
    transaction.commit().await;
    assert_eq!(label_set(&read_all(f).await), ["after", "before"].into());
}

pub async fn a_batch_with_a_message_that_breaks_a_rule_enqueues_nothing(f: &dyn StoreFixture) {
    let mut transaction = f.begin().await;
    for (what, message, kind) in broken() {
        let batch = [loose("first"), loose("second").idempotency_key("second"), message, loose("last")];
        refused(transaction.enqueue_all(&batch).await, kind, what);
    }
    ok(transaction.enqueue(&loose("after").idempotency_key("second")).await, "enqueue");
    transaction.commit().await;
    assert_eq!(labels(&read_all(f).await), ["after"]);
}

pub async fn an_idempotency_key_is_enqueued_once_in_a_transaction(f: &dyn StoreFixture) {
    let mut transaction = f.begin().await;
    ok(transaction.enqueue(&once("first")).await, "enqueue");
    refused(transaction.enqueue(&once("second")).await, ErrorKind::DuplicateKey, "the key again");
    ok(transaction.enqueue(&loose("other")).await, "enqueue after a duplicate");
    transaction.commit().await;
    assert_eq!(label_set(&read_all(f).await), ["first", "other"].into(), "the transaction stays usable");
}

pub async fn an_idempotency_key_that_is_committed_is_refused(f: &dyn StoreFixture) {
    enqueue(f, &[once("first")]).await;
    let mut transaction = f.begin().await;
    ok(transaction.enqueue(&loose("before")).await, "enqueue");
    refused(transaction.enqueue(&once("second")).await, ErrorKind::DuplicateKey, "the key again");
    ok(transaction.enqueue(&loose("after")).await, "enqueue after a duplicate");
    transaction.commit().await;
    assert_eq!(label_set(&read_all(f).await), ["after", "before", "first"].into());
}

pub async fn an_idempotency_key_that_was_rolled_back_is_free(f: &dyn StoreFixture) {
    let mut transaction = f.begin().await;
    ok(transaction.enqueue(&once("first")).await, "enqueue");
    transaction.rollback().await;
    enqueue(f, &[once("second")]).await;
    assert_eq!(labels(&read_all(f).await), ["second"]);
}

pub async fn a_batch_with_a_duplicate_key_enqueues_nothing(f: &dyn StoreFixture) {
    enqueue(f, &[once("first")]).await;
    let with_key = |label: &str| loose(label).idempotency_key(label.to_owned());
    let mut transaction = f.begin().await;
    let committed = [with_key("x"), once("second"), with_key("y")];
    refused(transaction.enqueue_all(&committed).await, ErrorKind::DuplicateKey, "a key that is there");
    let within = [with_key("x"), with_key("y"), with_key("x")];
    refused(transaction.enqueue_all(&within).await, ErrorKind::DuplicateKey, "a key twice in a batch");
    ok(
        transaction.enqueue_all(&[with_key("x"), with_key("y")]).await,
        "the keys of refused batches are free",
    );
    transaction.commit().await;
    assert_eq!(label_set(&read_all(f).await), ["first", "x", "y"].into());
}

/// It answers "was this enqueued before", not "is it still here".
pub async fn an_idempotency_key_outlives_its_message(f: &dyn StoreFixture) {
    enqueue(f, &[once("first")]).await;
    let relay = Relay::join(f).await;
    let record = find_now(f, "first").await;
    let request = SettleRequest { delete_processed: true, ..relay.request(&[(&record, Outcome::Processed)]) };
    assert_eq!(ok(f.store().settle(&request).await, "settle").applied, 1);
    let mut transaction = f.begin().await;
    refused(transaction.enqueue(&once("second")).await, ErrorKind::DuplicateKey, "the key again");
}

pub async fn idempotency_keys_are_compared_byte_by_byte(f: &dyn StoreFixture) {
    let keys = ["key", "KEY", "key ", " key", "kéy", "ke\u{301}y", "ｋey"];
    for (n, key) in keys.iter().enumerate() {
        enqueue(f, &[loose(&format!("l{n}")).idempotency_key(*key)]).await;
    }
    assert_eq!(read_all(f).await.len(), keys.len());
    let mut transaction = f.begin().await;
    for key in keys {
        let again = transaction.enqueue(&loose("again").idempotency_key(key)).await;
        refused(again, ErrorKind::DuplicateKey, key);
    }
}

/// Whichever of two transactions wins, a retried request is enqueued once.
pub async fn two_open_transactions_do_not_both_enqueue_a_key(f: &dyn StoreFixture) {
    if !f.concurrent_transactions() {
        return;
    }
    for commits in [true, false] {
        let key = format!("key {commits}");
        let mut first = f.begin().await;
        ok(first.enqueue(&loose("first").idempotency_key(key.as_str())).await, "enqueue");
        let mut second = f.begin().await;
        let task = tokio::spawn(async move {
            // It may wait for the first one here, or give up at once.
            let result = second.enqueue(&loose("second").idempotency_key(key)).await;
            if result.is_ok() {
                second.commit().await;
            } else {
                second.rollback().await;
            }
            result
        });
        tokio::task::yield_now().await;
        if commits {
            first.commit().await;
        } else {
            first.rollback().await;
        }
        let result = task.await.unwrap_or_else(|error| panic!("the task failed: {error}"));
        let kind = result.as_ref().map_err(Error::kind);
        if commits {
            let lost = matches!(kind, Err(ErrorKind::DuplicateKey | ErrorKind::Conflict));
            assert!(lost, "the first one committed, so the second must be told: {result:?}");
        } else {
            let fair = matches!(kind, Ok(_) | Err(ErrorKind::Conflict));
            assert!(fair, "the first one rolled back, so the key is no duplicate: {result:?}");
        }
    }
}

pub async fn an_id_is_enqueued_once(f: &dyn StoreFixture) {
    let first = loose("first");
    let again = || loose("again").with_id(first.id());
    enqueue(f, std::slice::from_ref(&first)).await;
    let mut transaction = f.begin().await;
    refused(transaction.enqueue(&again()).await, ErrorKind::DuplicateId, "an id that is committed");
    let batch = [loose("x"), again()];
    refused(transaction.enqueue_all(&batch).await, ErrorKind::DuplicateId, "the same in a batch");
    let own = loose("own");
    ok(transaction.enqueue(&own).await, "enqueue after a duplicate");
    let again = loose("again").with_id(own.id());
    refused(transaction.enqueue(&again).await, ErrorKind::DuplicateId, "an id of the same transaction");
    let twins = [loose("twin"), loose("twin")].map(|message| message.with_id(MessageId::generate()));
    let twins = [twins[0].clone(), twins[1].clone().with_id(twins[0].id())];
    refused(transaction.enqueue_all(&twins).await, ErrorKind::DuplicateId, "an id twice in a batch");
    transaction.commit().await;
    assert_eq!(label_set(&read_all(f).await), ["first", "own"].into(), "the transaction stays usable");
}

/// Otherwise a corrected message under a new id would be refused for the key of the one that was refused.
pub async fn a_duplicate_id_does_not_use_up_an_idempotency_key(f: &dyn StoreFixture) {
    let first = loose("first");
    enqueue(f, std::slice::from_ref(&first)).await;
    let mut transaction = f.begin().await;
    let twin = once("twin").with_id(first.id());
    refused(transaction.enqueue(&twin).await, ErrorKind::DuplicateId, "an id that is committed");
    ok(transaction.enqueue(&once("second")).await, "the key is still free");
    transaction.commit().await;
    assert_eq!(label_set(&read_all(f).await), ["first", "second"].into());
}

/// The caller does not know whether its commit went through, and does everything again.
pub async fn a_retried_transaction_finds_out_that_it_was_committed(f: &dyn StoreFixture) {
    let message = once("m");
    enqueue(f, std::slice::from_ref(&message)).await;
    let mut transaction = f.begin().await;
    let error = transaction.enqueue(&message).await.err().map(|error| error.kind());
    assert!(
        matches!(error, Some(ErrorKind::DuplicateKey | ErrorKind::DuplicateId)),
        "the same message again is a duplicate, but gave {error:?}"
    );
    transaction.commit().await;
    assert_eq!(labels(&read_all(f).await), ["m"]);
}
