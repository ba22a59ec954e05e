//! The crash matrix: every place of the relay's code, with every blow, on every database.

use std::sync::Mutex;

use posthaste::failpoint as place;
use tokio::time::Instant;

use crate::cell::{Blow, Cell, Found};
use crate::report;
use crate::stores::Database;

/// Each place, and the second time at which it is tried beside the first: in the middle of the work.
const PLACES: [(&str, Option<u32>); 15] = [
    (place::BEFORE_BEGIN_ATTEMPT, Some(5)),
    (place::AFTER_BEGIN_ATTEMPT, Some(5)),
    (place::BEFORE_PUBLISH, Some(30)),
    (place::IN_PUBLISH, Some(30)),
    (place::AFTER_PUBLISH, Some(30)),
    (place::BEFORE_READ, Some(3)),
    (place::AFTER_READ, Some(3)),
    (place::BEFORE_SETTLE, Some(2)),
    (place::AFTER_SETTLE, Some(2)),
    (place::BEFORE_LEASE, Some(4)),
    (place::AFTER_LEASE, Some(4)),
    (place::BEFORE_UPKEEP, Some(3)),
    (place::AFTER_UPKEEP, Some(3)),
    (place::BEFORE_LEAVE, None),
    (place::AFTER_LEAVE, None),
];

/// What every run of the tests tries on every database.
const ALWAYS: [Cell; 6] = [
    Cell { place: place::BEFORE_SETTLE, nth: 1, blow: Blow::Kill },
    Cell { place: place::AFTER_LEASE, nth: 4, blow: Blow::Kill },
    Cell { place: place::AFTER_PUBLISH, nth: 30, blow: Blow::Freeze },
    Cell { place: place::BEFORE_BEGIN_ATTEMPT, nth: 5, blow: Blow::Freeze },
    Cell { place: place::BEFORE_PUBLISH, nth: 30, blow: Blow::Panic },
    Cell { place: place::IN_PUBLISH, nth: 30, blow: Blow::Abort },
];

fn cells() -> Vec<Cell> {
    if let Ok(wanted) = std::env::var("POSTHASTE_TEST_FAULTS_CELLS") {
        return all_cells().into_iter().filter(|cell| format!("{cell:?}").contains(&wanted)).collect();
    }
    if report::is_whole() { all_cells() } else { ALWAYS.to_vec() }
}

fn all_cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (place, later) in PLACES {
        let kill = if place == place::IN_PUBLISH { Blow::Abort } else { Blow::Kill };
        for nth in [Some(1), later].into_iter().flatten() {
            cells.extend([kill, Blow::Freeze, Blow::Panic].map(|blow| Cell { place, nth, blow }));
        }
    }
    cells
}

fn matrix(database: Database) {
    let cells = cells();
    // Cells spend most of their time waiting for a lease to end.
    let waiting = Mutex::new(cells.iter().copied().enumerate().collect::<Vec<_>>());
    let found = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((place, cell)) = { waiting.lock().unwrap().pop() } {
                    let began = Instant::now();
                    let came_of_it = std::panic::catch_unwind(|| cell.run(database));
                    found.lock().unwrap().push((place, cell, came_of_it.ok(), began.elapsed()));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(place, ..)| *place);
    let row = |(_, cell, found, took): &(usize, Cell, Option<Found>, std::time::Duration)| {
        let took = format!("{:.1} s", took.as_secs_f64());
        [&described(*cell)[..], &counted(found.as_ref()), &[took]].concat()
    };
    let head =
        ["place", "time", "what", "published", "repeats", "allowed", "lost", "leaked", "disorder", "took"];
    let rows: Vec<_> = found.iter().map(row).collect();
    report::table("crash", &format!("Crash matrix, {}", database.name()), &head, &rows);
    let bad = found.iter().filter(|(_, _, found, _)| found.as_ref().is_none_or(|found| !found.is_allowed()));
    for (_, cell, found, _) in bad.clone() {
        eprintln!(
            "{}: {cell:?}: {}",
            database.name(),
            found.as_ref().map_or("FAILED".to_owned(), |found| found.violations.to_string())
        );
    }
    assert_eq!(bad.count(), 0, "some cells of the crash matrix are not as promised");
}

fn described(cell: Cell) -> [String; 3] {
    let blow = format!("{:?}", cell.blow).to_lowercase();
    [cell.place.to_owned(), cell.nth.to_string(), blow]
}

fn counted(found: Option<&Found>) -> Vec<String> {
    let Some(found) = found else { return vec!["failed".to_owned(); 6] };
    let violations = &found.violations;
    let counts = [
        found.published,
        found.repeats,
        found.allowed_repeats,
        violations.lost.len(),
        violations.leaked.len() + violations.unknown.len(),
        violations.disorders.len(),
    ];
    counts.map(|count| count.to_string()).to_vec()
}

#[test]
fn crashes_on_sqlite() {
    matrix(Database::Sqlite);
}

#[test]
fn crashes_on_postgres() {
    matrix(Database::Postgres);
}

#[test]
fn crashes_on_mysql() {
    matrix(Database::MySql);
}

#[test]
fn crashes_on_mariadb() {
    matrix(Database::MariaDb);
}
