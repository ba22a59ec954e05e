//! The store against the conformance suite, on real servers.

mod support;

mod mysql_binary {
    use posthaste_testkit::store_conformance;

    type Fixture = crate::support::On<false, true>;
    store_conformance!(Fixture);
}

mod mysql_json {
    use posthaste_testkit::store_conformance;

    type Fixture = crate::support::On<false, false>;
    store_conformance!(Fixture);
}

mod mariadb_binary {
    use posthaste_testkit::store_conformance;

    type Fixture = crate::support::On<true, true>;
    store_conformance!(Fixture);
}

mod mariadb_json {
    use posthaste_testkit::store_conformance;

    type Fixture = crate::support::On<true, false>;
    store_conformance!(Fixture);
}
