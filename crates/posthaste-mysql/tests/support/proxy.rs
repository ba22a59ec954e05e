//! A TCP proxy before the server that can stop forwarding.

use std::net::SocketAddr;
use std::sync::Arc;

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
}

impl Proxy {
    /// A proxy before a server at an address.
    pub async fn start(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mode = Arc::new(watch::Sender::new(Mode::Forward));
        let modes = mode.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, server.clone(), modes.clone()));
            }
        });
        Self { address, mode }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub fn address(&self) -> String {
        self.address.to_string()
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
