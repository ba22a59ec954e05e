//! What a read returns of a stretch, and where it stops.

use std::collections::BTreeSet;

use posthaste::{DueRecords, Keys, Lane, Message, Outcome, Page, Position, ReadRequest, Record, Scan};

use super::fixture::StoreFixture;
use super::support::{
    LONG, Relay, bytes, enqueue, enqueue_all, everything, in_lane, key, keyed, keys_in_one_lane, label_set,
    labels, labels_of, loose, read, read_all, scan,
};

/// Enqueues `count` messages of key "a", which all lie in one lane, and reads them.
async fn sequence(f: &dyn StoreFixture, count: usize) -> Vec<Record> {
    let messages: Vec<_> = (1..=count).map(|n| keyed("a", &format!("a{n}"))).collect();
    enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    assert_eq!(records.len(), count);
    records
}

fn stretch(lane: Lane, after: Option<Position>, until: Option<Position>) -> Scan {
    Scan { lane, after, until, due: DueRecords::Skip }
}

pub async fn an_empty_lane_is_read_to_its_end(f: &dyn StoreFixture) {
    let page = read(&f.store(), &everything(f)).await;
    assert!(page.records.is_empty());
    for reached in page.reached {
        assert_eq!(reached.position, None, "there is nothing to look at");
        assert!(reached.end, "there is nothing more");
    }
}

pub async fn a_read_to_the_end_says_how_far_it_came(f: &dyn StoreFixture) {
    let records = sequence(f, 3).await;
    let page = read(&f.store(), &in_lane(f, records[0].lane)).await;
    assert_eq!(page.reached[0].position, Some(records[2].position), "the last position looked at");
    assert!(page.reached[0].end);
}

pub async fn after_is_exclusive_and_until_is_inclusive(f: &dyn StoreFixture) {
    let records = sequence(f, 5).await;
    let at = |n: usize| Some(records[n - 1].position);
    let cases: [(_, _, &[&str]); 7] = [
        (at(2), at(4), &["a3", "a4"]),
        (None, at(2), &["a1", "a2"]),
        (at(4), None, &["a5"]),
        (at(5), None, &[]),
        (at(3), at(3), &[]),
        (at(4), at(2), &[]),
        (Some(Position::START), at(1), &["a1"]),
    ];
    for (after, until, expected) in cases {
        let request = ReadRequest { scans: vec![stretch(records[0].lane, after, until)], ..everything(f) };
        let page = read(&f.store(), &request).await;
        assert_eq!(labels(&page.records), expected, "after {after:?} until {until:?}");
        assert!(page.reached[0].end, "the stretch was read to its end, after {after:?} until {until:?}");
        assert_eq!(page.reached[0].position, page.records.last().map(|record| record.position));
    }
}

pub async fn a_stretch_may_begin_and_end_where_no_record_stands(f: &dyn StoreFixture) {
    let records = sequence(f, 3).await;
    let relay = Relay::join(f).await;
    relay.settle(&records[1], Outcome::Processed).await;
    let middle = Some(records[1].position);
    for (scan, expected) in
        [(stretch(records[0].lane, middle, None), ["a3"]), (stretch(records[0].lane, None, middle), ["a1"])]
    {
        let page = read(&f.store(), &ReadRequest { scans: vec![scan], ..everything(f) }).await;
        assert_eq!(labels(&page.records), expected);
        assert!(page.reached[0].end);
    }
}

pub async fn only_the_lanes_asked_for_are_read(f: &dyn StoreFixture) {
    let many = usize::from(f.lanes()) * 4;
    enqueue_all(f, &(0..many).map(|n| keyed(&format!("k{n}"), &format!("m{n}"))).collect::<Vec<_>>()).await;
    let all = read_all(f).await;
    let lanes: Vec<_> = (0..f.lanes()).filter(|lane| lane % 2 == 0).map(Lane).collect();
    let request = ReadRequest { scans: lanes.iter().map(|lane| scan(*lane)).collect(), ..everything(f) };
    let expected: BTreeSet<_> =
        all.iter().filter(|it| lanes.contains(&it.lane)).map(|it| it.event_type.as_str()).collect();
    assert_eq!(label_set(&read(&f.store(), &request).await.records), expected);
    let none = ReadRequest { scans: Vec::new(), ..everything(f) };
    assert!(read(&f.store(), &none).await.records.is_empty(), "no lanes, no records");
}

/// A relay reads behind its tail and from the lane's start in one request.
pub async fn two_stretches_of_one_lane_are_read_in_one_request(f: &dyn StoreFixture) {
    let records = sequence(f, 6).await;
    let at = |n: usize| Some(records[n - 1].position);
    let lane = records[0].lane;
    let scans = vec![stretch(lane, at(4), None), stretch(lane, None, at(2))];
    let page = read(&f.store(), &ReadRequest { scans, ..everything(f) }).await;
    assert_eq!(labels(&page.records), ["a1", "a2", "a5", "a6"]);
    assert_eq!(page.reached[0].position, at(6), "the answers stand in the order of the scans");
    assert_eq!(page.reached[1].position, at(2));
}

pub async fn what_is_in_hand_is_passed_over(f: &dyn StoreFixture) {
    let records = sequence(f, 5).await;
    let in_hand = [1, 3, 4].map(|n: usize| records[n].position).to_vec();
    let request = ReadRequest { in_hand, ..everything(f) };
    assert_eq!(labels(&read(&f.store(), &request).await.records), ["a1", "a3"]);
    let in_hand: Vec<_> = records.iter().map(|record| record.position).collect();
    let request = ReadRequest { in_hand, ..in_lane(f, records[0].lane) };
    let page = read(&f.store(), &request).await;
    assert!(page.records.is_empty(), "all of it is in hand");
    assert_eq!(page.reached[0].position, Some(records[4].position), "what was passed over was looked at");
    assert!(page.reached[0].end);
}

pub async fn keys_can_be_left_out(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("b", "b1"), loose("l"), keyed("c", "c1"), keyed("a", "a2")]).await;
    enqueue(f, &[keyed("", "type alone")]).await;
    let keys = Keys::Except(vec![key("a"), key("c"), key("unheard of"), key("")]);
    let page = read(&f.store(), &ReadRequest { keys, ..everything(f) }).await;
    assert_eq!(
        label_set(&page.records),
        ["b1", "l", "type alone"].into(),
        "what has no key is never left out"
    );
}

pub async fn keys_can_be_singled_out(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1"), keyed("b", "b1"), loose("l"), keyed("c", "c1"), keyed("a", "a2")]).await;
    enqueue(f, &[keyed("", "type alone")]).await;
    let keys = Keys::Only(vec![key("a"), key("c"), key("unheard of"), key("")]);
    let page = read(&f.store(), &ReadRequest { keys, ..everything(f) }).await;
    assert_eq!(label_set(&page.records), ["a1", "a2", "c1"].into(), "what has no key is not singled out");
    assert_eq!(labels_of(&page.records, "a"), ["a1", "a2"]);
    let none = ReadRequest { keys: Keys::Only(Vec::new()), ..everything(f) };
    assert!(read(&f.store(), &none).await.records.is_empty(), "no key singled out, nothing read");
}

pub async fn a_key_of_another_type_is_another_key(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "thing"), loose("other").aggregate("other", "a")]).await;
    let except = ReadRequest { keys: Keys::Except(vec![key("a")]), ..everything(f) };
    assert_eq!(labels(&read(&f.store(), &except).await.records), ["other"]);
    let only = ReadRequest { keys: Keys::Only(vec![key("a")]), ..everything(f) };
    assert_eq!(labels(&read(&f.store(), &only).await.records), ["thing"]);
}

pub async fn max_rows_ends_a_page(f: &dyn StoreFixture) {
    let records = sequence(f, 5).await;
    let request = ReadRequest { max_rows: 2, ..in_lane(f, records[0].lane) };
    let page = read(&f.store(), &request).await;
    assert_eq!(labels(&page.records), ["a1", "a2"]);
    assert_eq!(page.reached[0].position, Some(records[1].position));
    assert!(!page.reached[0].end, "there is more");
}

pub async fn max_rows_counts_what_is_returned_not_what_is_passed_over(f: &dyn StoreFixture) {
    let records = sequence(f, 6).await;
    let in_hand = [0, 1, 3].map(|n: usize| records[n].position).to_vec();
    let request = ReadRequest { max_rows: 2, in_hand, ..in_lane(f, records[0].lane) };
    assert_eq!(labels(&read(&f.store(), &request).await.records), ["a3", "a5"]);
}

/// A page is shared by its scans: where it is full, the others say that they have not begun.
pub async fn max_rows_holds_for_all_scans_together(f: &dyn StoreFixture) {
    enqueue_all(f, &(0..20).map(|n| keyed(&format!("k{n}"), &format!("m{n}"))).collect::<Vec<_>>()).await;
    let page = read(&f.store(), &ReadRequest { max_rows: 3, ..everything(f) }).await;
    assert_eq!(page.records.len(), 3, "there are 20");
    assert!(page.reached.iter().any(|reached| !reached.end), "there is more: {:?}", page.reached);
}

pub async fn max_bytes_ends_a_page(f: &dyn StoreFixture) {
    let messages: Vec<_> = (1..=4).map(|n| keyed("a", &format!("a{n}")).payload(bytes(100))).collect();
    enqueue_all(f, &messages).await;
    let records = read_all(f).await;
    for (max_bytes, expected) in [(100, 1), (199, 1), (200, 2), (250, 2), (300, 3), (400, 4)] {
        let page = read(&f.store(), &ReadRequest { max_bytes, ..in_lane(f, records[0].lane) }).await;
        assert_eq!(page.records.len(), expected, "records of 100 bytes in {max_bytes}");
        assert_eq!(page.reached[0].position, Some(records[expected - 1].position));
        assert_eq!(page.reached[0].end, expected == 4, "whether there is more, at {max_bytes}");
    }
}

pub async fn a_page_holds_at_least_one_record_however_large(f: &dyn StoreFixture) {
    enqueue(f, &[keyed("a", "a1").payload(bytes(5_000)), keyed("a", "a2")]).await;
    let page = read(&f.store(), &ReadRequest { max_bytes: 1, ..everything(f) }).await;
    assert_eq!(labels(&page.records), ["a1"]);
}

pub async fn a_large_record_waits_for_the_next_page(f: &dyn StoreFixture) {
    let large = || bytes(5_000);
    enqueue(f, &[keyed("a", "a1"), keyed("a", "a2").payload(large()), keyed("a", "a3")]).await;
    let request = ReadRequest { max_bytes: 1_000, ..everything(f) };
    let first = read(&f.store(), &request).await;
    assert_eq!(labels(&first.records), ["a1"], "the small one behind it must not overtake it");
    let lane = first.records[0].lane;
    let scans = vec![stretch(lane, Some(first.records[0].position), None)];
    assert_eq!(labels(&read(&f.store(), &ReadRequest { scans, ..request }).await.records), ["a2"]);
}

pub async fn records_that_are_passed_over_take_no_bytes(f: &dyn StoreFixture) {
    let messages: Vec<_> = (1..=4).map(|n| keyed("a", &format!("a{n}")).payload(bytes(100))).collect();
    enqueue_all(f, &messages).await;
    let in_hand: Vec<_> = read_all(f).await.iter().take(2).map(|record| record.position).collect();
    let page = read(&f.store(), &ReadRequest { max_bytes: 200, in_hand, ..everything(f) }).await;
    assert_eq!(labels(&page.records), ["a3", "a4"]);
}

pub async fn tombstones_take_no_bytes(f: &dyn StoreFixture) {
    let tombstone = |label: &str| Message::new(label).aggregate("thing", "a");
    enqueue(f, &[tombstone("a1"), tombstone("a2"), tombstone("a3")]).await;
    let page = read(&f.store(), &ReadRequest { max_bytes: 1, ..everything(f) }).await;
    assert_eq!(labels(&page.records), ["a1", "a2", "a3"]);
}

pub async fn max_scanned_ends_a_scan(f: &dyn StoreFixture) {
    let records = sequence(f, 6).await;
    let in_hand: Vec<_> = records[..4].iter().map(|record| record.position).collect();
    let request = ReadRequest { max_scanned: 3, in_hand, ..in_lane(f, records[0].lane) };
    let page = read(&f.store(), &request).await;
    assert!(page.records.is_empty(), "the first three are in hand");
    assert_eq!(page.reached[0].position, Some(records[2].position), "it looked at three");
    assert!(!page.reached[0].end, "there is more");
    let scans = vec![stretch(records[0].lane, page.reached[0].position, None)];
    let next = read(&f.store(), &ReadRequest { scans, ..request }).await;
    assert_eq!(labels(&next.records), ["a5", "a6"], "the scan goes on behind where it came to");
    assert_eq!(next.reached[0].position, Some(records[5].position));
}

pub async fn max_scanned_counts_for_each_scan(f: &dyn StoreFixture) {
    let records = sequence(f, 6).await;
    let lane = records[0].lane;
    let middle = Some(records[2].position);
    let scans = vec![stretch(lane, None, middle), stretch(lane, middle, None)];
    let page = read(&f.store(), &ReadRequest { max_scanned: 2, scans, ..everything(f) }).await;
    assert_eq!(labels(&page.records), ["a1", "a2", "a4", "a5"]);
}

/// Millions of delayed, processed and dead records must not stand between a relay and the work.
pub async fn records_that_are_not_ready_are_not_looked_at(f: &dyn StoreFixture) {
    let keys = keys_in_one_lane(f, 2).await;
    let many: Vec<_> = (0..30).map(|n| keyed(&keys[0], &format!("x{n}"))).collect();
    enqueue_all(f, &many).await;
    let relay = Relay::join(f).await;
    let records = read_all(f).await;
    let outcome = |n: usize| {
        if n.is_multiple_of(2) { Outcome::Processed } else { super::support::dead(false) }
    };
    let settled: Vec<_> = records.iter().enumerate().map(|(n, record)| (record, outcome(n))).collect();
    assert_eq!(relay.try_settle(&settled).await.applied, 30);
    enqueue_all(f, &[keyed(&keys[0], "delayed").delay(LONG), keyed(&keys[1], "ready")]).await;
    let request = ReadRequest { max_scanned: 1, ..in_lane(f, records[0].lane) };
    let page = read(&f.store(), &request).await;
    assert_eq!(labels(&page.records), ["ready"]);
    assert_eq!(page.reached[0].position, Some(page.records[0].position));
}

/// Walks all lanes by pages with these bounds, as a relay would, and returns what was read.
async fn walk(f: &dyn StoreFixture, bounds: &ReadRequest) -> Vec<Record> {
    let mut scans: Vec<_> = (0..f.lanes()).map(|lane| stretch(Lane(lane), None, None)).collect();
    let mut records = Vec::new();
    for _ in 0..2_000 {
        let page = read(&f.store(), &ReadRequest { scans: scans.clone(), ..bounds.clone() }).await;
        records.extend(page.records);
        for (scan, reached) in scans.iter_mut().zip(&page.reached) {
            assert!(reached.position.is_none_or(|at| Some(at) > scan.after), "a scan goes forward");
            scan.after = reached.position.or(scan.after);
        }
        let mut ends = page.reached.iter().map(|reached| reached.end);
        scans.retain(|_| !ends.next().unwrap_or(true));
        if scans.is_empty() {
            return records;
        }
        scans.rotate_left(1);
    }
    panic!("the walk did not come to its end");
}

pub async fn a_walk_by_pages_sees_each_record_once(f: &dyn StoreFixture) {
    let messages: Vec<_> = (0..120)
        .map(|n| {
            if n % 3 == 0 { loose(&format!("l{n}")) } else { keyed(&format!("k{}", n % 7), &format!("m{n}")) }
        })
        .collect();
    enqueue_all(f, &messages).await;
    let expected = labels_sorted(&read_all(f).await);
    assert_eq!(expected.len(), messages.len());
    let all = everything(f);
    for bounds in [
        ReadRequest { max_rows: 1, ..all.clone() },
        ReadRequest { max_rows: 7, ..all.clone() },
        ReadRequest { max_scanned: 1, ..all.clone() },
        ReadRequest { max_scanned: 5, max_rows: 9, ..all.clone() },
        ReadRequest { max_bytes: 1, ..all.clone() },
        ReadRequest { max_bytes: 20, max_rows: 50, ..all.clone() },
    ] {
        let read = walk(f, &bounds).await;
        assert_eq!(labels_sorted(&read), expected, "with {bounds:?}");
    }
}

fn labels_sorted(records: &[Record]) -> Vec<String> {
    let mut labels: Vec<_> = records.iter().map(|record| record.event_type.clone()).collect();
    labels.sort_unstable();
    labels
}

pub async fn a_read_changes_nothing(f: &dyn StoreFixture) {
    sequence(f, 3).await;
    enqueue(f, &[loose("l1"), keyed("b", "b1").delay(LONG)]).await;
    let first = read(&f.store(), &everything(f)).await;
    let second = read(&f.store(), &everything(f)).await;
    assert_eq!(seen(first), seen(second), "reading takes nothing away");
}

/// Another process reads the same table.
pub async fn another_store_on_the_database_reads_the_same(f: &dyn StoreFixture) {
    sequence(f, 3).await;
    enqueue(f, &[loose("l1"), keyed("b", "b1").delay(LONG), keyed("b", "b2")]).await;
    let second = f.second().await;
    let (there, here) = (read(&second, &everything(f)).await, read(&f.store(), &everything(f)).await);
    assert_eq!(seen(there), seen(here));
}

/// A page without what may be known in one read and not yet in the next: which positions are firm.
fn seen(mut page: Page) -> Page {
    page.reached.iter_mut().for_each(|reached| reached.firm = None);
    page
}

/// Databases limit how many parameters a statement may have.
pub async fn long_lists_of_positions_and_keys_are_no_trouble(f: &dyn StoreFixture) {
    let records = sequence(f, 4).await;
    enqueue(f, &[keyed("b", "b1"), loose("l1")]).await;
    let far = |n: i64| Position { major: i64::MAX - 100_000 + n, minor: 0 };
    let in_hand: Vec<_> = [records[1].position].into_iter().chain((0..70_000).map(far)).collect();
    let mut keys: Vec<_> = (0..2_000).map(|n| key(&format!("unheard of {n}"))).collect();
    keys.push(key("b"));
    let except = ReadRequest { in_hand: in_hand.clone(), keys: Keys::Except(keys.clone()), ..everything(f) };
    assert_eq!(label_set(&read(&f.store(), &except).await.records), ["a1", "a3", "a4", "l1"].into());
    let only = ReadRequest { in_hand, keys: Keys::Only(keys), ..everything(f) };
    assert_eq!(labels(&read(&f.store(), &only).await.records), ["b1"]);
}

pub async fn the_largest_bounds_are_no_trouble(f: &dyn StoreFixture) {
    sequence(f, 3).await;
    let most = usize::MAX;
    let request = ReadRequest {
        max_rows: most,
        max_per_key: most,
        max_bytes: most,
        max_scanned: most,
        ..everything(f)
    };
    assert_eq!(labels(&read(&f.store(), &request).await.records), ["a1", "a2", "a3"]);
}
