//! Every hot statement uses the index it was written for, whatever SQLite believes about the table.

use rusqlite::Connection;

use crate::schema;
use crate::sql::Sql;
use posthaste::dialect::SqliteTable as TableName;

/// Statements, and how SQLite has to look for their rows.
fn expected(sql: &Sql) -> Vec<(&str, &[&str])> {
    const BY_SEQ: &[&str] = &["SEARCH outbox USING INTEGER PRIMARY KEY (rowid=?)"];
    vec![
        (&sql.version, &["SEARCH outbox_migrations"]),
        (&sql.fetch, &["SEARCH outbox USING INDEX outbox_ready (status=? AND rowid>? AND rowid<?)"]),
        (
            &sql.fetch_due,
            &["SEARCH outbox USING INDEX outbox_waiting (next_attempt_at>? AND next_attempt_at<?)"],
        ),
        (&sql.fetch_row, BY_SEQ),
        (&sql.held_any, &["SCAN CONSTANT ROW", "SCALAR SUBQUERY 1", "SCAN outbox USING INDEX outbox_held"]),
        (
            &sql.held_before,
            &["SEARCH outbox USING INDEX outbox_held (aggregate_type=? AND aggregate_id=? AND rowid<?)"],
        ),
        (&sql.settle_processed, BY_SEQ),
        (&sql.settle_processed_held, BY_SEQ),
        (&sql.settle_delete, BY_SEQ),
        (&sql.settle_retry, BY_SEQ),
        (&sql.settle_dead, BY_SEQ),
        (&sql.settle_attempts, BY_SEQ),
        (&sql.purge_scan, &["SEARCH outbox USING INTEGER PRIMARY KEY (rowid>?)"]),
        (&sql.purge_processed, BY_SEQ),
        (&sql.purge_dead, BY_SEQ),
        (&sql.redrive, BY_SEQ),
        (&sql.discard, BY_SEQ),
        (&sql.first_ready, &["SEARCH outbox USING INDEX outbox_ready (status=?)"]),
        (&sql.walk_ready, &["SEARCH outbox USING INDEX outbox_ready (status=?)"]),
        (&sql.walk_waiting, &["SEARCH outbox USING INDEX outbox_waiting (next_attempt_at>?)"]),
        (&sql.list_all, &["SEARCH outbox USING INTEGER PRIMARY KEY (rowid>?)"]),
        (&sql.list_processed, &["SEARCH outbox USING INTEGER PRIMARY KEY (rowid>?)"]),
        (&sql.list_dead, &["SEARCH outbox USING INDEX outbox_dead (status=? AND rowid>?)"]),
        (&sql.by_id, &["SEARCH outbox USING INDEX outbox_id (id=?)"]),
    ]
}

fn assert_plans(connection: &Connection, sql: &Sql, state: &str) {
    for (statement, expected) in expected(sql) {
        let mut explained = connection.prepare(&format!("EXPLAIN QUERY PLAN {statement}")).unwrap();
        let plan: Vec<String> = explained
            .raw_query()
            .mapped(|row| row.get::<_, String>(3))
            .map(|line| line.unwrap().replace("main.", "").replace("COVERING ", ""))
            .collect();
        assert_eq!(plan, expected, "{state}: {statement}");
    }
}

fn migrated() -> (Connection, Sql) {
    let sql = Sql::new(TableName::new("outbox").unwrap());
    let connection = Connection::open_in_memory().unwrap();
    for migration in schema::migrations(&sql.table) {
        connection.execute_batch(&migration.sql).unwrap();
    }
    (connection, sql)
}

/// 20,000 rows: mostly processed, then ready, some waiting, some dead.
const FILL: &str = "
    WITH RECURSIVE counter (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counter WHERE n < 20000)
    INSERT INTO outbox (event_type, aggregate_type, aggregate_id, status, next_attempt_at)
    SELECT 'e', 'order', n % 100,
        CASE WHEN n % 100 = 1 THEN -1 WHEN n < 18000 THEN 1 ELSE 0 END,
        CASE WHEN n % 100 = 1 OR n > 19900 THEN n END
    FROM counter";

#[test]
fn an_empty_table_is_searched_by_index() {
    let (connection, sql) = migrated();
    assert_plans(&connection, &sql, "empty");
}

#[test]
fn a_table_that_was_analysed_while_it_was_empty_is_searched_by_index() {
    let (connection, sql) = migrated();
    connection
        .execute_batch("INSERT INTO outbox (event_type) VALUES ('e'); DELETE FROM outbox; ANALYZE")
        .unwrap();
    assert_plans(&connection, &sql, "analysed while empty");
    connection.execute_batch(FILL).unwrap();
    assert_plans(&connection, &sql, "filled behind the statistics' back");
}

#[test]
fn a_full_table_is_searched_by_index() {
    let (connection, sql) = migrated();
    connection.execute_batch(FILL).unwrap();
    assert_plans(&connection, &sql, "filled");
    connection.execute_batch("ANALYZE").unwrap();
    assert_plans(&connection, &sql, "filled and analysed");
}

#[test]
fn statistics_that_lie_change_nothing() {
    let (connection, sql) = migrated();
    connection.execute_batch(FILL).unwrap();
    connection.execute_batch("ANALYZE").unwrap();
    connection
        .execute_batch(
            "DELETE FROM sqlite_stat4;
             UPDATE sqlite_stat1 SET stat = '1 1 1 1' WHERE idx IS NULL;
             UPDATE sqlite_stat1 SET stat = '1000000 1000000 1000000 1000000' WHERE idx IS NOT NULL;
             ANALYZE sqlite_schema",
        )
        .unwrap();
    assert_plans(&connection, &sql, "statistics that lie");
}

#[test]
fn pending_rows_are_listed_from_both_their_indexes() {
    let (connection, sql) = migrated();
    connection.execute_batch(FILL).unwrap();
    let explained = format!("EXPLAIN QUERY PLAN {}", sql.list_pending);
    let mut explained = connection.prepare(&explained).unwrap();
    let plan: Vec<String> = explained.raw_query().mapped(|row| row.get(3)).map(Result::unwrap).collect();
    let plan = plan.join("\n");
    assert!(plan.contains("outbox_ready (status=? AND rowid>?)"), "{plan}");
    assert!(plan.contains("outbox_waiting"), "{plan}");
    assert_eq!(plan.matches("USE TEMP B-TREE").count(), 1, "only the waiting rows are sorted: {plan}");
}
