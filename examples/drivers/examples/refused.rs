//! What must not compile: enqueueing on what is in no transaction. `ci/refused` compiles it, and looks at what the compiler
//! says of each line that ends in a comment.

use posthaste::{MemoryStore, Message, Outbox};

async fn refused(outbox: &Outbox, message: &Message) {
    let pool: &sqlx::PgPool = todo!();
    let _ = outbox.enqueue(pool, message); //~
    let connection: &mut sqlx::PgConnection = todo!();
    let _ = outbox.enqueue(connection, message); //~
    let connection: &mut sqlx::SqliteConnection = todo!();
    let _ = outbox.enqueue_all(connection, &[]); //~
    let connection: &sea_orm::DatabaseConnection = todo!();
    let _ = outbox.enqueue(connection, message); //~
    let client: &tokio_postgres::Client = todo!();
    let _ = outbox.enqueue(client, message); //~
    let client: &deadpool_postgres::Object = todo!();
    let _ = outbox.enqueue(client, message); //~
    let pool: &mysql_async::Pool = todo!();
    let _ = outbox.enqueue(pool, message); //~
    let connection: &mut mysql_async::Conn = todo!();
    let _ = outbox.enqueue(connection, message); //~
    let connection: &mut rusqlite::Connection = todo!();
    let _ = outbox.enqueue(connection, message); //~
    let connection: &mut diesel::SqliteConnection = todo!();
    let _ = outbox.enqueue(connection, message); //~
    let connection: &mut diesel_async::AsyncPgConnection = todo!();
    let _ = outbox.enqueue(connection, message); //~
    let _ = outbox.enqueue(&MemoryStore::new(1), message); //~
    let inbox = posthaste::Inbox::new("outbox").unwrap();
    let _ = inbox.first_time(pool, "consumer", 1); //~
}

fn main() {}
