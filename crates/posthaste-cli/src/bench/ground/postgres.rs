//! A schema of its own on PostgreSQL.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::tokio_postgres_0_7::Prepared;
use posthaste::{Admin, Message, Outbox, Store};
use posthaste_postgres::{Partition, PostgresOptions, PostgresStore};
use tokio::time::{Instant, interval};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement, Transaction};

use super::super::gauge::{cpu_of_family, parent_of};
use super::super::load::Load;
use super::{Count, Counters, Ground, Hand, Way, failed};
use crate::database::Every;
use crate::failure::Failure;

/// How long to wait for the server's own counts, which come late.
const COUNTS: Duration = Duration::from_secs(2);
/// How long removing waits for connections that are just being closed.
const REMOVING: Duration = Duration::from_secs(10);

pub(super) struct PostgresGround {
    name: String,
    options: PostgresOptions,
    unprepared: bool,
    outbox: Outbox,
    client: Client,
    /// The server's first process, if it runs on this machine.
    server: Option<u32>,
    /// Whether the server counts statements.
    counts_statements: bool,
}

impl PostgresGround {
    pub(super) async fn make(url: &str, name: String, load: &Load) -> Result<Self, Failure> {
        let mut options = PostgresOptions::new(without_schema(url)).table(format!("{name}.outbox"));
        options.partition = load.partition.map(|every| match every {
            Every::Day => Partition::Day,
            Every::Month => Partition::Month,
        });
        let store = PostgresStore::new(options.clone())?;
        let client = store.client().await?;
        let row =
            client.query_one("SELECT pg_backend_pid(), to_regclass('pg_stat_statements') IS NOT NULL", &[]);
        let row = row.await.map_err(failed)?;
        let server = u32::try_from(row.get::<_, i32>(0)).ok().and_then(parent_of);
        let outbox = store.outbox();
        let ground = Self {
            name,
            options,
            unprepared: load.unprepared,
            outbox,
            client,
            server,
            counts_statements: row.get(1),
        };
        // What is done with this connection takes as long as it takes.
        ground.run("SET statement_timeout = 0").await?;
        ground.run(&format!("CREATE SCHEMA {}", ground.name)).await?;
        let made = ground.fill(&store).await;
        if made.is_err() {
            ground.remove().await?;
        }
        made.map(|()| ground)
    }

    async fn fill(&self, store: &PostgresStore) -> Result<(), Failure> {
        store.migrate().await?;
        let bare = "id uuid NOT NULL PRIMARY KEY, event_type text NOT NULL, aggregate_type text NOT NULL, \
                    aggregate_id text NOT NULL, payload bytea, content_type text, \
                    created_at timestamptz NOT NULL DEFAULT statement_timestamp()";
        self.run(&format!("CREATE TABLE {}.bare ({bare})", self.name)).await
    }

    async fn run(&self, sql: &str) -> Result<(), Failure> {
        self.client.batch_execute(sql).await.map_err(failed)
    }

    async fn numbers(&self, sql: &str) -> Result<Vec<Option<i64>>, Failure> {
        let row = self.client.query_one(sql, &[]).await.map_err(failed)?;
        Ok((0..row.len()).map(|column| row.get(column)).collect())
    }

    /// Waits until the server has counted so many rows, or no longer than a moment.
    async fn dead_rows(&self, rows_written: u64) -> Result<Option<u64>, Failure> {
        let sql = format!(
            "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint, sum(n_tup_upd + n_tup_del)::bigint \
             FROM pg_stat_all_tables WHERE schemaname = '{}'",
            self.name
        );
        let until = Instant::now() + COUNTS;
        let mut ticks = interval(Duration::from_millis(50));
        loop {
            ticks.tick().await;
            let numbers = self.numbers(&sql).await?;
            let [written, dead] = [0, 1].map(|at| numbers[at].and_then(|number| u64::try_from(number).ok()));
            if written.unwrap_or(0) >= rows_written || Instant::now() > until {
                return Ok(dead);
            }
        }
    }
}

/// A `schema` parameter would name another schema than our own.
fn without_schema(url: &str) -> String {
    let Some((before, parameters)) = url.split_once('?') else { return url.to_owned() };
    let others: Vec<_> = parameters.split('&').filter(|one| !one.starts_with("schema=")).collect();
    if others.is_empty() { before.to_owned() } else { format!("{before}?{}", others.join("&")) }
}

#[async_trait]
impl Ground for PostgresGround {
    fn name(&self) -> &str {
        &self.name
    }

    async fn server(&self) -> Result<String, Failure> {
        let row = self.client.query_one("SHOW server_version", &[]).await.map_err(failed)?;
        let version: String = row.get(0);
        Ok(format!("PostgreSQL {}", version.split_whitespace().next().unwrap_or_default()))
    }

    fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        Ok(Arc::new(PostgresStore::new(self.options.clone())?))
    }

    async fn hand(&self, way: Way) -> Result<Box<dyn Hand>, Failure> {
        let client = PostgresStore::new(self.options.clone())?.client().await?;
        let how = match way {
            Way::Outbox if self.unprepared => How::Outbox(None),
            Way::Outbox => How::Outbox(Some(Prepared::new(&client, &self.outbox).await?)),
            Way::Bare => {
                let columns = "id, event_type, aggregate_type, aggregate_id, payload, content_type";
                let sql =
                    format!("INSERT INTO {}.bare ({columns}) VALUES ($1, $2, $3, $4, $5, $6)", self.name);
                How::Bare(client.prepare(&sql).await.map_err(failed)?)
            }
        };
        Ok(Box::new(PostgresHand { client, outbox: self.outbox.clone(), how }))
    }

    async fn empty(&self) -> Result<(), Failure> {
        self.run(&format!("TRUNCATE {0}.outbox, {0}.bare", self.name)).await
    }

    async fn tidy(&self, much: bool) -> Result<(), Failure> {
        self.run(&format!("VACUUM ANALYZE {}.outbox", self.name)).await?;
        if much {
            // Not everybody may.
            let _ = self.run("CHECKPOINT").await;
        }
        Ok(())
    }

    async fn mark(&self, rows: u32, delete: bool) -> Result<u64, Failure> {
        let table = format!("{}.outbox", self.name);
        let pick =
            format!("(SELECT id FROM {table} WHERE status = 0 AND next_attempt_at IS NULL LIMIT {rows})");
        let sql = if delete {
            format!("DELETE FROM {table} WHERE id IN {pick}")
        } else {
            format!("UPDATE {table} SET status = 1, processed_at = now() WHERE id IN {pick}")
        };
        self.client.execute(&sql, &[]).await.map_err(failed)
    }

    async fn count(&self) -> Result<Count, Failure> {
        let counts = "count(*) FILTER (WHERE status = 0), count(*) FILTER (WHERE status = 1)";
        let numbers = self.numbers(&format!("SELECT {counts} FROM {}.outbox", self.name)).await?;
        let [pending, processed] =
            [0, 1].map(|at| numbers[at].and_then(|n| u64::try_from(n).ok()).unwrap_or(0));
        Ok(Count { pending, processed })
    }

    async fn counters(&self, rows_written: u64) -> Result<Counters, Failure> {
        let sql = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, \
                   (SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database())";
        let dead_rows = self.dead_rows(rows_written).await?;
        let numbers = self.numbers(sql).await?;
        let number = |at: usize| numbers[at].and_then(|number: i64| u64::try_from(number).ok());
        let statements = if self.counts_statements {
            let sql = format!(
                "SELECT sum(calls)::bigint FROM pg_stat_statements WHERE query LIKE '%{}%'",
                self.name
            );
            // The library may not be loaded.
            self.numbers(&sql).await.ok().and_then(|numbers| u64::try_from(numbers[0]?).ok())
        } else {
            None
        };
        Ok(Counters {
            cpu: self.server.and_then(|server| cpu_of_family(server, "postgres")),
            log_bytes: number(0),
            transactions: number(1),
            statements,
            dead_rows,
        })
    }

    async fn hold_snapshot(&self) -> Result<Box<dyn Any + Send>, Failure> {
        let client = PostgresStore::new(self.options.clone())?.client().await?;
        // With an id of its own, as a long transaction that has written something.
        let begin = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
                     BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()";
        client.batch_execute(begin).await.map_err(failed)?;
        Ok(Box::new(client))
    }

    async fn remove(&self) -> Result<(), Failure> {
        let drop = format!(
            "SET lock_timeout = '1s'; SET client_min_messages = warning; SET statement_timeout = 0; \
             DROP SCHEMA IF EXISTS {} CASCADE",
            self.name
        );
        let until = Instant::now() + REMOVING;
        loop {
            match self.client.batch_execute(&drop).await {
                // Somebody still has a lock, or came in between.
                Err(error) if error.as_db_error().is_some() && Instant::now() < until => {}
                done => return done.map_err(failed),
            }
        }
    }
}

struct PostgresHand {
    client: Client,
    outbox: Outbox,
    how: How,
}

enum How {
    Outbox(Option<Prepared>),
    Bare(Statement),
}

#[async_trait]
impl Hand for PostgresHand {
    async fn put(&mut self, messages: &[Message]) -> Result<(), Failure> {
        let tx = self.client.transaction().await.map_err(failed)?;
        match (&self.how, messages) {
            (How::Outbox(Some(prepared)), [message]) => {
                self.outbox.enqueue(prepared.on(&tx), message).await.map(drop)?;
            }
            (How::Outbox(None), [message]) => self.outbox.enqueue(&tx, message).await.map(drop)?,
            (How::Outbox(_), _) => self.outbox.enqueue_all(&tx, messages).await.map(drop)?,
            (How::Bare(statement), _) => {
                for message in messages {
                    insert(&tx, statement, message).await?;
                }
            }
        }
        tx.commit().await.map_err(failed)
    }
}

async fn insert(tx: &Transaction<'_>, statement: &Statement, message: &Message) -> Result<(), Failure> {
    let payload = message.payload_bytes().map(AsRef::<[u8]>::as_ref);
    let (id, content_type) = (message.id(), message.content_type_str());
    let values: [&(dyn ToSql + Sync); 6] = [
        id.as_uuid(),
        &message.event_type(),
        &message.aggregate_type(),
        &message.aggregate_id(),
        &payload,
        &content_type,
    ];
    tx.execute(statement, &values).await.map(drop).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_in_the_url_is_not_ours() {
        let cases = [
            ("postgres://h/d", "postgres://h/d"),
            ("postgres://h/d?schema=x", "postgres://h/d"),
            ("postgres://h/d?schema=x&sslmode=disable", "postgres://h/d?sslmode=disable"),
        ];
        for (url, without) in cases {
            assert_eq!(without_schema(url), without);
        }
    }
}
