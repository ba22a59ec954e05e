//! Who holds which lane, until when, and by which token.

use std::collections::BTreeSet;
use std::time::Duration;

use posthaste::{Lane, LaneLease, LeaseRequest, RelayId};

use super::fixture::StoreFixture;
use super::support::{LONG, Relay, VERY_LONG, ok};

fn all_lanes(f: &dyn StoreFixture) -> BTreeSet<Lane> {
    (0..f.lanes()).map(Lane).collect()
}

fn ceil_share(f: &dyn StoreFixture, relays: usize) -> usize {
    usize::from(f.lanes()).div_ceil(relays)
}

#[track_caller]
fn assert_disjoint(relays: &[&Relay]) {
    let mut seen = BTreeSet::new();
    for lane in relays.iter().flat_map(|relay| relay.held()) {
        assert!(seen.insert(lane), "{lane:?} is held by two relays");
    }
}

/// A relay gives back what it holds beyond its share, as relays do when they see that there are others.
async fn shrink(relay: &mut Relay, share: usize) {
    let beyond: Vec<_> = relay.held().into_iter().skip(share).collect();
    relay.give_back(&beyond).await;
}

pub async fn the_first_relay_takes_all_lanes(f: &dyn StoreFixture) {
    let mut relay = Relay::on(f.store());
    let leases = relay.renew().await;
    assert_eq!(relay.held(), all_lanes(f));
    assert_eq!((leases.share, leases.total), (usize::from(f.lanes()), usize::from(f.lanes())));
    assert!(leases.lanes.iter().all(|lease| !lease.from_expired), "nobody had them before");
}

pub async fn a_renewal_keeps_lanes_and_tokens(f: &dyn StoreFixture) {
    let mut relay = Relay::join(f).await;
    let before = relay.lanes.clone();
    relay.renew().await;
    assert_eq!(relay.lanes, before);
}

pub async fn a_second_relay_gets_nothing_that_is_held(f: &dyn StoreFixture) {
    let mut first = Relay::join(f).await;
    let mut second = Relay::on(f.store());
    let leases = second.renew().await;
    assert!(leases.lanes.is_empty(), "the first one holds all of them");
    assert_eq!(leases.share, ceil_share(f, 2), "two relays are there");
    let leases = first.renew().await;
    assert_eq!(
        leases.lanes.len(),
        usize::from(f.lanes()),
        "a renewal takes nothing away, also beyond the share"
    );
    assert_eq!(leases.share, ceil_share(f, 2), "the first one learns that there are two");
}

pub async fn a_second_relay_gets_its_share_when_the_first_gives_back(f: &dyn StoreFixture) {
    let mut first = Relay::join(f).await;
    let mut second = Relay::join(f).await;
    let share = first.renew().await.share;
    shrink(&mut first, share).await;
    assert_eq!(first.held().len(), share);
    let leases = second.renew().await;
    assert_eq!(second.held().len(), usize::from(f.lanes()) - share);
    assert!(leases.lanes.iter().all(|lease| !lease.from_expired), "they were given back, not lost");
    assert_disjoint(&[&first, &second]);
}

pub async fn nobody_takes_more_than_its_share(f: &dyn StoreFixture) {
    let mut first = Relay::join(f).await;
    let mut second = Relay::join(f).await;
    let all: Vec<_> = first.held().into_iter().collect();
    first.give_back(&all).await;
    second.renew().await;
    assert_eq!(second.held().len(), ceil_share(f, 2), "all lanes are free, but another relay is there");
    first.renew().await;
    assert_disjoint(&[&first, &second]);
    assert_eq!(first.held().len() + second.held().len(), usize::from(f.lanes()));
}

pub async fn three_relays_share_all_lanes(f: &dyn StoreFixture) {
    let mut relays = [Relay::join(f).await, Relay::join(f).await, Relay::join(f).await];
    for _ in 0..3 {
        for relay in &mut relays {
            let share = relay.renew().await.share;
            assert_eq!(share, ceil_share(f, 3), "lanes / 3, rounded up");
            shrink(relay, share).await;
        }
    }
    let held: Vec<_> = relays.iter().map(|relay| relay.held().len()).collect();
    assert_eq!(held.iter().sum::<usize>(), usize::from(f.lanes()), "every lane has an owner: {held:?}");
    assert!(held.iter().all(|held| *held <= ceil_share(f, 3)), "nobody holds more than its share: {held:?}");
    assert_disjoint(&relays.iter().collect::<Vec<_>>());
}

pub async fn more_relays_than_lanes_stand_by(f: &dyn StoreFixture) {
    let lanes = usize::from(f.lanes());
    let mut relays = Vec::new();
    for _ in 0..lanes + 2 {
        relays.push(Relay::join(f).await);
    }
    for _ in 0..2 {
        for relay in &mut relays {
            let share = relay.renew().await.share;
            shrink(relay, share).await;
        }
    }
    assert!(relays.iter().all(|relay| relay.held().len() <= 1), "one lane each at most");
    assert_eq!(
        relays.iter().map(|relay| relay.held().len()).sum::<usize>(),
        lanes,
        "none is without an owner"
    );
}

pub async fn lanes_are_free_at_once_when_their_relay_leaves(f: &dyn StoreFixture) {
    let first = Relay::join(f).await;
    let mut second = Relay::join(f).await;
    first.leave().await;
    let leases = second.renew().await;
    assert_eq!(second.held(), all_lanes(f));
    assert_eq!(leases.share, usize::from(f.lanes()), "it is alone now");
    for lease in leases.lanes {
        assert!(!lease.from_expired, "{:?} was left in good order", lease.lane);
        assert!(lease.token > first.lanes[&lease.lane].token, "a new owner has a new token");
    }
}

pub async fn leaving_twice_or_without_having_joined_does_nothing(f: &dyn StoreFixture) {
    let first = Relay::join(f).await;
    first.leave().await;
    let second = Relay::join(f).await;
    first.leave().await;
    Relay::on(f.store()).leave().await;
    let mut again = Relay { id: second.id, ..Relay::on(f.store()) };
    again.renew().await;
    assert_eq!(again.lanes, second.lanes, "the others keep what they hold");
}

pub async fn lanes_of_an_expired_lease_are_taken_over(f: &dyn StoreFixture) {
    let first = Relay::join(f).await;
    f.advance(LONG * 2).await;
    let mut second = Relay::on(f.store());
    let leases = second.renew().await;
    assert_eq!(second.held(), all_lanes(f));
    assert_eq!(leases.share, usize::from(f.lanes()), "who expired is not counted");
    for lease in leases.lanes {
        assert!(lease.from_expired, "{:?} was lost by its owner", lease.lane);
        assert!(lease.token > first.lanes[&lease.lane].token, "a new owner has a new token");
    }
}

pub async fn a_lane_is_from_expired_only_in_the_call_that_took_it(f: &dyn StoreFixture) {
    Relay::join(f).await;
    f.advance(LONG * 2).await;
    let mut second = Relay::join(f).await;
    assert!(second.lanes.values().all(|lease| lease.from_expired));
    let taken = second.lanes.clone();
    second.renew().await;
    for lease in second.lanes.values() {
        assert_eq!(*lease, LaneLease { from_expired: false, ..taken[&lease.lane] }, "held by us since then");
    }
}

pub async fn a_lease_lasts_until_its_end(f: &dyn StoreFixture) {
    let first = Relay::join(f).await;
    f.advance(LONG * 3 / 4).await;
    let mut second = Relay::join(f).await;
    assert!(second.held().is_empty(), "three quarters of the first one's lease are over, not all of it");
    f.advance(LONG / 2).await;
    second.renew().await;
    assert_eq!(second.held(), first.held(), "now it is over");
}

pub async fn a_renewal_moves_the_end(f: &dyn StoreFixture) {
    let mut first = Relay::join(f).await;
    for _ in 0..3 {
        f.advance(LONG * 3 / 4).await;
        first.renew().await;
    }
    let mut second = Relay::on(f.store());
    second.renew().await;
    assert!(second.held().is_empty(), "the first one renewed its lease in time");
}

pub async fn a_renewal_can_shorten_a_lease(f: &dyn StoreFixture) {
    let mut first = Relay::join(f).await;
    first.duration = LONG / 8;
    first.renew().await;
    f.advance(LONG / 4).await;
    let second = Relay::join(f).await;
    assert_eq!(second.held(), first.held(), "a lease lasts from the last renewal, whatever was before");
}

/// Nobody did anything with them meanwhile, so what the relay published is still its own to settle.
pub async fn a_late_renewal_keeps_lanes_that_nobody_took(f: &dyn StoreFixture) {
    let mut relay = Relay::join(f).await;
    let before = relay.lanes.clone();
    f.advance(VERY_LONG).await;
    relay.renew().await;
    assert_eq!(relay.lanes, before, "the same lanes by the same tokens, not from somebody who expired");
}

pub async fn a_late_renewal_does_not_get_back_lanes_that_were_taken(f: &dyn StoreFixture) {
    let mut first = Relay::join(f).await;
    f.advance(LONG * 2).await;
    let second = Relay::join(f).await;
    let leases = first.renew().await;
    assert!(leases.lanes.is_empty(), "the second one holds them");
    assert_eq!(leases.share, ceil_share(f, 2));
    assert_eq!(second.held(), all_lanes(f));
}

pub async fn lanes_given_back_are_not_taken_again_in_the_same_call(f: &dyn StoreFixture) {
    let mut relay = Relay::join(f).await;
    let before = relay.lanes.clone();
    let last = *before.keys().last().unwrap_or_else(|| panic!("it holds all lanes"));
    relay.give_back(&[last]).await;
    assert!(!relay.held().contains(&last), "given back");
    relay.renew().await;
    assert_eq!(relay.held(), all_lanes(f), "nobody else wants it, so the next call takes it");
    assert!(relay.lanes[&last].token > before[&last].token, "it changed owners twice");
    assert!(!relay.lanes[&last].from_expired);
}

pub async fn lanes_of_others_cannot_be_given_back(f: &dyn StoreFixture) {
    let mut first = Relay::join(f).await;
    let before = first.lanes.clone();
    let mut second = Relay::on(f.store());
    second.give_back(&all_lanes(f).into_iter().collect::<Vec<_>>()).await;
    assert!(second.held().is_empty());
    first.renew().await;
    assert_eq!(first.lanes, before, "a relay gives back only what is its own");
}

pub async fn live_relays_are_counted_by_the_databases_clock(f: &dyn StoreFixture) {
    let mut short = Relay::on(f.store());
    short.duration = LONG / 8;
    short.renew().await;
    let mut steady = Relay::join(f).await;
    assert_eq!(steady.renew().await.share, ceil_share(f, 2));
    f.advance(LONG / 4).await;
    let leases = steady.renew().await;
    assert_eq!(leases.share, usize::from(f.lanes()), "the other one's lease is over");
    assert_eq!(steady.held(), all_lanes(f));
}

pub async fn two_relays_that_lease_at_once_never_hold_the_same_lane(f: &dyn StoreFixture) {
    let (store, second) = (f.store(), f.second().await);
    for round in 0..5 {
        let relays: Vec<_> = (0..6)
            .map(|n| Relay::on(if n % 2 == 0 { store.clone() } else { second.clone() }))
            .map(|mut relay| {
                tokio::spawn(async move {
                    relay.renew().await;
                    relay.renew().await;
                    relay
                })
            })
            .collect();
        let mut joined = Vec::new();
        for relay in relays {
            joined.push(relay.await.unwrap_or_else(|error| panic!("a relay's task failed: {error}")));
        }
        // What a relay was told first may have changed since, but only by its own doing.
        for relay in &mut joined {
            relay.renew().await;
        }
        assert_disjoint(&joined.iter().collect::<Vec<_>>());
        let held: usize = joined.iter().map(|relay| relay.held().len()).sum();
        assert_eq!(held, usize::from(f.lanes()), "in round {round} every lane has an owner");
        for relay in joined {
            relay.leave().await;
        }
    }
}

pub async fn another_store_on_the_database_sees_the_same_leases(f: &dyn StoreFixture) {
    let mut first = Relay::join(f).await;
    let mut other = Relay::on(f.second().await);
    other.renew().await;
    assert!(other.held().is_empty(), "the lanes are held by a relay of another process");
    let share = first.renew().await.share;
    shrink(&mut first, share).await;
    other.renew().await;
    assert_disjoint(&[&first, &other]);
    assert_eq!(first.held().len() + other.held().len(), usize::from(f.lanes()));
}

/// Host names can be long; nothing is decided by them.
pub async fn any_name_of_a_relay_will_do(f: &dyn StoreFixture) {
    for name in ["", "grüße 🦀 'quoted' \\", &"x".repeat(300)] {
        let request = LeaseRequest {
            relay: RelayId::random(),
            name: name.to_owned(),
            duration: Duration::from_mins(1),
            give_back: Vec::new(),
        };
        ok(f.store().lease(&request).await, "lease");
        ok(f.store().leave(request.relay).await, "leave");
    }
}

pub async fn tokens_never_come_back(f: &dyn StoreFixture) {
    let lane = Lane(0);
    let mut tokens = BTreeSet::new();
    for round in 0..4 {
        let mut relay = Relay::join(f).await;
        assert!(tokens.insert(relay.lanes[&lane].token), "a token came twice");
        match round {
            0 => relay.leave().await,
            1 => f.advance(LONG * 2).await,
            2 => {
                relay.give_back(&[lane]).await;
                relay.leave().await;
            }
            _ => {}
        }
    }
}

/// Between two renewals, say while the process was frozen, everything may have changed.
pub async fn a_relay_that_left_can_join_again(f: &dyn StoreFixture) {
    let mut relay = Relay::join(f).await;
    let before = relay.lanes.clone();
    relay.leave().await;
    relay.renew().await;
    assert_eq!(relay.held(), all_lanes(f));
    for (lane, lease) in &relay.lanes {
        assert!(lease.token > before[lane].token, "what it held before is void");
    }
}

/// It is a hint for producers.
pub async fn being_idle_changes_nothing_else(f: &dyn StoreFixture) {
    let mut relay = Relay::join(f).await;
    let before = relay.lanes.clone();
    for idle in [true, true, false, true] {
        ok(f.store().set_idle(relay.id, idle).await, "set_idle");
        relay.renew().await;
        assert_eq!(relay.lanes, before);
    }
    ok(f.store().set_idle(RelayId::random(), true).await, "set_idle of a relay that never joined");
    super::support::enqueue(f, &[super::support::loose("l1")]).await;
    assert_eq!(super::support::read_all(f).await.len(), 1);
    relay.leave().await;
    ok(f.store().set_idle(relay.id, false).await, "set_idle of a relay that left");
    let stats = ok(f.admin().stats(None).await, "stats");
    assert!(stats.relays.is_empty(), "it does not bring a relay back: {stats:?}");
}

pub async fn the_longest_lease_is_no_trouble(f: &dyn StoreFixture) {
    let mut relay = Relay::on(f.store());
    relay.duration = posthaste::MAX_DELAY;
    relay.renew().await;
    f.advance(VERY_LONG * 100).await;
    assert!(Relay::join(f).await.held().is_empty());
}
