//! Many relays on one store under faults, on virtual time; each test goes through its own seeds.
//!
//! `POSTHASTE_SEEDS` sets how many seeds each test takes (default 400), `POSTHASTE_SEED` runs one seed alone.

use posthaste_testkit::simulation::{Weather, simulate_seeds};

fn run(weather: Weather, part: u64) {
    if let Some(seed) = number("POSTHASTE_SEED") {
        return simulate_seeds(weather, seed..seed + 1);
    }
    let seeds = number("POSTHASTE_SEEDS").unwrap_or(400);
    simulate_seeds(weather, part * 1_000_000..part * 1_000_000 + seeds);
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("it is a number"))
}

#[test]
fn in_calm_weather_everything_is_published_exactly_once() {
    run(Weather::Calm, 0);
}

#[test]
fn in_rough_weather_nothing_is_published_again_without_need() {
    run(Weather::Rough, 1);
}

#[test]
fn in_a_storm_nothing_is_lost_and_order_holds() {
    run(Weather::Storm, 2);
}

#[test]
fn in_another_storm_nothing_is_lost_and_order_holds() {
    run(Weather::Storm, 3);
}

#[test]
fn in_a_third_storm_nothing_is_lost_and_order_holds() {
    run(Weather::Storm, 4);
}
