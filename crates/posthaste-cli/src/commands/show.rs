//! `posthaste show`: one message whole.

use std::collections::BTreeMap;

use posthaste::{MessageDetails, MessageId};
use serde::Serialize;

use super::list::{InfoJson, key_text, style_of};
use super::stored_id;
use crate::database::Target;
use crate::failure::Failure;
use crate::output::{Output, PayloadFields, Style, Table, printable, timestamp};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The message's id, as `enqueue` printed it
    #[arg(value_name = "ID", value_parser = stored_id)]
    id: MessageId,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
With --json, the object has the fields of `posthaste list --json`, and: lane, content_type, \
headers, idempotency_key, blocked_by (the earlier message of its key that it waits for), and \
the payload as `payload` (its text) or `payload_base64` (where it is not UTF-8). A tombstone \
has neither.

Examples:
  posthaste show 01890a5d-ac96-774b-bcce-b302099a8057
  posthaste show 01890a5d-ac96-774b-bcce-b302099a8057 --json | jq -r .payload";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let Some(message) = target.open().await?.admin.show(args.id).await? else {
        return Err(Failure::failed(format!("there is no message {}", args.id))
            .hint("it may have been discarded, or purged after it was published"));
    };
    let mut output = Output::new();
    if args.json {
        output.json(&DetailsJson::new(&message))?;
    } else {
        print(&mut output, &message)?;
    }
    Ok(output.finish()?)
}

#[derive(Serialize)]
struct DetailsJson<'a> {
    #[serde(flatten)]
    info: InfoJson<'a>,
    lane: u16,
    content_type: Option<&'a str>,
    headers: &'a BTreeMap<String, String>,
    idempotency_key: Option<&'a str>,
    blocked_by: Option<String>,
    #[serde(flatten)]
    payload: PayloadFields<'a>,
}

impl<'a> DetailsJson<'a> {
    fn new(message: &'a MessageDetails) -> Self {
        Self {
            info: InfoJson::new(&message.info),
            lane: message.lane.0,
            content_type: message.content_type.as_deref(),
            headers: &message.headers,
            idempotency_key: message.idempotency_key.as_deref(),
            blocked_by: message.blocked_by.map(|id| id.to_string()),
            payload: PayloadFields::new(message.payload.as_deref()),
        }
    }
}

fn print(output: &mut Output, message: &MessageDetails) -> std::io::Result<()> {
    let info = &message.info;
    let mut table = Table::new();
    table.field("id", info.id.to_string());
    let state = (info.state.as_str().to_owned(), style_of(info.state));
    table.row(vec![("state".into(), Style::Faint), state]);
    if let Some(id) = message.blocked_by {
        table.field("blocked by", format!("{id}, an earlier message of its key"));
    }
    table.field("event type", printable(&info.event_type));
    table.field("key", printable(&key_text(info)));
    table.field("attempts", info.attempts.to_string());
    table.field("enqueued", timestamp(info.enqueued_at));
    let optional = [
        ("next attempt", info.next_attempt_at.map(timestamp)),
        ("settled", info.settled_at.map(timestamp)),
        ("last error", info.last_error.as_deref().map(printable)),
        ("idempotency key", message.idempotency_key.as_deref().map(printable)),
        ("content type", message.content_type.as_deref().map(printable)),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            table.field(name, value);
        }
    }
    table.field("lane", message.lane.0.to_string());
    for (name, value) in &message.headers {
        table.field("header", format!("{}: {}", printable(name), printable(value)));
    }
    table.field("payload", payload_summary(message));
    output.table(&table)?;
    match message.payload.as_deref().map(std::str::from_utf8) {
        Some(Ok(text)) if !text.is_empty() => {
            output.line("")?;
            text.lines().try_for_each(|line| output.line(printable(line)))
        }
        _ => Ok(()),
    }
}

fn payload_summary(message: &MessageDetails) -> String {
    match message.payload.as_deref() {
        None => "none (a tombstone)".into(),
        Some([]) => "empty".into(),
        Some(bytes) if std::str::from_utf8(bytes).is_ok() => format!("{} bytes:", bytes.len()),
        Some(bytes) => format!("{} bytes that are no UTF-8; --json shows them as base64", bytes.len()),
    }
}
