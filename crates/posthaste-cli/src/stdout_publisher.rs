//! `relay --to stdout`: one JSON object a line, on a thread of its own that writes whole batches.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use posthaste::{MessageId, PublishError, Publisher, Record};
use serde::Serialize;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Notify, oneshot};

use crate::output::{PayloadFields, non_empty, timestamp};

/// Publishes records as JSON lines. A record counts as published when its line was written and flushed.
///
/// A line whose write hangs (nobody reads) is remembered: when its record is published again, the publisher waits
/// for the first write instead of writing the line twice.
pub(crate) struct StdoutPublisher {
    lines: UnboundedSender<Line>,
    timeout: Duration,
    /// Lines that somebody stopped waiting for while they were being written.
    in_doubt: Mutex<HashMap<MessageId, Ticket>>,
    end: Arc<End>,
}

/// Whether, and why, the output ended.
#[derive(Default)]
pub(crate) struct End {
    reason: OnceLock<String>,
    changed: Notify,
}

impl End {
    /// Waits until the output ends.
    pub(crate) async fn reached(&self) {
        self.changed.notified().await;
    }

    /// Why it ended, if it did.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.get().map(String::as_str)
    }

    fn set(&self, error: &io::Error) {
        let reason = match error.kind() {
            io::ErrorKind::BrokenPipe => "stdout was closed by its reader".to_owned(),
            _ => format!("stdout cannot be written: {error}"),
        };
        let _ = self.reason.set(reason);
        self.changed.notify_one();
    }
}

/// A line on its way to the writer.
struct Line {
    text: Vec<u8>,
    claim: Arc<AtomicU8>,
    written: oneshot::Sender<()>,
}

/// The waiting side of a line.
struct Ticket {
    claim: Arc<AtomicU8>,
    written: oneshot::Receiver<()>,
}

/// Nobody has decided yet what becomes of the line.
const QUEUED: u8 = 0;
/// The writer has taken it: it will be written, or the output has ended.
const TAKEN: u8 = 1;
/// Nobody waits for it any more; it will not be written.
const CANCELLED: u8 = 2;

fn decide(claim: &AtomicU8, what: u8) -> bool {
    claim.compare_exchange(QUEUED, what, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

impl StdoutPublisher {
    /// A publisher that writes to `output` on a thread of its own. An output that takes nothing for longer than
    /// the timeout counts as down.
    pub(crate) fn start(output: impl Write + Send + 'static, timeout: Duration) -> io::Result<Self> {
        let (lines, receiver) = mpsc::unbounded_channel();
        let end = Arc::new(End::default());
        let writer = Writer { output, lines: receiver, end: end.clone() };
        thread::Builder::new().name("stdout".into()).spawn(move || writer.run())?;
        Ok(Self { lines, timeout, in_doubt: Mutex::default(), end })
    }

    /// Where to learn that the output ended.
    pub(crate) fn end(&self) -> Arc<End> {
        self.end.clone()
    }

    /// Hands a record's line to the writer, or finds the one that was handed over before.
    fn submit(&self, record: &Record) -> Result<Ticket, PublishError> {
        if let Some(ticket) = self.in_doubt().remove(&record.id) {
            return Ok(ticket);
        }
        let text = render(record).map_err(|error| {
            PublishError::rejected("the record cannot be written as JSON").with_source(error)
        })?;
        let claim = Arc::new(AtomicU8::new(QUEUED));
        let (written, receiver) = oneshot::channel();
        self.lines.send(Line { text, claim: claim.clone(), written }).map_err(|_| closed())?;
        Ok(Ticket { claim, written: receiver })
    }

    fn in_doubt(&self) -> std::sync::MutexGuard<'_, HashMap<MessageId, Ticket>> {
        self.in_doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Publisher for StdoutPublisher {
    async fn publish(&self, record: Arc<Record>) -> Result<(), PublishError> {
        let ticket = self.submit(&record)?;
        let mut waiting = Waiting { publisher: self, id: record.id, ticket: Some(ticket) };
        let written = tokio::time::timeout(self.timeout, waiting.written()).await;
        written.unwrap_or_else(|_| Err(PublishError::unavailable("stdout is not being read")))
    }
}

fn closed() -> PublishError {
    PublishError::unavailable("stdout closed")
}

/// Waits for a line. Dropped before its time, it cancels the line, or remembers that it is being written.
struct Waiting<'a> {
    publisher: &'a StdoutPublisher,
    id: MessageId,
    ticket: Option<Ticket>,
}

impl Waiting<'_> {
    async fn written(&mut self) -> Result<(), PublishError> {
        let Some(ticket) = &mut self.ticket else { return Ok(()) };
        let written = (&mut ticket.written).await;
        self.ticket = None;
        written.map_err(|_| closed())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take()
            && !decide(&ticket.claim, CANCELLED)
        {
            self.publisher.in_doubt().insert(self.id, ticket);
        }
    }
}

/// The writer's thread.
struct Writer<W> {
    output: W,
    lines: UnboundedReceiver<Line>,
    end: Arc<End>,
}

/// About how many bytes are written at once.
const BATCH_BYTES: usize = 256 * 1024;

impl<W: Write> Writer<W> {
    fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        let mut waiting = Vec::new();
        while let Some(line) = self.lines.blocking_recv() {
            let mut next = Some(line);
            while let Some(line) = next {
                if decide(&line.claim, TAKEN) {
                    batch.extend_from_slice(&line.text);
                    waiting.push(line.written);
                }
                next = if batch.len() < BATCH_BYTES { self.lines.try_recv().ok() } else { None };
            }
            if let Err(error) = write_out(&mut self.output, &batch) {
                self.end.set(&error);
                return;
            }
            for written in waiting.drain(..) {
                // An error: the waiting side was abandoned together with the relay.
                let _ = written.send(());
            }
            batch.clear();
        }
    }
}

/// Writes and flushes all bytes. Where the stream is in non-blocking mode (it may share that with another
/// process), waits until it takes more.
fn write_out(output: &mut impl Write, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) => wait_or_fail(error)?,
        }
    }
    while let Err(error) = output.flush() {
        wait_or_fail(error)?;
    }
    Ok(())
}

fn wait_or_fail(error: io::Error) -> io::Result<()> {
    match error.kind() {
        io::ErrorKind::Interrupted => Ok(()),
        io::ErrorKind::WouldBlock => {
            thread::park_timeout(Duration::from_millis(1));
            Ok(())
        }
        _ => Err(error),
    }
}

/// A record as it is written. Fields are always there, and null where there is no value; but of `payload` and
/// `payload_base64` at most one is.
#[derive(Serialize)]
struct RecordJson<'a> {
    id: MessageIdText,
    idempotency_key: Option<&'a str>,
    event_type: &'a str,
    aggregate_type: Option<&'a str>,
    aggregate_id: Option<&'a str>,
    content_type: Option<&'a str>,
    headers: &'a BTreeMap<String, String>,
    attempt: u32,
    enqueued_at: String,
    #[serde(flatten)]
    payload: PayloadFields<'a>,
}

/// An id that is written without a detour over a `String`.
struct MessageIdText(MessageId);

impl Serialize for MessageIdText {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

fn render(record: &Record) -> serde_json::Result<Vec<u8>> {
    let line = RecordJson {
        id: MessageIdText(record.id),
        idempotency_key: record.idempotency_key.as_deref(),
        event_type: &record.event_type,
        aggregate_type: non_empty(record.aggregate.aggregate_type()),
        aggregate_id: non_empty(record.aggregate.aggregate_id()),
        content_type: record.content_type.as_deref(),
        headers: &record.headers,
        attempt: record.attempt(),
        enqueued_at: timestamp(record.enqueued_at),
        payload: PayloadFields::new(record.payload.as_deref()),
    };
    let mut text = Vec::with_capacity(512 + record.payload.as_ref().map_or(0, |payload| payload.len() * 2));
    serde_json::to_writer(&mut text, &line)?;
    text.push(b'\n');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;
    use std::time::UNIX_EPOCH;

    use bytes::Bytes;
    use posthaste::{FailureClass, Key, Lane, Position};

    use super::*;

    fn record(payload: Option<&'static [u8]>) -> Arc<Record> {
        Arc::new(Record {
            id: MessageId::generate(),
            lane: Lane(0),
            position: Position::from_sequence(1),
            event_type: "order.created".into(),
            aggregate: Key::new("order", "7"),
            payload: payload.map(Bytes::from_static),
            content_type: None,
            headers: BTreeMap::from([("tenant".to_owned(), "acme".to_owned())]),
            idempotency_key: None,
            attempts: 1,
            enqueued_at: UNIX_EPOCH + Duration::from_millis(1_767_225_600_250),
            held_back: false,
        })
    }

    /// Takes a batch only when told to, and tells what it took.
    struct Gate {
        may_write: std_mpsc::Receiver<io::Result<()>>,
        written: std_mpsc::Sender<String>,
        begun: UnboundedSender<()>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.begun.send(()).unwrap();
            self.may_write.recv().unwrap()?;
            self.written.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Bench {
        publisher: StdoutPublisher,
        open: std_mpsc::Sender<io::Result<()>>,
        written: std_mpsc::Receiver<String>,
        begun: UnboundedReceiver<()>,
    }

    fn bench() -> Bench {
        let (open, may_write) = std_mpsc::channel();
        let (written_sender, written) = std_mpsc::channel();
        let (begun_sender, begun) = mpsc::unbounded_channel();
        let gate = Gate { may_write, written: written_sender, begun: begun_sender };
        Bench {
            publisher: StdoutPublisher::start(gate, Duration::from_mins(1)).unwrap(),
            open,
            written,
            begun,
        }
    }

    #[test]
    fn a_line_has_every_field() {
        let record = record(Some(b"{\"a\": 1.0}\n"));
        let line = String::from_utf8(render(&record).unwrap()).unwrap();
        let expected = format!(
            r#"{{"id":"{}","idempotency_key":null,"event_type":"order.created","aggregate_type":"order","aggregate_id":"7","content_type":null,"headers":{{"tenant":"acme"}},"attempt":2,"enqueued_at":"2026-01-01T00:00:00.250Z","payload":"{{\"a\": 1.0}}\n"}}"#,
            record.id
        );
        assert_eq!(line, format!("{expected}\n"));
    }

    #[test]
    fn a_tombstone_has_no_payload_and_bytes_are_base64() {
        let line = |payload| String::from_utf8(render(&record(payload)).unwrap()).unwrap();
        assert!(!line(None).contains("payload"));
        assert!(line(Some(b"\xff")).contains(r#""payload_base64":"/w==""#));
        assert!(line(Some(b"")).contains(r#""payload":"""#));
    }

    #[tokio::test]
    async fn lines_are_acknowledged_after_they_were_written() {
        let mut bench = bench();
        let record = record(None);
        let mut publish = Box::pin(bench.publisher.publish(record.clone()));
        tokio::select! {
            biased;
            _ = &mut publish => panic!("acknowledged before it was written"),
            _ = bench.begun.recv() => {}
        }
        bench.open.send(Ok(())).unwrap();
        publish.await.unwrap();
        assert_eq!(bench.written.recv().unwrap().into_bytes(), render(&record).unwrap());
    }

    #[tokio::test]
    async fn a_line_that_hangs_is_not_written_twice() {
        let mut bench = bench();
        let (first, second) = (record(None), record(None));
        tokio::select! {
            biased;
            _ = bench.publisher.publish(first.clone()) => panic!("nobody reads"),
            _ = bench.begun.recv() => {}
        }
        // The first line is being written; this one is still in the queue and can be cancelled.
        tokio::select! {
            biased;
            _ = bench.publisher.publish(second.clone()) => panic!("nobody reads"),
            () = std::future::ready(()) => {}
        }
        bench.open.send(Ok(())).unwrap();
        bench.open.send(Ok(())).unwrap();
        bench.publisher.publish(first.clone()).await.unwrap();
        bench.publisher.publish(second.clone()).await.unwrap();
        let written: String = bench.written.try_iter().collect();
        let (first, second) = (render(&first).unwrap(), render(&second).unwrap());
        assert_eq!(written.into_bytes(), [first, second].concat());
    }

    #[tokio::test]
    async fn a_closed_output_is_a_destination_that_is_down() {
        let bench = bench();
        bench.open.send(Err(io::ErrorKind::BrokenPipe.into())).unwrap();
        for _ in 0..2 {
            let error = bench.publisher.publish(record(None)).await.unwrap_err();
            assert_eq!(error.class(), FailureClass::Unavailable);
        }
        bench.publisher.end().reached().await;
        assert_eq!(bench.publisher.end().reason(), Some("stdout was closed by its reader"));
    }

    #[test]
    fn a_stream_that_takes_little_at_a_time_gets_everything() {
        struct Reluctant(Vec<u8>, u32);
        impl Write for Reluctant {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.1 += 1;
                match self.1 % 3 {
                    0 => Err(io::ErrorKind::WouldBlock.into()),
                    1 => Err(io::ErrorKind::Interrupted.into()),
                    _ => self.0.write(&bytes[..1]),
                }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut output = Reluctant(Vec::new(), 0);
        write_out(&mut output, b"abcdef").unwrap();
        assert_eq!(output.0, b"abcdef");
    }
}
