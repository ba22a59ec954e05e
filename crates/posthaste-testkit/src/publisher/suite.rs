//! All behaviours of a publisher, by name.

use std::time::Duration;

use super::fixture::PublisherFixture;

/// Puts a publisher through the conformance suite: one test for every behaviour, in a module `publisher_conformance`
/// with a module for each topic. Use it once in a module, on the type of a
/// [`PublisherFixture`](crate::PublisherFixture).
///
/// ```
/// use posthaste_testkit::{MemoryDestinationFixture, publisher_conformance};
///
/// publisher_conformance!(MemoryDestinationFixture);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! publisher_conformance {
    ($fixture:ty) => {
        mod publisher_conformance {
            #[allow(unused_imports, reason = "the fixture may be named by a path from the root")]
            use super::*;

            $crate::__publisher_tests! {
                $fixture;
                delivery {
                    ok_means_that_the_destination_has_it,
                    payloads_arrive_byte_for_byte,
                    a_json_payload_is_not_rewritten,
                    an_empty_payload_arrives,
                    a_tombstone_arrives,
                    the_id_arrives_as_the_message_id,
                    an_idempotency_key_arrives_as_the_message_id,
                    every_attempt_has_the_same_message_id,
                    event_type_key_and_content_type_arrive,
                    headers_arrive,
                    strange_text_arrives_or_is_refused,
                    a_bare_record_arrives,
                    many_records_at_once_arrive_once_each,
                    the_order_within_a_key_is_kept,
                }
                failure {
                    while_the_destination_is_down_it_is_unavailable,
                    an_outage_is_noticed_by_many_at_once_in_time,
                    it_works_again_when_the_destination_is_back,
                    what_is_in_flight_when_the_destination_breaks_down_ends_in_time,
                    a_record_that_is_refused_is_to_blame_itself,
                    a_refused_record_takes_no_other_with_it,
                    a_dropped_publish_does_no_harm,
                    publishes_dropped_during_an_outage_do_no_harm,
                }
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __publisher_tests {
    ($fixture:ty; $($topic:ident { $($behaviour:ident,)* })*) => {
        $(
            mod $topic {
                #[allow(unused_imports, reason = "the fixture may be named by a path from the root")]
                use super::*;

                $(
                    #[test]
                    fn $behaviour() {
                        let make = <$fixture as $crate::PublisherFixture>::new;
                        $crate::publisher::run(make, $crate::publisher::$topic::$behaviour);
                    }
                )*
            }
        )*
    };
}

/// How long one behaviour may take.
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// Runs one behaviour on a fixture of its own.
///
/// # Panics
/// If the behaviour is not kept, or not done in time.
#[doc(hidden)]
pub fn run<F: PublisherFixture>(
    make: impl AsyncFnOnce() -> Option<F>,
    behaviour: impl AsyncFnOnce(&dyn PublisherFixture),
) {
    crate::run::run(TIME_LIMIT, async {
        if let Some(fixture) = make().await {
            behaviour(&fixture).await;
        }
    });
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_behaviour_is_in_the_suite() {
        let sources = [include_str!("delivery.rs"), include_str!("failure.rs")];
        crate::run::assert_complete(include_str!("suite.rs"), &sources);
    }

    mod in_memory {
        crate::publisher_conformance!(crate::MemoryDestinationFixture);
    }
}
