//! Named places at which a test may freeze, fail or kill the process.
//!
//! With the feature `failpoints`, the environment variable `POSTHASTE_FAILPOINT` names one place and what happens there:
//! `after-publish=abort@3` kills the process when the place is reached for the third time (without a number: for the first
//! time). `abort` kills it, `stop` freezes it until it is continued (SIGSTOP and SIGCONT), and `panic` panics, once.
//! `POSTHASTE_TEST_CLOCK_SKEW` is by how many seconds the process's wall clock is wrong. Without the feature every place is an
//! empty function, and the clock is that of the system.

/// Before an attempt is written down ahead of it.
pub const BEFORE_BEGIN_ATTEMPT: &str = "before-begin-attempt";
/// After an attempt was written down, before it is made.
pub const AFTER_BEGIN_ATTEMPT: &str = "after-begin-attempt";
/// Before a record is handed to the publisher.
pub const BEFORE_PUBLISH: &str = "before-publish";
/// Where the publisher's own code runs.
pub const IN_PUBLISH: &str = "in-publish";
/// After the publisher has answered, before the outcome is known to the relay's loop.
pub const AFTER_PUBLISH: &str = "after-publish";
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
/// After a piece of upkeep.
pub const AFTER_UPKEEP: &str = "after-upkeep";
/// Before the lanes are given back at the end.
pub const BEFORE_LEAVE: &str = "before-leave";
/// After the lanes were given back at the end.
pub const AFTER_LEAVE: &str = "after-leave";

/// All places, for tests that go through them.
pub const ALL: [&str; 15] = [
    BEFORE_BEGIN_ATTEMPT,
    AFTER_BEGIN_ATTEMPT,
    BEFORE_PUBLISH,
    IN_PUBLISH,
    AFTER_PUBLISH,
    BEFORE_READ,
    AFTER_READ,
    BEFORE_SETTLE,
    AFTER_SETTLE,
    BEFORE_LEASE,
    AFTER_LEASE,
    BEFORE_UPKEEP,
    AFTER_UPKEEP,
    BEFORE_LEAVE,
    AFTER_LEAVE,
];

#[cfg(not(feature = "failpoints"))]
pub(crate) fn hit(_place: &'static str) {}

#[cfg(not(feature = "failpoints"))]
pub(crate) fn skewed(now: std::time::SystemTime) -> std::time::SystemTime {
    now
}

#[cfg(feature = "failpoints")]
pub(crate) use chosen::{hit, skewed};

#[cfg(feature = "failpoints")]
mod chosen {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, SystemTime};

    use rustix::process::{Signal, getpid, kill_process};

    #[derive(Debug, PartialEq, Eq)]
    struct Chosen {
        place: &'static str,
        action: Action,
        nth: u64,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Action {
        Abort,
        Stop,
        Panic,
    }

    pub(crate) fn hit(place: &'static str) {
        static CHOSEN: OnceLock<Option<Chosen>> = OnceLock::new();
        static HITS: AtomicU64 = AtomicU64::new(0);
        let Some(chosen) = CHOSEN.get_or_init(from_environment) else { return };
        if chosen.place == place && HITS.fetch_add(1, Ordering::SeqCst) + 1 == chosen.nth {
            chosen.action.take(place);
        }
    }

    impl Action {
        fn take(self, place: &str) {
            match self {
                Self::Abort => std::process::abort(),
                Self::Panic => panic!("failpoint {place}"),
                Self::Stop => {
                    kill_process(getpid(), Signal::STOP).expect("a process may stop itself");
                    // The signal stops one thread after another; this one gets no further before its turn.
                    std::thread::park_timeout(Duration::from_millis(50));
                }
            }
        }
    }

    /// The time on a clock that may be wrong.
    pub(crate) fn skewed(now: SystemTime) -> SystemTime {
        static SKEW: OnceLock<i64> = OnceLock::new();
        let skew = || Some(std::env::var("POSTHASTE_TEST_CLOCK_SKEW").ok()?.parse().expect("seconds"));
        let skew = *SKEW.get_or_init(|| skew().unwrap_or(0));
        let by = Duration::from_secs(skew.unsigned_abs());
        if skew < 0 { now - by } else { now + by }
    }

    /// A test that names no place would prove nothing, so a wrong value ends the process.
    fn from_environment() -> Option<Chosen> {
        let text = std::env::var("POSTHASTE_FAILPOINT").ok()?;
        let chosen = parse(&text);
        if chosen.is_none() {
            eprintln!(
                "error: POSTHASTE_FAILPOINT={text}: expected PLACE=abort, =stop or =panic, and maybe @N"
            );
            std::process::exit(2);
        }
        chosen
    }

    fn parse(text: &str) -> Option<Chosen> {
        let (place, action) = text.split_once('=')?;
        let (action, nth) = action.split_once('@').unwrap_or((action, "1"));
        let action = match action {
            "abort" => Action::Abort,
            "stop" => Action::Stop,
            "panic" => Action::Panic,
            _ => return None,
        };
        let nth = nth.parse().ok().filter(|nth| *nth > 0)?;
        Some(Chosen { place: super::ALL.into_iter().find(|name| *name == place)?, action, nth })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_place_an_action_and_a_number_are_understood_and_nothing_else() {
            let chosen = |place, action, nth| Some(Chosen { place, action, nth });
            assert_eq!(parse("before-read=abort"), chosen("before-read", Action::Abort, 1));
            assert_eq!(parse("after-settle=stop@7"), chosen("after-settle", Action::Stop, 7));
            assert_eq!(parse("in-publish=panic@2"), chosen("in-publish", Action::Panic, 2));
            for text in [
                "",
                "before-read",
                "before-read=",
                "elsewhere=abort",
                "before-read=end",
                "before-read=abort@0",
            ] {
                assert_eq!(parse(text), None, "{text}");
            }
        }
    }
}
