//! ```sh
//! cargo run -- shop.db
//! ```

use std::path::PathBuf;

use posthaste::BoxError;
use posthaste_example_diesel::{Order, Shop};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let path = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "shop.db".to_owned()));
    let (mut shop, relay) = Shop::open(&path, |record| println!("{}", record.event_type)).await?;
    let relay = tokio::spawn(relay.run_until(async {
        let _ = tokio::signal::ctrl_c().await;
    }));
    let id = i64::from(std::process::id());
    tokio::task::spawn_blocking(move || shop.place(&Order { id, total: "12.50" })).await??;
    println!("placed order {id}; Ctrl-C ends the relay");
    relay.await??;
    Ok(())
}
