//! Up to which position nothing new can appear.
//!
//! A relay reads on from such a position, so one that is said to be firm too early loses messages, or lets later
//! ones of their key overtake them.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::{Lane, MessageId, Page, Position, ReadRequest, Record};

use super::fixture::{FixtureTransaction, StoreFixture};
use super::support::{enqueue, everything, find, find_now, keyed, loose, ok, read, read_all};

/// What was said to be firm, and what was seen until then.
#[derive(Default)]
struct Firm {
    positions: BTreeMap<Lane, Position>,
    seen: BTreeSet<MessageId>,
}

impl Firm {
    /// Reads everything, and checks that what is new stands behind all that was firm.
    async fn check(&mut self, f: &dyn StoreFixture) {
        let page = read(&f.store(), &everything(f)).await;
        for record in &page.records {
            if self.seen.insert(record.id) {
                assert_behind(record, self.positions.get(&record.lane).copied());
            }
        }
        self.note(&everything(f), &page);
        // A read that stops early looks at the same lanes.
        let bounded = ReadRequest { max_rows: 1, max_scanned: 1, ..everything(f) };
        let page = read(&f.store(), &bounded).await;
        self.note(&bounded, &page);
    }

    fn note(&mut self, request: &ReadRequest, page: &Page) {
        for (scan, reached) in request.scans.iter().zip(&page.reached) {
            if let Some(firm) = reached.firm {
                let most = self.positions.entry(scan.lane).or_insert(firm);
                *most = firm.max(*most);
            }
        }
    }
}

#[track_caller]
fn assert_behind(record: &Record, firm: Option<Position>) {
    assert!(
        firm < Some(record.position),
        "{} has appeared at {:?}, although an earlier read said that nothing new can appear up to {firm:?}",
        record.event_type,
        record.position
    );
}

pub async fn what_an_open_transaction_enqueued_is_not_firm(f: &dyn StoreFixture) {
    if !f.concurrent_transactions() {
        return;
    }
    let mut firm = Firm::default();
    enqueue(f, &[keyed("a", "before")]).await;
    firm.check(f).await;
    let mut slow = f.begin().await;
    ok(slow.enqueue(&keyed("a", "slow")).await, "enqueue");
    firm.check(f).await;
    for n in 0..3 {
        enqueue(f, &[keyed("a", &format!("fast{n}")), loose("fast")]).await;
        firm.check(f).await;
    }
    slow.commit().await;
    firm.check(f).await;
    enqueue(f, &[keyed("a", "after")]).await;
    firm.check(f).await;
    let records = read_all(f).await;
    assert!(find(&records, "after").position > find(&records, "slow").position);
}

pub async fn a_transaction_that_goes_on_enqueueing_is_not_firm(f: &dyn StoreFixture) {
    let mut firm = Firm::default();
    let mut slow = f.begin().await;
    for n in 0..4 {
        ok(slow.enqueue(&keyed("a", &format!("slow{n}"))).await, "enqueue");
        firm.check(f).await;
        if f.concurrent_transactions() {
            enqueue(f, &[keyed("a", &format!("fast{n}"))]).await;
            firm.check(f).await;
        }
    }
    slow.commit().await;
    firm.check(f).await;
}

pub async fn nothing_new_appears_up_to_a_firm_position(f: &dyn StoreFixture) {
    let most_open = if f.concurrent_transactions() { 6 } else { 1 };
    let mut firm = Firm::default();
    let mut open: Vec<Box<dyn FixtureTransaction>> = Vec::new();
    let mut random = fastrand::Rng::with_seed(42);
    for n in 0..200 {
        match random.u32(0..10) {
            0..3 if open.len() < most_open => open.push(f.begin().await),
            0..7 if !open.is_empty() => {
                let key = format!("k{}", random.u32(0..5));
                let message = if random.u32(0..7) == 0 { loose("l") } else { keyed(&key, &format!("m{n}")) };
                let transaction = random.usize(0..open.len());
                ok(open[transaction].enqueue(&message).await, "enqueue");
            }
            7..9 if !open.is_empty() => open.swap_remove(random.usize(0..open.len())).commit().await,
            9 if !open.is_empty() => open.swap_remove(random.usize(0..open.len())).rollback().await,
            _ => {}
        }
        firm.check(f).await;
    }
    for transaction in open {
        transaction.commit().await;
        firm.check(f).await;
    }
    assert!(firm.seen.len() > 20, "the test enqueues something");
}

/// It says something about the lane, not about the records that were passed over in it.
pub async fn what_is_in_hand_does_not_change_what_is_firm(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2")]).await;
    let (a1, a2) = (find_now(f, "a1").await, find_now(f, "a2").await);
    let mut firm = Firm::default();
    let in_hand = ReadRequest { in_hand: vec![a1.position, a2.position], ..everything(f) };
    firm.note(&in_hand, &read(&f.store(), &in_hand).await);
    firm.seen.extend([a1.id, a2.id]);
    enqueue(f, &[keyed("a", "a3")]).await;
    firm.check(f).await;
}
