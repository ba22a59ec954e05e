//! How many records of one key a page may hold.

use posthaste::{DueRecords, ReadRequest, Scan};

use super::fixture::StoreFixture;
use super::support::{
    LONG, enqueue, enqueue_all, everything, in_lane, keyed, keys_in_one_lane, label_set, labels, labels_of,
    loose, read, read_all,
};

pub async fn max_per_key_keeps_a_key_from_filling_the_page(f: &dyn StoreFixture) {
    let keys = keys_in_one_lane(f, 2).await;
    enqueue_all(f, &(0..50).map(|n| keyed(&keys[0], &format!("hot{n}"))).collect::<Vec<_>>()).await;
    enqueue_all(f, &[keyed(&keys[1], "b1"), keyed(&keys[1], "b2"), keyed(&keys[1], "b3")]).await;
    let request = ReadRequest { max_per_key: 2, max_rows: 4, ..everything(f) };
    let page = read(&f.store(), &request).await;
    assert_eq!(labels_of(&page.records, &keys[0]), ["hot0", "hot1"]);
    assert_eq!(labels_of(&page.records, &keys[1]), ["b1", "b2"]);
}

pub async fn records_beyond_max_per_key_were_looked_at(f: &dyn StoreFixture) {
    enqueue_all(f, &(1..=5).map(|n| keyed("a", &format!("a{n}"))).collect::<Vec<_>>()).await;
    let all = read_all(f).await;
    let request = ReadRequest { max_per_key: 2, ..in_lane(f, all[0].lane) };
    let page = read(&f.store(), &request).await;
    assert_eq!(labels(&page.records), ["a1", "a2"]);
    assert_eq!(page.reached[0].position, Some(all[4].position), "the rest was passed over");
    assert!(page.reached[0].end);
    let page = read(&f.store(), &ReadRequest { max_scanned: 3, ..request }).await;
    assert_eq!(page.reached[0].position, Some(all[2].position), "what is passed over counts as looked at");
    assert!(!page.reached[0].end);
}

pub async fn max_per_key_holds_for_all_scans_together(f: &dyn StoreFixture) {
    enqueue_all(f, &(1..=6).map(|n| keyed("a", &format!("a{n}"))).collect::<Vec<_>>()).await;
    let all = read_all(f).await;
    let (lane, middle) = (all[0].lane, Some(all[2].position));
    let scan = |after, until| Scan { lane, after, until, due: DueRecords::All };
    let scans = vec![scan(None, middle), scan(middle, None)];
    for (max_per_key, expected) in [(2, 2), (4, 4), (5, 5)] {
        let page =
            read(&f.store(), &ReadRequest { scans: scans.clone(), max_per_key, ..everything(f) }).await;
        assert_eq!(page.records, all[..expected], "no more than {max_per_key}, and the earliest of them");
    }
}

pub async fn records_without_a_key_are_not_limited_by_max_per_key(f: &dyn StoreFixture) {
    let type_alone = (0..5).map(|n| loose(&format!("t{n}")).aggregate("thing", ""));
    let messages: Vec<_> = (0..5).map(|n| loose(&format!("l{n}"))).chain(type_alone).collect();
    enqueue_all(f, &messages).await;
    let page = read(&f.store(), &ReadRequest { max_per_key: 1, ..everything(f) }).await;
    assert_eq!(page.records.len(), 10);
}

/// The due record is the last that can be read of its key: those before it must not be left out in its favour.
pub async fn a_due_record_counts_towards_its_keys_limit(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2"), keyed("a", "a3").delay(LONG), keyed("a", "a4")]).await;
    f.advance(LONG).await;
    for (max_per_key, expected) in [(1, &["a1"][..]), (2, &["a1", "a2"]), (3, &["a1", "a2", "a3"])] {
        let page = read(&f.store(), &ReadRequest { max_per_key, ..everything(f) }).await;
        assert_eq!(labels(&page.records), expected, "of {max_per_key} records a key");
    }
}

pub async fn a_record_in_hand_does_not_count_towards_its_keys_limit(f: &dyn StoreFixture) {
    enqueue_all(f, &(1..=4).map(|n| keyed("a", &format!("a{n}"))).collect::<Vec<_>>()).await;
    let in_hand: Vec<_> = read_all(f).await.iter().take(2).map(|record| record.position).collect();
    let page = read(&f.store(), &ReadRequest { max_per_key: 1, in_hand, ..everything(f) }).await;
    assert_eq!(labels(&page.records), ["a3"]);
}

pub async fn each_key_has_its_own_limit(f: &dyn StoreFixture) {
    let keys: Vec<_> = (0..10).map(|n| format!("k{n}")).collect();
    let messages: Vec<_> =
        keys.iter().flat_map(|key| (1..=3).map(move |n| keyed(key, &format!("{key}-{n}")))).collect();
    enqueue_all(f, &messages).await;
    let page = read(&f.store(), &ReadRequest { max_per_key: 1, ..everything(f) }).await;
    assert_eq!(
        label_set(&page.records),
        keys.iter().map(|key| format!("{key}-1")).collect::<Vec<_>>().iter().map(String::as_str).collect()
    );
}
