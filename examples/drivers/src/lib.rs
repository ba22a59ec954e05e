//! Nothing but tests: see `tests/`. The examples of the guide are compiled here, where all drivers are.

#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide.md")]
mod guide {}
