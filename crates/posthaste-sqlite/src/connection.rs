//! The store's one connection, on a thread of its own.
//!
//! SQLite's calls block, so they must not run on a runtime's threads; and one connection cannot get in its own way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use posthaste::{Error, ErrorKind};
use tokio::sync::oneshot;

use crate::database::{Database, Settings};
use crate::error;
use crate::watch::real_now;

/// A handle to the thread. The thread ends when the last handle is gone, and closes the connection.
#[derive(Debug, Clone)]
pub(crate) struct Connection {
    jobs: mpsc::Sender<Job>,
    settings: Arc<Settings>,
}

type Job = Box<dyn FnOnce(&mut Worker) + Send>;

impl Connection {
    /// Starts the thread. The database is opened at the first job, and again after it was lost.
    pub(crate) fn start(settings: Settings) -> Result<Self, Error> {
        let settings = Arc::new(settings);
        let (jobs, queue) = mpsc::channel();
        let worker = Worker { settings: Arc::clone(&settings), database: None };
        thread::Builder::new().name("posthaste-sqlite".to_owned()).spawn(|| worker.work(queue)).map_err(
            |source| {
                Error::new(ErrorKind::Unavailable, "cannot start the thread of the database connection")
                    .with_source(source)
            },
        )?;
        Ok(Self { jobs, settings })
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs a job on the thread. The job is run to its end also where the future is dropped.
    pub(crate) async fn run<T, F>(&self, job: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: FnOnce(&mut Database) -> Result<T, Error> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let asked = real_now();
        let job: Job = Box::new(move |worker| {
            // Nobody waits for an answer that comes too late.
            let _ = answer.send(worker.run(asked, job));
        });
        let lost = || {
            Error::new(ErrorKind::Database, "the operation panicked on the thread of the database connection")
        };
        self.jobs.send(job).map_err(|_| lost())?;
        answered.await.unwrap_or_else(|_| Err(lost()))
    }
}

/// What lives on the thread.
struct Worker {
    settings: Arc<Settings>,
    database: Option<Database>,
}

impl Worker {
    #[expect(clippy::needless_pass_by_value, reason = "the queue ends with the thread")]
    fn work(mut self, queue: mpsc::Receiver<Job>) {
        while let Ok(job) = queue.recv() {
            if catch_unwind(AssertUnwindSafe(|| job(&mut self))).is_err() {
                // The panic's own text was printed by the panic hook. What it left behind is not trusted.
                self.database = None;
            }
        }
    }

    fn run<T>(
        &mut self,
        asked: Instant,
        job: impl FnOnce(&mut Database) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if asked.elapsed() > self.settings.options.time_limit {
            let text = "the database connection was busy with other operations until the time limit";
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
        if self.database.as_ref().is_some_and(Database::is_stale) {
            self.database = None;
        }
        let database = match &mut self.database {
            Some(database) => database,
            none => none.insert(Database::open(Arc::clone(&self.settings), asked)?),
        };
        database.watch().start(asked);
        let result = job(database);
        if result.as_ref().is_err_and(error::is_fatal) {
            self.database = None;
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use tempfile::TempDir;

    use super::*;
    use crate::options::SqliteOptions;
    use crate::schema;
    use crate::sql::Sql;
    use posthaste::dialect::SqliteTable as TableName;

    async fn start(directory: &TempDir, options: SqliteOptions) -> Connection {
        let sql = Arc::new(Sql::new(TableName::new("outbox").unwrap()));
        let path = directory.path().join("outbox.db");
        let connection = Connection::start(Settings { path, options: options.create(true), sql }).unwrap();
        connection.run(schema::migrate).await.unwrap();
        connection
    }

    async fn ask(connection: &Connection, sql: &'static str) -> Result<i64, Error> {
        let number = connection
            .run(|database| database.read("asking", |step| step.first(sql, [], |row| row.get::<_, i64>(0))));
        Ok(number.await?.unwrap_or(-1))
    }

    #[tokio::test]
    async fn a_panic_ends_the_operation_and_not_the_thread() {
        let directory = tempfile::tempdir().unwrap();
        let connection = start(&directory, SqliteOptions::default()).await;
        let panicking = connection.run(|database| {
            database.write("failing", |step| {
                step.execute("INSERT INTO outbox (event_type) VALUES ('e')", [])?;
                assert!(step.sql.version.is_empty(), "on purpose");
                Ok(())
            })
        });
        assert_eq!(panicking.await.unwrap_err().kind(), ErrorKind::Database);
        let rows = ask(&connection, "SELECT count(*) FROM outbox").await;
        assert_eq!(rows.unwrap(), 0, "what the panic interrupted was rolled back");
    }

    #[tokio::test]
    async fn an_operation_without_end_ends_at_the_time_limit() {
        let directory = tempfile::tempdir().unwrap();
        let options = SqliteOptions::default().time_limit(Duration::from_millis(300));
        let connection = start(&directory, options).await;
        let endless =
            "WITH RECURSIVE n AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n";
        let error = ask(&connection, endless).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("time limit"), "{error}");
        assert_eq!(ask(&connection, "SELECT 7").await.unwrap(), 7);
    }

    #[tokio::test]
    async fn an_operation_that_waited_too_long_for_its_turn_is_not_begun() {
        let directory = tempfile::tempdir().unwrap();
        let connection = start(&directory, SqliteOptions::default()).await;
        let mut worker = Worker { settings: Arc::clone(&connection.settings), database: None };
        let asked = real_now().checked_sub(Duration::from_mins(1)).unwrap();
        let error = worker.run(asked, |_| Ok(())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(worker.database.is_none());
    }

    #[tokio::test]
    async fn an_abandoned_operation_is_run_to_its_end() {
        let directory = tempfile::tempdir().unwrap();
        let connection = start(&directory, SqliteOptions::default()).await;
        {
            let abandoned = connection.run(|database| {
                database
                    .write("writing", |step| step.execute("INSERT INTO outbox (event_type) VALUES ('e')", []))
            });
            let mut abandoned = Box::pin(abandoned);
            // Polled once, so that it is asked for.
            std::future::poll_fn(|context| {
                let _ = abandoned.as_mut().poll(context);
                std::task::Poll::Ready(())
            })
            .await;
        }
        assert_eq!(ask(&connection, "SELECT count(*) FROM outbox").await.unwrap(), 1);
    }

    #[tokio::test]
    async fn the_thread_ends_with_the_last_handle() {
        thread_local!(static ON_END: RefCell<Option<mpsc::Sender<()>>> = const { RefCell::new(None) });

        let directory = tempfile::tempdir().unwrap();
        let connection = start(&directory, SqliteOptions::default()).await;
        let other = connection.clone();
        // The sender is dropped when the thread is over.
        let (alive, over) = mpsc::channel();
        connection
            .run(|_| {
                ON_END.set(Some(alive));
                Ok(())
            })
            .await
            .unwrap();
        drop(connection);
        assert_eq!(ask(&other, "SELECT 7").await.unwrap(), 7);
        assert_eq!(over.try_recv(), Err(mpsc::TryRecvError::Empty));
        drop(other);
        assert_eq!(over.recv(), Err(mpsc::RecvError));
    }
}
