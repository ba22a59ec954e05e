//! What a transaction has to offer so that messages can be enqueued in it.

use std::future::Future;
use std::pin::Pin;

use super::script::Work;
use crate::error::Error;

/// An open transaction of a database driver, in which messages can be enqueued.
///
/// It is implemented for references to the transactions of the drivers behind this crate's features, for their
/// `InTransaction` wrappers, and for [`MemoryTransaction`](crate::MemoryTransaction); on nothing that is not in a
/// transaction. It may be implemented for other drivers: see [`Script`](crate::driver::Script).
///
/// | driver | feature | transaction |
/// |---|---|---|
/// | sqlx 0.8, 0.9 | `sqlx-0_8`, `sqlx-0_9` | `&mut sqlx::Transaction<'_, Postgres \| MySql \| Sqlite>` |
/// | sea-orm 1, 2 | `sea-orm-1`, `sea-orm-2` | `&sea_orm::DatabaseTransaction` (or `&mut`) |
/// | diesel 2.3 | `diesel-2` | `posthaste::diesel_2::InTransaction(&mut connection)` within `connection.transaction(…)` |
/// | diesel-async 0.9 | `diesel-async-0_9` | `posthaste::diesel_async_0_9::InTransaction(&mut connection)`, likewise |
/// | tokio-postgres 0.7 | `tokio-postgres-0_7` | `&tokio_postgres::Transaction<'_>` (or `&mut`) |
/// | deadpool-postgres 0.14 | `deadpool-postgres-0_14` | `&deadpool_postgres::Transaction<'_>` (or `&mut`) |
/// | `mysql_async` 0.37 | `mysql_async-0_37` | `&mut mysql_async::Transaction<'_>` |
/// | rusqlite 0.39 to 0.43 | `rusqlite` | `&rusqlite::Transaction<'_>`, `&rusqlite::Savepoint<'_>` (or `&mut`) |
/// | rusqlite 0.32 to 0.38 | `rusqlite-0_32` | likewise |
///
/// Where a function got a `&mut Transaction`, `&mut tx` works as well: there is no need to write `&mut *tx`.
#[diagnostic::on_unimplemented(
    message = "messages are enqueued in an open transaction, and `{Self}` is none",
    label = "not a reference to an open transaction",
    note = "begin a transaction, write the business change in it, and pass it: `&mut tx` with sqlx and mysql_async, `&tx` with sea-orm, tokio-postgres, deadpool-postgres and rusqlite",
    note = "diesel has no type for one: `connection.transaction(|connection| {{ …; outbox.enqueue(posthaste::diesel_2::InTransaction(connection), &message) }})`, and with diesel-async likewise",
    note = "a connection that is known to be in a transaction can be wrapped: `posthaste::sqlx_0_9::InTransaction(connection)`, and likewise for sqlx 0.8, tokio-postgres, mysql_async and rusqlite",
    note = "it may be that the feature of `posthaste` for this driver is off, as in `posthaste = {{ features = [\"sqlx-0_9\"] }}`, or is that of another version of the driver"
)]
pub trait OutboxTransaction: Sized {
    /// How a call answers: `Result<R, Error>` with a blocking driver, [`Pending`] with an asynchronous one.
    type Outcome<'a, R: Send + 'a>
    where
        Self: 'a;

    /// Carries out work: begins its [`Script`](crate::driver::Script) in the dialect of the database, runs what that asks
    /// for, one step after another, and gives back what it ends with.
    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Self::Outcome<'a, R>
    where
        Self: 'a;
}

/// The answer of an asynchronous driver: a future of a result.
pub type Pending<'a, R> = Pin<Box<dyn Future<Output = Result<R, Error>> + Send + 'a>>;

/// Whose SQL a transaction speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    /// SQLite.
    Sqlite,
    /// None: a [`MemoryTransaction`](crate::MemoryTransaction).
    Memory,
}

/// So that `&mut tx` works where `tx` is a `&mut Transaction` already.
#[expect(clippy::mut_mut, reason = "that is what it is for")]
impl<'t, T> OutboxTransaction for &'t mut &mut T
where
    T: ?Sized,
    &'t mut T: OutboxTransaction,
{
    type Outcome<'a, R: Send + 'a>
        = <&'t mut T as OutboxTransaction>::Outcome<'a, R>
    where
        Self: 'a;

    fn perform<'a, R: Send + 'a>(self, work: Work<'a, R>) -> Self::Outcome<'a, R>
    where
        Self: 'a,
    {
        <&'t mut T as OutboxTransaction>::perform(self, work)
    }
}
