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
