//! ```sh
//! createdb shop && psql shop -c 'CREATE TABLE orders (id bigint PRIMARY KEY, total text NOT NULL)'
//! DATABASE_URL=postgres://localhost/shop cargo run
//! curl -i localhost:8080/orders --json '{"id": 7, "total": "12.50"}'
//! ```

use posthaste::BoxError;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::var("DATABASE_URL")?;
    let listener = TcpListener::bind("127.0.0.1:8080").await?;
    let print =
        |record: std::sync::Arc<posthaste::Record>| println!("{} {}", record.event_type, record.message_id());
    let shutdown = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    posthaste_example_axum_sqlx::serve(&url, "public", listener, print, shutdown).await
}
