//! Progress on stderr: a bar on a terminal, a plain line now and then elsewhere.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::Instant;

use crate::failure::note;

/// How far something has come.
pub(crate) struct Progress {
    total: u64,
    what: &'static str,
    display: Display,
}

enum Display {
    Bar(ProgressBar),
    Lines { last: Instant },
}

/// How often a plain line is written.
const EVERY: Duration = Duration::from_secs(1);

impl Progress {
    /// Progress towards `total`; `what` is being done, as in "redriven".
    pub(crate) fn new(total: u64, what: &'static str) -> Self {
        let display = if io::stderr().is_terminal() {
            let bar = ProgressBar::new(total).with_message(what);
            if let Ok(style) =
                ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}  {elapsed}, about {eta} left")
            {
                bar.set_style(style);
            }
            Display::Bar(bar)
        } else {
            Display::Lines { last: Instant::now() }
        };
        Self { total, what, display }
    }

    /// So many are done.
    pub(crate) fn set(&mut self, done: u64) {
        match &mut self.display {
            Display::Bar(bar) => bar.set_position(done),
            Display::Lines { last } if last.elapsed() >= EVERY => {
                *last = Instant::now();
                note(&format!("{done} of {} {}", self.total, self.what));
            }
            Display::Lines { .. } => {}
        }
    }

    /// Takes the bar away; what follows on stdout says how it ended.
    pub(crate) fn finish(self) {
        if let Display::Bar(bar) = self.display {
            bar.finish_and_clear();
        }
    }
}
