//! A partitioned outbox against the conformance suite, on real servers.

mod support;

mod mysql_partitioned {
    use posthaste_testkit::store_conformance;

    type Fixture = crate::support::On<false, true, true>;
    store_conformance!(Fixture);
}

mod mariadb_partitioned {
    use posthaste_testkit::store_conformance;

    type Fixture = crate::support::On<true, true, true>;
    store_conformance!(Fixture);
}
