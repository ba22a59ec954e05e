//! The store against the conformance suite, on real servers.

mod support;

mod mysql_binary {
    use posthaste_testkit::store_conformance;

    type Fixture = crate::support::On<false, true>;
    store_conformance!(Fixture);
}

mod mariadb_binary {
    use posthaste_testkit::store_conformance;

    type Fixture = crate::support::On<true, true>;
    store_conformance!(Fixture);
}
