//! A TCP proxy before a server that can stop forwarding, or go on to another server.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Forward,
    /// Connections stay open, and nothing comes through.
    Blackhole,
    /// Connections are closed.
    Closed,
}

pub struct Proxy {
    address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    server: Arc<Mutex<String>>,
    /// How many connections have ended.
    ended: Arc<watch::Sender<u64>>,
}

impl Proxy {
    /// Before the server that the tests are given.
    pub async fn start() -> Self {
        Self::before(super::address()).await
    }

    pub async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mode = Arc::new(watch::Sender::new(Mode::Forward));
        let server = Arc::new(Mutex::new(server));
        let ended = Arc::new(watch::Sender::new(0));
        let (modes, servers, ends) = (mode.clone(), server.clone(), ended.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = servers.lock().unwrap().clone();
                let (modes, ends) = (modes.clone(), ends.clone());
                tokio::spawn(async move {
                    serve(client, server, modes).await;
                    ends.send_modify(|ended| *ended += 1);
                });
            }
        });
        Self { address, mode, server, ended }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Further connections go to another server.
    pub fn lead_to(&self, server: String) {
        *self.server.lock().unwrap() = server;
    }

    /// Waits until a connection has ended, on either side.
    pub async fn one_has_ended(&self) {
        self.ended.subscribe().wait_for(|ended| *ended > 0).await.unwrap();
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        super::url_as("postgres").replace(&super::address(), &self.address.to_string()) + "?sslmode=disable"
    }
}

async fn serve(client: TcpStream, server: String, mode: Arc<watch::Sender<Mode>>) {
    let mut closed = mode.subscribe();
    let Ok(server) = TcpStream::connect(server).await else { return };
    let (client_read, client_write) = client.into_split();
    let (server_read, server_write) = server.into_split();
    tokio::select! {
        () = pump(client_read, server_write, mode.subscribe()) => {}
        () = pump(server_read, client_write, mode.subscribe()) => {}
        _ = closed.wait_for(|mode| *mode == Mode::Closed) => {}
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut mode: watch::Receiver<Mode>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        if mode.wait_for(|mode| *mode == Mode::Forward).await.is_err()
            || to.write_all(&buffer[..count]).await.is_err()
        {
            return;
        }
    }
}
