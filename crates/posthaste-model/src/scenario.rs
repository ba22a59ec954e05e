//! What there is, and how often things may go wrong.

use crate::rule::Rule;

/// A setting to check.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// What it is about.
    pub name: &'static str,
    /// How many relays there are.
    pub relays: usize,
    /// How many lanes.
    pub lanes: usize,
    /// The messages, in the order in which they are inserted.
    pub rows: Vec<Sort>,
    /// How many records of a lane are looked at for a page.
    pub page: u8,
    /// How many records of a key a page and the relay's hand hold.
    pub per_key: u8,
    /// What may go wrong, and how often.
    pub trouble: Trouble,
    /// How many attempts a message has.
    pub max_attempts: u8,
    /// Whether a dead message parks its key.
    pub park: bool,
    /// The rule that is left out.
    pub broken: Option<Rule>,
}

/// A message: its key, its lane, and what is special about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// Its key.
    pub key: u8,
    /// Its lane.
    pub lane: u8,
    /// What is special about it.
    pub marks: u8,
}

impl Sort {
    /// It is committed when everything begins.
    pub const THERE: u8 = 1;
    /// Its transaction takes a while, and may be rolled back.
    pub const SLOW: u8 = 2;
    /// It is enqueued with a delay.
    pub const DELAYED: u8 = 8;
    /// The process that publishes it dies of it.
    pub const KILLS: u8 = 4;

    /// A message of a key, in the only lane.
    pub const fn of(key: u8, marks: u8) -> Self {
        Self { key, lane: 0, marks }
    }

    pub(crate) fn is(self, mark: u8) -> bool {
        self.marks & mark != 0
    }
}

/// How often each thing may still go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Trouble {
    /// A process is killed.
    pub crashes: u8,
    /// A process stands still for a while.
    pub freezes: u8,
    /// A deadline passes before the lease was renewed.
    pub lapses: u8,
    /// A relay stops.
    pub stops: u8,
    /// A message fails.
    pub failures: u8,
    /// The destination cannot be reached.
    pub outages: u8,
    /// A confirmation gets lost.
    pub lost_confirms: u8,
    /// The answer to a settle gets lost.
    pub lost_answers: u8,
    /// A dead message is redriven.
    pub redrives: u8,
    /// Processed messages are purged.
    pub purges: u8,
}

impl Scenario {
    /// One relay, one lane and these messages, with nothing that goes wrong.
    pub fn new(name: &'static str, rows: &[Sort]) -> Self {
        Self {
            name,
            relays: 1,
            lanes: 1,
            rows: rows.to_vec(),
            page: 9,
            per_key: 9,
            trouble: Trouble::default(),
            max_attempts: 2,
            park: false,
            broken: None,
        }
    }

    /// The same with a rule left out.
    pub fn without(&self, rule: Rule) -> Self {
        Self { broken: Some(rule), ..self.clone() }
    }

    /// Whether a rule is kept.
    pub(crate) fn keeps(&self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    pub(crate) fn key(&self, row: usize) -> usize {
        usize::from(self.rows[row].key)
    }

    pub(crate) fn lane(&self, row: usize) -> usize {
        usize::from(self.rows[row].lane)
    }
}
