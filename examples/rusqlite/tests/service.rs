//! The program as a whole, on a file of its own.

use std::sync::mpsc;

use posthaste_example_rusqlite::Shop;

#[test]
fn orders_are_published() {
    let folder = tempfile::tempdir().unwrap();
    let (published, publishes) = mpsc::channel();
    let destination = move |record: std::sync::Arc<posthaste::Record>| published.send(record).unwrap();
    let mut shop = Shop::open(&folder.path().join("shop.db"), destination).unwrap();
    let mut placed = [shop.place("12.50").unwrap().to_string(), shop.place("1.00").unwrap().to_string()];
    let mut keys = [(); 2].map(|()| publishes.recv().unwrap().aggregate.aggregate_id().to_owned());
    placed.sort_unstable();
    keys.sort_unstable();
    assert_eq!(keys, placed);
    assert_eq!(shop.close().unwrap().published, 2);
}
