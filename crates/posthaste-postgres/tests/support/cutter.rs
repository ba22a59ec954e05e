//! A proxy before the server that counts the messages of the protocol, and cuts every connection after the n-th.
//!
//! Counted are those between which something can differ: what a client asks for, and the end of each answer. With
//! `POSTHASTE_TEST_CUT_EVERY_MESSAGE` it is every single one, which takes three times as long.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub struct Cutter {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    /// How many more messages, in either direction, pass until the cut; `None`: all.
    left: Mutex<Option<u64>>,
    /// Counts the cuts.
    cuts: watch::Sender<u64>,
    every_message: bool,
    /// How many statements clients have asked for.
    statements: AtomicU64,
}

impl Cutter {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            left: Mutex::new(None),
            cuts: watch::Sender::new(0),
            every_message: counts_every_message(),
            statements: AtomicU64::new(0),
        });
        let shared = state.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, shared.clone()));
            }
        });
        Self { address, state }
    }

    pub fn url(&self) -> String {
        super::url_as("postgres").replace(&super::address(), &self.address.to_string()) + "?sslmode=disable"
    }

    /// Cuts when so many more messages have passed, once.
    pub fn cut_after(&self, messages: u64) {
        *self.state.left.lock().unwrap() = Some(messages);
    }

    /// How many statements have passed.
    pub fn statements(&self) -> u64 {
        self.state.statements.load(Ordering::Relaxed)
    }

    /// Cuts no more. Says whether it had cut since it was told to.
    pub fn has_cut(&self) -> bool {
        self.state.left.lock().unwrap().take().is_none()
    }
}

impl State {
    /// Whether the next message may pass.
    fn passes(&self) -> bool {
        let mut left = self.left.lock().unwrap();
        match left.as_mut() {
            None => true,
            Some(0) => {
                *left = None;
                self.cuts.send_modify(|cuts| *cuts += 1);
                false
            }
            Some(count) => {
                *count -= 1;
                true
            }
        }
    }
}

async fn serve(client: TcpStream, state: Arc<State>) {
    let mut cuts = state.cuts.subscribe();
    let Ok(server) = TcpStream::connect(super::address()).await else { return };
    // Message by message: without this, each would wait for the one before to be acknowledged.
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        biased;
        _ = cuts.changed() => {}
        () = pump(client_read, server_write, true, &state) => {}
        () = pump(server_read, client_write, false, &state) => {}
    }
}

/// Passes messages on one by one. The first one of a client has no type.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, is_client: bool, state: &State) {
    let mut has_type = !is_client;
    while let Some(message) = message(&mut from, has_type).await {
        has_type = true;
        if is_client && matches!(message[0], b'Q' | b'E') {
            state.statements.fetch_add(1, Ordering::Relaxed);
        }
        let counts = state.every_message || is_counted(&message, is_client);
        if (counts && !state.passes()) || to.write_all(&message).await.is_err() {
            return;
        }
    }
}

pub fn counts_every_message() -> bool {
    std::env::var_os("POSTHASTE_TEST_CUT_EVERY_MESSAGE").is_some()
}

/// Query, Parse, Execute, Sync and what begins a connection; of the answers, that the server is ready, and a call.
fn is_counted(message: &[u8], is_client: bool) -> bool {
    match message[0] {
        0 | b'Q' | b'P' | b'E' | b'S' if is_client => true,
        kind => !is_client && [b'Z', b'A'].contains(&kind),
    }
}

async fn message(from: &mut (impl AsyncRead + Unpin), has_type: bool) -> Option<Vec<u8>> {
    let head = if has_type { 5 } else { 4 };
    let mut message = vec![0; head];
    from.read_exact(&mut message).await.ok()?;
    let length = u32::from_be_bytes(message[head - 4..].try_into().unwrap()) as usize;
    let start = message.len();
    message.resize(start + length - 4, 0);
    from.read_exact(&mut message[start..]).await.ok()?;
    Some(message)
}
