//! The service as a whole, on a schema of its own.

use posthaste_example_sea_orm::Shop;
use sea_orm::ConnectionTrait;
use tokio::sync::{mpsc, oneshot};

#[tokio::test]
async fn orders_are_published_and_what_fails_is_not() {
    let server = std::env::var("POSTHASTE_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    let schema = format!("ph_example_sea_orm_{}", std::process::id());
    let db = sea_orm::Database::connect(&server).await.unwrap();
    let create = format!(
        "DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema};
         CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, total text NOT NULL)"
    );
    db.execute_unprepared(&create).await.unwrap();

    let (published, mut publishes) = mpsc::unbounded_channel();
    let destination = move |record: std::sync::Arc<posthaste::Record>| published.send(record).unwrap();
    let (shop, relay) = Shop::open(&server, &schema, destination).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = tokio::spawn(relay.run_until(async {
        let _ = stopped.await;
    }));
    shop.place(1, "12.50").await.unwrap();
    shop.place(1, "the same number again").await.unwrap_err();
    shop.place(2, "1.00").await.unwrap();
    let mut keys = Vec::new();
    for _ in 0..2 {
        keys.push(publishes.recv().await.unwrap().aggregate.aggregate_id().to_owned());
    }
    keys.sort_unstable();
    assert_eq!(keys, ["1", "2"]);
    stop.send(()).unwrap();
    assert_eq!(relay.await.unwrap().unwrap().published, 2);
    db.execute_unprepared(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}
