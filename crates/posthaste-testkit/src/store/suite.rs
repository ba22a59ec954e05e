//! All behaviours of a store, by name.

use std::time::Duration;

use super::fixture::StoreFixture;

/// Puts a store through the conformance suite: one test for every behaviour, in a module `store_conformance` with a
/// module for each topic. Use it once in a module, on the type of a [`StoreFixture`](crate::StoreFixture).
///
/// ```
/// use posthaste_testkit::{MemoryFixture, store_conformance};
///
/// type Fixture = MemoryFixture<8>;
/// store_conformance!(Fixture);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! store_conformance {
    ($fixture:ty) => {
        mod store_conformance {
            #[allow(unused_imports, reason = "the fixture may be named by a path from the root")]
            use super::*;

            $crate::__store_tests! {
                $fixture;
                content from new {
                    every_byte_value_comes_out_as_it_went_in,
                    nul_and_invalid_utf8_come_out_as_they_went_in,
                    an_empty_payload_is_not_a_tombstone,
                    a_payload_of_a_mebibyte_comes_out_as_it_went_in,
                    json_is_not_rewritten,
                    every_field_comes_out_as_it_went_in,
                    strange_text_comes_out_as_it_went_in,
                    names_may_have_128_characters_of_any_size,
                    many_and_large_headers_come_out_as_they_went_in,
                    no_headers_are_an_empty_map,
                    header_names_keep_their_case,
                    the_time_of_enqueueing_is_the_databases,
                }
                order from new {
                    single_enqueues_of_one_transaction_keep_their_order,
                    a_batch_keeps_its_order,
                    batches_and_single_enqueues_keep_their_order_together,
                    transactions_one_after_another_keep_their_order,
                    interleaved_keys_keep_their_order_each,
                    order_is_that_of_enqueueing_not_of_ids,
                    positions_are_unique_and_rise_within_a_key,
                    each_key_lies_in_one_lane,
                    every_message_lies_in_a_lane_that_there_is,
                    keys_and_keyless_messages_spread_over_the_lanes,
                    the_type_of_an_aggregate_is_part_of_its_key,
                    keys_that_look_alike_are_different_keys,
                    nothing_of_an_open_transaction_is_read,
                    a_rollback_leaves_nothing,
                    a_dropped_transaction_is_rolled_back,
                    a_late_commit_with_a_lower_position_is_read,
                    many_transactions_that_commit_in_any_order_are_all_read,
                    an_open_transaction_holds_up_nobody,
                }
                enqueue from new {
                    an_enqueue_returns_the_messages_id,
                    a_message_is_ready_once_it_is_committed,
                    enqueueing_nothing_is_no_trouble,
                    a_batch_of_5000_is_enqueued,
                    a_batch_of_large_messages_is_enqueued,
                    one_transaction_enqueues_for_many_keys,
                    a_message_that_breaks_a_rule_is_refused,
                    a_batch_with_a_message_that_breaks_a_rule_enqueues_nothing,
                    an_idempotency_key_is_enqueued_once_in_a_transaction,
                    an_idempotency_key_that_is_committed_is_refused,
                    an_idempotency_key_that_was_rolled_back_is_free,
                    a_batch_with_a_duplicate_key_enqueues_nothing,
                    an_idempotency_key_outlives_its_message,
                    idempotency_keys_are_compared_byte_by_byte,
                    two_open_transactions_do_not_both_enqueue_a_key,
                    an_id_is_enqueued_once,
                    a_duplicate_id_does_not_use_up_an_idempotency_key,
                    a_retried_transaction_finds_out_that_it_was_committed,
                }
                read from new {
                    an_empty_lane_is_read_to_its_end,
                    a_read_to_the_end_says_how_far_it_came,
                    after_is_exclusive_and_until_is_inclusive,
                    a_stretch_may_begin_and_end_where_no_record_stands,
                    only_the_lanes_asked_for_are_read,
                    two_stretches_of_one_lane_are_read_in_one_request,
                    what_is_in_hand_is_passed_over,
                    keys_can_be_left_out,
                    keys_can_be_singled_out,
                    a_key_of_another_type_is_another_key,
                    max_rows_ends_a_page,
                    max_rows_counts_what_is_returned_not_what_is_passed_over,
                    max_rows_holds_for_all_scans_together,
                    max_bytes_ends_a_page,
                    a_page_holds_at_least_one_record_however_large,
                    a_large_record_waits_for_the_next_page,
                    records_that_are_passed_over_take_no_bytes,
                    tombstones_take_no_bytes,
                    max_scanned_ends_a_scan,
                    max_scanned_counts_for_each_scan,
                    records_that_are_not_ready_are_not_looked_at,
                    a_walk_by_pages_sees_each_record_once,
                    a_read_changes_nothing,
                    another_store_on_the_database_reads_the_same,
                    long_lists_of_positions_and_keys_are_no_trouble,
                    the_largest_bounds_are_no_trouble,
                }
                held_back from new {
                    a_delayed_message_is_not_read_before_its_time,
                    a_due_record_says_that_it_was_held_back,
                    later_records_of_a_delayed_ones_key_wait_for_it,
                    later_records_wait_until_the_due_one_is_settled,
                    later_records_wait_for_a_retry,
                    a_second_delayed_record_waits_for_the_first,
                    earlier_records_do_not_wait_for_a_later_delayed_one,
                    records_without_a_key_wait_for_nobody,
                    a_dead_record_can_park_its_key,
                    a_dead_record_can_let_its_key_go_on,
                    a_record_that_was_held_back_can_die_and_let_its_key_go_on,
                    a_record_that_was_held_back_can_die_and_park_its_key,
                    blocked_records_can_fill_no_page,
                    due_records_are_read_only_if_asked_for,
                    due_records_with_a_key_can_be_asked_for_up_to_a_position,
                    due_records_without_a_key_are_read_wherever_they_stand,
                    due_records_are_read_outside_of_the_stretch,
                    due_records_are_read_of_the_scanned_lanes_only,
                    due_records_in_hand_are_passed_over,
                    the_choice_of_keys_holds_for_due_records,
                    due_records_take_at_most_half_of_a_page,
                    due_records_count_towards_the_bytes_of_a_page,
                    what_has_been_due_for_longest_is_read_first,
                    a_due_record_is_read_once_in_a_page,
                    available_at_holds_a_message_back,
                    a_delay_is_kept_to_the_millisecond,
                    the_longest_delay_is_no_trouble,
                }
                per_key from new {
                    max_per_key_keeps_a_key_from_filling_the_page,
                    records_beyond_max_per_key_were_looked_at,
                    max_per_key_holds_for_all_scans_together,
                    records_without_a_key_are_not_limited_by_max_per_key,
                    a_due_record_counts_towards_its_keys_limit,
                    a_record_in_hand_does_not_count_towards_its_keys_limit,
                    each_key_has_its_own_limit,
                }
                firm from new {
                    what_an_open_transaction_enqueued_is_not_firm,
                    a_transaction_that_goes_on_enqueueing_is_not_firm,
                    nothing_new_appears_up_to_a_firm_position,
                    what_is_in_hand_does_not_change_what_is_firm,
                }
                lease from new {
                    the_first_relay_takes_all_lanes,
                    a_renewal_keeps_lanes_and_tokens,
                    a_second_relay_gets_nothing_that_is_held,
                    a_second_relay_gets_its_share_when_the_first_gives_back,
                    nobody_takes_more_than_its_share,
                    three_relays_share_all_lanes,
                    more_relays_than_lanes_stand_by,
                    lanes_are_free_at_once_when_their_relay_leaves,
                    leaving_twice_or_without_having_joined_does_nothing,
                    lanes_of_an_expired_lease_are_taken_over,
                    a_lane_is_from_expired_only_in_the_call_that_took_it,
                    a_lease_lasts_until_its_end,
                    a_renewal_moves_the_end,
                    a_renewal_can_shorten_a_lease,
                    a_late_renewal_keeps_lanes_that_nobody_took,
                    a_late_renewal_does_not_get_back_lanes_that_were_taken,
                    lanes_given_back_are_not_taken_again_in_the_same_call,
                    lanes_of_others_cannot_be_given_back,
                    live_relays_are_counted_by_the_databases_clock,
                    two_relays_that_lease_at_once_never_hold_the_same_lane,
                    another_store_on_the_database_sees_the_same_leases,
                    any_name_of_a_relay_will_do,
                    tokens_never_come_back,
                    a_relay_that_left_can_join_again,
                    being_idle_changes_nothing_else,
                    the_longest_lease_is_no_trouble,
                }
                settle from new {
                    every_outcome_leads_to_its_state,
                    a_processed_record_is_not_read_again,
                    a_retry_keeps_its_attempts_and_its_error,
                    a_retry_waits_from_when_it_is_settled,
                    a_retry_without_delay_is_due_at_once,
                    a_retry_is_never_too_early_by_rounding,
                    the_longest_retry_is_no_trouble,
                    a_dead_record_keeps_its_attempts_and_its_error,
                    an_error_text_is_cut_to_1024_characters,
                    any_error_text_can_be_settled,
                    a_released_record_is_ready_as_before,
                    a_released_record_that_was_held_back_stays_so,
                    processed_records_can_be_deleted_at_once,
                    deleting_a_processed_record_lets_its_key_go_on,
                    settling_nothing_is_no_trouble,
                    settling_touches_no_other_record,
                    each_record_of_a_batch_has_its_own_outcome,
                    a_batch_of_5000_is_settled,
                }
                fence from new {
                    who_lost_its_lane_to_another_relay_writes_nothing,
                    who_left_writes_nothing,
                    who_gave_its_lane_back_writes_nothing,
                    who_got_its_lane_back_writes_nothing_by_the_old_token,
                    the_right_token_in_the_wrong_hands_writes_nothing,
                    a_lane_that_nobody_holds_is_settled_by_nobody,
                    a_lease_that_ran_out_still_settles_while_nobody_took_the_lane,
                    one_batch_can_be_stale_in_some_lanes_and_fresh_in_others,
                    settling_twice_does_no_harm,
                    no_outcome_changes_a_settled_record,
                    a_discarded_record_is_gone,
                    a_record_at_that_position_with_another_id_is_gone,
                    an_attempt_is_written_before_it_is_made,
                    the_next_owner_sees_the_attempts_of_the_last,
                    another_store_on_the_database_is_fenced_the_same,
                }
                together from new {
                    the_same_outcomes_settled_at_once_are_written_once,
                    relays_that_share_the_work_settle_each_message_once,
                }
                upkeep from new {
                    old_processed_records_are_purged,
                    a_record_processed_late_is_kept_as_long_as_any,
                    what_is_not_processed_is_never_purged_by_upkeep,
                    processed_records_can_be_kept_for_ever,
                    a_purge_is_bounded_and_says_that_there_is_more,
                    one_relay_at_a_time_does_the_upkeep,
                    the_upkeep_passes_on_when_its_lease_is_over,
                    the_upkeep_is_free_at_once_when_its_relay_leaves,
                    the_upkeep_of_two_relays_at_once_is_one_relays,
                    the_upkeep_holds_no_lane,
                    old_idempotency_keys_are_purged,
                    the_purge_of_keys_is_bounded,
                    idempotency_keys_can_be_kept_for_ever,
                    relays_that_died_long_ago_are_forgotten_and_their_lanes_free,
                    a_relay_that_died_just_now_is_still_shown,
                    live_relays_are_not_forgotten,
                }
                stats from new {
                    an_empty_outbox_has_nothing_to_count,
                    each_state_is_counted,
                    what_is_due_counts_as_ready,
                    what_waits_behind_a_parked_key_counts_as_blocked,
                    counts_stop_at_the_cap,
                    the_age_is_that_of_the_oldest_ready_message,
                    what_waits_has_no_age,
                    lanes_and_relays_are_shown,
                    lanes_of_an_expired_relay_are_not_leased,
                    a_relay_that_left_is_not_shown,
                }
                admin from new {
                    a_list_can_be_of_one_state,
                    what_is_due_is_listed_as_ready,
                    a_list_can_be_of_some_event_types,
                    a_list_is_bounded_and_has_the_oldest_first,
                    a_list_finds_a_match_behind_many_others,
                    a_listed_message_says_what_became_of_it,
                    a_message_that_is_not_there_is_not_shown,
                    a_message_says_whom_it_waits_for,
                    a_dead_message_that_was_skipped_blocks_nobody,
                    a_settled_message_waits_for_nobody,
                }
                mend from new {
                    a_redriven_message_starts_anew,
                    dead_messages_are_selected_by_id,
                    dead_messages_are_selected_by_event_type,
                    all_dead_messages_can_be_selected,
                    only_the_dead_are_redriven_or_discarded,
                    a_dry_run_counts_and_touches_nothing,
                    a_limit_takes_the_oldest_first,
                    the_largest_bounds_of_mending_are_no_trouble,
                    two_redrives_at_once_redrive_each_message_once,
                    a_redrive_under_park_keeps_the_order,
                    a_discard_under_park_lets_the_key_go_on,
                    a_redrive_after_a_skip_touches_no_other_message,
                    mending_a_parked_key_changes_its_lanes_revision,
                    any_redrive_changes_its_lanes_revision,
                    nothing_else_changes_a_revision,
                    a_purge_deletes_what_was_settled_long_ago,
                    a_purge_of_no_age_is_refused,
                    a_purge_is_bounded,
                    a_purge_of_a_parking_message_lets_its_key_go_on,
                }
                schema from unmigrated {
                    migrations_are_pending_until_they_are_applied,
                    migrating_again_does_nothing,
                    migrating_at_once_from_many_places_applies_each_migration_once,
                    migrations_have_rising_versions_names_and_statements,
                    an_outbox_that_was_never_migrated_says_so,
                }
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __store_tests {
    ($fixture:ty; $($topic:ident from $make:ident { $($behaviour:ident,)* })*) => {
        $(
            mod $topic {
                #[allow(unused_imports, reason = "the fixture may be named by a path from the root")]
                use super::*;

                $(
                    #[test]
                    fn $behaviour() {
                        let make = <$fixture as $crate::StoreFixture>::$make;
                        $crate::store::run(make, $crate::store::$topic::$behaviour);
                    }
                )*
            }
        )*
    };
}

/// How long one behaviour may take.
const TIME_LIMIT: Duration = Duration::from_mins(2);

/// Runs one behaviour on a fixture of its own.
///
/// # Panics
/// If the behaviour is not kept, or not done in time.
#[doc(hidden)]
pub fn run<F: StoreFixture>(
    make: impl AsyncFnOnce() -> Option<F>,
    behaviour: impl AsyncFnOnce(&dyn StoreFixture),
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
        let sources = [
            include_str!("admin.rs"),
            include_str!("content.rs"),
            include_str!("enqueue.rs"),
            include_str!("fence.rs"),
            include_str!("firm.rs"),
            include_str!("held_back.rs"),
            include_str!("lease.rs"),
            include_str!("mend.rs"),
            include_str!("order.rs"),
            include_str!("per_key.rs"),
            include_str!("read.rs"),
            include_str!("schema.rs"),
            include_str!("settle.rs"),
            include_str!("stats.rs"),
            include_str!("together.rs"),
            include_str!("upkeep.rs"),
        ];
        crate::run::assert_complete(include_str!("suite.rs"), &sources);
    }
}
