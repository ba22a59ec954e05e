//! A gate that holds publishes up until a test opens it.

use std::sync::Arc;

use tokio::sync::watch;

/// Holds up whoever passes until it is opened. Clones are the same gate.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// use posthaste_testkit::Gate;
///
/// let gate = Gate::closed();
/// let waiting = tokio::spawn({
///     let gate = gate.clone();
///     async move { gate.pass().await }
/// });
/// gate.until_waiting(1).await;
/// gate.open();
/// waiting.await.expect("it passed");
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<State>>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    open: bool,
    /// How many may still pass a closed gate.
    tickets: usize,
    waiting: usize,
}

impl Gate {
    /// A gate that lets nobody pass.
    pub fn closed() -> Self {
        Self(Arc::new(watch::Sender::new(State::default())))
    }

    /// Lets everybody pass, now and later.
    pub fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    /// Lets nobody pass any more.
    pub fn close(&self) {
        self.0.send_modify(|state| (state.open, state.tickets) = (false, 0));
    }

    /// Lets so many pass, now or later.
    pub fn let_through(&self, count: usize) {
        self.0.send_modify(|state| state.tickets += count);
    }

    /// How many are waiting at the gate now.
    pub fn waiting(&self) -> usize {
        self.0.borrow().waiting
    }

    /// Waits until at least so many are waiting at the gate.
    pub async fn until_waiting(&self, count: usize) {
        // The gate holds the sender, so the channel does not close.
        let _ = self.0.subscribe().wait_for(|state| state.waiting >= count).await;
    }

    /// Waits until it may pass.
    pub async fn pass(&self) {
        let mut changes = self.0.subscribe();
        let _waiting = Waiting::new(self);
        loop {
            let _ = changes.wait_for(|state| state.open || state.tickets > 0).await;
            if self.take_ticket() {
                return;
            }
        }
    }

    fn take_ticket(&self) -> bool {
        let mut may_pass = false;
        self.0.send_if_modified(|state| {
            may_pass = state.open || state.tickets > 0;
            let takes_ticket = !state.open && state.tickets > 0;
            state.tickets -= usize::from(takes_ticket);
            takes_ticket
        });
        may_pass
    }
}

/// Counts who waits, also when it is dropped while it does.
struct Waiting<'a>(&'a Gate);

impl<'a> Waiting<'a> {
    fn new(gate: &'a Gate) -> Self {
        gate.0.send_modify(|state| state.waiting += 1);
        Self(gate)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.0.send_modify(|state| state.waiting -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_closed_gate_lets_through_as_many_as_it_is_told() {
        let gate = Gate::closed();
        let tasks: Vec<_> = (0..5)
            .map(|_| {
                let gate = gate.clone();
                tokio::spawn(async move { gate.pass().await })
            })
            .collect();
        gate.until_waiting(5).await;
        gate.let_through(2);
        while gate.waiting() > 3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(tasks.iter().filter(|task| task.is_finished()).count(), 2);
        gate.open();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(gate.waiting(), 0);
    }

    #[tokio::test]
    async fn who_is_dropped_waits_no_longer() {
        let gate = Gate::closed();
        let task = tokio::spawn({
            let gate = gate.clone();
            async move { gate.pass().await }
        });
        gate.until_waiting(1).await;
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(gate.waiting(), 0);
    }

    #[tokio::test]
    async fn a_gate_can_be_closed_again() {
        let gate = Gate::closed();
        gate.open();
        gate.pass().await;
        gate.close();
        let passing = gate.pass();
        tokio::select! {
            biased;
            () = passing => panic!("the gate is closed"),
            () = tokio::task::yield_now() => {}
        }
    }
}
