//! Plans that do not know the values (generic ones, as a server keeps them for prepared statements), and the statements
//! that are run beside the relay's own.

use std::time::Duration;

use posthaste::MessageId;
use posthaste::dialect::postgres_statements;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::{Fixture, Values, value};

/// What one row takes, with what a new session reads of the catalogue.
const FEW: u64 = 400;

/// How many processed rows the largest table has; 10 million take minutes.
pub(super) fn processed_rows() -> i64 {
    let rows = std::env::var("POSTHASTE_TEST_PROCESSED_ROWS").ok();
    rows.map_or(100_000, |rows| rows.parse().unwrap())
}

impl Fixture {
    /// Explains a statement that was planned without its values.
    pub(super) async fn explain_generic(&self, begin: &str, sql: &str, params: &Values) -> String {
        let mut literals = Vec::new();
        for (value, ty) in params {
            let quoted = "SELECT quote_nullable($1::text)";
            let row = self.client.query_typed_one(quoted, &[(value.as_ref(), ty.clone())]).await.unwrap();
            literals.push(format!("{}::{}", row.get::<_, String>(0), ty.name()));
        }
        let types: Vec<_> = params.iter().map(|(_, ty)| ty.name()).collect();
        let list = |parts: &[String]| {
            if parts.is_empty() { String::new() } else { format!("({})", parts.join(", ")) }
        };
        let types = list(&types.iter().map(ToString::to_string).collect::<Vec<_>>());
        let prepare =
            format!("{begin}; SET LOCAL plan_cache_mode = force_generic_plan; PREPARE plan {types} AS {sql}");
        self.client.batch_execute(&prepare).await.unwrap();
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS) EXECUTE plan {}", list(&literals));
        let rows = self.client.query_typed(&explain, &[]).await.unwrap();
        self.client.batch_execute("ROLLBACK; DEALLOCATE plan").await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
    }

    /// The statements that no page of records goes through: leases, mending, side tables.
    pub(super) async fn check_rest(&self, state: &str, relay: Uuid) {
        let sql = &self.store.0.sql;
        let me = || value(relay, Type::UUID);
        let lanes = || value(vec![1_i16, 2, 3], Type::INT2_ARRAY);
        let minute = || value(60_000_000_i64, Type::INT8);
        let ids = || value(vec![*MessageId::generate().as_uuid(); 3], Type::UUID_ARRAY);
        let text = |text: &str| value(text.to_owned(), Type::TEXT);
        let cases: Vec<(&str, &str, Values)> = vec![
            ("payloads", &sql.payloads, vec![ids()]),
            ("lease_renew", &sql.lease_renew, vec![me(), text("name"), minute()]),
            ("lease_held", &sql.lease_held, vec![me()]),
            ("lease_give_back", &sql.lease_give_back, vec![me(), lanes()]),
            ("lease_free", &sql.lease_free, vec![me(), value(64_i64, Type::INT8), lanes()]),
            ("lease_take", &sql.lease_take, vec![me(), lanes()]),
            ("lease_lanes", &sql.lease_lanes, vec![me()]),
            ("leave_lanes", &sql.leave_lanes, vec![me()]),
            ("leave_relay", &sql.leave_relay, vec![me()]),
            ("upkeep_lease", &sql.upkeep_lease, vec![me(), minute()]),
            ("set_idle", &sql.set_idle, vec![me(), value(true, Type::BOOL)]),
            ("set_wake", &sql.set_wake, vec![]),
            ("redrive", &sql.redrive, vec![ids(), lanes()]),
            ("discard", &sql.discard, vec![ids(), lanes(), value(None::<i64>, Type::INT8)]),
        ];
        for (name, sql, params) in cases {
            self.check(state, name, sql, &params, 2_000).await;
        }
        let page = vec![value(i64::MIN, Type::INT8), value(100_i64, Type::INT8)];
        self.check(state, "list_pending", &sql.list_pending, &page, 1_500_000).await;
    }

    /// The producer's statements, with the planner as the producer has it.
    pub(super) async fn check_enqueue(&self, state: &str) {
        let statements = postgres_statements(&format!("{}.outbox", self.schema)).unwrap();
        let [(_, enqueue), (_, enqueue_key), (_, enqueue_all), (_, forget_key), (_, first_time)] =
            &statements;
        let none_text = || value(None::<String>, Type::TEXT);
        let text = |text: &str| value(text.to_owned(), Type::TEXT);
        let no_number = || value(None::<i64>, Type::INT8);
        let one = || {
            vec![
                text(&MessageId::generate().to_string()),
                text("order.created"),
                text("order"),
                text("7"),
                value(vec![b'x'; 100], Type::BYTEA),
                none_text(),
                text("{}"),
                value(0_i64, Type::INT8),
                no_number(),
            ]
        };
        self.check_with("BEGIN", state, "enqueue", enqueue, &one(), FEW).await;
        let mut keyed = one();
        keyed.push(text("a key"));
        self.check_with("BEGIN", state, "enqueue_key", enqueue_key, &keyed, FEW).await;
        // Arrays as their text.
        let array = |of: &dyn Fn(usize) -> String| {
            text(&format!("{{{}}}", (0..100).map(of).collect::<Vec<_>>().join(",")))
        };
        let same = |word: &str| array(&|_| format!("\"{word}\""));
        let many = vec![
            array(&|_| MessageId::generate().to_string()),
            same("order.created"),
            same("order"),
            same("7"),
            value(vec![b'x'; 10_000], Type::BYTEA),
            array(&|_| "NULL".to_owned()),
            same("{}"),
            array(&|_| "0".to_owned()),
            array(&|_| "NULL".to_owned()),
            array(&|n| format!("\"key {n}\"")),
            array(&|n| (n * 100 + 1).to_string()),
            array(&|_| "100".to_owned()),
        ];
        self.check_with("BEGIN", state, "enqueue_all", enqueue_all, &many, 5_000).await;
        // Rare, and so as the store would run it: a small table may be scanned.
        self.check(state, "forget_key", forget_key, &vec![text("key")], FEW).await;
        let seen = vec![text("c"), text("77")];
        self.check_with("BEGIN", state, "first_time", first_time, &seen, FEW).await;
    }
}

/// A key with an old row, a young one, and none: whatever the side tables hold, their purges go along an index.
#[tokio::test]
async fn side_tables_of_every_size_are_read_by_index() {
    let Some(fixture) = super::fixture().await else { return };
    fixture.execute("ALTER TABLE {}outbox_key SET (autovacuum_enabled = off)").await;
    fixture.execute("ALTER TABLE {}outbox_inbox SET (autovacuum_enabled = off)").await;
    let keep = |age: Duration| {
        vec![value(i64::try_from(age.as_micros()).unwrap(), Type::INT8), value(1_000_i64, Type::INT8)]
    };
    let sql = &fixture.store.0.sql;
    for state in ["empty", "analysed while empty", "200 k young", "200 k young, analysed"] {
        match state {
            "200 k young" => {
                fixture
                    .execute(
                        "INSERT INTO {}outbox_key (key) SELECT n::text FROM generate_series(1, 200000) n",
                    )
                    .await;
                fixture
                    .execute("INSERT INTO {}outbox_inbox (consumer, message_id) SELECT 'c', n::text FROM generate_series(1, 200000) n")
                    .await;
            }
            "empty" => {}
            _ => fixture.execute("ANALYZE {}outbox_key; ANALYZE {}outbox_inbox").await,
        }
        let week = keep(Duration::from_hours(7 * 24));
        fixture.check(state, "purge_keys", &sql.purge_keys, &week, FEW).await;
        fixture.check(state, "purge_inbox", &sql.purge_inbox, &week, FEW).await;
        fixture.check_enqueue(state).await;
    }
    fixture.end().await;
}

/// The worst that statistics can say: there are pages, and no row in them. Then the planner believes that there will be
/// none, however much the table grows. That is what an analysis finds when all is published and deleted.
#[tokio::test]
async fn a_drained_table_that_was_just_analysed_is_read_by_index_also_when_it_grows() {
    let Some(fixture) = super::fixture().await else { return };
    let relay = super::lease_all(&fixture).await;
    fixture.execute(&format!("{} FROM generate_series(1, 1000) n", super::INSERT)).await;
    fixture.execute("DELETE FROM {}outbox").await;
    for table in ["outbox", "outbox_lane", "outbox_relay", "outbox_wake"] {
        fixture.execute(&format!("ANALYZE {{}}{table}")).await;
    }
    fixture.check_all("drained", relay, i64::MIN).await;
    fixture.execute(&format!("{} FROM generate_series(1, 100000) n", super::INSERT)).await;
    fixture.check_all("grown since it was analysed drained", relay, i64::MIN).await;
    fixture.end().await;
}
