//! The parts of `posthaste demo`: producers, a destination that fails on purpose, and the audit at the end.

mod audit;
mod destination;
mod producers;
mod stage;

pub(crate) use self::audit::Audit;
pub(crate) use self::stage::{Outcome, Script, Stage};

use std::hash::{DefaultHasher, Hash, Hasher};

/// A number from 0 to 1 that follows from its arguments alone, so that a run can be repeated with its seed
/// whatever the threads do.
fn chance(seed: u64, about: impl Hash) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, about).hash(&mut hasher);
    (hasher.finish() >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chances_are_repeatable_and_even() {
        assert!((chance(1, "a") - chance(1, "a")).abs() < f64::EPSILON);
        let below = (0..10_000).filter(|number| chance(7, number) < 0.1).count();
        assert!((800..1_200).contains(&below), "{below}");
    }
}
