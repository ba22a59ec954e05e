//! The settings that are checked. Together they show every rule at work; each is small enough to be gone through whole.

use crate::scenario::{Scenario, Sort, Trouble};

const THERE: u8 = Sort::THERE;

impl Scenario {
    /// All of them.
    pub fn all() -> Vec<Self> {
        vec![
            Self::takeover(),
            Self::crash(),
            Self::sharing(),
            Self::late_commits(),
            Self::hot_key(),
            Self::failures(),
            Self::late_failures(),
            Self::delays(),
            Self::dead(),
            Self::skipped(),
            Self::killer(),
            Self::frozen_care(),
        ]
    }

    /// Two relays and one key; leases run out, processes stand still, answers get lost.
    pub fn takeover() -> Self {
        let trouble = Trouble { freezes: 1, lapses: 1, lost_answers: 1, stops: 1, ..Trouble::default() };
        let rows = [Sort::of(0, THERE), Sort::of(0, THERE)];
        Self { relays: 2, trouble, ..Self::new("takeover", &rows) }
    }

    /// Two relays and one key; one is killed, and started again.
    pub fn crash() -> Self {
        let trouble = Trouble { crashes: 2, failures: 1, purges: 1, ..Trouble::default() };
        let rows = [Sort::of(0, THERE), Sort::of(0, THERE)];
        Self { relays: 2, trouble, ..Self::new("crash", &rows) }
    }

    /// Two relays share two lanes; one leaves.
    pub fn sharing() -> Self {
        let trouble = Trouble { stops: 1, outages: 1, ..Trouble::default() };
        let rows = [Sort { key: 0, lane: 0, marks: THERE }, Sort { key: 1, lane: 1, marks: THERE }];
        Self { relays: 2, lanes: 2, trouble, ..Self::new("sharing", &rows) }
    }

    /// Transactions that commit late, or never, with positions before those that were read.
    pub fn late_commits() -> Self {
        let rows = [Sort::of(0, Sort::SLOW), Sort::of(1, 0), Sort::of(0, Sort::SLOW)];
        let trouble = Trouble { lapses: 1, ..Trouble::default() };
        Self { trouble, ..Self::new("late commits", &rows) }
    }

    /// The same, of a key of which only one record is in hand at a time.
    pub fn hot_key() -> Self {
        let rows = [Sort::of(0, Sort::SLOW), Sort::of(0, 0), Sort::of(0, Sort::SLOW)];
        let trouble = Trouble { failures: 1, ..Trouble::default() };
        Self { per_key: 1, trouble, ..Self::new("hot key", &rows) }
    }

    /// Messages that fail, outages, and confirmations that get lost.
    pub fn failures() -> Self {
        let rows = [Sort::of(0, THERE), Sort::of(0, THERE), Sort::of(1, THERE)];
        let trouble = Trouble { failures: 3, outages: 2, lost_confirms: 1, ..Trouble::default() };
        Self { trouble, ..Self::new("failures", &rows) }
    }

    /// A page looks at one record at a time, and a delayed message is due behind what was not looked at.
    pub fn delays() -> Self {
        let rows =
            [Sort::of(1, THERE), Sort::of(0, THERE), Sort::of(0, THERE | Sort::DELAYED), Sort::of(0, 0)];
        let trouble = Trouble { failures: 1, lapses: 1, ..Trouble::default() };
        Self { page: 1, trouble, ..Self::new("delays", &rows) }
    }

    /// Transactions that commit late while another message of their key fails.
    pub fn late_failures() -> Self {
        let rows = [Sort::of(0, Sort::SLOW), Sort::of(0, Sort::SLOW), Sort::of(1, THERE)];
        let trouble = Trouble { failures: 2, ..Trouble::default() };
        Self { page: 1, trouble, ..Self::new("late failures", &rows) }
    }

    /// A dead message parks its key, and is redriven.
    pub fn dead() -> Self {
        let rows = [Sort::of(0, THERE), Sort::of(0, THERE), Sort::of(1, Sort::SLOW)];
        let trouble = Trouble { failures: 2, redrives: 1, lapses: 1, ..Trouble::default() };
        Self { max_attempts: 1, park: true, trouble, ..Self::new("dead", &rows) }
    }

    /// A dead message lets its key go on, once it is written down that it is dead.
    pub fn skipped() -> Self {
        let rows = [Sort::of(0, THERE), Sort::of(0, THERE)];
        let trouble = Trouble { failures: 1, redrives: 1, crashes: 1, ..Trouble::default() };
        Self { relays: 2, max_attempts: 1, trouble, ..Self::new("skipped", &rows) }
    }

    /// A message that kills the process that publishes it, and others beside it.
    pub fn killer() -> Self {
        let rows = [Sort::of(0, THERE), Sort::of(1, THERE | Sort::KILLS)];
        let trouble = Trouble { outages: 1, ..Trouble::default() };
        Self { relays: 2, trouble, ..Self::new("killer", &rows) }
    }

    /// A relay that is careful with what a dead one left, and stands still over it.
    pub fn frozen_care() -> Self {
        let trouble = Trouble { crashes: 1, freezes: 1, lapses: 1, ..Trouble::default() };
        Self { relays: 2, trouble, ..Self::new("frozen care", &[Sort::of(0, THERE)]) }
    }
}
