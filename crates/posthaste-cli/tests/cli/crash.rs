//! The relay is killed, again and again: nothing is lost, and the order per key stays.

use crate::support::{Bed, check_numbered, json_lines, numbered_lines};

pub(crate) fn kill_9_and_restart_loses_nothing(bed: &Bed) {
    const MESSAGES: usize = 3_000;
    const KILLS: usize = 6;
    bed.enqueue(&numbered_lines(MESSAGES, 30));
    let mut published = Vec::new();
    let options = ["relay", "--lease", "1s", "--max-in-flight", "16", "--window-rows", "64"];
    for kill in 0..KILLS {
        let mut relay = bed.start(&options);
        let mut text = String::new();
        for _ in 0..=(kill * 37 % 150) {
            text.push_str(&relay.line());
        }
        relay.signal("KILL");
        let (code, rest, stderr) = relay.end();
        assert_eq!(code, None, "{stderr}");
        text.push_str(&rest);
        published.extend(json_lines(&text));
    }
    published.extend(bed.drain());
    check_numbered(&published, MESSAGES);
    let status = bed.status();
    assert_eq!((&status["ready"], &status["dead"]), (&0.into(), &0.into()), "{status}");
}

/// With the feature `failpoints`: dies at each place between two steps of the relay, early and late.
#[cfg(feature = "failpoints")]
fn dying_at_any_place_loses_nothing(new_bed: impl Fn() -> Option<Bed>) {
    const MESSAGES: usize = 400;
    for place in posthaste::failpoint::ALL {
        let Some(bed) = new_bed() else { return };
        bed.enqueue(&numbered_lines(MESSAGES, 10));
        let mut published = Vec::new();
        for nth in [1, 2, 7] {
            let mut command =
                bed.command(&["relay", "--drain", "--lease", "1s", "--window-rows", "64", "-q"]);
            command.env("POSTHASTE_FAILPOINT", format!("{place}=abort@{nth}"));
            let output = command.output().unwrap();
            let ended_by_signal = output.status.code().is_none();
            assert!(ended_by_signal || output.status.success(), "{place}@{nth}: {output:?}");
            published.extend(json_lines(std::str::from_utf8(&output.stdout).unwrap()));
        }
        published.extend(bed.drain());
        check_numbered(&published, MESSAGES);
        assert_eq!(bed.status()["dead"], 0, "{place}");
    }
}

#[cfg(feature = "failpoints")]
#[test]
fn dying_at_any_place_loses_nothing_on_sqlite() {
    dying_at_any_place_loses_nothing(|| Some(Bed::new()));
}

#[cfg(feature = "failpoints")]
#[test]
fn dying_at_any_place_loses_nothing_on_postgres() {
    dying_at_any_place_loses_nothing(Bed::on_postgres);
}

#[cfg(feature = "failpoints")]
#[test]
fn dying_at_any_place_loses_nothing_on_mysql() {
    for kind in crate::mysql_server::KINDS {
        dying_at_any_place_loses_nothing(|| Some(Bed::on_mysql(kind)));
    }
}
