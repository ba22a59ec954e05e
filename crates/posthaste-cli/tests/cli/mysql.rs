//! What is MySQL's and MariaDB's own; what is the same everywhere is in `everywhere.rs`.

use std::process::Stdio;

use crate::migrate::COMMANDS;
use crate::mysql_server::KINDS;
use crate::support::{Bed, Ran, bare_command, run};

/// A command on another URL than the bed's.
fn run_at(url: &str, arguments: &[&str]) -> Ran {
    let mut command = bare_command(arguments);
    command.env("POSTHASTE_DATABASE_URL", url);
    run(command, b"")
}

#[test]
fn migrate_makes_the_tables_once() {
    for kind in KINDS {
        let bed = Bed::bare_on_mysql(kind);
        let pending = bed.run(&["migrate", "--check"]);
        assert_eq!((pending.code, pending.stdout.as_str()), (1, "pending 1: outbox\npending 2: inbox\n"));
        assert_eq!(bed.ok(&["migrate", "--lanes", "16"]), "applied 1: outbox\napplied 2: inbox\n");
        assert_eq!(bed.ok(&["migrate"]), "up to date\n");
        assert_eq!(bed.ok(&["migrate", "--check"]), "up to date\n");
        assert_eq!(bed.status()["lanes"]["total"], 16);
        let mariadb = bed.url().replacen("mysql:", "mariadb:", 1);
        run_at(&mariadb, &["status"]).succeeded();
    }
}

#[test]
fn many_migrate_at_the_same_time() {
    for kind in KINDS {
        let bed = Bed::bare_on_mysql(kind);
        let start =
            |_| bed.command(&["migrate"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let children: Vec<_> = (0..4).map(start).collect();
        let ran = children.into_iter().map(|child| Ran::of(child.wait_with_output().unwrap()).succeeded());
        assert_eq!(ran.filter(|stdout| stdout.starts_with("applied 1")).count(), 1);
    }
}

/// The same script serves both servers, and takes neither to be printed.
#[test]
fn printed_migrations_make_the_same_tables() {
    for kind in KINDS {
        for options in [
            &[][..],
            &["--payload", "binary"],
            &["--partition", "day"],
            &["--payload", "json", "--lanes", "8"],
        ] {
            let bed = Bed::bare_on_mysql(kind);
            let print = [&["migrate", "--print"], options].concat();
            let script = run_at("mysql://nobody@127.0.0.1:1/nowhere", &print).succeeded();
            for statement in script.split(";\n").filter(|it| it.contains("TABLE") || it.contains("INSERT")) {
                let statement = statement.replace("`outbox", &format!("`{}`.`outbox", bed.mysql().name));
                bed.mysql().sql(&statement);
            }
            assert_eq!(bed.ok(&["migrate", "--check"]), "up to date\n");
            bed.enqueue_one(&["--event-type", "e", "--payload", "{}"]);
            assert_eq!(bed.drain().len(), 1);
        }
        let inbox = run_at("mysql://h/d", &["migrate", "--print", "--inbox-only"]).succeeded();
        assert!(inbox.starts_with("-- 2: inbox") && !inbox.contains("-- 1: "), "{inbox}");
    }
}

#[test]
fn a_table_of_velmies_is_completed_and_said_to_be() {
    for kind in KINDS {
        let bed = Bed::bare_on_mysql(kind);
        bed.ok(&["migrate"]);
        for drop in [
            "DROP TABLE {}.outbox_migrations, {}.outbox_lane, {}.outbox_relay, {}.outbox_key, {}.outbox_inbox",
            "ALTER TABLE {}.outbox DROP INDEX posthaste_ready, DROP INDEX posthaste_held",
            "ALTER TABLE {}.outbox DROP COLUMN held_key, DROP COLUMN lane",
            "ALTER TABLE {}.outbox DROP COLUMN parked, DROP COLUMN tombstone, DROP COLUMN content_type",
        ] {
            bed.mysql().sql(drop);
        }
        bed.mysql().sql(
            "INSERT INTO {}.outbox (id, aggregate_type, aggregate_id, event_type, payload) VALUES \
             (UNHEX('018CC251F40070008000000000000001'), 'order', '7', 'theirs', '{\"n\":1}')"
                .replace("{}.", &format!("{}.", bed.mysql().name))
                .as_str(),
        );
        let ran = bed.run(&["migrate"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "applied 1: outbox\napplied 2: inbox\n"), "{ran:?}");
        assert!(ran.stderr.contains("ADD INDEX posthaste_ready"), "{ran:?}");
        assert!(ran.stderr.contains("reads the whole table"), "{ran:?}");
        assert_eq!(bed.drain()[0]["event_type"], "theirs");
    }
}

#[test]
fn options_of_other_databases_are_refused() {
    let bed = Bed::bare_on_mysql(KINDS[0]);
    bed.run(&["migrate", "--wake-trigger"])
        .failed_with(2, &["--wake-trigger", "is for PostgreSQL", "hint: "]);
    bed.run(&["relay", "--no-listen"]).failed_with(2, &["--no-listen", "is for PostgreSQL"]);
    let sqlite = Bed::new();
    sqlite.run(&["migrate", "--payload", "binary"]).failed_with(2, &["--payload", "is for MySQL", "hint: "]);
    sqlite
        .run(&["cleanup", "--retention", "1d", "--once"])
        .failed_with(2, &["cleanup is for MySQL", "hint: "]);
    bed.run(&["migrate", "--payload", "text"]).failed_with(2, &["json", "binary"]);
    for bad in ["mysql://u:secret@h", "mysql:h/d", "mysql://u:secret@h/d?sslmode=x"] {
        let ran = run_at(bad, &["status"]);
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(!ran.stderr.contains("secret"), "{ran:?}");
    }
}

#[test]
fn commands_say_that_the_tables_are_missing() {
    for kind in KINDS {
        let bed = Bed::bare_on_mysql(kind);
        for arguments in COMMANDS {
            bed.run(arguments).failed_with(1, &["outbox", "posthaste migrate"]);
        }
        bed.mysql().sql("CREATE TABLE {}.outbox (id INT PRIMARY KEY)");
        bed.run(&["migrate"]).failed_with(1, &["is no outbox"]);
    }
}

#[test]
fn payloads_that_are_no_json_are_refused_by_the_json_layout() {
    for kind in KINDS {
        let bed = Bed::bare_on_mysql(kind);
        bed.ok(&["migrate"]);
        bed.run(&["enqueue", "--event-type", "e", "--payload", "text"])
            .failed_with(2, &["JSON", "--payload binary"]);
        bed.enqueue_one(&["--event-type", "e", "--payload", "{\"a\":1}"]);
        assert_eq!(bed.drain().len(), 1);
    }
}

#[test]
fn partitions_are_made_and_dropped() {
    for kind in KINDS {
        let bed = Bed::bare_on_mysql(kind);
        bed.ok(&["migrate", "--partition", "day"]);
        let lock = format!("lock {}", bed.mysql().name);
        let partitions = |options: &[&str]| {
            let arguments = ["partitions", "--once", "--lock-name", &lock];
            bed.run(&[&arguments, options].concat()).succeeded()
        };
        let made = partitions(&["--period", "day", "--lookahead", "960h"]);
        assert_eq!(made.lines().filter(|line| line.starts_with("created p20")).count(), 10, "{made}");
        assert_eq!(partitions(&[]), "nothing to do\n");
        assert_eq!(partitions(&["--retention", "168h"]), "nothing to do\n");
        bed.run(&["partitions", "--once", "--lock-name", &"x".repeat(65)]).failed_with(2, &["64"]);
        bed.run(&["migrate", "--partition", "month"]).failed_with(2, &["of another length"]);
    }
}

#[test]
fn cleanup_deletes_what_was_settled_long_ago() {
    for kind in KINDS {
        let bed = Bed::on_mysql(kind);
        bed.enqueue("{\"event_type\":\"good\"}\n{\"event_type\":\"bad\"}\n");
        bed.kill_bad_messages();
        bed.enqueue_one(&["--event-type", "ready"]);
        let url = bed.mysql().user("SELECT, DELETE");
        let lock = format!("lock {}", bed.mysql().name);
        let cleanup = |options: &[&str]| {
            let arguments = ["cleanup", "--once", "--lock-name", &lock, "--retention", "168h"];
            run_at(&url, &[&arguments, options].concat()).succeeded()
        };
        assert_eq!(cleanup(&["--include-dead"]), "deleted 0 messages (0 dead)\n");
        bed.mysql().sql("UPDATE {}.outbox SET processed_at = processed_at - INTERVAL 30 DAY");
        assert_eq!(cleanup(&["--limit", "0"]), "deleted 1 message (0 dead)\n");
        assert_eq!(cleanup(&["--include-dead"]), "deleted 1 message (1 dead)\n");
        assert_eq!(bed.list(&[]).len(), 1);
        bed.run(&["cleanup", "--retention", "0s"]).failed_with(2, &["retention"]);
        bed.run(&["cleanup", "--once"]).failed_with(2, &["--retention"]);
        assert_eq!(bed.ok(&["purge", "--older-than", "7d"]), "purged 0 messages\n");
    }
}
