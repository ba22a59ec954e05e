//! The service as a whole, on a file of its own.

use posthaste_example_diesel::{Order, Shop};
use tokio::sync::{mpsc, oneshot};

#[tokio::test]
async fn orders_are_published_and_what_fails_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (published, mut publishes) = mpsc::unbounded_channel();
    let destination = move |record: std::sync::Arc<posthaste::Record>| published.send(record).unwrap();
    let (mut shop, relay) = Shop::open(&folder.path().join("shop.db"), destination).await.unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let relay = tokio::spawn(relay.run_until(async {
        let _ = stopped.await;
    }));
    let place = tokio::task::spawn_blocking(move || {
        shop.place(&Order { id: 1, total: "12.50" }).unwrap();
        shop.place(&Order { id: 1, total: "the same number again" }).unwrap_err();
        shop.place(&Order { id: 2, total: "1.00" }).unwrap();
    });
    place.await.unwrap();
    let mut keys = Vec::new();
    for _ in 0..2 {
        keys.push(publishes.recv().await.unwrap().aggregate.aggregate_id().to_owned());
    }
    keys.sort_unstable();
    assert_eq!(keys, ["1", "2"]);
    stop.send(()).unwrap();
    assert_eq!(relay.await.unwrap().unwrap().published, 2);
}
