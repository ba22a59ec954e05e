//! The service as a whole, on a schema of its own.

use std::io::{Read, Write};
use std::net::TcpStream;

use sqlx::Executor;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

fn post(port: u16, body: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST /orders HTTP/1.1\r\nhost: shop\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_is_published_once() {
    let server = std::env::var("POSTHASTE_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/postgres".to_owned());
    let schema = format!("ph_example_axum_{}", std::process::id());
    let pool = sqlx::PgPool::connect(&server).await.unwrap();
    let create = format!(
        "DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema};
         CREATE TABLE {schema}.orders (id bigint PRIMARY KEY, total text NOT NULL)"
    );
    pool.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(create))).await.unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (published, mut publishes) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let service = tokio::spawn({
        let (url, schema) = (format!("{server}?options=-csearch_path%3D{schema}"), schema.clone());
        let destination = move |record: std::sync::Arc<posthaste::Record>| published.send(record).unwrap();
        async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            posthaste_example_axum_sqlx::serve(&url, &schema, listener, destination, shutdown).await.unwrap();
        }
    });

    let requests = tokio::task::spawn_blocking(move || {
        [r#"{"id": 7, "total": "12.50"}"#, r#"{"id": 7, "total": "12.50"}"#, r#"{"id": 8, "total": "1.00"}"#]
            .map(|body| post(port, body))
    });
    assert_eq!(requests.await.unwrap(), ["HTTP/1.1 201 Created", "HTTP/1.1 200 OK", "HTTP/1.1 201 Created"]);
    let mut keys =
        [publishes.recv().await.unwrap(), publishes.recv().await.unwrap()].map(|record| record.message_id());
    keys.sort_unstable();
    assert_eq!(keys, ["order 7", "order 8"]);

    stop.send(()).unwrap();
    service.await.unwrap();
    assert!(publishes.recv().await.is_none(), "nothing was published twice, and the relay has ended");
    let drop = format!("DROP SCHEMA {schema} CASCADE");
    pool.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(drop))).await.unwrap();
}
