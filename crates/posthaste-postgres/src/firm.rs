//! Up to which position nothing new can appear.
//!
//! An INSERT takes a lock on the table, then a number, and keeps the lock until its transaction is over. So when numbers
//! up to P were given out, and a look at the lock table after that shows some holders, then as soon as a look shows none
//! of these any more (that may be the first one), every transaction that took a number up to P is over: a snapshot taken
//! after that look sees all that will ever stand there. What other tables' transactions and readers do is of no account.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::Row;

/// The shortest time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How many positions are followed at a time.
const MOST_FOLLOWED: usize = 16;

/// What is known to be firm. Looks are noted in the order in which they were taken.
#[derive(Debug, Default)]
pub(crate) struct Firm(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    looked_at: Option<Instant>,
    firm: Option<i64>,
    followed: VecDeque<Followed>,
    /// The last read found nothing: there is nothing to be firm about.
    found_nothing: bool,
}

/// A position that was given out, and who may still have something up to it; `None`: not looked since.
#[derive(Debug)]
struct Followed {
    position: i64,
    holders: Option<BTreeSet<String>>,
}

/// A look at who holds the lock, and up to where numbers were given out just before it.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    given_out: Option<i64>,
    holders: BTreeSet<String>,
}

impl Look {
    /// From the answers of `given_out.sql` and `holders.sql`.
    pub(crate) fn of(answers: &[Vec<Row>]) -> Self {
        let given_out = answers.first().and_then(|rows| rows.first()).and_then(|row| row.get("given_out"));
        let holders = answers.get(1).into_iter().flatten().map(|row| row.get("holder")).collect();
        Self { given_out, holders }
    }
}

impl Firm {
    /// Whether it is time for another look.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let state = self.state();
        !state.found_nothing && state.looked_at.is_none_or(|at| now - at >= LOOK_EVERY)
    }

    /// Notes whether a read found anything.
    pub(crate) fn note_found(&self, any: bool) {
        self.state().found_nothing = !any;
    }

    /// Forgets everything: the server may be another one.
    pub(crate) fn reset(&self) {
        *self.state() = State::default();
    }

    /// What is firm for a read whose snapshot was taken after the last look.
    pub(crate) fn position(&self) -> Option<i64> {
        self.state().firm
    }

    /// Notes a look that was taken just before the snapshot of a read, with what was read.
    pub(crate) fn note(&self, look: &Look, rows: &[Row], now: Instant) {
        let last_read = rows.iter().filter_map(|row| row.get::<_, Option<i64>>("seq")).max();
        self.note_look(look, last_read, now);
    }

    fn note_look(&self, look: &Look, last_read: Option<i64>, now: Instant) {
        let mut state = self.state();
        state.looked_at = Some(now);
        let by_sequence = look.given_out.is_some();
        if let Some(position) = look.given_out {
            state.follow(position, Some(look.holders.clone()));
        }
        for followed in &mut state.followed {
            // The position was known before this look, so these are all who may have something up to it.
            followed
                .holders
                .get_or_insert_with(|| look.holders.clone())
                .retain(|it| look.holders.contains(it));
        }
        while state
            .followed
            .front()
            .is_some_and(|first| first.holders.as_ref().is_some_and(BTreeSet::is_empty))
        {
            let first = state.followed.pop_front();
            state.firm = state.firm.max(first.map(|first| first.position));
        }
        if let Some(position) = last_read.filter(|_| !by_sequence) {
            // Known only now: who holds the lock is for the next look to say.
            state.follow(position, None);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn follow(&mut self, position: i64, holders: Option<BTreeSet<String>>) {
        let last = self.followed.back().map(|last| last.position).max(self.firm);
        if last.is_none_or(|last| position > last) && self.followed.len() < MOST_FOLLOWED {
            self.followed.push_back(Followed { position, holders });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(given_out: Option<i64>, holders: &[&str]) -> Look {
        Look { given_out, holders: holders.iter().map(ToString::to_string).collect() }
    }

    fn note(firm: &Firm, given_out: i64, holders: &[&str]) -> Option<i64> {
        firm.note_look(&look(Some(given_out), holders), None, Instant::now());
        firm.position()
    }

    #[test]
    fn a_position_is_firm_when_all_who_could_hold_one_before_it_are_gone() {
        let firm = Firm::default();
        assert_eq!(note(&firm, 10, &["a"]), None);
        assert_eq!(note(&firm, 20, &["a", "b"]), None);
        assert_eq!(note(&firm, 30, &["b", "c"]), Some(10), "a is gone; b came when 10 was given out");
        assert_eq!(note(&firm, 40, &["c"]), Some(20));
        assert_eq!(note(&firm, 50, &["d"]), Some(40));
        assert_eq!(note(&firm, 60, &[]), Some(60), "nobody is there: all that was given out is settled");
    }

    #[test]
    fn a_transaction_that_stays_holds_up_what_came_before_its_end() {
        let firm = Firm::default();
        assert_eq!(note(&firm, 5, &[]), Some(5));
        for position in 6..100 {
            assert_eq!(note(&firm, position, &["old"]), Some(5));
        }
        assert!(note(&firm, 100, &["new"]) > Some(5), "the old one is gone");
        assert_eq!(note(&firm, 101, &[]), Some(101));
    }

    #[test]
    fn without_a_look_at_the_sequence_it_is_what_was_read() {
        let firm = Firm::default();
        let note = |last_read, holders: &[&str]| {
            firm.note_look(&look(None, holders), last_read, Instant::now());
            firm.position()
        };
        assert_eq!(note(Some(7), &[]), None, "7 was read after the look");
        assert_eq!(note(Some(7), &["a"]), None);
        assert_eq!(note(Some(9), &[]), Some(7));
        firm.reset();
        assert_eq!(firm.position(), None);
    }

    proptest::proptest! {
        /// Transactions take numbers and end at random; between them come looks. Nothing may appear below a firm
        /// position once it was said.
        #[test]
        fn nothing_appears_below_a_firm_position(steps in proptest::collection::vec(0_u8..14, 1..300)) {
            let firm = Firm::default();
            let (mut given_out, mut born) = (0, 0);
            let mut open: Vec<(String, Vec<i64>)> = Vec::new();
            // What was given out when the look began; others may take numbers before it sees the holders.
            let mut looking = None;
            for step in steps {
                match step {
                    0..2 => {
                        born += 1;
                        open.push((format!("t{born}"), Vec::new()));
                    }
                    2..7 if !open.is_empty() => {
                        given_out += 1;
                        let at = usize::try_from(given_out).unwrap() % open.len();
                        open[at].1.push(given_out);
                    }
                    7..9 if !open.is_empty() => {
                        let (_, numbers) = open.swap_remove(usize::from(step) % open.len());
                        for number in numbers {
                            proptest::prop_assert!(firm.position().is_none_or(|firm| firm < number));
                        }
                    }
                    9..11 => looking = Some(given_out),
                    11..14 => {
                        let holders: Vec<_> = open.iter().map(|(name, _)| name.as_str()).collect();
                        let seen = looking.take();
                        firm.note_look(&look(seen, &holders), Some(given_out), Instant::now());
                    }
                    _ => {}
                }
            }
        }
    }
}
