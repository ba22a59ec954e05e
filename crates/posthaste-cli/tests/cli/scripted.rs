//! A broker that says what a real one hardly ever does, and the relay before it: the message that it is about is the only one
//! that suffers.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::http::{Asked, Http};
use crate::support::Bed;

/// What the broker does with a message whose payload is `bad`.
#[derive(Debug, Clone, Copy)]
enum Answer {
    /// It closes the connection with this code.
    Close(u16),
    /// It confirms everything else, and of this it says nothing.
    Silence,
}

/// As much of AMQP 0-9-1 as a publisher needs.
struct Broker {
    address: SocketAddr,
    /// The payloads that it confirmed.
    confirmed: Arc<Mutex<BTreeSet<String>>>,
}

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const FRAME_END: u8 = 0xCE;

impl Broker {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let confirmed: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let all = confirmed.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let confirmed = all.clone();
                thread::spawn(move || Session { stream, answer, confirmed, under_way: HashMap::new() }.run());
            }
        });
        Self { address, confirmed }
    }

    fn url(&self) -> String {
        format!("amqp://{}/?exchange=events", self.address)
    }
}

/// A message on its way on a channel.
#[derive(Default)]
struct UnderWay {
    tag: u64,
    size: usize,
    body: Vec<u8>,
}

struct Session {
    stream: TcpStream,
    answer: Answer,
    confirmed: Arc<Mutex<BTreeSet<String>>>,
    under_way: HashMap<u16, UnderWay>,
}

impl Session {
    /// Until the client goes, or is sent away.
    fn run(mut self) -> io::Result<()> {
        self.stream.read_exact(&mut [0; 8])?;
        let start = [&[0, 9][..], &long(&[]), &long(b"PLAIN"), &long(b"en_US")].concat();
        self.say(0, 10, 10, &start)?;
        loop {
            let mut head = [0; 7];
            self.stream.read_exact(&mut head)?;
            let channel = u16::from_be_bytes([head[1], head[2]]);
            let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
            let mut payload = vec![0; usize::try_from(size).unwrap() + 1];
            self.stream.read_exact(&mut payload)?;
            match head[0] {
                METHOD if !self.method(channel, &payload)? => return Ok(()),
                HEADER => {
                    let under_way = self.under_way.entry(channel).or_default();
                    under_way.size =
                        usize::try_from(u64::from_be_bytes(payload[4..12].try_into().unwrap())).unwrap();
                    under_way.body.clear();
                    self.complete(channel)?;
                }
                BODY => {
                    payload.pop();
                    self.under_way.entry(channel).or_default().body.extend(payload);
                    self.complete(channel)?;
                }
                _ => {}
            }
        }
    }

    /// Answers a method; `false`: that was the last one.
    fn method(&mut self, channel: u16, payload: &[u8]) -> io::Result<bool> {
        let number = |at: usize| u16::from_be_bytes([payload[at], payload[at + 1]]);
        match (number(0), number(2)) {
            // Start-ok, tune: channels, bytes of a frame, heartbeats.
            (10, 11) => self.say(0, 10, 30, &[0x07, 0xFF, 0, 2, 0, 0, 0, 60])?,
            (10, 40) => self.say(0, 10, 41, &[0])?,
            (20, 10) => self.say(channel, 20, 11, &[0; 4])?,
            (20, 40) => self.say(channel, 20, 41, &[])?,
            (40, 10) => self.say(channel, 40, 11, &[])?,
            (85, 10) => self.say(channel, 85, 11, &[])?,
            (60, 40) => self.under_way.entry(channel).or_default().tag += 1,
            (10, 50) => {
                self.say(0, 10, 51, &[])?;
                return Ok(false);
            }
            (10, 51) => return Ok(false),
            _ => {}
        }
        Ok(true)
    }

    /// Answers a message, once it is whole.
    fn complete(&mut self, channel: u16) -> io::Result<()> {
        let under_way = &self.under_way[&channel];
        if under_way.body.len() < under_way.size {
            return Ok(());
        }
        let (tag, body) = (under_way.tag, String::from_utf8_lossy(&under_way.body).into_owned());
        match self.answer {
            Answer::Close(code) if body == "bad" => {
                self.say(0, 10, 50, &[&code.to_be_bytes()[..], &[4], b"said", &[0, 60, 0, 40]].concat())
            }
            Answer::Silence if body == "bad" => Ok(()),
            Answer::Close(_) | Answer::Silence => {
                // Before the relay can know of it.
                self.confirmed.lock().unwrap().insert(body);
                self.say(channel, 60, 80, &[&tag.to_be_bytes()[..], &[0]].concat())
            }
        }
    }

    fn say(&mut self, channel: u16, class: u16, method: u16, arguments: &[u8]) -> io::Result<()> {
        let payload = [&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat();
        let size = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&[METHOD][..], &channel.to_be_bytes(), &size, &payload, &[FRAME_END]].concat();
        self.stream.write_all(&frame)
    }
}

/// A long text, or a table without entries.
fn long(text: &[u8]) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat()
}

fn line(payload: &str, key: usize) -> String {
    let (kind, id) = ("t", key.to_string());
    let line = serde_json::json!({ "event_type": "e", "aggregate_type": kind, "aggregate_id": id, "payload": payload });
    line.to_string() + "\n"
}

fn good(numbers: Range<usize>) -> String {
    numbers.map(|number| line(&number.to_string(), number % 7)).collect()
}

/// Publishes good messages with a bad one among them. Returns the bad one as it stands in the table.
fn publish_with_a_bad_one(answer: Answer) -> Value {
    const GOOD: usize = 60;
    let (broker, bed) = (Broker::start(answer), Bed::new());
    let lines = good(0..GOOD / 2) + &line("bad", 1_000) + &good(GOOD / 2..GOOD);
    bed.enqueue(&lines);
    let url = broker.url();
    let options = [
        "--to",
        &*url,
        "--publish-timeout",
        "1s",
        "--max-attempts",
        "2",
        "--retry-base",
        "10ms",
        "--retry-cap",
        "20ms",
    ];
    let asked = Asked::start(&bed, &options);
    asked.until_metric("posthaste_messages{state=\"dead\"}", 1.0);
    asked.until_metric("posthaste_messages{state=\"ready\"}", 0.0);
    asked.until_metric("posthaste_messages{state=\"waiting\"}", 0.0);
    let expected: BTreeSet<_> = (0..GOOD).map(|number| number.to_string()).collect();
    assert_eq!(*broker.confirmed.lock().unwrap(), expected);
    let processed = bed.list(&["--state", "processed", "--limit", "1000"]);
    assert_eq!(processed.len(), GOOD);
    assert!(processed.iter().all(|message| message["attempts"] == 0), "{processed:?}");
    let dead = bed.list(&["--state", "dead"]);
    assert_eq!(dead[0]["aggregate_id"], "1000");
    dead[0].clone()
}

#[test]
fn a_connection_closed_over_a_message_costs_that_message_only() {
    for code in [501, 502] {
        let dead = publish_with_a_bad_one(Answer::Close(code));
        assert_eq!(dead["last_error"], "refused by the broker: frame or syntax error", "{dead}");
    }
}

#[test]
fn a_message_over_which_the_broker_fails_is_tried_again_until_it_is_given_up() {
    let dead = publish_with_a_bad_one(Answer::Close(541));
    assert_eq!(dead["last_error"], "refused by the broker: internal error (541)", "{dead}");
    assert_eq!(dead["attempts"], 2, "{dead}");
}

/// Whether nobody answers, or only this message goes unanswered, cannot be told while nothing else is under way: then no attempt
/// is counted, and nothing else is held up for good.
#[test]
fn a_message_that_is_never_confirmed_holds_up_no_other() {
    let (broker, bed) = (Broker::start(Answer::Silence), Bed::new());
    bed.enqueue(&(good(0..30) + &line("bad", 1_000) + &good(30..60)));
    let url = broker.url();
    let asked = Asked::start(&bed, &["--to", &*url, "--publish-timeout", "500ms", "--max-attempts", "2"]);
    asked.until_unready("destination default");
    bed.enqueue(&good(60..90));
    Asked::until_there_is("a confirmation of every good one", || {
        (broker.confirmed.lock().unwrap().len() == 90).then_some(())
    });
    Http::until(
        "settled",
        || bed.list(&["--state", "processed", "--limit", "1000"]).len(),
        |settled| *settled == 90,
    );
    let processed = bed.list(&["--state", "processed", "--limit", "1000"]);
    assert!(processed.iter().all(|message| message["attempts"] == 0), "{processed:?}");
}
