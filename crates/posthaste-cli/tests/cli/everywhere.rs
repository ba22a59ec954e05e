//! What is the same on every database: each test runs on each.

use crate::support::Bed;
use crate::{admin, bad_input, crash, enqueue, relay, secrets};

macro_rules! on_every_database {
    ($($file:ident::$test:ident,)*) => {
        mod sqlite {
            $(#[test] fn $test() { super::$file::$test(&super::Bed::new()); })*
        }
        mod mysql {
            use crate::mysql_server::Kind;
            $(#[test] fn $test() { super::$file::$test(&super::Bed::on_mysql(Kind::MySql)); })*
        }
        mod mariadb {
            use crate::mysql_server::Kind;
            $(#[test] fn $test() { super::$file::$test(&super::Bed::on_mysql(Kind::MariaDb)); })*
        }
        mod postgres {
            $(#[test] fn $test() { super::Bed::on_postgres().iter().for_each(super::$file::$test); })*
        }
    };
}

on_every_database! {
    admin::redrive_in_steps_takes_each_message_once,
    admin::redrive_can_be_stopped_and_run_again,
    admin::status_counts_each_state,
    admin::list_filters_by_state_and_event_type_oldest_first,
    admin::list_json_has_every_field,
    admin::show_has_the_payload_and_what_blocks_it,
    admin::redrive_by_id_names_those_that_are_not_dead,
    admin::redrive_by_event_type_and_all,
    admin::discard_deletes_dead_messages_only,
    enqueue::a_message_with_everything_comes_out_as_it_went_in,
    enqueue::absent_fields_are_null_and_a_tombstone_has_no_payload,
    enqueue::an_empty_payload_is_no_tombstone,
    enqueue::payloads_come_from_files_and_stdin_byte_for_byte,
    enqueue::headers_come_from_a_file_too,
    enqueue::an_id_may_be_given_and_is_refused_the_second_time,
    enqueue::an_idempotency_key_is_taken_once,
    enqueue::a_delayed_message_waits,
    enqueue::ndjson_keeps_bytes_and_order,
    enqueue::ndjson_comes_from_a_file_and_from_nothing,
    enqueue::many_lines_are_enqueued_in_bounded_time,
    relay::drain_publishes_everything_in_order_and_ends,
    relay::once_does_one_round_and_null_swallows,
    relay::for_a_time_ends_by_itself,
    relay::retain_decides_what_is_kept,
    relay::a_reader_that_goes_away_ends_the_relay_and_nothing_is_lost_or_counted,
    relay::a_reader_that_stalls_costs_no_attempts_and_makes_no_repeats,
    relay::logs_go_to_stderr_as_text_or_json,
    bad_input::a_bad_line_7_is_named_and_nothing_is_enqueued,
    bad_input::a_duplicate_in_ndjson_is_named_and_nothing_is_enqueued,
    crash::kill_9_and_restart_loses_nothing,
    secrets::no_content_of_a_message_is_logged_at_any_level,
}
