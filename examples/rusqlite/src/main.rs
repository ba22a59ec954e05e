//! ```sh
//! cargo run -- shop.db
//! ```

use std::path::PathBuf;

use posthaste::BoxError;
use posthaste_example_rusqlite::Shop;

fn main() -> Result<(), BoxError> {
    let path = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| "shop.db".to_owned()));
    let mut shop = Shop::open(&path, |record| println!("{}", record.event_type))?;
    println!("Type totals, one a line.");
    for line in std::io::stdin().lines() {
        println!("placed order {}", shop.place(&line?)?);
    }
    shop.close()?;
    Ok(())
}
