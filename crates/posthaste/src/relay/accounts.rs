//! How much of the window each destination has.
//!
//! Every destination has an equal share of the window, so that one that is away or slow cannot fill it. A record is on
//! the account of the destination that it waits for: its own, or that of the first record of its key.

/// The shares of the destinations.
#[derive(Debug)]
pub(super) struct Accounts {
    shares: Vec<Account>,
    rows_each: usize,
    bytes_each: usize,
}

#[derive(Debug)]
struct Account {
    rows: usize,
    bytes: usize,
    in_flight: usize,
    most_in_flight: usize,
    /// The size of the last record for which there was no room.
    wanted: usize,
}

impl Accounts {
    /// One account for each destination, by how many records of it may be in flight.
    pub(super) fn new(rows: usize, bytes: usize, in_flight: &[usize]) -> Self {
        let open = |most_in_flight: &usize| Account {
            rows: 0,
            bytes: 0,
            in_flight: 0,
            most_in_flight: *most_in_flight,
            wanted: 0,
        };
        let shares: Vec<_> = in_flight.iter().map(open).collect();
        let count = shares.len().max(1);
        Self { shares, rows_each: (rows / count).max(1), bytes_each: (bytes / count).max(1) }
    }

    pub(super) fn len(&self) -> usize {
        self.shares.len()
    }

    /// How many records each destination may have in hand.
    pub(super) fn rows_each(&self) -> usize {
        self.rows_each
    }

    /// The most records that may be in flight to any one of the destinations.
    pub(super) fn most_in_flight(&self) -> usize {
        self.shares.iter().map(|account| account.most_in_flight).max().unwrap_or(1)
    }

    pub(super) fn in_flight(&self, to: usize) -> usize {
        self.shares[to].in_flight
    }

    pub(super) fn rows(&self, to: usize) -> usize {
        self.shares[to].rows
    }

    /// Whether one more record may be in flight to a destination.
    pub(super) fn has_free_place(&self, to: usize) -> bool {
        self.shares[to].in_flight < self.shares[to].most_in_flight
    }

    /// Whether a record fits. Where there is only one destination, what was read fits always: reads see to that.
    pub(super) fn fits(&mut self, to: usize, bytes: usize) -> bool {
        let (only, account) = (self.shares.len() == 1, &mut self.shares[to]);
        let fits = account.rows < self.rows_each
            && (account.rows == 0 || account.bytes.saturating_add(bytes) <= self.bytes_each);
        account.wanted = if fits { 0 } else { bytes };
        only || fits
    }

    /// Whether there is so much room that reading for this destination is worth it.
    pub(super) fn has_room(&self, to: usize) -> bool {
        let account = &self.shares[to];
        let rows = self.rows_each.saturating_sub(account.rows);
        account.rows == 0
            || rows >= self.rows_each.div_ceil(4)
                && account.bytes.saturating_add(account.wanted.max(1)) <= self.bytes_each
    }

    pub(super) fn take(&mut self, to: usize, bytes: usize) {
        self.shares[to].rows += 1;
        self.shares[to].bytes += bytes;
    }

    pub(super) fn release(&mut self, to: usize, bytes: usize) {
        self.shares[to].rows -= 1;
        self.shares[to].bytes -= bytes;
    }

    pub(super) fn begin(&mut self, to: usize) {
        self.shares[to].in_flight += 1;
    }

    pub(super) fn end(&mut self, to: usize) {
        self.shares[to].in_flight -= 1;
    }
}
