//! The messages of a run. Each carries its number in its payload, by which it is accounted for.

use std::time::Duration;

use posthaste::{JSON, Message};

use super::load::{Content, Load};

/// What random payloads are cut from: long enough that no two neighbours are alike.
const POOL: usize = 2 * 1024 * 1024;
/// When the messages that hold up their keys are due.
const HELD_UP: Duration = Duration::from_secs(3_600);

/// Makes the messages of a load, the same each time.
#[derive(Debug)]
pub(super) struct Drafts {
    load: Load,
    pool: String,
}

impl Drafts {
    pub(super) fn new(load: &Load) -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        let pool = match load.payload {
            Content::Random => (0..POOL).map(|_| random.alphanumeric()).collect(),
            Content::Fixed => "x".repeat(POOL),
        };
        Self { load: load.clone(), pool }
    }

    /// Makes a message.
    pub(super) fn message(&self, number: u64) -> Message {
        let message = Message::new("bench.happened").payload(self.payload(number)).content_type(JSON);
        let Some(key) = self.key(number) else { return message };
        let message = message.aggregate("bench", key);
        if key < self.load.blocked_keys && number < self.load.keys { message.delay(HELD_UP) } else { message }
    }

    /// The key of a message: in turn, or by chance where they are skewed.
    pub(super) fn key(&self, number: u64) -> Option<u64> {
        let keys = self.load.keys;
        if keys == 0 {
            return None;
        }
        if !self.load.skewed {
            return Some(number % keys);
        }
        // A tenth to the power of 0.301 is a half.
        let share = fastrand::Rng::with_seed(number).f64().powf(1.0 / 0.301);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is less than the keys"
        )]
        Some(((share * keys as f64) as u64).min(keys - 1))
    }

    /// Whether a message waits behind one that is not due, or is that one.
    pub(super) fn is_blocked(&self, number: u64) -> bool {
        self.load.blocked_keys > 0 && self.key(number).is_some_and(|key| key < self.load.blocked_keys)
    }

    /// How many messages are to be published.
    pub(super) fn expected(&self) -> u64 {
        let all = 0..self.load.messages();
        if self.load.blocked_keys == 0 {
            all.end
        } else {
            all.filter(|n| !self.is_blocked(*n)).count() as u64
        }
    }

    fn payload(&self, number: u64) -> String {
        let mut payload = format!("{{\"n\":{number},\"x\":\"");
        let filling = self.load.payload_bytes.get().saturating_sub(payload.len() + 2);
        let begin = usize::try_from(number).unwrap_or(0).wrapping_mul(7_919) % (POOL - filling);
        payload.reserve_exact(filling + 2);
        payload.push_str(&self.pool[begin..begin + filling]);
        payload.push_str("\"}");
        payload
    }
}

/// The number that a payload carries, also where the database wrote the JSON anew.
pub(super) fn number_of(payload: &[u8]) -> Option<u64> {
    let rest = &payload[payload.iter().position(u8::is_ascii_digit)?..];
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    digits
        .into_iter()
        .try_fold(0_u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: Load,
    }

    fn drafts(options: &[&str]) -> Drafts {
        Drafts::new(&Line::parse_from([&["bench"], options].concat()).load)
    }

    #[test]
    fn payloads_are_json_of_the_size_asked_for_and_carry_their_number() {
        for options in [["--payload-bytes", "32"], ["--payload-bytes", "1048576"], ["--payload", "fixed"]] {
            let drafts = drafts(&options);
            for number in [0, 9, 12_345, 99_999_999] {
                let message = drafts.message(number);
                let payload = message.payload_bytes().unwrap();
                assert_eq!(payload.len(), drafts.load.payload_bytes.get());
                assert_eq!(number_of(payload), Some(number));
                assert_eq!(serde_json::from_slice::<serde_json::Value>(payload).unwrap()["n"], number);
            }
        }
        assert_eq!(number_of(b"{\"n\": 12, \"x\": \"34\"}"), Some(12));
        assert_eq!(number_of(b"no number"), None);
        assert_eq!(number_of(b"99999999999999999999999"), None);
    }

    #[test]
    fn keys_are_taken_in_turn_or_half_of_the_messages_by_a_tenth_of_them() {
        assert_eq!(drafts(&["--keys", "0"]).key(5), None);
        assert_eq!(drafts(&["--keys", "3"]).key(5), Some(2));
        let drafts = drafts(&["--keys", "100", "--skewed"]);
        let hot = (0..10_000).filter(|n| drafts.key(*n).unwrap() < 10).count();
        assert!((4_500..5_500).contains(&hot), "{hot}");
    }

    #[test]
    fn messages_behind_one_that_is_not_due_are_not_expected() {
        let drafts = drafts(&["--messages", "100", "--keys", "10", "--blocked-keys", "3"]);
        assert_eq!(drafts.expected(), 70);
        assert_eq!(drafts.message(2).due(), posthaste::Due::After(HELD_UP));
        assert_eq!(drafts.message(12).due(), posthaste::Due::Now);
        assert!(drafts.is_blocked(12) && !drafts.is_blocked(13));
    }
}
