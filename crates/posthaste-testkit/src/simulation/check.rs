//! What happened, and whether it was what is promised.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use posthaste::{DeadPolicy, MemoryStore, MessageId, Record, State};

use super::{MAX_ATTEMPTS, Plan, Weather};

#[derive(Debug, Clone, Copy)]
pub(super) struct Enqueued {
    pub(super) id: MessageId,
    pub(super) key: Option<usize>,
}

/// What producers and destinations saw.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    committed: Vec<Enqueued>,
    rolled_back: Vec<MessageId>,
    /// Every time a destination took a message, and whether it said so.
    published: Vec<(MessageId, bool)>,
    failures: HashMap<MessageId, u32>,
    rejected: HashSet<MessageId>,
    too_many_attempts: Vec<MessageId>,
    misrouted: Vec<MessageId>,
}

impl Ledger {
    pub(super) fn committed(&self, messages: Vec<Enqueued>) {
        self.seen().committed.extend(messages);
    }

    pub(super) fn rolled_back(&self, messages: Vec<Enqueued>) {
        self.seen().rolled_back.extend(messages.into_iter().map(|message| message.id));
    }

    pub(super) fn tried(&self, record: &Record) {
        if record.attempt() > MAX_ATTEMPTS {
            self.seen().too_many_attempts.push(record.id);
        }
    }

    pub(super) fn published(&self, record: &Record, said_so: bool) {
        self.seen().published.push((record.id, said_so));
    }

    pub(super) fn failed(&self, record: &Record) {
        *self.seen().failures.entry(record.id).or_default() += 1;
    }

    pub(super) fn misrouted(&self, record: &Record) {
        self.seen().misrouted.push(record.id);
    }

    pub(super) fn rejected(&self, record: &Record) {
        self.seen().rejected.insert(record.id);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks the promises.
pub(super) fn check(plan: Plan, store: &MemoryStore, ledger: &Ledger) -> Result<(), String> {
    let seen = ledger.seen();
    let states: BTreeMap<_, _> =
        store.messages().into_iter().map(|message| (message.info.id, message)).collect();
    if let Some(id) = seen.too_many_attempts.first() {
        return Err(format!("{id} was tried more often than allowed"));
    }
    if let Some(id) = seen.misrouted.first() {
        return Err(format!("{id} came to a destination that is not its own"));
    }
    for id in &seen.rolled_back {
        if seen.published.iter().any(|(published, _)| published == id) {
            return Err(format!("{id} was published although its transaction was rolled back"));
        }
    }
    let published: HashSet<_> = seen.published.iter().map(|(id, _)| *id).collect();
    for message in &seen.committed {
        let state = states.get(&message.id).map(|message| message.info.state);
        match state {
            Some(State::Processed) if published.contains(&message.id) => {}
            Some(State::Dead) => check_death(plan, &seen, message.id)?,
            other => {
                let was = published.contains(&message.id);
                return Err(format!("{} ended as {other:?}, published: {was}", message.id));
            }
        }
    }
    check_order(plan, &seen, &states)?;
    check_repeats(plan, &seen)
}

/// A message may be given up only if it was to blame.
fn check_death(plan: Plan, seen: &Seen, id: MessageId) -> Result<(), String> {
    let failures = seen.failures.get(&id).copied().unwrap_or(0);
    // In a storm, an attempt under way when its relay died counts as well.
    if seen.rejected.contains(&id)
        || failures >= MAX_ATTEMPTS
        || plan.weather == Weather::Storm && failures > 0
    {
        return Ok(());
    }
    Err(format!("{id} was given up after {failures} failures"))
}

/// Messages of a key come out in the order in which they were committed, after removing repeats.
fn check_order(
    plan: Plan,
    seen: &Seen,
    states: &BTreeMap<MessageId, posthaste::MessageDetails>,
) -> Result<(), String> {
    let mut firsts: HashMap<MessageId, usize> = HashMap::new();
    for (place, (id, _)) in seen.published.iter().enumerate() {
        firsts.entry(*id).or_insert(place);
    }
    let keys: BTreeSet<_> = seen.committed.iter().filter_map(|message| message.key).collect();
    for key in keys {
        let mut last: Option<(usize, MessageId)> = None;
        for message in seen.committed.iter().filter(|message| message.key == Some(key)) {
            let Some(place) = firsts.get(&message.id).copied() else { continue };
            if let Some((before, earlier)) = last.filter(|(before, _)| *before > place) {
                // A message that was dead for a while has lost its place, unless its key was parked.
                let was_dead = plan.on_dead == DeadPolicy::Skip && may_have_been_dead(seen, earlier);
                if !was_dead {
                    let attempts = states.get(&earlier).map(|message| message.info.attempts);
                    return Err(format!(
                        "key {key}: {} (place {place}) before {earlier} (place {before}, {attempts:?} attempts)",
                        message.id
                    ));
                }
                continue;
            }
            last = Some((place, message.id));
        }
    }
    Ok(())
}

fn may_have_been_dead(seen: &Seen, id: MessageId) -> bool {
    seen.rejected.contains(&id) || seen.failures.get(&id).is_some_and(|failures| *failures > 0)
}

/// Nothing is published again after the destination said that it has it.
fn check_repeats(plan: Plan, seen: &Seen) -> Result<(), String> {
    if plan.weather == Weather::Storm {
        return Ok(());
    }
    let mut taken = HashSet::new();
    for (id, said_so) in &seen.published {
        if taken.contains(id) {
            return Err(format!("{id} was published again although no relay died"));
        }
        if *said_so {
            taken.insert(*id);
        }
    }
    let repeats =
        seen.published.len() - seen.published.iter().map(|(id, _)| id).collect::<HashSet<_>>().len();
    if plan.weather == Weather::Calm && repeats > 0 {
        return Err(format!("{repeats} repeats although nothing failed"));
    }
    Ok(())
}
