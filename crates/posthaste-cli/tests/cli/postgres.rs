//! What is PostgreSQL's own; what is the same everywhere is in `everywhere.rs`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::process::Stdio;

use serde_json::Value;

use crate::migrate::COMMANDS;
use crate::server::url_with;
use crate::support::{Bed, Ran, bare_command, check_numbered, json_lines, numbered_lines, run};

/// A command on another URL than the bed's.
fn run_at(url: &str, arguments: &[&str]) -> Ran {
    let mut command = bare_command(arguments);
    command.env("POSTHASTE_DATABASE_URL", url);
    run(command, b"")
}

#[test]
fn migrate_makes_the_tables_once() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    let pending = bed.run(&["migrate", "--check"]);
    assert_eq!((pending.code, pending.stdout.as_str()), (1, "pending 1: outbox\npending 2: inbox\n"));
    assert_eq!(bed.ok(&["migrate"]), "applied 1: outbox\napplied 2: inbox\n");
    assert_eq!(bed.ok(&["migrate"]), "up to date\n");
    assert_eq!(bed.ok(&["migrate", "--check"]), "up to date\n");
    assert_eq!(bed.status()["lanes"]["total"], 64);
}

#[test]
fn many_migrate_at_the_same_time() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    let start = |_| bed.command(&["migrate"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let children: Vec<_> = (0..6).map(start).collect();
    let ran = children.into_iter().map(|child| Ran::of(child.wait_with_output().unwrap()).succeeded());
    assert_eq!(ran.filter(|stdout| stdout.starts_with("applied 1")).count(), 1);
}

#[test]
fn printed_migrations_make_the_same_tables_and_take_no_server() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    let print = |options: &[&str]| {
        let url = format!("postgresql://nobody@127.0.0.1:1/nowhere?schema={}", bed.schema().name);
        run_at(&url, &[&["migrate", "--print"], options].concat()).succeeded()
    };
    bed.schema().sql_as_it_is(&print(&["--lanes", "8", "--wake-trigger"]));
    assert_eq!(bed.ok(&["migrate", "--check"]), "up to date\n");
    bed.enqueue_one(&["--event-type", "e"]);
    assert_eq!(bed.drain().len(), 1);
    assert_eq!(bed.status()["lanes"]["total"], 8);
    let triggers = bed.schema().sql("SELECT count(*) FROM pg_trigger WHERE tgrelid = '{}.outbox'::regclass");
    assert_eq!(triggers, "1");
    assert!(print(&["--partition", "month"]).contains("PARTITION BY RANGE (id)"));
    let inbox = print(&["--inbox-only"]);
    assert!(inbox.starts_with("-- 2: inbox") && !inbox.contains("-- 1: "), "{inbox}");
}

#[test]
fn settings_count_when_the_outbox_is_made() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    bed.ok(&["migrate", "--lanes", "16", "--wake-trigger"]);
    assert_eq!(bed.status()["lanes"]["total"], 16);
    let again = bed.run(&["migrate", "--lanes", "32"]);
    assert_eq!((again.code, again.stdout.as_str()), (0, "up to date\n"));
    assert!(again.stderr.contains("the outbox was there before"), "{again:?}");
    assert_eq!(bed.status()["lanes"]["total"], 16);
    bed.run(&["migrate", "--partition", "day"]).failed_with(2, &["is not partitioned"]);
    bed.run(&["partitions", "--once"]).failed_with(2, &["is not partitioned"]);
}

#[test]
fn the_wake_trigger_can_be_added_to_an_outbox_that_is_there() {
    let Some(bed) = Bed::on_postgres() else { return };
    let check = bed.run(&["migrate", "--check", "--wake-trigger"]);
    assert_eq!((check.code, check.stdout.as_str()), (1, "pending 1: wake trigger\n"));
    assert_eq!(bed.ok(&["migrate", "--wake-trigger"]), "applied 1: wake trigger\n");
    assert_eq!(bed.ok(&["migrate", "--wake-trigger"]), "up to date\n");
    assert_eq!(bed.ok(&["migrate"]), "up to date\n", "and without the option it stays");
    let mut relay = bed.start(&["relay", "--idle-poll", "1h"]);
    let awaiting = || bed.schema().sql("SELECT idle FROM {}.outbox_wake") == "t";
    assert!((0..2_000).any(|_| awaiting()), "the relay never said that it wants to be called");
    bed.schema().sql("INSERT INTO {}.outbox (event_type) VALUES ('plain')");
    assert!(relay.line().contains("plain"));
    relay.signal("TERM");
    assert_eq!(relay.end().0, Some(0));
}

/// Who adds it waits for a lock for a second at most: producers queue behind it.
#[test]
fn adding_the_wake_trigger_gives_way_to_a_long_transaction() {
    let Some(bed) = Bed::on_postgres() else { return };
    let producer = bed.schema().hold("INSERT INTO {}.outbox (event_type) VALUES ('e')");
    bed.run(&["migrate", "--wake-trigger"]).failed_with(1, &["a lock was not to be had in time"]);
    drop(producer);
    assert_eq!(bed.ok(&["migrate", "--wake-trigger"]), "applied 1: wake trigger\n");
}

#[test]
fn an_inbox_stands_by_itself() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    assert_eq!(bed.ok(&["migrate", "--inbox-only"]), "applied 2: inbox\n");
    assert_eq!(bed.ok(&["migrate", "--inbox-only", "--check"]), "up to date\n");
    bed.run(&["status"]).failed_with(1, &["there is no outbox table", "posthaste migrate"]);
    assert_eq!(bed.ok(&["migrate"]), "applied 1: outbox\n");
}

#[test]
fn sqlite_refuses_what_is_postgresqls() {
    let bed = Bed::new();
    let options: &[&[&str]] = &[
        &["migrate", "--partition", "day"],
        &["migrate", "--wake-trigger"],
        &["migrate", "--lanes", "8"],
        &["migrate", "--inbox-only"],
        &["migrate", "--check", "--inbox-only"],
        &["migrate", "--print", "--partition", "month"],
        &["relay", "--listen-url", "postgres://host/db"],
        &["relay", "--no-listen"],
    ];
    let mut command = bed.command(&["relay", "--drain", "-q"]);
    command.env("POSTHASTE_LISTEN_URL", "");
    run(command, b"").succeeded();
    for arguments in options {
        let option = arguments.iter().rfind(|argument| argument.starts_with("--")).unwrap();
        bed.run(arguments).failed_with(2, &[option, "is for PostgreSQL", "hint: "]);
    }
    bed.run(&["partitions", "--once"]).failed_with(2, &["has no partitions", "hint: "]);
}

#[test]
fn the_schema_is_named_in_the_url_or_with_the_table() {
    let Some(bed) = Bed::on_postgres() else { return };
    let schema = &bed.schema().name;
    let plain = crate::server::server_url();
    bed.enqueue_one(&["--event-type", "e"]);
    let table = format!("{schema}.outbox");
    let status = run_at(&plain, &["status", "--json", "--table", &table]).succeeded();
    assert_eq!(serde_json::from_str::<Value>(&status).unwrap()["ready"], 1);
    let other = bed.schema().url().replacen("postgres:", "postgresql:", 1);
    let odd = "Or\"der select";
    run_at(&other, &["migrate", "--table", odd]).succeeded();
    run_at(&other, &["enqueue", "--event-type", "odd", "--table", odd]).succeeded();
    let lines = run_at(&other, &["relay", "--drain", "-q", "--table", odd]).succeeded();
    assert!(lines.contains("\"event_type\":\"odd\"") && lines.lines().count() == 1, "{lines}");
    assert_eq!(bed.status()["ready"], 1);
}

#[test]
fn purge_deletes_what_was_settled_long_ago() {
    let Some(bed) = Bed::on_postgres() else { return };
    bed.enqueue("{\"event_type\":\"good\"}\n{\"event_type\":\"bad\"}\n");
    bed.kill_bad_messages();
    bed.enqueue_one(&["--event-type", "ready"]);
    assert_eq!(bed.ok(&["purge", "--older-than", "1d", "--include-dead"]), "purged 0 messages (0 dead)\n");
    bed.schema().sql("UPDATE {}.outbox SET processed_at = processed_at - interval '30 days'");
    assert_eq!(bed.ok(&["purge", "--older-than", "7d"]), "purged 1 message\n");
    assert_eq!(bed.ok(&["purge", "--older-than", "7d", "--include-dead"]), "purged 1 message (1 dead)\n");
    assert_eq!(bed.list(&[]).len(), 1);
}

#[test]
fn a_bad_line_far_behind_is_named_and_nothing_is_enqueued() {
    let Some(bed) = Bed::on_postgres() else { return };
    let good = "{\"event_type\":\"e\",\"payload\":\"x\"}\n".repeat(2_500);
    let key = "{\"event_type\":\"e\",\"idempotency_key\":\"k\"}\n";
    // The same key again, in a later chunk; and in the same one.
    for (input, line) in [(format!("{key}{good}\n{key}{good}"), 2_503), (format!("{good}{key}{key}"), 2_502)]
    {
        let ran = bed.run_with_input(&["enqueue", "--ndjson", "-"], &input);
        ran.failed_with(1, &[&format!("error: line {line}: "), "hint: the message was enqueued before"]);
        assert_eq!(bed.status()["ready"], 0);
    }
    assert_eq!(bed.run_with_input(&["enqueue", "--ndjson", "-"], &good).succeeded(), "2500\n");
}

#[test]
fn two_relays_share_the_work_and_publish_each_message_once() {
    let Some(bed) = Bed::on_postgres() else { return };
    let names = ["first", "second"];
    let relays = names.map(|name| {
        let stdout = File::create(bed.path(name)).unwrap();
        bed.start_into(&["relay", "--idle-poll", "20ms", "--lease", "2s", "--name", name], stdout)
    });
    bed.wait_for_status("shared by two relays", |status| {
        let relays = status["relays"].as_array().unwrap();
        relays.len() == 2 && relays.iter().all(|relay| relay["lanes"] == 32)
    });
    bed.enqueue(&numbered_lines(4_000, 200));
    bed.wait_for_status("drained", |status| status["ready"] == 0);
    for relay in relays {
        relay.signal("TERM");
        let (code, _, stderr) = relay.end();
        assert_eq!(code, Some(0), "{stderr}");
    }
    let published = names.map(|name| json_lines(&fs::read_to_string(bed.path(name)).unwrap()));
    let keys = published.each_ref().map(|lines| {
        assert!(!lines.is_empty(), "one of the relays did nothing");
        lines.iter().map(|line| line["aggregate_id"].as_str().unwrap()).collect::<BTreeSet<_>>()
    });
    assert!(keys[0].is_disjoint(&keys[1]), "a key has one relay");
    assert_eq!(check_numbered(&published.concat(), 4_000), 0);
}

#[test]
fn a_waiting_relay_is_woken_by_enqueue_without_polling() {
    let Some(bed) = Bed::on_postgres() else { return };
    let mut relay = bed.start(&["relay", "--idle-poll", "1h"]);
    let first = bed.enqueue_one(&["--event-type", "first"]);
    assert!(relay.line().contains(&first));
    let awaiting = || bed.schema().sql("SELECT idle FROM {}.outbox_wake") == "t";
    assert!((0..2_000).any(|_| awaiting()), "the relay never said that it wants to be called");
    let second = bed.enqueue_one(&["--event-type", "second"]);
    assert!(relay.line().contains(&second));
    relay.signal("TERM");
    assert_eq!(relay.end().0, Some(0));
}

#[test]
fn a_relay_may_listen_elsewhere_or_not_at_all() {
    let Some(bed) = Bed::on_postgres() else { return };
    bed.enqueue_one(&["--event-type", "e"]);
    let mut command = bed.command(&["relay", "--drain", "-q"]);
    command.env("POSTHASTE_LISTEN_URL", crate::server::server_url());
    assert_eq!(json_lines(&run(command, b"").succeeded()).len(), 1);
    let mut relay = bed.start(&["relay", "--no-listen", "--idle-poll", "20ms"]);
    let id = bed.enqueue_one(&["--event-type", "polled"]);
    assert!(relay.line().contains(&id));
    assert_eq!(bed.schema().sql("SELECT idle FROM {}.outbox_wake"), "f");
    let url = "postgres://ann:s3cret@127.0.0.1:1/db";
    let ran = bed.run(&["relay", "--drain", "--listen-url", url]);
    assert!(ran.stderr.starts_with("warning: the password in --listen-url"), "{ran:?}");
    assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
}

#[test]
fn a_database_that_is_not_migrated_or_newer_or_of_somebody_else() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    for arguments in COMMANDS {
        bed.run(arguments).failed_with(1, &["there is no outbox table", "posthaste migrate"]);
    }
    bed.schema().sql("CREATE TABLE {}.outbox (letter text)");
    for arguments in COMMANDS.iter().chain([&["migrate"][..]].iter()) {
        bed.run(arguments).failed_with(1, &["was not made by posthaste"]);
    }
    bed.schema().sql("DROP TABLE {}.outbox");
    bed.ok(&["migrate"]);
    bed.schema().sql("INSERT INTO {}.outbox_migrations (version, name) VALUES (9999, 'from the future')");
    for arguments in COMMANDS.iter().chain([&["migrate"][..], &["migrate", "--check"]].iter()) {
        bed.run(arguments).failed_with(1, &["9999", "upgrade"]);
    }
}

#[test]
fn a_wrong_role_host_or_database() {
    let Some(bed) = Bed::on_postgres() else { return };
    bed.schema().role();
    let known = format!("{}:s3cret", bed.schema().name);
    let cases = [
        (url_with("no_such_role:s3cret", None, None), 1, "the server refused the user"),
        (url_with("ann:s3cret", Some("127.0.0.1:1"), None), 1, "the server cannot be reached"),
        (url_with("ann:s3cret", Some("no-such-host.invalid"), None), 1, "the server cannot be reached"),
        (url_with(&known, None, Some("no_such_database")), 2, "does not exist"),
        ("postgres://ann:s3cret@:x/d".to_owned(), 2, "the database URL cannot be used"),
        ("postgres://ann:s3cret@/d".to_owned(), 2, "names no host"),
        ("postgres://ann:s3cret@h/d?sslmode=sure".to_owned(), 2, "sslmode"),
    ];
    for (url, code, part) in cases {
        for arguments in COMMANDS.iter().chain([&["migrate"][..], &["migrate", "--check"]].iter()) {
            let ran = run_at(&url, arguments);
            ran.failed_with(code, &[part]);
            assert!(!ran.stderr.contains("db error"), "said twice: {ran:?}");
            assert!(!ran.stderr.contains("s3cret") && !ran.stderr.contains("warning"), "{ran:?}");
        }
        let ran = run(bare_command(&["status", "--database-url", &url]), b"");
        assert!(ran.stderr.starts_with("warning: the password in --database-url"), "{ran:?}");
        assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
    }
}

#[test]
fn what_a_role_lacks_is_said() {
    let Some(bed) = Bed::on_postgres() else { return };
    bed.enqueue_one(&["--event-type", "e"]);
    let url = bed.schema().role();
    for arguments in COMMANDS {
        run_at(&url, arguments).failed_with(1, &["permission denied", "this takes", "docs/postgres.md"]);
    }
    bed.schema().sql("GRANT USAGE ON SCHEMA {} TO {}; GRANT SELECT ON {}.outbox_migrations TO {}");
    run_at(&url, &["status"]).failed_with(1, &["SELECT, INSERT, UPDATE and DELETE on"]);
    run_at(&url, &["enqueue", "--event-type", "e"]).failed_with(1, &["INSERT on"]);
    bed.schema().sql("GRANT SELECT ON ALL TABLES IN SCHEMA {} TO {}");
    run_at(&url, &["status"]).succeeded();
    // It is said at once, and not tried again and again.
    run_at(&url, &["relay"]).failed_with(1, &["permission denied"]);
    run_at(&url, &["migrate", "--table", "other"]).failed_with(1, &["CREATE on the schema"]);
}

#[test]
fn a_producer_needs_no_more_than_its_rights() {
    let Some(bed) = Bed::on_postgres() else { return };
    let url = bed.schema().role();
    bed.schema().sql(
        "GRANT USAGE ON SCHEMA {} TO {}; GRANT INSERT ON {}.outbox, {}.outbox_key TO {}; \
         GRANT SELECT ON {}.outbox_wake TO {}",
    );
    run_at(&url, &["enqueue", "--event-type", "e", "--idempotency-key", "k"]).succeeded();
    run_at(&url, &["enqueue", "--event-type", "e", "--idempotency-key", "k"])
        .failed_with(1, &["was enqueued before"]);
    run_at(&url, &["list"]).failed_with(1, &["permission denied"]);
    assert_eq!(bed.drain().len(), 1);
}

#[test]
fn plain_sql_is_a_whole_message() {
    let Some(bed) = Bed::on_postgres() else { return };
    bed.schema().sql("INSERT INTO {}.outbox (event_type, payload) VALUES ('e', '\\xff00')");
    assert_eq!(bed.drain()[0]["payload_base64"], "/wA=");
}

#[test]
fn partitions_are_made_ahead_and_old_ones_dropped() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    bed.ok(&["migrate", "--partition", "day"]);
    assert_eq!(bed.ok(&["migrate", "--partition", "day"]), "up to date\n");
    bed.run(&["migrate", "--partition", "month"]).failed_with(2, &["of another length"]);
    bed.enqueue(&numbered_lines(300, 7));
    assert_eq!(check_numbered(&bed.drain(), 300), 0);
    assert_eq!(bed.ok(&["partitions", "--once"]), "nothing to do\n");
    let made = bed.ok(&["partitions", "--once", "--lookahead", "33d"]);
    assert_eq!(made.lines().filter(|line| line.starts_with("created outbox_p")).count(), 3, "{made}");

    for (name, last, status) in [("done", "0193a000", 1), ("open", "0193b000", 0), ("dead", "0193c000", -1)] {
        let bounds =
            format!("FROM ('{last}-0000-0000-0000-000000000000') TO ('{last}-0001-0000-0000-000000000000')");
        bed.schema().sql(&format!(
            "CREATE TABLE {{}}.{name} PARTITION OF {{}}.outbox FOR VALUES {bounds}; \
             INSERT INTO {{}}.outbox (id, event_type, status) \
             VALUES ('{last}-0000-7000-8000-000000000000', 'e', {status})"
        ));
    }
    let kept = |name: &str| format!("kept {name}, which holds messages that are not over\n");
    assert_eq!(bed.ok(&["partitions", "--once", "--retention", "forever"]), "nothing to do\n");
    let text = bed.ok(&["partitions", "--once", "--lookahead", "1d"]);
    assert_eq!(text, format!("dropped done\n{}{}", kept("dead"), kept("open")));
    let text = bed.ok(&["partitions", "--once", "--lookahead", "1d", "--include-dead"]);
    assert_eq!(text, format!("dropped dead\n{}", kept("open")));
}

#[test]
fn partitions_from_printed_sql_need_a_length_once() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    bed.schema().sql_as_it_is(&bed.ok(&["migrate", "--print", "--partition", "month"]));
    bed.run(&["partitions", "--once"]).failed_with(2, &["there is no partition yet", "--partition month"]);
    let made = bed.ok(&["partitions", "--once", "--partition", "month", "--lookahead", "1d"]);
    assert!(made.starts_with("created outbox_p"), "{made}");
    assert_eq!(bed.ok(&["partitions", "--once", "--lookahead", "1d"]), "nothing to do\n");
}

#[test]
fn the_maintainer_runs_until_it_is_stopped() {
    for signal in ["TERM", "INT"] {
        let Some(bed) = Bed::bare_on_postgres() else { return };
        bed.ok(&["migrate", "--partition", "month"]);
        let mut running = bed.start(&["partitions", "--lookahead", "100d", "--check-every", "20ms"]);
        let first = running.line();
        let name = first.trim_end().strip_prefix("created ").unwrap().to_owned();
        running.line();
        bed.schema().sql(&format!("DROP TABLE {{}}.\"{name}\""));
        loop {
            if running.line() == first {
                break;
            }
        }
        running.signal(signal);
        let (code, _, stderr) = running.end();
        assert_eq!(code, Some(0), "{stderr}");
    }
}

#[test]
fn a_long_reader_postpones_a_drop() {
    let Some(bed) = Bed::bare_on_postgres() else { return };
    bed.ok(&["migrate", "--partition", "day"]);
    let bounds = "FROM ('0193a000-0000-0000-0000-000000000000') TO ('0193a001-0000-0000-0000-000000000000')";
    bed.schema().sql(&format!("CREATE TABLE {{}}.old PARTITION OF {{}}.outbox FOR VALUES {bounds}"));
    let reader = bed.schema().hold("SELECT count(*) FROM {}.old");
    let ran = bed.run(&["partitions", "--once"]);
    assert_eq!(ran.stdout, "postponed old\n", "{ran:?}");
    ran.failed_with(1, &["1 change was postponed", "hint: run it again"]);
    drop(reader);
    assert_eq!(bed.ok(&["partitions", "--once"]), "dropped old\n");
}
