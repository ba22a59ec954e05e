//! A TCP proxy before the broker that can stop forwarding.

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
    pub address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    /// How many connections are open now.
    open: Arc<watch::Sender<usize>>,
}

impl Proxy {
    pub async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mode = Arc::new(watch::Sender::new(Mode::Forward));
        let open = Arc::new(watch::Sender::new(0));
        let (modes, opened) = (mode.clone(), open.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (to, modes, opened) = (to.clone(), modes.clone(), opened.clone());
                tokio::spawn(async move {
                    opened.send_modify(|open| *open += 1);
                    serve(client, to, modes).await;
                    opened.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { address, mode, open }
    }

    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub async fn until_open(&self, wanted: impl Fn(usize) -> bool) {
        let mut open = self.open.subscribe();
        let wait = open.wait_for(|open| wanted(*open));
        tokio::time::timeout(std::time::Duration::from_secs(30), wait).await.unwrap().unwrap();
    }
}

async fn serve(client: TcpStream, to: String, mode: Arc<watch::Sender<Mode>>) {
    let mut closed = mode.subscribe();
    if *closed.borrow_and_update() == Mode::Closed {
        return;
    }
    let Ok(server) = TcpStream::connect(to).await else { return };
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
