//! `posthaste enqueue`: one message from options, or many from newline-delimited JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use posthaste::{Message, MessageId, Rules};

use crate::database::Target;
use crate::durations;
use crate::failure::Failure;
use crate::ndjson::{Headers, Input, Reader};
use crate::numbers::at_least_one;
use crate::output::Output;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("source").required(true))]
pub(crate) struct Args {
    /// What happened, as in order.created; at most 128 characters
    #[arg(long, value_name = "TYPE", group = "source", allow_hyphen_values = true)]
    event_type: Option<String>,

    /// Enqueue many: a file with one JSON object a line, or - for stdin; all in one transaction
    #[arg(long, value_name = "FILE", group = "source", conflicts_with = "single")]
    ndjson: Option<PathBuf>,

    #[command(flatten)]
    single: Single,

    /// The largest payload, in bytes
    #[arg(long, value_name = "BYTES", default_value = "1048576", value_parser = at_least_one)]
    #[arg(allow_hyphen_values = true)]
    max_payload_bytes: NonZeroUsize,

    /// Take a payload that is not valid JSON although its content type is JSON
    #[arg(long)]
    no_validate_payload: bool,

    /// Take header names of any length, and headers of any size
    #[arg(long)]
    no_validate_headers: bool,
}

/// The options of a single message.
#[derive(Debug, clap::Args)]
#[group(id = "single", multiple = true)]
struct Single {
    /// The key whose order is kept; split at the first slash, so the id may have slashes
    #[arg(long, value_name = "TYPE/ID", value_parser = aggregate, allow_hyphen_values = true)]
    aggregate: Option<(String, String)>,

    /// The payload [without a payload, the message is a tombstone]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with = "payload_file")]
    payload: Option<String>,

    /// A file that holds the payload, or - for stdin
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,

    /// The payload's MIME type, as in application/json
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,

    /// A header; may be given several times
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header, allow_hyphen_values = true)]
    headers: Vec<(String, String)>,

    /// A file with headers: a flat JSON object whose values are texts
    #[arg(long, value_name = "FILE")]
    headers_file: Option<PathBuf>,

    /// Published as the message's id; a message with a key that is already there is refused
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    idempotency_key: Option<String>,

    /// Publish no earlier than so long from now (units: ms, s, m, h, d)
    #[arg(long, value_name = "TIME", value_parser = durations::parse_delay, allow_hyphen_values = true)]
    delay: Option<Duration>,

    /// The message's id, a UUID of version 7 [default: a new one]
    #[arg(long, value_name = "UUID", value_parser = new_id, allow_hyphen_values = true)]
    id: Option<MessageId>,
}

const EXAMPLES: &str = "\
Prints the id of the message; with --ndjson, the number of messages.

A line of --ndjson has event_type, and may have aggregate_type, aggregate_id, content_type, \
headers (a flat object), idempotency_key, delay (\"30s\", or a number of seconds), id, and \
payload or payload_base64. Unknown fields are errors. After an error, which names the line, \
nothing is enqueued.
  payload         a text: the payload itself
                  an object or array: its JSON text, byte for byte, with content type
                  application/json unless another one is given
                  null: no payload, a tombstone
  payload_base64  for payloads that are not UTF-8

To enqueue in the transaction of a change, use the library, or insert into the table yourself:
  INSERT INTO outbox (event_type, payload) VALUES ('order.created', '{\"total\":12}')

Examples:
  posthaste enqueue --event-type order.created --aggregate order/7 --payload 'hello'
  posthaste enqueue --event-type report.due --payload-file a.json --content-type application/json
  posthaste enqueue --event-type user.deleted --aggregate user/7 --header tenant=acme
  posthaste enqueue --event-type cart.abandoned --delay 30m --idempotency-key cart-17
  generate-events | posthaste enqueue --ndjson -";

pub(crate) async fn run(target: &Target, args: Args) -> Result<(), Failure> {
    let rules = Rules::default()
        .max_payload_bytes(args.max_payload_bytes.get())
        .validate_payload(!args.no_validate_payload)
        .validate_headers(!args.no_validate_headers);
    match args.ndjson {
        Some(source) => many(target, &source, rules).await,
        None => one(target, args.event_type.unwrap_or_default(), args.single, rules).await,
    }
}

async fn one(target: &Target, event_type: String, args: Single, rules: Rules) -> Result<(), Failure> {
    let message = message(event_type, args, rules.max_payload_bytes)?;
    rules.check(&message)?;
    let id = message.id();
    let database = target.open_to_enqueue().await?;
    let input = Input { message, line: None };
    database.producer.enqueue_all(&mut std::iter::once(Ok(input)), &rules).await?;
    let mut output = Output::new();
    output.line(id)?;
    Ok(output.finish()?)
}

fn message(event_type: String, args: Single, max_payload_bytes: usize) -> Result<Message, Failure> {
    let mut message = Message::new(event_type);
    if let Some(id) = args.id {
        message = message.with_id(id);
    }
    if let Some((aggregate_type, aggregate_id)) = args.aggregate {
        message = message.aggregate(aggregate_type, aggregate_id);
    }
    if let Some(payload) = args.payload {
        message = message.payload(payload);
    }
    if let Some(path) = args.payload_file {
        message = message.payload(read_payload(&path, max_payload_bytes)?);
    }
    if let Some(content_type) = args.content_type {
        message = message.content_type(content_type);
    }
    if let Some(path) = args.headers_file {
        for (name, value) in read_headers(&path)? {
            message = message.header(name, value);
        }
    }
    for (name, value) in args.headers {
        if message.headers().contains_key(&name) {
            return Err(Failure::bad_input(format!("header {name:?} is given twice")));
        }
        message = message.header(name, value);
    }
    if let Some(key) = args.idempotency_key {
        message = message.idempotency_key(key);
    }
    if let Some(delay) = args.delay {
        message = message.delay(delay);
    }
    Ok(message)
}

async fn many(target: &Target, source: &Path, rules: Rules) -> Result<(), Failure> {
    let mut file = open_rereadable(source)?;
    // Everything is checked before the transaction begins: what is wrong is found before any SQL, and a slow
    // source does not hold a lock.
    Reader::new(BufReader::new(&file), rules.clone()).try_for_each(|input| input.map(drop))?;
    file.rewind().map_err(|error| cannot_read(source, &error))?;
    let database = target.open_to_enqueue().await?;
    let mut reader = Reader::new(BufReader::new(&file), rules.clone());
    let count = database.producer.enqueue_all(&mut reader, &rules).await?;
    let mut output = Output::new();
    output.line(count)?;
    Ok(output.finish()?)
}

/// Opens a source so that it can be read twice: stdin and pipes are copied to a temporary file.
fn open_rereadable(source: &Path) -> Result<File, Failure> {
    let read_failed = |error: io::Error| cannot_read(source, &error);
    let mut input: Box<dyn Read> = if is_stdin(source) {
        Box::new(io::stdin().lock())
    } else {
        let file = File::open(source).map_err(read_failed)?;
        if file.metadata().map_err(read_failed)?.is_file() {
            return Ok(file);
        }
        Box::new(file)
    };
    let mut copy = tempfile::tempfile()
        .map_err(|error| Failure::failed(format!("a temporary file cannot be made: {error}")))?;
    io::copy(&mut input, &mut copy).map_err(read_failed)?;
    copy.rewind().map_err(read_failed)?;
    Ok(copy)
}

fn read_payload(path: &Path, max_bytes: usize) -> Result<Vec<u8>, Failure> {
    let payload = read_at_most(path, max_bytes)?;
    payload.ok_or_else(|| {
        let text = format!("payload has more bytes than the limit of {max_bytes} (max_payload_bytes)");
        posthaste::Error::new(posthaste::ErrorKind::PayloadTooLarge, text).into()
    })
}

fn read_headers(path: &Path) -> Result<BTreeMap<String, String>, Failure> {
    let text = read_at_most(path, MAX_HEADERS_FILE)?
        .ok_or_else(|| Failure::bad_input("the headers file is too large to be one").at(path.display()))?;
    let headers: Headers = serde_json::from_slice(&text)
        .map_err(|error| Failure::bad_input(error.to_string()).at(path.display()))?;
    Ok(headers.0)
}

const MAX_HEADERS_FILE: usize = 16 * 1024 * 1024;

/// Reads a file or stdin; `None` where there is more than so many bytes.
fn read_at_most(path: &Path, max_bytes: usize) -> Result<Option<Vec<u8>>, Failure> {
    let input: Box<dyn Read> = if is_stdin(path) {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).map_err(|error| cannot_read(path, &error))?)
    };
    let mut bytes = Vec::new();
    let limit = (max_bytes as u64).saturating_add(1);
    input.take(limit).read_to_end(&mut bytes).map_err(|error| cannot_read(path, &error))?;
    Ok((bytes.len() <= max_bytes).then_some(bytes))
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

fn cannot_read(path: &Path, error: &io::Error) -> Failure {
    Failure::bad_input(format!("{} cannot be read: {error}", path.display()))
}

fn aggregate(text: &str) -> Result<(String, String), String> {
    match text.split_once('/') {
        Some(("", _)) => Err("has no type; write TYPE/ID, as in order/7".into()),
        Some((_, "")) => Err("has no id; write TYPE/ID, as in order/7".into()),
        Some((aggregate_type, id)) => Ok((aggregate_type.to_owned(), id.to_owned())),
        None => Err("must be TYPE/ID, as in order/7".into()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE, as in tenant=acme".into()),
    }
}

fn new_id(text: &str) -> Result<MessageId, String> {
    text.parse().map_err(|error: posthaste::Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregate_is_split_at_its_first_slash() {
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(aggregate("order/7"), pair("order", "7"));
        assert_eq!(aggregate("file/a/b"), pair("file", "a/b"));
        for text in ["", "order", "/7", "order/", "/"] {
            assert!(aggregate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_header_is_split_at_its_first_equals_sign() {
        let pair = |a: &str, b: &str| Ok((a.to_owned(), b.to_owned()));
        assert_eq!(header("a=b=c"), pair("a", "b=c"));
        assert_eq!(header("a="), pair("a", ""));
        assert!(header("=b").is_err());
        assert!(header("a").is_err());
    }
}
