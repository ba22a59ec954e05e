//! Whose turn it is.

use std::collections::VecDeque;

use super::window::Queued;
use crate::record::Key;

/// A key with a record to publish, or a record without a key.
#[derive(Debug)]
pub(super) enum Head {
    Key(Key),
    Loose(Queued),
}

/// Those that wait for one destination, in the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Line {
    normal: VecDeque<Head>,
    /// Records that need care; they go first.
    careful: VecDeque<Head>,
}

impl Line {
    pub(super) fn is_empty(&self) -> bool {
        self.normal.is_empty() && self.careful.is_empty()
    }

    pub(super) fn needs_care(&self) -> bool {
        !self.careful.is_empty()
    }

    pub(super) fn push(&mut self, head: Head, careful: bool) {
        if careful { &mut self.careful } else { &mut self.normal }.push_back(head);
    }

    pub(super) fn pop(&mut self) -> Option<Head> {
        self.careful.pop_front().or_else(|| self.normal.pop_front())
    }

    /// None needs care any more.
    pub(super) fn end_care(&mut self) {
        let mut line = std::mem::take(&mut self.careful);
        line.append(&mut self.normal);
        self.normal = line;
    }

    /// Takes out the records without a key that match.
    pub(super) fn take_loose(&mut self, matches: impl Fn(&Queued) -> bool) -> Vec<Queued> {
        let mut taken = Vec::new();
        for line in [&mut self.normal, &mut self.careful] {
            let (gone, kept) = std::mem::take(line)
                .into_iter()
                .partition::<VecDeque<_>, _>(|head| matches!(head, Head::Loose(queued) if matches(queued)));
            *line = kept;
            taken.extend(gone.into_iter().filter_map(|head| match head {
                Head::Loose(queued) => Some(queued),
                Head::Key(_) => None,
            }));
        }
        taken
    }
}
