//! Which publish a returned message belongs to, and from when on that is certain.
//!
//! The broker returns messages in the order in which they were published, each before its own confirmation. lapin keeps
//! them in a queue, and hands the first one to whichever confirmation it completes next. So the returns seen so far are
//! always the first ones in the order of publishing: of a publish before the latest of them it is certain whether it was
//! returned. One after it, whose confirmation came with another's message, may have its own still in lapin's queue. If
//! it has, more returned messages are without a confirmation than are in the queue, so one of them has been seen
//! already. As long as there is one of those, such a publish waits for the next confirmation.

/// What is known of one publish.
#[derive(Debug)]
pub(crate) struct Mark {
    number: u64,
    /// Its confirmation came with a returned message, its own or another's.
    pub(crate) carried: bool,
    /// It was returned.
    pub(crate) returned: bool,
}

/// The returns of one channel.
#[derive(Debug, Default)]
pub(crate) struct Returns {
    next: u64,
    /// The latest publish that is known to be returned.
    latest: Option<u64>,
}

impl Returns {
    /// A publish begins, after all others.
    pub(crate) fn publish(&mut self) -> Mark {
        self.next += 1;
        Mark { number: self.next, carried: false, returned: false }
    }

    /// A publish was returned.
    pub(crate) fn returned(&mut self, mark: &mut Mark) {
        mark.returned = true;
        self.latest = self.latest.max(Some(mark.number));
    }

    /// Whether it is certain that a confirmed publish was returned, or not. `owed`: some publish that was returned is
    /// not confirmed yet.
    pub(crate) fn certain(&self, mark: &Mark, owed: bool) -> bool {
        !owed || mark.returned || !mark.carried || Some(mark.number) < self.latest
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    struct Publish {
        mark: Mark,
        unroutable: bool,
        confirmed: bool,
        told: Option<bool>,
    }

    /// lapin's part: messages are queued as they are returned, and a confirmation takes the first one along.
    fn confirm(publishes: &[Publish], queue: &mut VecDeque<usize>, at: usize) -> (usize, Option<usize>) {
        assert!(!publishes[at].confirmed);
        (at, queue.pop_front())
    }

    /// Our part, after a look that has brought these confirmations.
    fn look(publishes: &mut [Publish], returns: &mut Returns, news: &mut Vec<(usize, Option<usize>)>) {
        for (at, message) in news.drain(..) {
            publishes[at].confirmed = true;
            publishes[at].mark.carried = message.is_some();
            if let Some(message) = message {
                returns.returned(&mut publishes[message].mark);
            }
        }
        let owed = publishes.iter().any(|publish| publish.mark.returned && !publish.confirmed);
        for publish in publishes.iter_mut().filter(|publish| publish.confirmed && publish.told.is_none()) {
            if returns.certain(&publish.mark, owed) {
                publish.told = Some(publish.mark.returned);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Confirmations in any order, looks at any time: everybody is told the truth, and nobody is left waiting.
        #[test]
        fn everybody_is_told_the_truth(
            unroutable in prop::collection::vec(any::<bool>(), 1..12),
            choices in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 0..4_usize), 60),
        ) {
            let (mut returns, mut queue, mut news) = (Returns::default(), VecDeque::new(), Vec::new());
            let mut publishes: Vec<Publish> = Vec::new();
            let (mut left, mut open) = (unroutable.into_iter(), Vec::new());
            for (pick, looks, more) in choices {
                for unroutable in left.by_ref().take(more) {
                    if unroutable {
                        queue.push_back(publishes.len());
                    }
                    open.push(publishes.len());
                    publishes.push(Publish { mark: returns.publish(), unroutable, confirmed: false, told: None });
                }
                if !open.is_empty() {
                    let at = open.remove(pick.index(open.len()));
                    news.push(confirm(&publishes, &mut queue, at));
                }
                if looks {
                    look(&mut publishes, &mut returns, &mut news);
                }
            }
            for at in open {
                news.push(confirm(&publishes, &mut queue, at));
            }
            look(&mut publishes, &mut returns, &mut news);
            for publish in &publishes {
                prop_assert_eq!(publish.told, Some(publish.unroutable));
            }
        }
    }
}
