//! Named places at which a test may stop, fail or kill the process.
//!
//! With the feature `failpoints`, the environment variable `POSTHASTE_FAILPOINT` names one place and what happens
//! there: `after-publish=abort@3` kills the process when the place is reached for the third time; `panic` panics
//! instead, once. Without the feature every place is an empty function.

/// Before a record is handed to the publisher.
pub const BEFORE_PUBLISH: &str = "before-publish";
/// After the publisher has answered, before the outcome is known to the relay's loop.
pub const AFTER_PUBLISH: &str = "after-publish";
/// After an attempt was written down, before it is made.
pub const AFTER_BEGIN_ATTEMPT: &str = "after-begin-attempt";
/// Before records are read.
pub const BEFORE_READ: &str = "before-read";
/// After records were read, before they are taken in.
pub const AFTER_READ: &str = "after-read";
/// Before outcomes are written.
pub const BEFORE_SETTLE: &str = "before-settle";
/// After outcomes were written.
pub const AFTER_SETTLE: &str = "after-settle";
/// Before the lease is renewed.
pub const BEFORE_LEASE: &str = "before-lease";
/// After the lease was renewed.
pub const AFTER_LEASE: &str = "after-lease";
/// Before a piece of upkeep.
pub const BEFORE_UPKEEP: &str = "before-upkeep";
/// Before the lanes are given back at the end.
pub const BEFORE_LEAVE: &str = "before-leave";

/// All places, for tests that go through them.
pub const ALL: [&str; 11] = [
    BEFORE_PUBLISH,
    AFTER_PUBLISH,
    AFTER_BEGIN_ATTEMPT,
    BEFORE_READ,
    AFTER_READ,
    BEFORE_SETTLE,
    AFTER_SETTLE,
    BEFORE_LEASE,
    AFTER_LEASE,
    BEFORE_UPKEEP,
    BEFORE_LEAVE,
];

#[cfg(not(feature = "failpoints"))]
pub(crate) fn hit(_place: &'static str) {}

#[cfg(feature = "failpoints")]
pub(crate) fn hit(place: &'static str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static CHOSEN: OnceLock<Option<(String, bool, u64)>> = OnceLock::new();
    static HITS: AtomicU64 = AtomicU64::new(0);
    let chosen = CHOSEN.get_or_init(|| parse(&std::env::var("POSTHASTE_FAILPOINT").ok()?));
    let Some((name, abort, nth)) = chosen else { return };
    if name == place && HITS.fetch_add(1, Ordering::SeqCst) + 1 == *nth {
        if *abort {
            std::process::abort();
        }
        panic!("failpoint {place}");
    }
}

#[cfg(feature = "failpoints")]
fn parse(text: &str) -> Option<(String, bool, u64)> {
    let (name, action) = text.split_once('=')?;
    let (action, nth) = action.split_once('@').unwrap_or((action, "1"));
    Some((name.to_owned(), action == "abort", nth.parse().ok()?))
}
