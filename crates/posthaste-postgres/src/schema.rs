//! The schema: what it is brought to, and how far it is.

use posthaste::dialect::quote;
use posthaste::{Error, ErrorKind, Migration};
use tokio_postgres::types::Type;

use crate::connection::{Session, Use};
use crate::error::Failure;
use crate::options::Partition;
use crate::store::{Inner, PostgresStore};
use crate::value::micros;

const OUTBOX: i64 = 1;
const INBOX: i64 = 2;
/// The newest migration that this version knows.
const NEWEST: i64 = INBOX;
const DOING: &str = "migrating";
const LOOKING: &str = "looking at the schema";

/// How many milliseconds the change of a table that is in use may wait for its lock.
const LOCK_IN_USE: i64 = 1_000;

/// How far a schema is.
struct Applied {
    versions: Vec<i64>,
    /// Whether a trigger calls for plain INSERTs.
    calls: bool,
}

impl Inner {
    /// All migrations, as they are for these options.
    pub(crate) fn migrations(&self) -> Vec<Migration> {
        vec![
            self.migration(OUTBOX, "outbox", include_str!("migrations/0001_outbox.sql")),
            self.migration(INBOX, "inbox", include_str!("migrations/0002_inbox.sql")),
        ]
    }

    fn migration(&self, version: i64, name: &str, template: &str) -> Migration {
        let (by, partitions) = match self.options.partition {
            None => (STORAGE, ""),
            Some(Partition::Day | Partition::Month) => (" PARTITION BY RANGE (id)", DEFAULT_PARTITION),
        };
        let template = template.replace("{partition}", by).replace("{partitions}", partitions);
        // A brace that is part of the SQL, not of a placeholder: the empty JSON object.
        let sql = template.split("'{}'").map(|part| self.table.fill_names(part, self.options.lanes));
        let mut sql = sql.collect::<Vec<_>>().join("'{}'");
        if version == OUTBOX && self.options.wake_trigger {
            sql.push('\n');
            sql.push_str(&self.wake_trigger().sql);
        }
        Migration { version, name: name.to_owned(), sql }
    }

    /// The trigger for an outbox that was made without it.
    fn wake_trigger(&self) -> Migration {
        let sql = self.table.fill_names(include_str!("migrations/wake_trigger.sql"), self.options.lanes);
        Migration { version: OUTBOX, name: "wake trigger".to_owned(), sql }
    }

    /// What of all migrations is still to be applied.
    fn missing(&self, applied: &Applied) -> Vec<Migration> {
        let mut missing = self.migrations();
        missing.retain(|migration| !applied.versions.contains(&migration.version));
        if self.options.wake_trigger && applied.versions.contains(&OUTBOX) && !applied.calls {
            missing.push(self.wake_trigger());
        }
        missing
    }

    pub(crate) async fn migrate(&self, wanted: &[i64]) -> Result<Vec<Migration>, Error> {
        let limit = self.options.migration_timeout.saturating_mul(3);
        let session = self.connections.session(Use::Other, limit).await;
        let session = session.map_err(|failure| self.migration_error(failure))?;
        match session.within(self.migrate_in(&session, wanted)).await {
            Ok(applied) => session.done(Ok(applied)).map_err(|failure| self.migration_error(failure)),
            Err(failure) => Err(self.migration_error(failure)),
        }
    }

    /// One transaction under an advisory lock that ends with it, so that none is left behind in a pooler's session.
    async fn migrate_in(&self, session: &Session, wanted: &[i64]) -> Result<Vec<Migration>, Failure> {
        let client = session.client();
        let millis = micros(self.options.migration_timeout) / 1_000;
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = {millis}; \
             SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = {millis}; \
             SET LOCAL client_min_messages = warning; SELECT pg_advisory_xact_lock({})",
            self.table.lock_key()
        );
        client.batch_execute(&begin).await?;
        let applied = self.applied(session).await?;
        let mut missing = self.missing(&applied);
        missing.retain(|migration| wanted.contains(&migration.version));
        if applied.versions.contains(&OUTBOX) {
            // Producers queue behind whoever waits to change a table that is in use.
            client.batch_execute(&format!("SET LOCAL lock_timeout = {}", millis.min(LOCK_IN_USE))).await?;
        }
        for migration in &missing {
            client.batch_execute(&migration.sql).await?;
            tracing::info!(version = migration.version, name = migration.name, "migration applied");
        }
        client.batch_execute("COMMIT").await?;
        Ok(missing)
    }

    /// Which migrations were applied; makes the schema if there is none.
    async fn applied(&self, session: &Session) -> Result<Applied, Failure> {
        let found = self.found(session).await?;
        if !found.schema {
            let create = format!("CREATE SCHEMA {}", quote(self.table.schema()));
            session.client().batch_execute(&create).await?;
        }
        self.versions(session, &found).await
    }

    async fn found(&self, session: &Session) -> Result<Found, Failure> {
        let names = ["", "migrations", "inbox"].map(|suffix| self.table.qualified(suffix));
        let (schema, trigger) = (quote(self.table.schema()), self.table.derived("call"));
        let params = [
            (&names[0] as _, Type::TEXT),
            (&names[1] as _, Type::TEXT),
            (&names[2] as _, Type::TEXT),
            (&schema as _, Type::TEXT),
            (&trigger as _, Type::TEXT),
        ];
        let rows = session.client().query_typed(&self.sql.version, &params).await?;
        let row = rows.first().ok_or_else(|| crate::connection::no_row(DOING))?;
        Ok(Found {
            outbox: row.get("outbox"),
            ours: row.get("ours"),
            migrations: row.get("migrations"),
            inbox: row.get("inbox"),
            schema: row.get("schema"),
            calls: row.get("calls"),
        })
    }

    async fn versions(&self, session: &Session, found: &Found) -> Result<Applied, Failure> {
        if !found.migrations {
            if found.outbox || found.inbox {
                return Err(self.foreign().into());
            }
            return Ok(Applied { versions: Vec::new(), calls: false });
        }
        let rows = match session.client().query_typed(&self.sql.migrations, &[]).await {
            Ok(rows) => rows,
            Err(error) if error.code().is_some_and(|code| code.code() == "42703") => {
                return Err(self.foreign().into());
            }
            Err(error) => return Err(error.into()),
        };
        let versions: Vec<i64> = rows.iter().map(|row| row.get("version")).collect();
        check_version(versions.iter().max().copied())?;
        if versions.contains(&OUTBOX) != found.outbox || found.outbox != found.ours {
            return Err(self.foreign().into());
        }
        Ok(Applied { versions, calls: found.calls })
    }

    /// A table of that name that is no outbox.
    fn foreign(&self) -> Error {
        let text = format!(
            "{} or one of its side tables exists, but was not made by posthaste; choose another name",
            self.table
        );
        Error::new(ErrorKind::ForeignTable, text)
    }

    fn migration_error(&self, failure: Failure) -> Error {
        let grants = format!("CREATE on the schema {}", quote(self.table.schema()));
        failure.into_error(DOING, &grants)
    }

    fn looking_error(&self, failure: Failure) -> Error {
        let (schema, table) = (quote(self.table.schema()), self.table.qualified("migrations"));
        failure.into_error(LOOKING, &format!("USAGE on the schema {schema} and SELECT on {table}"))
    }

    pub(crate) async fn pending_migrations(&self) -> Result<Vec<Migration>, Error> {
        let session = self.session(Use::Other, LOOKING).await?;
        let looked = session.within(async {
            session.client().batch_execute(&self.begin_write.anywhere).await?;
            let found = self.found(&session).await?;
            let applied = self.versions(&session, &found).await?;
            session.client().batch_execute("COMMIT").await?;
            Ok::<_, Failure>(applied)
        });
        let applied = match looked.await {
            Ok(applied) => session.done(Ok(applied)).map_err(|failure| self.looking_error(failure))?,
            Err(failure) => return Err(self.looking_error(failure)),
        };
        Ok(self.missing(&applied))
    }
}

/// What stands under the outbox's name.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Found {
    outbox: bool,
    ours: bool,
    migrations: bool,
    inbox: bool,
    schema: bool,
    calls: bool,
}

impl PostgresStore {
    /// Brings only the inbox up to date, for a service that consumes and has no outbox.
    ///
    /// # Errors
    /// As [`Admin::migrate`](posthaste::Admin::migrate).
    ///
    /// # Cancel safety
    /// It is either done or undone.
    pub async fn migrate_inbox(&self) -> Result<Vec<Migration>, Error> {
        self.0.migrate(&[INBOX]).await
    }
}

/// Every migration of this version.
pub(crate) const ALL: [i64; 2] = [OUTBOX, INBOX];

/// Why the outbox has its settings is said in the migration.
pub(crate) const STORAGE: &str =
    " WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05)";
const DEFAULT_PARTITION: &str =
    "-- Takes what no other partition takes, so that an INSERT never fails for want of one.
CREATE TABLE {outbox_default} PARTITION OF {outbox} DEFAULT;
";

/// Checks that the newest migration is one that this version knows.
pub(crate) fn check_version(version: Option<i64>) -> Result<(), Error> {
    match version {
        Some(version) if version > NEWEST => {
            let text = format!(
                "the tables are of schema version {version}, this program knows versions up to {NEWEST}; upgrade it"
            );
            Err(Error::new(ErrorKind::SchemaTooNew, text))
        }
        Some(_) => Ok(()),
        None => {
            Err(Error::new(ErrorKind::NotMigrated, "the outbox has no migrations; run `posthaste migrate`"))
        }
    }
}
