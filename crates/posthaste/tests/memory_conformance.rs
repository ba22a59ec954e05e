//! `MemoryStore` keeps the contract of a store, whatever the number of its lanes.

mod with_one_lane {
    type Fixture = posthaste_testkit::MemoryFixture<1>;
    posthaste_testkit::store_conformance!(Fixture);
}

mod with_8_lanes {
    type Fixture = posthaste_testkit::MemoryFixture<8>;
    posthaste_testkit::store_conformance!(Fixture);
}

mod with_13_lanes {
    type Fixture = posthaste_testkit::MemoryFixture<13>;
    posthaste_testkit::store_conformance!(Fixture);
}
