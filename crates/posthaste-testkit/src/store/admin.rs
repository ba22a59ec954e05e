//! What an operator sees of messages.

use posthaste::{Glob, ListFilter, MessageInfo, Outcome, State};

use super::fixture::StoreFixture;
use super::support::{
    LONG, Relay, dead, enqueue, enqueue_all, find, find_now, keyed, loose, ok, read_all, retry, show,
};

fn any() -> ListFilter {
    ListFilter { state: None, event_type: None, limit: 1_000 }
}

async fn list(f: &dyn StoreFixture, filter: &ListFilter) -> Vec<MessageInfo> {
    ok(f.admin().list(filter).await, "list")
}

fn types(infos: &[MessageInfo]) -> Vec<&str> {
    infos.iter().map(|info| info.event_type.as_str()).collect()
}

/// One message in every state, in the order: ready, waiting, blocked, dead, processed.
async fn one_of_each(f: &dyn StoreFixture) {
    for message in [
        loose("ready"),
        keyed("a", "waiting").delay(LONG),
        keyed("a", "blocked"),
        keyed("b", "dead"),
        loose("processed"),
    ] {
        enqueue(f, &[message]).await;
    }
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    relay.settle(find(&records, "dead"), dead(true)).await;
    relay.settle(find(&records, "processed"), Outcome::Processed).await;
}

pub async fn a_list_can_be_of_one_state(f: &dyn StoreFixture) {
    one_of_each(f).await;
    for (state, expected) in [
        (None, &["ready", "waiting", "blocked", "dead", "processed"][..]),
        (Some(State::Ready), &["ready"]),
        (Some(State::Waiting), &["waiting", "blocked"]),
        (Some(State::Dead), &["dead"]),
        (Some(State::Processed), &["processed"]),
    ] {
        let infos = list(f, &ListFilter { state, ..any() }).await;
        assert_eq!(types(&infos), expected, "listing {state:?}");
        assert!(infos.iter().all(|info| state.is_none_or(|state| info.state == state)), "{infos:?}");
    }
}

pub async fn what_is_due_is_listed_as_ready(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "due").delay(LONG), keyed("a", "blocked")]).await;
    f.advance(LONG).await;
    assert_eq!(types(&list(f, &ListFilter { state: Some(State::Ready), ..any() }).await), ["due"]);
    assert_eq!(types(&list(f, &ListFilter { state: Some(State::Waiting), ..any() }).await), ["blocked"]);
}

pub async fn a_list_can_be_of_some_event_types(f: &dyn StoreFixture) {
    for label in ["order.created", "order.paid", "user.created", "Order.created", "order_created", "100%"] {
        enqueue(f, &[loose(label)]).await;
    }
    for (pattern, expected) in [
        ("order.*", &["order.created", "order.paid"][..]),
        ("*.created", &["order.created", "user.created", "Order.created"]),
        ("order?created", &["order.created", "order_created"]),
        ("order_created", &["order_created"]),
        ("100%", &["100%"]),
        ("1%", &[]),
        ("order.created", &["order.created"]),
        ("", &[]),
    ] {
        let filter = ListFilter { event_type: Some(Glob::new(pattern)), ..any() };
        assert_eq!(types(&list(f, &filter).await), expected, "listing {pattern:?}");
    }
    let both = ListFilter { state: Some(State::Dead), event_type: Some(Glob::new("order.*")), limit: 10 };
    assert!(list(f, &both).await.is_empty(), "both conditions count");
}

pub async fn a_list_is_bounded_and_has_the_oldest_first(f: &dyn StoreFixture) {
    let labels: Vec<_> = (0..12).map(|n| format!("m{n:02}")).collect();
    for label in &labels {
        enqueue(f, &[keyed(label, label)]).await;
    }
    for limit in [0, 1, 5, 12, 100, usize::MAX] {
        let infos = list(f, &ListFilter { limit, ..any() }).await;
        assert_eq!(types(&infos), labels[..limit.min(12)], "at most {limit}");
    }
}

/// The limit counts what matches, not what was looked at.
pub async fn a_list_finds_a_match_behind_many_others(f: &dyn StoreFixture) {
    enqueue_all(f, &(0..300).map(|_| loose("hay")).collect::<Vec<_>>()).await;
    enqueue(f, &[loose("needle").delay(LONG)]).await;
    let by_type = ListFilter { event_type: Some(Glob::new("need*")), limit: 1, ..any() };
    assert_eq!(types(&list(f, &by_type).await), ["needle"]);
    let by_state = ListFilter { state: Some(State::Waiting), limit: 1, ..any() };
    assert_eq!(types(&list(f, &by_state).await), ["needle"]);
}

pub async fn a_listed_message_says_what_became_of_it(f: &dyn StoreFixture) {
    let id = enqueue(f, &[keyed("7", "order.created")]).await[0];
    let relay = Relay::join(f).await;
    let enqueued_at = find_now(f, "order.created").await.enqueued_at;
    relay.settle_now(f, "order.created", retry(LONG)).await;
    let info = list(f, &any()).await.remove(0);
    assert_eq!(info.id, id);
    assert_eq!((info.aggregate_type.as_str(), info.aggregate_id.as_str()), ("thing", "7"));
    assert_eq!((info.state, info.attempts), (State::Waiting, 1));
    assert_eq!((info.enqueued_at, info.settled_at), (enqueued_at, None));
    assert_eq!(info.last_error.as_deref(), Some("broker said no"));
    let wait = info.next_attempt_at.map(|until| until.duration_since(enqueued_at).unwrap_or_default());
    assert!(wait >= Some(LONG), "it says until when it waits: {info:?}");
    assert_eq!(show(f, id).await.info, info, "one message shown is the same as listed");
}

pub async fn a_message_that_is_not_there_is_not_shown(f: &dyn StoreFixture) {
    enqueue(f, &[loose("l1")]).await;
    assert_eq!(ok(f.admin().show(posthaste::MessageId::generate()).await, "show"), None);
}

pub async fn a_message_says_whom_it_waits_for(f: &dyn StoreFixture) {
    let ids = enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("b", "b1"), loose("l1")]).await;
    for id in &ids {
        assert_eq!(show(f, *id).await.blocked_by, None, "nobody waits for anybody yet");
    }
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a1", retry(LONG)).await;
    assert_eq!(show(f, ids[1]).await.blocked_by, Some(ids[0]), "waiting");
    assert_eq!(show(f, ids[0]).await.blocked_by, None, "a1 itself waits for the time");
    f.advance(LONG).await;
    assert_eq!(show(f, ids[1]).await.blocked_by, Some(ids[0]), "due again, and not settled");
    relay.settle_now(f, "a1", dead(true)).await;
    assert_eq!(show(f, ids[1]).await.blocked_by, Some(ids[0]), "dead, and parking its key");
    assert_eq!(show(f, ids[2]).await.blocked_by, None, "another key");
    assert_eq!(show(f, ids[3]).await.blocked_by, None, "no key");
}

pub async fn a_dead_message_that_was_skipped_blocks_nobody(f: &dyn StoreFixture) {
    let ids = enqueue(f, &[keyed("a", "a1"), keyed("a", "a2")]).await;
    let relay = Relay::join(f).await;
    relay.settle_now(f, "a1", dead(false)).await;
    let details = show(f, ids[1]).await;
    assert_eq!((details.blocked_by, details.info.state), (None, State::Ready));
}

pub async fn a_settled_message_waits_for_nobody(f: &dyn StoreFixture) {
    let ids = enqueue(f, &[keyed("a", "a1"), keyed("a", "a2")]).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    relay.settle(&records[1], Outcome::Processed).await;
    relay.settle(&records[0], retry(LONG)).await;
    assert_eq!(show(f, ids[1]).await.blocked_by, None);
}
