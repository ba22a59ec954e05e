//! The network matrix: every operation of a store, while the network does something to its connections.
//!
//! A store adapter brings a [`NetworkFixture`], and [`network_matrix!`](crate::network_matrix) makes a test of each fault. What
//! is expected: the operation ends by itself within its time limits and says that the database is not available, on a
//! connection that was there as on a new one; it works again once the fault is over; and the server keeps no session that
//! nobody uses any more.

mod operation;
mod suite;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{Admin, Error, Store};

pub use operation::Operation;
pub use suite::{ends_in_time, is_woken_again, only_takes_longer};

use crate::FaultProxy;

/// An outbox on a server, and a store that reaches it through a proxy.
#[async_trait]
pub trait NetworkFixture: Send + Sync + 'static {
    /// A migrated outbox of its own. The store behind the proxy has `limit` to make a connection, to run a statement and to
    /// wait for a lock in a migration. `None` skips the test, loudly.
    async fn new(limit: Duration) -> Option<Self>
    where
        Self: Sized;

    /// The proxy before the server.
    fn proxy(&self) -> &FaultProxy;

    /// The store behind the proxy.
    fn store(&self) -> Arc<dyn Store>;

    /// The operator's side of it.
    fn admin(&self) -> Arc<dyn Admin>;

    /// The most connections that the store may have, the one on which it listens included.
    fn connections(&self) -> usize;

    /// How many sessions the server has for the store now.
    async fn sessions(&self) -> usize;

    /// Enqueues and commits a message in a transaction of its own, whose connection leads through the proxy. The connection
    /// and the statements have the fixture's time limit, which is the producer's own.
    async fn produce(&self) -> Result<(), Error>;

    /// Whether producers wake the store.
    fn is_woken(&self) -> bool;

    /// Enqueues and commits a message without the proxy, and so that an idle relay is woken.
    async fn ring(&self);
}

/// Makes a test of each fault of the network, for a [`NetworkFixture`].
#[macro_export]
macro_rules! network_matrix {
    ($fixture:ty) => {
        $crate::network_matrix! { @ends $fixture:
            what_a_blackhole_swallows_ends_in_time = $crate::Fault::Blackhole,
            what_is_never_answered_ends_in_time = $crate::Fault::Mute,
            what_is_reset_ends = $crate::Fault::Reset,
            what_is_refused_ends = $crate::Fault::Refuse,
            what_is_half_closed_ends = $crate::Fault::HalfClose,
            what_takes_hours_ends_in_time = $crate::Fault::Delay(::std::time::Duration::from_secs(3_600)),
            what_trickles_ends_in_time = $crate::Fault::Throttle(25),
        }

        #[tokio::test]
        async fn what_is_slow_only_takes_longer() {
            $crate::network::only_takes_longer::<$fixture>().await;
        }
    };
    (@ends $fixture:ty: $($test:ident = $fault:expr,)*) => {$(
        #[tokio::test]
        async fn $test() {
            $crate::network::ends_in_time::<$fixture>($fault).await;
            $crate::network::is_woken_again::<$fixture>($fault).await;
        }
    )*};
}
