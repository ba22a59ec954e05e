//! Whether what was published is what was promised.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use posthaste::{Key, Message, MessageId};

/// Compares what was enqueued with what was published: no message lost, none of a rolled back transaction
/// published, order kept within each key, and how many were published more than once.
///
/// ```
/// use posthaste::Message;
/// use posthaste_testkit::InvariantChecker;
///
/// let (first, second) = (Message::new("a").aggregate("k", 1), Message::new("b").aggregate("k", 1));
/// let mut checker = InvariantChecker::default();
/// checker.committed(&first);
/// checker.committed(&second);
/// checker.published(second.id());
/// checker.published(first.id());
/// let broken = checker.check();
/// assert_eq!(broken.disorders.len(), 1, "{broken}");
/// ```
#[derive(Debug, Clone, Default)]
pub struct InvariantChecker {
    /// Committed messages, and where in the order of enqueueing.
    committed: BTreeMap<MessageId, (usize, Option<Key>)>,
    rolled_back: BTreeSet<MessageId>,
    given_up: BTreeSet<MessageId>,
    published: Vec<MessageId>,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Violations {
    /// Committed, and never published.
    pub lost: Vec<MessageId>,
    /// Published, although their transaction was rolled back.
    pub leaked: Vec<MessageId>,
    /// Published, but never enqueued.
    pub unknown: Vec<MessageId>,
    /// Published more than once, and how often in all. At least once allows it.
    pub duplicates: BTreeMap<MessageId, usize>,
    /// Published in another order than that in which they were enqueued.
    pub disorders: Vec<Disorder>,
}

/// Two messages of a key, of which the later one was published first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disorder {
    /// The key.
    pub key: Key,
    /// Enqueued first, published last.
    pub earlier: MessageId,
    /// Enqueued last, published first.
    pub later: MessageId,
}

impl InvariantChecker {
    /// A message was committed. Call it in the order of enqueueing, for each key.
    pub fn committed(&mut self, message: &Message) {
        let aggregate = Key::new(message.aggregate_type(), message.aggregate_id());
        let key = (!message.aggregate_id().is_empty()).then_some(aggregate);
        self.committed.insert(message.id(), (self.committed.len(), key));
    }

    /// A message's transaction was rolled back.
    pub fn rolled_back(&mut self, message: &Message) {
        self.rolled_back.insert(message.id());
    }

    /// A message was given up: it need not be published, and its order does not count.
    pub fn given_up(&mut self, id: MessageId) {
        self.given_up.insert(id);
    }

    /// A message was published. Call it in the order of publishing, for every time.
    pub fn published(&mut self, id: MessageId) {
        self.published.push(id);
    }

    /// Compares.
    pub fn check(&self) -> Violations {
        let mut times: BTreeMap<MessageId, usize> = BTreeMap::new();
        let mut firsts = Vec::new();
        for id in &self.published {
            let count = times.entry(*id).or_default();
            *count += 1;
            if *count == 1 {
                firsts.push(*id);
            }
        }
        let needed = self.committed.keys().filter(|id| !self.given_up.contains(id));
        let strangers = || firsts.iter().filter(|id| !self.committed.contains_key(id)).copied();
        Violations {
            lost: needed.filter(|id| !times.contains_key(id)).copied().collect(),
            leaked: strangers().filter(|id| self.rolled_back.contains(id)).collect(),
            unknown: strangers().filter(|id| !self.rolled_back.contains(id)).collect(),
            disorders: self.disorders(&firsts),
            duplicates: times.into_iter().filter(|(_, count)| *count > 1).collect(),
        }
    }

    /// Looks at the first time that each was published.
    fn disorders(&self, firsts: &[MessageId]) -> Vec<Disorder> {
        let mut latest: BTreeMap<&Key, (usize, MessageId)> = BTreeMap::new();
        let mut disorders = Vec::new();
        for id in firsts.iter().filter(|id| !self.given_up.contains(id)) {
            let Some((place, Some(key))) = self.committed.get(id) else { continue };
            match latest.get(key) {
                Some((later_place, later)) if later_place > place => {
                    disorders.push(Disorder { key: key.clone(), earlier: *id, later: *later });
                }
                _ => {
                    latest.insert(key, (*place, *id));
                }
            }
        }
        disorders
    }
}

impl Violations {
    /// Whether every promise of at-least-once in order is kept; duplicates are allowed.
    pub fn is_at_least_once(&self) -> bool {
        let Self { lost, leaked, unknown, disorders, duplicates: _ } = self;
        lost.is_empty() && leaked.is_empty() && unknown.is_empty() && disorders.is_empty()
    }

    /// Whether there are no duplicates either.
    pub fn is_exactly_once(&self) -> bool {
        self.is_at_least_once() && self.duplicates.is_empty()
    }
}

impl fmt::Display for Violations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, leaked, unknown, duplicates, disorders } = self;
        writeln!(f, "{} lost: {lost:?}", lost.len())?;
        writeln!(f, "{} published although rolled back: {leaked:?}", leaked.len())?;
        writeln!(f, "{} published that were never enqueued: {unknown:?}", unknown.len())?;
        writeln!(f, "{} published more than once: {duplicates:?}", duplicates.len())?;
        write!(f, "{} out of order: {disorders:?}", disorders.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_key(key: &str, count: usize) -> Vec<Message> {
        (0..count).map(|_| Message::new("e").aggregate("thing", key)).collect()
    }

    fn checker(committed: &[Message], published: &[usize]) -> InvariantChecker {
        let mut checker = InvariantChecker::default();
        committed.iter().for_each(|message| checker.committed(message));
        published.iter().for_each(|n| checker.published(committed[*n].id()));
        checker
    }

    #[test]
    fn order_and_repeats_are_fine_at_least_once() {
        let messages = of_key("a", 3);
        for published in [&[0, 1, 2][..], &[0, 1, 0, 1, 2], &[0, 0, 1, 1, 0, 2]] {
            let found = checker(&messages, published).check();
            assert!(found.is_at_least_once(), "{published:?}: {found}");
            assert_eq!(found.is_exactly_once(), published.len() == 3, "{published:?}: {found}");
        }
    }

    #[test]
    fn a_message_that_was_not_published_is_lost_unless_given_up() {
        let messages = of_key("a", 3);
        let mut checker = checker(&messages, &[0, 2]);
        assert_eq!(checker.check().lost, [messages[1].id()]);
        checker.given_up(messages[1].id());
        assert!(checker.check().is_exactly_once());
    }

    #[test]
    fn a_later_message_that_overtakes_is_found_once() {
        let messages = of_key("a", 4);
        let found = checker(&messages, &[0, 2, 1, 2, 1, 3]).check();
        let (earlier, later) = (messages[1].id(), messages[2].id());
        assert_eq!(found.disorders, [Disorder { key: Key::new("thing", "a"), earlier, later }]);
        assert_eq!(found.duplicates, BTreeMap::from([(earlier, 2), (later, 2)]));
        assert!(!found.is_at_least_once());
    }

    #[test]
    fn other_keys_and_messages_without_a_key_have_no_order() {
        let messages = [of_key("a", 1), of_key("b", 1), of_key("", 2)].concat();
        assert!(checker(&messages, &[3, 2, 1, 0]).check().is_exactly_once());
    }

    #[test]
    fn what_was_rolled_back_or_never_enqueued_must_not_be_published() {
        let messages = of_key("a", 3);
        let mut checker = checker(&messages[..1], &[0]);
        checker.rolled_back(&messages[1]);
        assert!(checker.check().is_exactly_once());
        checker.published(messages[1].id());
        checker.published(messages[2].id());
        let found = checker.check();
        assert_eq!(
            (found.leaked.as_slice(), found.unknown.as_slice()),
            (&[messages[1].id()][..], &[messages[2].id()][..])
        );
    }
}
