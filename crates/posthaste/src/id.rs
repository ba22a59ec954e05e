//! Message ids: UUID version 7, in rising order within a process.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::UNIX_EPOCH;

use uuid::{Builder, Uuid, Variant, Version};

use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind};

/// The id of a message: a UUID of version 7.
///
/// It is given once, at enqueue, and is the same on every attempt to publish the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Uuid);

impl MessageId {
    /// A new id from the process's own [`IdGenerator`].
    pub fn generate() -> Self {
        static GENERATOR: OnceLock<IdGenerator> = OnceLock::new();
        GENERATOR.get_or_init(IdGenerator::default).generate()
    }

    /// Takes an id that must be a valid UUID v7.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidMessage`] if the UUID is of another version or variant.
    pub fn new(uuid: Uuid) -> Result<Self, Error> {
        if uuid.get_version() == Some(Version::SortRand) && uuid.get_variant() == Variant::RFC4122 {
            Ok(Self(uuid))
        } else {
            Err(Error::new(
                ErrorKind::InvalidMessage,
                format!("id {uuid} is not a UUID of version 7; leave the id out to have one made"),
            ))
        }
    }

    /// Takes an id as a store holds it, whatever its version. For store adapters.
    pub fn from_stored(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The UUID.
    pub fn as_uuid(&self) -> &Uuid {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for MessageId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let uuid = Uuid::parse_str(text).map_err(|source| {
            let message = format!("id {text:?} is not a UUID; leave the id out to have one made");
            Error::new(ErrorKind::InvalidMessage, message).with_source(source)
        })?;
        Self::new(uuid)
    }
}

/// Makes UUIDs of version 7 that rise strictly within one generator, also when the clock stands still or goes
/// backwards.
///
/// Within a millisecond (or while the clock is behind the last id) the 74 random bits are counted up by a random
/// step; when they run out, the timestamp is moved on by a millisecond.
///
/// ```
/// use posthaste::{IdGenerator, ManualClock};
///
/// let ids = IdGenerator::new(ManualClock::default(), 42);
/// let (first, second) = (ids.generate(), ids.generate());
/// assert!(first < second, "although the clock stood still");
/// ```
pub struct IdGenerator {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    random: fastrand::Rng,
    millis: u64,
    /// The 74 bits behind the timestamp, without version and variant.
    tail: u128,
}

const TAIL_BITS: u32 = 74;

impl IdGenerator {
    /// A generator with its own clock and seed.
    pub fn new(clock: impl Clock, seed: u64) -> Self {
        let state = State { random: fastrand::Rng::with_seed(seed), millis: 0, tail: 0 };
        Self { clock: Arc::new(clock), state: Mutex::new(state) }
    }

    /// The next id.
    pub fn generate(&self) -> MessageId {
        let now = self.clock.now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_millis());
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.advance(now);
        MessageId(state.to_uuid())
    }
}

impl Default for IdGenerator {
    /// A generator on the system's clock with a seed from the operating system.
    fn default() -> Self {
        Self::new(SystemClock, Uuid::new_v4().as_u64_pair().1)
    }
}

impl fmt::Debug for IdGenerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdGenerator").finish_non_exhaustive()
    }
}

impl State {
    fn advance(&mut self, now: u64) {
        if now > self.millis {
            self.start(now);
            return;
        }
        self.tail += 1 + u128::from(self.random.u32(..));
        if self.tail >> TAIL_BITS != 0 {
            self.start(self.millis + 1);
        }
    }

    fn start(&mut self, millis: u64) {
        self.millis = millis;
        // One bit less than there is room for, so that a fresh millisecond never starts at its end.
        self.tail = self.random.u128(..) >> (128 - TAIL_BITS + 1);
    }

    fn to_uuid(&self) -> Uuid {
        // The builder puts the version over the upper four bits of the first byte and the variant over the upper
        // two of the third, so the tail is spread around them.
        let tail = ((self.tail >> 62) << 64) | (self.tail & u128::from(u64::MAX >> 2));
        let mut random = [0; 10];
        random.copy_from_slice(&tail.to_be_bytes()[6..]);
        Builder::from_unix_timestamp_millis(self.millis, &random).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn ids_rise_while_the_clock_stands_moves_and_goes_back() {
        let clock = ManualClock::default();
        let ids = IdGenerator::new(clock.clone(), 7);
        let mut last = ids.generate();
        for step in 0_u32..30_000 {
            match step % 3 {
                0 => clock.advance(Duration::from_millis(2)),
                1 => clock.set(clock.now() - Duration::from_millis(1)),
                _ => {}
            }
            let next = ids.generate();
            assert!(next > last, "step {step}: {next} after {last}");
            assert!(MessageId::new(*next.as_uuid()).is_ok());
            last = next;
        }
    }

    #[test]
    fn the_timestamp_is_the_clocks() {
        let clock = ManualClock::default();
        let id = IdGenerator::new(clock.clone(), 1).generate();
        let (seconds, _) = id.as_uuid().get_timestamp().unwrap().to_unix();
        assert_eq!(UNIX_EPOCH + Duration::from_secs(seconds), clock.now());
    }

    #[test]
    fn a_full_tail_moves_on_to_the_next_millisecond() {
        let mut state = State { random: fastrand::Rng::with_seed(3), millis: 5, tail: (1 << TAIL_BITS) - 1 };
        let before = state.to_uuid();
        state.advance(5);
        assert_eq!(state.millis, 6);
        assert!(state.to_uuid() > before);
    }

    #[test]
    fn two_generators_do_not_meet() {
        let clock = ManualClock::default();
        let (a, b) = (IdGenerator::new(clock.clone(), 1), IdGenerator::new(clock, 2));
        let made: BTreeSet<_> = (0..10_000).flat_map(|_| [a.generate(), b.generate()]).collect();
        assert_eq!(made.len(), 20_000);
    }

    #[test]
    fn other_versions_are_refused() {
        for text in
            ["", "abc", "00000000-0000-0000-0000-000000000000", "f47ac10b-58cc-4372-a567-0e02b2c3d479"]
        {
            let error = text.parse::<MessageId>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{text}");
        }
        assert!("01890a5d-ac96-774b-bcce-b302099a8057".parse::<MessageId>().is_ok());
    }

    #[test]
    fn no_damaged_id_panics_and_what_is_read_is_written_the_same() {
        let valid = ["0198c7b2-7d3e-7000-8000-000000000000", "0198c7b27d3e70008000000000000000"];
        posthaste_testkit::damaged_text(&valid, |text| {
            if let Ok(id) = text.parse::<MessageId>() {
                assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
            }
        });
    }
}
