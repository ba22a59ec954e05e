//! The protocol by which relays share a table, as a model that is checked in every state it can come into.
//!
//! Its steps are named like the code's: a relay takes lanes under a *lease*, *reads* and *takes in* pages, writes down with
//! *begin attempt* what it is careful with, *publishes*, and *settles* under the lane's token; leases are over, processes
//! die, freeze and go on, transactions commit late, destinations fail, an operator *redrives*. Each step is one that the
//! real thing makes in one transaction or one turn of its loop, so that between any two of them everything else may happen.
//!
//! A [`Scenario`] says what there is and how often things may go wrong. A [`Rule`] can be left out, to see that the checker
//! finds what it is there for: a check that finds nothing is worth as much as the faults it would have found.
//!
//! What the model leaves out: more rows than a page or a window holds (the read's bounds are those of one page), the order
//! in which keys take turns, and time itself. A deadline passes, or does not, at any moment; of the clocks it is only said
//! that a relay's own deadline is never behind the database's.

mod invariants;
mod relay;
mod rule;
mod scenario;
mod scenarios;
mod state;
mod step;

pub use rule::Rule;
pub use scenario::{Scenario, Sort, Trouble};
pub use state::{Fault, State};
pub use step::Step;
