//! ```sh
//! createdb shop && psql shop -c 'CREATE TABLE orders (id bigint PRIMARY KEY, total text NOT NULL)'
//! DATABASE_URL=postgres://localhost/shop cargo run
//! ```

use posthaste::BoxError;
use posthaste_example_sea_orm::Shop;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::var("DATABASE_URL")?;
    let (shop, relay) = Shop::open(&url, "public", |record| println!("{}", record.event_type)).await?;
    let relay = tokio::spawn(relay.run_until(async {
        let _ = tokio::signal::ctrl_c().await;
    }));
    let id = i64::from(std::process::id());
    shop.place(id, "12.50").await?;
    println!("placed order {id}; Ctrl-C ends the relay");
    relay.await??;
    Ok(())
}
