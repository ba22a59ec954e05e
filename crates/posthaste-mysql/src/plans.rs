//! Every hot statement takes its index, whatever the table holds and whatever the statistics say of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts, OptsBuilder, Row};
use uuid::Uuid;

use crate::layout;
use crate::options::MySqlOptions;
use crate::settle::row;
use crate::sql::Sql;
use crate::value::{Literal, created_ts, int, limit, list, uuid};
use posthaste::dialect::MySqlTable;

const URLS: [(&str, &str); 2] = [
    ("POSTHASTE_TEST_MYSQL", "mysql://root@127.0.0.1:33069/mysql"),
    ("POSTHASTE_TEST_MARIADB", "mysql://root@127.0.0.1:3306/mysql"),
];

fn ids() -> Vec<Uuid> {
    (0..300_u128).map(|n| Uuid::from_u128(0x018C_C251_F400_7000_8000_0000_0000_0000 + n * 7)).collect()
}

/// The hot statements with values, and the indexes that each may use on the outbox.
fn statements(sql: &Sql) -> Vec<(&'static str, String, &'static [&'static str])> {
    let made = |sql: &str| Literal::made(sql.to_owned());
    let lanes = ("lanes", list((0..64).map(int)));
    let named = [("ids", list(ids().into_iter().map(uuid))), ("from", int(0)), ("until", int(i64::MAX / 2))];
    let rows = ("rows", list(ids().into_iter().map(row)));
    let arms = |arm: &crate::sql::Statement| {
        let arm = |lane| {
            arm.bind(&[
                ("scan", int(0)),
                ("lane", int(lane)),
                ("most", limit(100)),
                ("stretch", made("TRUE")),
            ])
        };
        made(&(0..64).map(arm).collect::<Vec<_>>().join(" UNION ALL "))
    };
    let page = |arm| {
        let in_hand = ("in_hand", list(ids().into_iter().map(uuid)));
        [("arms", arms(arm)), in_hand, ("largest", limit(16_384)), ("wanted", made("TRUE"))]
    };
    let outcomes = ids().into_iter().map(|id| {
        format!(
            "SELECT {} AS id, {} AS created_ts, 2 AS kind, 1 AS attempts, 5 AS wait, 'x' AS error",
            uuid(id).as_sql(),
            created_ts(id)
        )
    });
    let outcomes = made(&outcomes.collect::<Vec<_>>().join(" UNION ALL "));
    let look = [("status", int(1)), ("after", uuid(Uuid::nil())), ("age", int(1)), ("most", limit(1_000))];
    let list_of = |index: &str, condition: &str| {
        sql.list.bind(&[
            ("index", made(index)),
            ("condition", made(condition)),
            ("after", uuid(Uuid::nil())),
            ("most", limit(1_000)),
        ])
    };
    let one = ids()[0];
    vec![
        ("probe", sql.probe.bind(std::slice::from_ref(&lanes)), &["posthaste_ready"]),
        ("probe_due", sql.probe_due.bind(&[("lane", int(7))]), &["posthaste_ready"]),
        ("read_lanes", sql.read_lanes.bind(&[lanes]), &["posthaste_ready"]),
        ("page", sql.page.bind(&page(&sql.page_arm)), &["posthaste_ready", "PRIMARY", "posthaste_held"]),
        ("due", sql.due.bind(&page(&sql.due_arm)), &["posthaste_ready", "PRIMARY", "posthaste_held"]),
        ("payloads", sql.payloads.bind(&named), &["PRIMARY"]),
        ("settle_processed", sql.settle_processed.bind(std::slice::from_ref(&rows)), &["PRIMARY"]),
        ("settle_delete", sql.settle_delete.bind(std::slice::from_ref(&rows)), &["PRIMARY"]),
        ("settle", sql.settle.bind(&[("outcomes", outcomes)]), &["PRIMARY"]),
        (
            "begin_attempt",
            sql.begin_attempt.bind(&[
                ("attempts", int(1)),
                ("id", uuid(one)),
                ("created_ts", int(created_ts(one))),
            ]),
            &["PRIMARY"],
        ),
        ("purge_look", sql.purge_look.bind(&look), &["idx_status_id"]),
        (
            "purge_delete",
            sql.purge_delete.bind(&[rows.clone(), look[0].clone(), look[2].clone()]),
            &["PRIMARY"],
        ),
        ("redrive", sql.redrive.bind(std::slice::from_ref(&rows)), &["PRIMARY"]),
        ("discard", sql.discard.bind(&[rows]), &["PRIMARY"]),
        ("list", list_of("PRIMARY", "TRUE"), &["PRIMARY", "posthaste_held"]),
        ("list dead", list_of("idx_status_id", "t.status = -1"), &["idx_status_id", "posthaste_held"]),
    ]
}

/// Whether a statement locks what it looks at.
fn locks(name: &str) -> bool {
    ["settle", "begin_attempt", "purge_delete", "redrive", "discard"].iter().any(|it| name.starts_with(it))
}

async fn check(conn: &mut Conn, sql: &Sql, what: &str) {
    let version: String = conn.query_first("SELECT VERSION()").await.unwrap().unwrap();
    let explain = if version.contains("MariaDB") { "EXPLAIN" } else { "EXPLAIN FORMAT=TRADITIONAL" };
    for (name, statement, indexes) in statements(sql) {
        let plan: Vec<Row> = conn.query(format!("{explain} {statement}")).await.unwrap();
        let text = |row: &Row, column: &str| row.get::<Option<String>, _>(column).flatten();
        let mut seen = 0;
        for row in &plan {
            let Some(table) =
                text(row, "table").filter(|it| ["t", "o", "b", "w", "outbox"].contains(&it.as_str()))
            else {
                continue;
            };
            seen += 1;
            let (access, key) = (text(row, "type").unwrap_or_default(), text(row, "key").unwrap_or_default());
            // A walk along the primary key is what a list of everything is. And where a table is empty this very moment (the
            // server counts rows as they come), a read may as well walk the index that it is told to take.
            let is_walk = name == "list" || (what == "an empty" && !locks(name));
            let is_sound = ["range", "ref", "eq_ref", "const"].contains(&access.as_str())
                || (is_walk && access == "index");
            assert!(
                indexes.contains(&key.as_str()) && is_sound,
                "{version}, {what} table: {name} reads {table} by {access} of {key:?}"
            );
            let extra = text(row, "Extra").unwrap_or_default();
            assert!(
                !extra.contains("filesort") && !extra.contains("temporary"),
                "{version}, {what}: {name} {extra}"
            );
        }
        // Where the optimizer sees at once that there is nothing, it has no plan.
        assert!(seen > 0 || what == "an empty", "{version}, {what} table: {name} has no plan: {plan:?}");
    }
}

#[tokio::test]
async fn every_hot_statement_takes_its_index_on_empty_and_on_full_tables() {
    for (variable, otherwise) in URLS {
        let url = std::env::var(variable).unwrap_or_else(|_| otherwise.to_owned());
        let opts = OptsBuilder::from_opts(Opts::from_url(&url).unwrap()).prefer_socket(false);
        let mut conn = Conn::new(opts).await.unwrap();
        let database = format!("posthaste_test_{}", Uuid::new_v4().simple());
        conn.query_drop(format!("CREATE DATABASE {database}; USE {database}")).await.unwrap();
        let table = MySqlTable::parse("outbox").unwrap();
        for statement in layout::statements(&layout::outbox(&table, &MySqlOptions::new("mysql://h/d"))) {
            conn.query_drop(statement).await.unwrap();
        }
        let sql = Sql::new(&table);
        conn.query_drop("ANALYZE TABLE outbox").await.unwrap();
        check(&mut conn, &sql, "an empty").await;
        let values = ids().into_iter().enumerate().map(|(n, id)| {
            format!("({}, 'a', '{}', 'e', '1', {})", uuid(id).as_sql(), n % 9, [0, 1, -1][n % 3])
        });
        let values = values.collect::<Vec<_>>().join(", ");
        let insert =
            "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, status) VALUES";
        conn.query_drop(format!("{insert} {values}")).await.unwrap();
        check(&mut conn, &sql, "a filled, as if it were an empty").await;
        conn.query_drop("ANALYZE TABLE outbox").await.unwrap();
        check(&mut conn, &sql, "a small").await;
        // Each server has a name of its own for it.
        conn.query_drop("SET SESSION cte_max_recursion_depth = 1000000").await.ok();
        conn.query_drop("SET SESSION max_recursive_iterations = 1000000").await.ok();
        conn.query_drop(
            "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, status) \
             WITH RECURSIVE n AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM n WHERE n < 20000) \
             SELECT UNHEX(CONCAT('018CC252', LPAD(HEX(n), 24, '0'))), 'a', n MOD 50, 'e', '1', IF(n MOD 10 = 0, 0, 1) FROM n",
        )
        .await
        .unwrap();
        conn.query_drop("ANALYZE TABLE outbox").await.unwrap();
        check(&mut conn, &sql, "a large").await;
        conn.query_drop(format!("DROP DATABASE {database}")).await.unwrap();
    }
}
