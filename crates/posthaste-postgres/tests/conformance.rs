//! The store against the conformance suite, on a real server.

mod support;

use posthaste_testkit::store_conformance;
use support::PostgresFixture;

store_conformance!(PostgresFixture);
