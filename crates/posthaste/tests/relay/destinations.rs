//! Several destinations in one relay: what goes where, and limits of their own.

use posthaste::{
    Destination, DestinationState, ErrorKind, FailureClass, Glob, RelayBuilder, RetryPolicy, Route, State,
};
use posthaste_testkit::{Gate, ScriptedPublisher, Step};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn records_go_where_the_first_matching_route_leads() {
    let (store, two) = (outbox(4), Two::default());
    let relay = builder(&store)
        .destination(Destination::new("a", two.a.clone()))
        .destination(Destination::new("b", two.b.clone()))
        .route("order.cancelled", "b")
        .route("order.*", "a")
        .route_by(Route::to("b").event_type("customer.*").aggregate_type("vip"))
        .route_by(Route::to("a").aggregate_type("customer"));
    let message = |event: &str, aggregate: &str| posthaste::Message::new(event).aggregate(aggregate, 1);
    let to_b = enqueue(&store, &[message("order.cancelled", "order"), message("customer.moved", "vip")]);
    let to_a = enqueue(
        &store,
        &[
            message("order.created", "order"),
            message("customer.moved", "customer"),
            message("born", "customer"),
        ],
    );
    let summary = drain(relay).await;
    assert_eq!(summary.published, 5);
    let ids =
        |receipts: &[posthaste::Receipt]| receipts.iter().map(posthaste::Receipt::id).collect::<Vec<_>>();
    assert_eq!(came_out(two.a.log(), &ids(&to_a)).len(), 3);
    assert_eq!(came_out(two.b.log(), &ids(&to_b)).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_key_keep_their_order_across_destinations() {
    let (store, two) = (outbox(4), Two::default());
    let slow = publish_slowly(&two.a);
    let messages = many(600, |place| {
        let message = if (place / 3) % 2 == 0 { to_a() } else { to_b() };
        message.aggregate("key", place % 7)
    });
    enqueue(&store, &messages);
    let running = start(two.relay(&store).window_rows(64));
    within(secs(600), store.until_settled()).await;
    drop(slow);
    running.stop().await;
    let mut calls: Vec<_> = two.a.log().calls();
    calls.extend(two.b.log().calls());
    calls.sort_by_key(|call| call.position);
    for key in 0..7 {
        let key = posthaste::Key::new("key", &key.to_string());
        let of_key: Vec<_> = calls.iter().filter(|call| call.key.as_ref() == Some(&key)).collect();
        assert!(
            of_key.windows(2).all(|pair| pair[0].end.unwrap().1 <= pair[1].began),
            "one after another, in order"
        );
    }
    assert_eq!(calls.len(), 600, "each once");
}

/// Lets every publish take 5 ms.
fn publish_slowly(publisher: &ScriptedPublisher) -> tokio::task::JoinHandle<()> {
    let gate = Gate::closed();
    publisher.otherwise(Step::publish_after(&gate));
    tokio::spawn(async move {
        loop {
            pass(millis(5)).await;
            gate.let_through(gate.waiting());
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_message_without_a_route_stays_and_goes_out_once_a_relay_knows_one() {
    let (store, two) = (outbox(4), Two::default());
    let first = enqueue_one(&store, posthaste::Message::new("c.created").aggregate("key", 1));
    let behind = enqueue_one(&store, to_a().aggregate("key", 1));
    let others = enqueue_many(&store, 50, |place| to_a().aggregate("other", place));
    let running = start(two.relay(&store));
    within(secs(5), two.a.log().until_published(50)).await;
    pass(secs(20)).await;
    assert_eq!(came_out(two.a.log(), &others).len(), 50, "it stops no others");
    assert_eq!((state(&store, first), attempts(&store, first)), (State::Ready, 0));
    assert_eq!(state(&store, behind), State::Ready, "its key waits");
    assert_eq!(running.handle.snapshot().unrouted, 1);
    let more = enqueue_one(&store, to_b().aggregate("key", 1));
    pass(secs(5)).await;
    assert_eq!(state(&store, more), State::Ready, "its key waits, also what comes later");
    running.stop().await;
    let c = ScriptedPublisher::default();
    let knows = two.relay(&store).destination(Destination::new("c", c.clone())).route("c.*", "c");
    assert_eq!(drain(knows).await.published, 3);
    let (c, a, b) = (c.log().calls_of(first), two.a.log().calls_of(behind), two.b.log().calls_of(more));
    assert!(c[0].began <= a[0].began && a[0].began <= b[0].began, "in order");
    assert_eq!((c[0].attempt, a[0].attempt), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn messages_behind_one_without_a_route_go_on_when_somebody_discards_it() {
    let (store, two) = (outbox(1), Two::default());
    let first = enqueue_one(&store, posthaste::Message::new("c.created").aggregate("key", 1));
    let behind = enqueue_one(&store, to_a().aggregate("key", 1));
    let running = start(two.relay(&store));
    pass(secs(5)).await;
    assert_eq!(state(&store, behind), State::Ready);
    delete_by_hand(&store, first).await;
    within(secs(10), two.a.log().until_published(1)).await;
    pass(secs(5)).await;
    assert_eq!(running.handle.snapshot().unrouted, 0, "there is none any more");
}

#[tokio::test(start_paused = true)]
async fn messages_of_a_destination_elsewhere_are_left_alone_and_not_counted_as_unrouted() {
    let (store, two) = (outbox(4), Two::default());
    let theirs = enqueue_many(&store, 10, |place| to_b().aggregate("key", place));
    let ours = enqueue_many(&store, 10, |place| to_a().aggregate("other", place));
    let behind = enqueue_one(&store, to_a().aggregate("key", 3));
    let relay = builder(&store)
        .destination(Destination::new("a", two.a.clone()))
        .destination(Destination::elsewhere("b"))
        .route("a.*", "a")
        .route("b.*", "b");
    let running = start(relay);
    within(secs(5), two.a.log().until_published(10)).await;
    pass(secs(10)).await;
    assert_eq!(came_out(two.a.log(), &ours).len(), 10);
    assert_eq!(running.handle.snapshot().unrouted, 0);
    assert_eq!(running.handle.snapshot().destinations.len(), 1, "those that it serves");
    assert!(theirs.iter().chain([&behind]).all(|id| state(&store, *id) == State::Ready));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn draining_ends_when_nothing_is_left_that_the_relay_knows_a_route_for() {
    let (store, two) = (outbox(4), Two::default());
    enqueue_many(&store, 700, |place| posthaste::Message::new("c.created").aggregate("key", place));
    enqueue_many(&store, 700, |place| to_a().aggregate("key", place));
    enqueue_many(&store, 300, |_| posthaste::Message::new("c.late").delay(secs(1)));
    let ours = enqueue_many(&store, 300, |_| to_b());
    let late = enqueue_one(&store, to_b().delay(secs(2)));
    pass(secs(3)).await;
    let summary = within(secs(60), drain(two.relay(&store))).await;
    assert_eq!(summary.published, 301);
    assert_eq!(came_out(two.b.log(), &ours).len(), 300);
    assert_eq!(state(&store, late), State::Processed);
    assert_eq!(count(&store, State::Ready), 1_700);
    assert_eq!(within(secs(60), run_once(two.relay(&store))).await.published, 0);
}

#[tokio::test(start_paused = true)]
async fn each_destination_has_its_own_limit_of_records_in_flight() {
    let (store, two, gate) = (outbox(4), Two::default(), Gate::closed());
    two.a.otherwise(Step::publish_after(&gate));
    enqueue_many(&store, 500, |place| if place % 2 == 0 { to_a() } else { to_b() });
    let running = start(two.relay_with(&store, |a| a.max_in_flight(3), |b| b));
    within(secs(5), two.b.log().until_published(250)).await;
    pass(secs(2)).await;
    assert_eq!(two.a.log().in_flight(), 3);
    let snapshot = running.handle.snapshot();
    assert_eq!(snapshot.destinations.iter().map(|one| one.in_flight).collect::<Vec<_>>(), [3, 0]);
    gate.open();
    within(secs(60), two.a.log().until_published(250)).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_holds_for_its_destination_alone() {
    let (store, two) = (outbox(4), Two::default());
    enqueue_many(&store, 200, |place| if place % 2 == 0 { to_a() } else { to_b() });
    let running = start(two.relay_with(&store, |a| a.rate_limit(20, secs(1)), |b| b));
    within(secs(1), two.b.log().until_published(100)).await;
    within(secs(20), two.a.log().until_published(100)).await;
    let began: Vec<_> = two.a.log().calls().iter().map(|call| call.began).collect();
    for first in 0..began.len() {
        let in_a_second = began[first..].iter().take_while(|at| **at - began[first] < secs(1)).count();
        assert!(in_a_second <= 21, "{in_a_second}");
    }
    let took = *began.last().unwrap() - began[0];
    assert!(took >= millis(4_900) && took <= millis(5_500), "it uses what it may: {took:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_destination_has_its_own_retry_policies() {
    let (store, two) = (outbox(4), Two::default());
    let failing = Step::Fail(FailureClass::Failed);
    two.a.otherwise(failing.clone());
    two.b.otherwise(failing);
    let a = enqueue_one(&store, to_a());
    let special = enqueue_one(&store, posthaste::Message::new("a.special"));
    let b = enqueue_one(&store, to_b());
    let of_b = RetryPolicy::fixed(secs(10)).max_attempts(3);
    let relay = two
        .relay_with(
            &store,
            |a| {
                let special = RetryPolicy::immediate().max_attempts(4);
                a.retry(RetryPolicy::immediate().max_attempts(2)).retry_for(Glob::new("*.special"), special)
            },
            |b| b,
        )
        .retry(of_b);
    let running = start(relay);
    pass(secs(5)).await;
    assert_eq!((state(&store, a), attempts(&store, a)), (State::Dead, 2));
    assert_eq!((state(&store, special), attempts(&store, special)), (State::Dead, 4));
    assert_eq!((state(&store, b), attempts(&store, b)), (State::Waiting, 1), "as the relay says");
    pass(secs(20)).await;
    assert_eq!((state(&store, b), attempts(&store, b)), (State::Dead, 3));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_destination_has_its_own_publish_timeout() {
    let (store, two) = (outbox(4), Two::default());
    two.a.otherwise(Step::Hang);
    two.b.otherwise(Step::Hang);
    let (a, b) = (enqueue_one(&store, to_a()), enqueue_one(&store, to_b()));
    let running = start(two.relay_with(&store, |a| a.publish_timeout(secs(1)), |b| b));
    pass(secs(5)).await;
    assert_eq!(last_error(&store, a).as_deref(), Some("handler timed out"));
    assert_eq!(last_error(&store, b), None);
    pass(secs(6)).await;
    assert_eq!(last_error(&store, b).as_deref(), Some("handler timed out"));
    running.handle.abandon();
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_and_events_name_the_destination() {
    let (store, two, events) = (outbox(4), Two::default(), Events::new());
    two.a.otherwise(Step::Fail(FailureClass::Unavailable));
    enqueue(&store, &[to_a(), to_b()]);
    let running = start(two.relay(&store).observer(events.clone()));
    within(secs(1), events.until("paused")).await;
    within(secs(1), two.b.log().until_published(1)).await;
    pass(secs(2)).await;
    let snapshot = running.handle.snapshot();
    let [a, b] = &*snapshot.destinations else { panic!("{snapshot:?}") };
    assert_eq!((&*a.name, &*b.name), ("a", "b"));
    assert!(matches!(a.state, DestinationState::Unavailable { .. }), "{a:?}");
    assert_eq!((b.state, a.last_success), (DestinationState::Running, None));
    assert!(b.last_success.is_some());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn destinations_and_routes_that_make_no_sense_are_refused() {
    let store = outbox(1);
    let destination = |name: &str| Destination::new(name, ScriptedPublisher::default());
    let one = |name: &str| builder(&store).destination(destination(name)).route("*", name);
    let refused = |builder: RelayBuilder, why: &str| {
        let error = builder.build().expect_err(why);
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(why), "{error} does not say: {why}");
    };
    assert!(one("rabbit-1.eu_west").build().is_ok());
    refused(one(""), "cannot be the name");
    refused(one("with space"), "cannot be the name");
    refused(one(&"x".repeat(65)), "cannot be the name");
    refused(one("a").destination(destination("a")), "two destinations of the name `a`");
    refused(one("a").route("*", "b"), "leads to `b`, which is not one of the destinations: `a`");
    refused(one("a").destination(destination("b")), "no route leads to the destination `b`");
    refused(one("a").publisher(ScriptedPublisher::default()), "choose one");
    refused(builder(&store).publisher(ScriptedPublisher::default()).route("*", "a"), "choose one");
    refused(builder(&store).route("*", "a"), "no publisher");
    let elsewhere = builder(&store).destination(Destination::elsewhere("a")).route("*", "a");
    refused(elsewhere, "serves none of its destinations");
    let with = |destination: Destination| builder(&store).destination(destination).route("*", "a");
    refused(with(destination("a").max_in_flight(0)), "max_in_flight of `a` is 0");
    refused(with(destination("a").publish_timeout(secs(0))), "publish_timeout of `a` is 0");
    refused(with(destination("a").rate_limit(0, secs(1))), "allows 0 records");
    refused(with(destination("a").rate_limit(1, secs(0))), "per no time");
    refused(with(destination("a").retry(RetryPolicy::fixed(secs(0)))), "retry delay is 0");
    let two = one("a").destination(destination("b")).route("*", "b").window_rows(1);
    refused(two, "window_rows");
}
