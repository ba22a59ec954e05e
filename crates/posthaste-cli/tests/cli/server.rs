//! A schema on a PostgreSQL server, for a test alone.

use tokio_postgres::{Client, Error, NoTls, SimpleQueryMessage};

/// A schema, and maybe a role of the same name, that are dropped at the end of the test.
pub(crate) struct Schema {
    pub(crate) name: String,
}

/// Where the server is; override with `POSTHASTE_TEST_POSTGRES`.
pub(crate) fn server_url() -> String {
    std::env::var("POSTHASTE_TEST_POSTGRES")
        .unwrap_or_else(|_| "postgres://postgres@127.0.0.1:5432/test".to_owned())
}

/// The server's URL, with another user and maybe another host or database.
pub(crate) fn url_with(user: &str, host: Option<&str>, database: Option<&str>) -> String {
    let config: tokio_postgres::Config = server_url().parse().unwrap();
    let own_host = match config.get_hosts() {
        [tokio_postgres::config::Host::Tcp(host), ..] => host.clone(),
        other => panic!("the test's server is not on TCP: {other:?}"),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let host = host.map_or(format!("{own_host}:{port}"), str::to_owned);
    let database = database.or(config.get_dbname()).unwrap_or("postgres");
    format!("postgres://{user}@{host}/{database}")
}

impl Schema {
    /// A new one; `None`, loudly, where there is no server and it is not required (`CI`).
    pub(crate) fn new() -> Option<Self> {
        let name = format!("posthaste_test_{}", uuid::Uuid::new_v4().simple());
        match execute(&format!("CREATE SCHEMA {name}")) {
            Ok(_) => Some(Self { name }),
            Err(error) if std::env::var_os("CI").is_none() && error.as_db_error().is_none() => {
                eprintln!("SKIPPED: no PostgreSQL at {}: {error}", server_url());
                None
            }
            Err(error) => panic!("no PostgreSQL at {}: {error}", server_url()),
        }
    }

    pub(crate) fn url(&self) -> String {
        let url = server_url();
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}schema={}", self.name)
    }

    /// Runs SQL in which `{}` stands for the schema's name, and gives the first value of its last row.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.sql_as_it_is(&sql.replace("{}", &self.name))
    }

    /// As `sql`, for SQL in which `{}` stands for itself.
    #[expect(clippy::unused_self, reason = "so that no test runs SQL without a schema of its own")]
    pub(crate) fn sql_as_it_is(&self, sql: &str) -> String {
        execute(sql).unwrap()
    }

    /// Runs SQL in a transaction that stays open until what it gives is dropped.
    pub(crate) fn hold(&self, sql: &str) -> Held {
        let sql = format!("BEGIN; {}", sql.replace("{}", &self.name));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&server_url(), NoTls).await.unwrap();
            tokio::spawn(connection);
            client.batch_execute(&sql).await.unwrap();
            client
        });
        Held { client, runtime }
    }

    /// A role with the schema's name that may do nothing yet, and the URL with which it connects.
    pub(crate) fn role(&self) -> String {
        self.sql("CREATE ROLE {} LOGIN");
        format!("{}?schema={}", url_with(&self.name, None, None), self.name)
    }
}

/// A transaction that is open.
pub(crate) struct Held {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.runtime.block_on(self.client.batch_execute("ROLLBACK")).unwrap();
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let drop = "SET lock_timeout = '10s'; SET client_min_messages = warning; \
                    DROP SCHEMA IF EXISTS {} CASCADE; DROP ROLE IF EXISTS {}";
        if let Err(error) = execute(&drop.replace("{}", &self.name)) {
            eprintln!("the schema of a test could not be dropped: {error}");
        }
    }
}

fn execute(sql: &str) -> Result<String, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&server_url(), NoTls).await?;
        let connection = tokio::spawn(connection);
        let value = value(&client, sql).await;
        drop(client);
        let _ = connection.await;
        value
    })
}

async fn value(client: &Client, sql: &str) -> Result<String, Error> {
    let messages = client.simple_query(sql).await?;
    let last = messages.iter().rev().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(last.unwrap_or_default().to_owned())
}
