//! Whether every hot statement takes its index, whatever the table holds and whatever the statistics say.

mod more;

use std::time::Duration;

use posthaste::{Admin, DueRecords, Keys, Lane, LeaseRequest, ReadRequest, RelayId, Scan, Store};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls};
use uuid::Uuid;

use crate::options::PostgresOptions;
use crate::places::Place;
use crate::store::PostgresStore;

type Values = Vec<(Box<dyn ToSql + Sync + Send>, Type)>;

struct Fixture {
    store: PostgresStore,
    client: Client,
    schema: String,
}

async fn fixture() -> Option<Fixture> {
    let url = std::env::var("POSTHASTE_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".to_owned());
    let (client, connection) = match tokio_postgres::connect(&url, NoTls).await {
        Ok(connected) => connected,
        Err(error) => {
            assert!(std::env::var_os("CI").is_none(), "no PostgreSQL at {url}: {error}");
            eprintln!("SKIPPED: no PostgreSQL at {url}: {error}");
            return None;
        }
    };
    tokio::spawn(connection);
    let schema = format!("posthaste_test_{}", Uuid::new_v4().simple());
    let options = PostgresOptions::new(url).table(format!("{schema}.outbox"));
    // What is looked at is plans, not how soon a busy machine carries them out.
    let store = PostgresStore::new(options.statement_timeout(Duration::from_secs(300))).unwrap();
    store.migrate().await.unwrap();
    // What the statistics say is up to the test.
    let quiet = format!("ALTER TABLE {schema}.outbox SET (autovacuum_enabled = off)");
    client.batch_execute(&quiet).await.unwrap();
    Some(Fixture { store, client, schema })
}

impl Fixture {
    async fn execute(&self, sql: &str) {
        self.client.batch_execute(&sql.replace("{}", &format!("{}.", self.schema))).await.unwrap();
    }

    async fn explain(&self, begin: &str, sql: &str, params: &Values) -> String {
        self.client.batch_execute(begin).await.unwrap();
        let params: Vec<_> =
            params.iter().map(|(value, ty)| (value.as_ref() as &(dyn ToSql + Sync), ty.clone())).collect();
        let explain = format!("EXPLAIN (ANALYZE, BUFFERS) {sql}");
        let rows = self.client.query_typed(&explain, &params).await.unwrap();
        self.client.batch_execute("ROLLBACK").await.unwrap();
        rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>().join("\n")
    }

    /// Explains a statement and checks that it scans no table but the small ones, and reads few pages.
    async fn check(&self, state: &str, name: &str, sql: &str, params: &Values, most_buffers: u64) {
        self.check_with(&self.store.0.begin_write.anywhere, state, name, sql, params, most_buffers).await;
    }

    /// As `check`, in a transaction that begins so; with the plan for these values, and with the one for any.
    async fn check_with(
        &self,
        begin: &str,
        state: &str,
        name: &str,
        sql: &str,
        params: &Values,
        most_buffers: u64,
    ) {
        let custom = self.explain(begin, sql, params).await;
        check_plan(state, name, &custom, most_buffers);
        let generic = self.explain_generic(begin, sql, params).await;
        check_plan(state, &format!("{name} (generic)"), &generic, most_buffers);
    }

    async fn end(self) {
        self.execute(&format!("DROP SCHEMA {} CASCADE", self.schema)).await;
    }
}

fn check_plan(state: &str, name: &str, plan: &str, most_buffers: u64) {
    if std::env::var_os("SHOW_PLANS").is_some() {
        println!("== {state}: {name}\n{plan}");
    }
    for large in [
        "Seq Scan on outbox ",
        "Seq Scan on outbox_key",
        "Seq Scan on outbox_inbox",
        "Bitmap Heap Scan on outbox ",
    ] {
        assert!(!plan.contains(large), "{state}: {name} must not do a {large}:\n{plan}");
    }
    let buffers = buffers(plan);
    assert!(buffers <= most_buffers, "{state}: {name} touched {buffers} pages:\n{plan}");
}

/// The pages that the whole statement touched.
fn buffers(plan: &str) -> u64 {
    let line = plan.lines().find(|line| line.trim_start().starts_with("Buffers: shared")).unwrap_or_default();
    let number = |word: &str| -> u64 {
        line.split(word)
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .and_then(|it| it.parse().ok())
            .unwrap_or(0)
    };
    number("hit=") + number("read=")
}

fn value<T: ToSql + Sync + Send + 'static>(value: T, ty: Type) -> (Box<dyn ToSql + Sync + Send>, Type) {
    (Box::new(value), ty)
}

fn fetch_params(rows: i64, scanned: i64, after: i64) -> Values {
    let lanes: Vec<i16> = (0..64).collect();
    vec![
        value(lanes, Type::INT2_ARRAY),
        value(vec![after; 64], Type::INT8_ARRAY),
        value(vec![i64::MAX; 64], Type::INT8_ARRAY),
        value(vec![2_i16; 64], Type::INT2_ARRAY),
        value(vec![i64::MAX; 64], Type::INT8_ARRAY),
        value((1..=1_000).collect::<Vec<i64>>(), Type::INT8_ARRAY),
        value(false, Type::BOOL),
        value(vec!["order".to_owned(); 50], Type::TEXT_ARRAY),
        value((0..50).map(|n| format!("none {n}")).collect::<Vec<_>>(), Type::TEXT_ARRAY),
        value(rows / 2, Type::INT8),
        value(65_536_i32, Type::INT4),
        value(scanned + 1, Type::INT8),
        value(rows + rows / 8 + 64, Type::INT8),
    ]
}

impl Fixture {
    async fn settle_params(&self, relay: Uuid, outcomes: bool) -> Values {
        let sql = format!(
            "SELECT id, seq, lane FROM {0}.outbox WHERE status = 0 ORDER BY id LIMIT 1000",
            self.schema
        );
        let rows = self.client.query(&sql, &[]).await.unwrap();
        let lanes: Vec<i16> = rows.iter().map(|row| row.get(2)).collect();
        let mut fence = lanes.clone();
        fence.sort_unstable();
        fence.dedup();
        let count = rows.len();
        let mut params = vec![
            value(relay, Type::UUID),
            value(fence.clone(), Type::INT2_ARRAY),
            value(vec![1_i64; fence.len()], Type::INT8_ARRAY),
            value(rows.iter().map(|row| row.get(0)).collect::<Vec<Uuid>>(), Type::UUID_ARRAY),
            value(rows.iter().map(|row| row.get(1)).collect::<Vec<i64>>(), Type::INT8_ARRAY),
            value(lanes, Type::INT2_ARRAY),
            value(vec![1_i64; count], Type::INT8_ARRAY),
        ];
        if outcomes {
            params.push(value(
                (0..count).map(|n| i16::try_from(n % 5).unwrap() + 1).collect::<Vec<_>>(),
                Type::INT2_ARRAY,
            ));
            params.push(value(vec![1_000_000_i64; count], Type::INT8_ARRAY));
            params.push(value(vec![1_i32; count], Type::INT4_ARRAY));
            params.push(value(vec![Some("failed".to_owned()); count], Type::TEXT_ARRAY));
        }
        params
    }

    async fn settle_place_params(&self, relay: Uuid) -> Values {
        let sql =
            format!("SELECT id, ctid FROM {0}.outbox WHERE status = 0 ORDER BY id LIMIT 1000", self.schema);
        let rows = self.client.query(&sql, &[]).await.unwrap();
        vec![
            value(relay, Type::UUID),
            value((0..64).collect::<Vec<i16>>(), Type::INT2_ARRAY),
            value(vec![1_i64; 64], Type::INT8_ARRAY),
            value(rows.iter().map(|row| row.get(0)).collect::<Vec<Uuid>>(), Type::UUID_ARRAY),
            value(rows.iter().map(|row| row.get(1)).collect::<Vec<Place>>(), Type::TID_ARRAY),
        ]
    }

    async fn check_all(&self, state: &str, relay: Uuid, after: i64) {
        let sql = &self.store.0.sql;
        self.check(state, "fetch", &sql.fetch, &fetch_params(1_024, 256, after), 12_000).await;
        let (lean, full) = (self.settle_params(relay, false).await, self.settle_params(relay, true).await);
        self.check(state, "settle_processed", &sql.settle_processed, &lean, 60_000).await;
        self.check(state, "settle", &sql.settle, &full, 60_000).await;
        self.check(state, "settle_delete", &sql.settle_delete, &full, 60_000).await;
        let places = self.settle_place_params(relay).await;
        self.check(state, "mark_places", &sql.mark_places, &places, 60_000).await;
        self.check(state, "delete_places", &sql.delete_places, &places, 60_000).await;
        let one = vec![
            value(relay, Type::UUID),
            value(1_i16, Type::INT2),
            value(1_i64, Type::INT8),
            value(Uuid::now_v7_for_tests(), Type::UUID),
            value(1_i64, Type::INT8),
            value(1_i32, Type::INT4),
        ];
        self.check(state, "begin_attempt", &sql.begin_attempt, &one, 100).await;
        let week = value(604_800_000_000_i64, Type::INT8);
        let purge = vec![
            value(Uuid::nil(), Type::UUID),
            week,
            value(10_000_i64, Type::INT8),
            value(1_000_i64, Type::INT8),
        ];
        self.check(state, "purge_processed", &sql.purge_processed, &purge, 30_000).await;
        let keys = || vec![value(604_800_000_000_i64, Type::INT8), value(1_000_i64, Type::INT8)];
        self.check(state, "purge_keys", &sql.purge_keys, &keys(), 400).await;
        self.check(state, "purge_inbox", &sql.purge_inbox, &keys(), 400).await;
        self.check(state, "stats", &sql.stats, &vec![value(Some(10_001_i64), Type::INT8)], 500_000).await;
        let page = || vec![value(i64::MIN, Type::INT8), value(100_i64, Type::INT8)];
        self.check(state, "list_dead", &sql.list_dead, &page(), 500).await;
        let dead = vec![
            value(i64::MIN, Type::INT8),
            value(100_i64, Type::INT8),
            value(None::<Vec<Uuid>>, Type::UUID_ARRAY),
            value(None::<i64>, Type::INT8),
        ];
        self.check(state, "dead", &sql.dead, &dead, 500).await;
        let by_id =
            vec![value(Uuid::nil(), Type::UUID), value(100_i64, Type::INT8), value(None::<i16>, Type::INT2)];
        self.check(state, "list_by_id", &sql.list_by_id, &by_id, 1_500).await;
        self.check(state, "show", &sql.show, &vec![value(Uuid::nil(), Type::UUID)], 10).await;
        self.check_rest(state, relay).await;
        self.check_enqueue(state).await;
    }
}

trait TestUuid {
    fn now_v7_for_tests() -> Uuid;
}

impl TestUuid for Uuid {
    fn now_v7_for_tests() -> Uuid {
        *posthaste::MessageId::generate().as_uuid()
    }
}

const INSERT: &str = "INSERT INTO {}outbox (event_type, aggregate_type, aggregate_id, payload)
    SELECT 'order.created', 'order', (n % 20000)::text, convert_to(repeat('x', 100), 'UTF8')";

async fn lease_all(fixture: &Fixture) -> Uuid {
    let relay = RelayId::random();
    let request =
        LeaseRequest { relay, name: String::new(), duration: Duration::from_hours(1), give_back: Vec::new() };
    assert_eq!(fixture.store.lease(&request).await.unwrap().lanes.len(), 64);
    relay.0
}

#[tokio::test]
async fn an_empty_table_that_was_just_analysed_is_read_by_index_also_when_it_grows() {
    let Some(fixture) = fixture().await else { return };
    let relay = lease_all(&fixture).await;
    fixture.execute("VACUUM ANALYZE {}outbox").await;
    fixture.check_all("empty", relay, i64::MIN).await;
    fixture.execute(&format!("{INSERT} FROM generate_series(1, 50000) n")).await;
    fixture.check_all("grown since it was analysed", relay, i64::MIN).await;
    fixture.end().await;
}

#[tokio::test]
async fn a_million_pending_rows_are_read_by_index() {
    let Some(fixture) = fixture().await else { return };
    let relay = lease_all(&fixture).await;
    fixture.execute(&format!("{INSERT} FROM generate_series(1, 1000000) n")).await;
    fixture.check_all("1 M pending, never analysed", relay, i64::MIN).await;
    fixture.execute("ANALYZE {}outbox").await;
    fixture.check_all("1 M pending", relay, i64::MIN).await;
    let held = "UPDATE {}outbox SET next_attempt_at = now() + interval '1 week' WHERE seq % 2 = 0";
    fixture.execute(held).await;
    fixture.check_all("500 k delayed since it was analysed", relay, 1_000).await;
    fixture.execute("ANALYZE {}outbox").await;
    fixture.check_all("500 k ready behind 500 k delayed", relay, i64::MIN).await;
    fixture.end().await;
}

#[tokio::test]
async fn ten_pending_rows_behind_many_processed_ones_are_read_by_index() {
    let Some(fixture) = fixture().await else { return };
    let relay = lease_all(&fixture).await;
    let rows = more::processed_rows();
    fixture.execute(&format!("{INSERT} FROM generate_series(1, {rows}) n")).await;
    fixture.execute("UPDATE {}outbox SET status = 1, processed_at = now()").await;
    fixture.execute(&format!("{INSERT} FROM generate_series(1, 10) n")).await;
    // Entries of settled rows stay in the index until nobody may see them any more: a relay reads on from where it was.
    fixture.check_all("10 pending, never analysed", relay, rows).await;
    fixture.execute("VACUUM ANALYZE {}outbox").await;
    fixture.check_all("10 pending", relay, rows).await;
    let request = ReadRequest {
        scans: (0..64)
            .map(|lane| Scan { lane: Lane(lane), after: None, until: None, due: DueRecords::All })
            .collect(),
        keys: Keys::Except(Vec::new()),
        in_hand: Vec::new(),
        max_rows: 1_024,
        max_per_key: 64,
        max_bytes: 1 << 26,
        max_scanned: 256,
    };
    assert_eq!(fixture.store.read(&request).await.unwrap().records.len(), 10);
    fixture.end().await;
}
