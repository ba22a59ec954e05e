//! What is in a message stays out of the log, whatever is asked for and whatever goes wrong.

use crate::support::{Bed, Ran, run};

/// In a payload, as it is and in base64, and in a header.
const SECRETS: [&str; 3] = ["Zahl4711", "WmFobDQ3MTE", "Kopf4711"];

fn keeps_secrets(ran: &Ran) {
    for secret in SECRETS {
        assert!(!ran.stderr.contains(secret), "{secret} was told: {}", ran.stderr);
    }
}

pub(crate) fn no_content_of_a_message_is_logged_at_any_level(bed: &Bed) {
    let quietly = |arguments: &[&str], input: &str| {
        let mut command = bed.command(arguments);
        command.env("RUST_LOG", "trace");
        let ran = run(command, input.as_bytes());
        keeps_secrets(&ran);
        ran
    };
    let message = r#""headers":{"name":"Kopf4711"},"idempotency_key":"key""#;
    let lines = [
        format!(r#"{{"event_type":"good","payload":{{"number":"Zahl4711"}},{message}}}"#),
        r#"{"event_type":"bad","payload":{"number":"Zahl4711"},"headers":{"name":"Kopf4711"}}"#.to_owned(),
    ];
    assert_eq!(quietly(&["enqueue", "--ndjson", "-"], &lines.join("\n")).code, 0);
    // Refused as a repeat, as no JSON, as a line that is none.
    assert_ne!(quietly(&["enqueue", "--ndjson", "-"], &lines[0]).code, 0);
    let not_json =
        ["enqueue", "--event-type", "e", "--payload", "{Zahl4711", "--content-type", "application/json"];
    assert_eq!(quietly(&not_json, "").code, 2);
    let no_line = r#"{"event_type":"e","payload":"Zahl4711","headers":{"name":["Kopf4711"]}}"#;
    assert_eq!(quietly(&["enqueue", "--ndjson", "-"], no_line).code, 2);
    let ran = quietly(&["relay", "--drain"], "");
    assert!(ran.stderr.contains("TRACE"), "all that there is was logged: {}", ran.stderr);
    assert!(ran.stdout.contains("Zahl4711") && ran.stdout.contains("Kopf4711"), "{ran:?}");
    assert_eq!(quietly(&["list"], "").code, 0);
    assert_eq!(quietly(&["status"], "").code, 0);
}
