//! Relays that join, leave, stop in a hurry and die.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use posthaste::{Admin, DeadSelection, Destination, Error, MemoryStore, Mode, Relay, RelayBuilder, Summary};
use tokio::task::JoinHandle;

use super::check::Ledger;
use super::faulty_store::FaultyStore;
use super::publisher::FaultyPublisher;
use super::{Plan, Weather};

const MOST_RELAYS: usize = 4;

struct Member {
    task: JoinHandle<Result<Summary, Error>>,
    handle: posthaste::RelayHandle,
}

fn relay(
    plan: Plan,
    store: &MemoryStore,
    ledger: &Arc<Ledger>,
    seed: u64,
    healed: &Arc<AtomicBool>,
) -> Relay {
    let faulty = FaultyStore::new(store.clone(), plan, seed, healed.clone());
    let publisher = |number: Option<usize>| {
        let seed = seed.wrapping_add(number.unwrap_or_default() as u64);
        FaultyPublisher::new(plan, number, seed, ledger.clone(), healed.clone())
    };
    let builder = Relay::builder(Arc::new(faulty));
    let builder = match plan.destinations {
        1 => builder.publisher(publisher(None)),
        _ => route(builder, plan, seed, healed.load(Ordering::SeqCst), publisher),
    };
    builder
        .name(format!("relay {seed}"))
        .lease(plan.lease)
        .max_in_flight(plan.in_flight)
        .window_rows(plan.window)
        .settle_batch(7)
        .publish_timeout(Duration::from_millis(300))
        .drain_timeout(Duration::from_millis(400))
        .idle_poll(Duration::from_millis(100))
        .upkeep_every(Duration::from_millis(500))
        .retry(Plan::retry())
        .on_dead(plan.on_dead)
        .seed(seed)
        .build()
        .expect("the settings are valid")
}

/// Gives a relay its routes. One that is healed knows and serves every destination, another only some.
fn route(
    mut builder: RelayBuilder,
    plan: Plan,
    seed: u64,
    healed: bool,
    publisher: impl Fn(Option<usize>) -> FaultyPublisher,
) -> RelayBuilder {
    let mut random = fastrand::Rng::with_seed(seed ^ 0xde57);
    let always = random.usize(0..plan.destinations);
    for number in 0..plan.destinations {
        let name = format!("destination-{number}");
        builder = match random.u32(0..8) {
            0 if number != always && !healed => continue,
            1 | 2 if number != always && !healed => builder.destination(Destination::elsewhere(&name)),
            3 => builder.destination(
                Destination::new(&name, publisher(Some(number))).rate_limit(200, Duration::from_secs(1)),
            ),
            4 => builder.destination(Destination::new(&name, publisher(Some(number))).max_in_flight(1)),
            _ => builder.destination(Destination::new(&name, publisher(Some(number)))),
        };
        builder = builder.route(Plan::event_type(number), name);
    }
    builder
}

fn join(plan: Plan, store: &MemoryStore, ledger: &Arc<Ledger>, seed: u64) -> Member {
    let relay = relay(plan, store, ledger, seed, &Arc::default());
    let handle = relay.handle();
    Member { task: tokio::spawn(relay.run_until(std::future::pending())), handle }
}

/// Lets relays come and go for a while; nobody is left at the end.
pub(super) async fn come_and_go(plan: Plan, store: MemoryStore, ledger: Arc<Ledger>) {
    let mut random = fastrand::Rng::with_seed(plan.seed ^ 0x5eed);
    let mut members = vec![join(plan, &store, &ledger, random.u64(..))];
    for _ in 0..random.u32(2..14) {
        tokio::time::sleep(Duration::from_millis(random.u64(0..400))).await;
        match random.u32(0..8) {
            0..4 if members.len() < MOST_RELAYS => members.push(join(plan, &store, &ledger, random.u64(..))),
            4 if !members.is_empty() => {
                let member = members.swap_remove(random.usize(0..members.len()));
                member.handle.stop();
                let _ = member.task.await;
            }
            5 if plan.weather == Weather::Storm && !members.is_empty() => {
                members.swap_remove(random.usize(0..members.len())).task.abort();
            }
            6 if plan.weather == Weather::Storm && !members.is_empty() => {
                members.swap_remove(random.usize(0..members.len())).handle.abandon();
            }
            7 if plan.weather != Weather::Calm => mend(&store, &mut random).await,
            _ => {}
        }
    }
    for member in members {
        member.handle.stop();
        let _ = member.task.await;
    }
}

/// An operator who redrives in the middle of it all.
async fn mend(store: &MemoryStore, random: &mut fastrand::Rng) {
    let some = Mode::UpTo(random.u64(1..5));
    store.redrive(&DeadSelection::All, some).await.expect("redriving works");
}

/// Heals everything and drains what is left.
pub(super) async fn finish(plan: Plan, store: &MemoryStore, ledger: &Arc<Ledger>) -> Result<(), String> {
    let healed = Arc::new(AtomicBool::new(true));
    for round in 0..200 {
        let relay = relay(plan, store, ledger, plan.seed ^ round, &healed);
        let drained = tokio::time::timeout(Duration::from_secs(600), relay.drain()).await;
        drained.map_err(|_| "draining does not end".to_owned())?.map_err(|error| error.to_string())?;
        let parked = plan.on_dead == posthaste::DeadPolicy::Park;
        if parked {
            store
                .redrive(&DeadSelection::All, Mode::UpTo(u64::MAX))
                .await
                .map_err(|error| error.to_string())?;
        }
        let stats = store.stats(None).await.map_err(|error| error.to_string())?;
        if stats.ready.count + stats.waiting.count == 0 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let stats = store.stats(None).await.map_err(|error| error.to_string())?;
    let left = healed.load(Ordering::SeqCst);
    Err(format!("messages are left after everything healed ({left}): {stats:?}"))
}
