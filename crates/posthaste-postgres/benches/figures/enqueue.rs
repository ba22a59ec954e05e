//! Enqueueing against a bare INSERT.

use std::time::Duration;

use posthaste::tokio_postgres_0_7::Prepared;
use posthaste::{Message, Outbox};
use tokio::time::Instant;
use tokio_postgres::Client;

use crate::measure::{Bench, median, rate, rounds};
use crate::support;

const PRODUCERS: usize = 32;
const TIME: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Bare,
    Outbox,
    Prepared,
}

/// Producers with one message a transaction, against a bare prepared INSERT of the same row.
pub(crate) async fn against_a_bare_insert() {
    let Some(bench) = Bench::new().await else { return };
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds() {
        for (way, rates) in [Way::Bare, Way::Outbox, Way::Prepared].into_iter().zip(&mut rates) {
            bench.fixture.schema.execute("TRUNCATE {}outbox").await;
            rates.push(produce(&bench, way).await);
        }
    }
    let [bare, enqueue, prepared] = rates.map(median);
    println!("enqueue, {PRODUCERS} producers: bare INSERT {bare:.0}/s");
    println!("  by tokio-postgres {enqueue:.0}/s  ratio {:.2}", enqueue / bare);
    println!("  prepared {prepared:.0}/s  ratio {:.2}", prepared / bare);
}

async fn produce(bench: &Bench, way: Way) -> f64 {
    let sql = bench.fixture.schema.named(
        "INSERT INTO {}outbox (id, event_type, aggregate_type, aggregate_id, payload, content_type)
         VALUES ($1, $2, $3, $4, $5, $6)",
    );
    let until = Instant::now() + TIME;
    let producers: Vec<_> = (0..PRODUCERS)
        .map(|producer| {
            let (outbox, sql) = (bench.fixture.store.outbox(), sql.clone());
            tokio::spawn(async move {
                let client = support::client().await.unwrap();
                one_producer(client, outbox, &sql, producer, way, until).await
            })
        })
        .collect();
    let mut sum = 0;
    for producer in producers {
        sum += producer.await.unwrap();
    }
    rate(sum, TIME)
}

async fn one_producer(
    mut client: Client,
    outbox: Outbox,
    sql: &str,
    producer: usize,
    way: Way,
    until: Instant,
) -> u32 {
    let statement = client.prepare(sql).await.unwrap();
    let prepared = Prepared::new(&client, &outbox).await.unwrap();
    let mut count = 0_u32;
    while Instant::now() < until {
        let message = Message::new("order.created").aggregate("order", producer).payload(vec![b'x'; 512]);
        let tx = client.transaction().await.unwrap();
        match way {
            Way::Bare => {
                let payload = message.payload_bytes().map(AsRef::<[u8]>::as_ref);
                let (kind, id) = (message.aggregate_type(), message.aggregate_id());
                let own = *message.id().as_uuid();
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                    [&own, &"order.created", &kind, &id, &payload, &None::<&str>];
                tx.execute(&statement, &values).await.unwrap();
            }
            Way::Outbox => drop(outbox.enqueue(&tx, &message).await.unwrap()),
            Way::Prepared => drop(outbox.enqueue(prepared.on(&tx), &message).await.unwrap()),
        }
        tx.commit().await.unwrap();
        count += 1;
    }
    count
}

/// Many messages in one call, in one transaction.
pub(crate) async fn many_at_once() {
    const MESSAGES: u32 = 100_000;
    let Some(bench) = Bench::new().await else { return };
    let outbox = bench.fixture.store.outbox();
    let messages: Vec<_> = (0..MESSAGES)
        .map(|n| Message::new("order.created").aggregate("order", n % 1_000).payload(vec![b'x'; 512]))
        .collect();
    let mut client = support::client().await.unwrap();
    let began = Instant::now();
    let tx = client.transaction().await.unwrap();
    outbox.enqueue_all(&tx, &messages).await.unwrap();
    tx.commit().await.unwrap();
    println!("enqueue_all of {MESSAGES}: {:.1?}", began.elapsed());
}
