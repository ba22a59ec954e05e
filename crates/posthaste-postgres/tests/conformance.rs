//! The store against the conformance suite, on a real server and behind a pooler.

mod support;

use posthaste_testkit::store_conformance;
use support::PostgresFixture;

store_conformance!(PostgresFixture);

mod pooled {
    use posthaste_testkit::store_conformance;

    use crate::support::PooledFixture;

    store_conformance!(PooledFixture);
}
