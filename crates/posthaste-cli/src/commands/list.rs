//! `posthaste list`: messages, without their payloads.

use std::num::NonZeroUsize;

use clap::ValueEnum;
use posthaste::{Glob, ListFilter, MessageInfo, State};
use serde::Serialize;

use crate::database::Target;
use crate::failure::Failure;
use crate::numbers::at_least_one;
use crate::output::{Output, Style, Table, non_empty, printable, timestamp};

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only messages in this state
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<StateArg>,

    /// Only messages whose event type matches: * stands for any characters, ? for one
    #[arg(long, value_name = "GLOB")]
    event_type: Option<String>,

    /// List at most so many messages
    #[arg(long, value_name = "N", default_value = "50", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    limit: NonZeroUsize,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
With --json, each line has: id, state, event_type, aggregate_type, aggregate_id, attempts, \
enqueued_at, next_attempt_at, settled_at, last_error. Fields are always there, and null where \
there is no value.

The oldest come first, in order of enqueueing. On PostgreSQL, processed messages and a list of all \
states come in order of their ids, which is that of the times at which the messages were made.

Examples:
  posthaste list --state dead
  posthaste list --state waiting --event-type 'order.*' --limit 500
  posthaste list --state dead --json | jq -r .last_error | sort | uniq -c";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum StateArg {
    /// May be published now
    Ready,
    /// Not yet: delayed, after a failure, or behind an earlier message of its key
    Waiting,
    /// Given up
    Dead,
    /// Published, and kept for a time
    Processed,
}

impl From<StateArg> for State {
    fn from(state: StateArg) -> Self {
        match state {
            StateArg::Ready => Self::Ready,
            StateArg::Waiting => Self::Waiting,
            StateArg::Dead => Self::Dead,
            StateArg::Processed => Self::Processed,
        }
    }
}

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let filter = ListFilter {
        state: args.state.map(State::from),
        event_type: args.event_type.map(Glob::new),
        limit: args.limit.get(),
    };
    let messages = target.open().await?.admin.list(&filter).await?;
    let mut output = Output::new();
    if args.json {
        for message in &messages {
            output.json(&InfoJson::new(message))?;
        }
    } else {
        print(&mut output, &messages)?;
    }
    Ok(output.finish()?)
}

/// A message without its payload, in JSON.
#[derive(Serialize)]
pub(crate) struct InfoJson<'a> {
    id: String,
    state: &'static str,
    event_type: &'a str,
    aggregate_type: Option<&'a str>,
    aggregate_id: Option<&'a str>,
    attempts: u32,
    enqueued_at: String,
    next_attempt_at: Option<String>,
    settled_at: Option<String>,
    last_error: Option<&'a str>,
}

impl<'a> InfoJson<'a> {
    pub(crate) fn new(info: &'a MessageInfo) -> Self {
        Self {
            id: info.id.to_string(),
            state: info.state.as_str(),
            event_type: &info.event_type,
            aggregate_type: non_empty(&info.aggregate_type),
            aggregate_id: non_empty(&info.aggregate_id),
            attempts: info.attempts,
            enqueued_at: timestamp(info.enqueued_at),
            next_attempt_at: info.next_attempt_at.map(timestamp),
            settled_at: info.settled_at.map(timestamp),
            last_error: info.last_error.as_deref(),
        }
    }
}

fn print(output: &mut Output, messages: &[MessageInfo]) -> std::io::Result<()> {
    if messages.is_empty() {
        return output.line("no messages");
    }
    let mut table = Table::with_headings(&["id", "state", "event type", "key", "attempts", "enqueued", ""]);
    for message in messages {
        table.row(vec![
            (message.id.to_string(), Style::Plain),
            (message.state.as_str().into(), style_of(message.state)),
            (printable(&message.event_type), Style::Plain),
            (printable(&key_text(message)), Style::Plain),
            (message.attempts.to_string(), Style::Plain),
            (timestamp(message.enqueued_at), Style::Faint),
            (printable(&remark(message)), Style::Faint),
        ]);
    }
    output.table(&table)
}

/// `order/7`, or `-` where there is no key.
pub(crate) fn key_text(message: &MessageInfo) -> String {
    if message.aggregate_type.is_empty() && message.aggregate_id.is_empty() {
        "-".into()
    } else {
        format!("{}/{}", message.aggregate_type, message.aggregate_id)
    }
}

pub(crate) fn style_of(state: State) -> Style {
    match state {
        State::Ready => Style::Plain,
        State::Waiting => Style::Warning,
        State::Dead => Style::Bad,
        State::Processed => Style::Good,
    }
}

fn remark(message: &MessageInfo) -> String {
    let until = message.next_attempt_at.filter(|_| message.state == State::Waiting);
    match (until, message.last_error.as_deref()) {
        (Some(until), Some(error)) => format!("until {}, after: {error}", timestamp(until)),
        (Some(until), None) => format!("until {}", timestamp(until)),
        (None, Some(error)) => error.to_owned(),
        (None, None) => String::new(),
    }
}
