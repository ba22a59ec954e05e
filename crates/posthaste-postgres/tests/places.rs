//! Settling by the place at which a record was read: the place is a hint, and rows move.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::time::Duration;

use posthaste::{
    Lane, LeaseRequest, Outcome, Record, RecordRef, RelayId, SettleReport, SettleRequest, Settlement, Store,
};
use support::{PostgresFixture, all_lanes};

struct Holder {
    fixture: PostgresFixture,
    relay: RelayId,
    token: i64,
}

impl Holder {
    /// All lanes, of an outbox with so many messages.
    async fn of(messages: u32) -> Option<Self> {
        let fixture = PostgresFixture::direct(|options| options).await?;
        let relay = RelayId::random();
        let duration = Duration::from_secs(600);
        let request = LeaseRequest { relay, name: String::new(), duration, give_back: Vec::new() };
        let token = fixture.store.lease(&request).await.unwrap().lanes[0].token;
        let insert = format!(
            "INSERT INTO {{}}outbox (event_type) SELECT 'e' || n FROM generate_series(1, {messages}) n"
        );
        fixture.schema.execute(&insert).await;
        Some(Self { fixture, relay, token })
    }

    async fn read(&self) -> Vec<Record> {
        self.fixture.store.read(&all_lanes()).await.unwrap().records
    }

    async fn settle(&self, records: &[Record], delete_processed: bool) -> SettleReport {
        let settlements = records.iter().map(|record| Settlement {
            record: RecordRef {
                id: record.id,
                position: record.position,
                lane: record.lane,
                token: self.token,
            },
            outcome: Outcome::Processed,
        });
        let settlements = settlements.collect();
        let request = SettleRequest { relay: self.relay, delete_processed, settlements };
        self.fixture.store.settle(&request).await.unwrap()
    }

    async fn pending(&self) -> i64 {
        self.fixture.schema.value("SELECT count(*) FROM {}outbox WHERE status = 0").await
    }

    async fn all(&self) -> i64 {
        self.fixture.schema.value("SELECT count(*) FROM {}outbox").await
    }
}

fn applied(applied: usize) -> SettleReport {
    SettleReport { applied, ..SettleReport::default() }
}

#[tokio::test]
async fn records_that_moved_are_settled_with_those_that_did_not() {
    for delete in [false, true] {
        let Some(holder) = Holder::of(40).await else { return };
        let records = holder.read().await;
        holder
            .fixture
            .schema
            .execute("UPDATE {}outbox SET headers = '{\"a\": \"b\"}' WHERE seq % 3 = 0")
            .await;
        assert_eq!(holder.settle(&records, delete).await, applied(40));
        assert_eq!((holder.pending().await, holder.all().await), (0, if delete { 0 } else { 40 }));
    }
}

#[tokio::test]
async fn a_table_that_was_written_anew_is_settled_all_the_same() {
    let Some(holder) = Holder::of(40).await else { return };
    let records = holder.read().await;
    // Every row gets the place of another one.
    let anew = "CREATE TEMP TABLE rows AS SELECT seq, id, event_type FROM {}outbox;
        TRUNCATE {}outbox;
        INSERT INTO {}outbox (seq, id, event_type) OVERRIDING SYSTEM VALUE
            SELECT * FROM rows WHERE seq % 2 = 0 ORDER BY seq DESC";
    holder.fixture.schema.execute(anew).await;
    let report = holder.settle(&records, false).await;
    assert_eq!(report, SettleReport { applied: 20, gone: 20, ..SettleReport::default() });
    assert_eq!(holder.pending().await, 0);
}

#[tokio::test]
async fn a_record_in_the_place_of_another_one_is_left_alone() {
    for delete in [false, true] {
        let Some(holder) = Holder::of(5).await else { return };
        let records = holder.read().await;
        holder.fixture.schema.execute("TRUNCATE {}outbox").await;
        holder.fixture.schema.execute("INSERT INTO {}outbox (event_type) VALUES ('other')").await;
        let place = "SELECT (SELECT ctid FROM {}outbox) = '(0,1)'::tid";
        assert!(holder.fixture.schema.value::<bool>(place).await, "a row lies where one lay");
        let report = holder.settle(&records, delete).await;
        assert_eq!(report, SettleReport { gone: 5, ..SettleReport::default() });
        assert_eq!(holder.pending().await, 1);
    }
}

#[tokio::test]
async fn a_lane_that_is_lost_holds_up_none_of_the_others() {
    for delete in [false, true] {
        let Some(holder) = Holder::of(200).await else { return };
        let records = holder.read().await;
        let Lane(lost) = records[0].lane;
        let take_away = format!("UPDATE {{}}outbox_lane SET token = token + 1 WHERE lane = {lost}");
        holder.fixture.schema.execute(&take_away).await;
        let stale = records.iter().filter(|record| record.lane == Lane(lost)).count();
        let report = holder.settle(&records, delete).await;
        let expected = SettleReport { applied: 200 - stale, stale, gone: 0, stale_lanes: vec![Lane(lost)] };
        assert_eq!(report, expected);
        assert_eq!(holder.pending().await, i64::try_from(stale).unwrap());
    }
}

#[tokio::test]
async fn what_was_settled_before_is_gone_and_the_rest_is_settled() {
    for delete in [false, true] {
        let Some(holder) = Holder::of(20).await else { return };
        let records = holder.read().await;
        holder.fixture.schema.execute("UPDATE {}outbox SET status = 1 WHERE seq <= 5").await;
        let report = holder.settle(&records, delete).await;
        assert_eq!(report, SettleReport { applied: 15, gone: 5, ..SettleReport::default() });
        assert_eq!(holder.pending().await, 0);
    }
}
