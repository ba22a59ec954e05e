//! A web service: `POST /orders` writes an order and enqueues its event in one transaction of sqlx on PostgreSQL; a relay
//! in the same process publishes it.

use std::future::Future;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use posthaste::{Admin, BoxError, ErrorKind, Message, Outbox, Record, Relay, publish_fn};
use posthaste_postgres::{PostgresOptions, PostgresStore};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What is posted, and what the event says.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub id: i64,
    pub total: String,
}

#[derive(Clone)]
struct Shop {
    pool: PgPool,
    outbox: Outbox,
}

/// Serves until `shutdown` is ready; then finishes what is under way, requests first.
///
/// # Errors
/// What the database or the network reports.
pub async fn serve(
    url: &str,
    schema: &str,
    listener: TcpListener,
    destination: impl Fn(Arc<Record>) + Send + Sync + 'static,
    shutdown: impl Future<Output = ()>,
) -> Result<(), BoxError> {
    let pool = PgPool::connect(url).await?;
    let store = PostgresStore::new(PostgresOptions::new(url).table(format!("{schema}.outbox")))?;
    store.migrate().await?; // or `posthaste migrate`, before the service is deployed

    let shop = Shop { pool, outbox: store.outbox() };
    let app = Router::new().route("/orders", post(place_order)).with_state(shop);
    let relay = Relay::builder(Arc::new(store))
        .publisher(publish_fn(move |record| {
            destination(record); // here the message would go to a broker; `Ok` says that it is there
            async { Ok::<_, BoxError>(()) }
        }))
        .build()?;

    let (stop, stopped) = watch::channel(false);
    let until_stopped = |mut stopped: watch::Receiver<bool>| async move {
        // An error says that the other side is gone, which is as good.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let relay = tokio::spawn(relay.run_until(until_stopped(stopped.clone())));
    let server = axum::serve(listener, app).with_graceful_shutdown(until_stopped(stopped));
    let server = tokio::spawn(async move { server.await });
    shutdown.await;
    let _ = stop.send(true);
    server.await??;
    relay.await??;
    Ok(())
}

async fn place_order(State(shop): State<Shop>, Json(order): Json<Order>) -> Result<StatusCode, StatusCode> {
    // A client that goes away drops the handler's future; on a task of its own the transaction comes to its end.
    let placed = tokio::spawn(async move { place(&shop, &order).await });
    match placed.await {
        Ok(Ok(())) => Ok(StatusCode::CREATED),
        Ok(Err(error)) if is_repeated(&error) => Ok(StatusCode::OK),
        Ok(Err(_)) | Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
    }
}

async fn place(shop: &Shop, order: &Order) -> Result<(), BoxError> {
    let message = Message::new("order.created")
        .aggregate("order", order.id)
        .json(order)?
        .idempotency_key(format!("order {}", order.id));

    let mut tx = shop.pool.begin().await?;
    // First the event, whose key says whether this is a repetition.
    let receipt = shop.outbox.enqueue(&mut tx, &message).await?;
    sqlx::query("INSERT INTO orders (id, total) VALUES ($1, $2)")
        .bind(order.id)
        .bind(&order.total)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    receipt.wake(); // the relay need not wait for its next poll
    Ok(())
}

fn is_repeated(error: &BoxError) -> bool {
    error.downcast_ref::<posthaste::Error>().is_some_and(|error| error.kind() == ErrorKind::DuplicateKey)
}
