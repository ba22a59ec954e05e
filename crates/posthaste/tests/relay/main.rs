//! How the relay behaves, one named test for every behaviour, on a store in memory and virtual time.

mod bounds;
mod care;
mod dead;
mod delays;
mod destinations;
mod destinations_away;
mod ending;
mod errors;
mod failures;
mod fairness;
mod idle;
mod late_commits;
mod leases;
mod ready;
mod snapshot;
mod starting;
mod store_trouble;
mod support;
mod survivors;
mod upkeep;
