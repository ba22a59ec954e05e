//! One connection through the proxy.

use std::io;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;

use super::{Fault, Shared};

/// How often a throttled connection lets a piece through.
const PIECES_PER_SECOND: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

impl Fault {
    /// Whether a connection does not go on as it was.
    fn ends_connections(self) -> bool {
        matches!(self, Self::Reset | Self::Refuse | Self::HalfClose)
    }
}

pub(super) async fn serve(mut client: TcpStream, shared: Arc<Shared>) {
    let _open = Open::new(&shared.open);
    let mut faults = shared.fault.subscribe();
    // A connection that nothing comes through has not reached the server.
    let Ok(fault) = faults.wait_for(|fault| *fault != Fault::Blackhole).await.map(|fault| *fault) else {
        return;
    };
    let address = shared.server.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let reached = if fault.ends_connections() { None } else { TcpStream::connect(address).await.ok() };
    let Some(mut server) = reached else {
        return end(&mut faults, client, None).await;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    if is_cut_before_its_end(&mut client, &mut server, &shared).await {
        end(&mut faults, client, Some(server)).await;
    }
}

/// Passes bytes on until both sides have ended the connection (`false`), or a fault does.
async fn is_cut_before_its_end(client: &mut TcpStream, server: &mut TcpStream, shared: &Shared) -> bool {
    let (client_read, client_write) = client.split();
    let (server_read, server_write) = server.split();
    let mut faults = shared.fault.subscribe();
    let to_server = pump(client_read, server_write, Direction::ToServer, shared.fault.subscribe());
    let to_client = pump(server_read, client_write, Direction::ToClient, shared.fault.subscribe());
    tokio::select! {
        biased;
        _ = faults.wait_for(|fault| fault.ends_connections()) => true,
        _ = async { tokio::try_join!(to_server, to_client) } => false,
    }
}

/// Ends a connection as the fault of the moment does.
async fn end(faults: &mut watch::Receiver<Fault>, mut client: TcpStream, server: Option<TcpStream>) {
    let fault = *faults.borrow_and_update();
    if fault == Fault::HalfClose {
        let _ = client.shutdown().await;
        let reset = faults.wait_for(|fault| matches!(fault, Fault::Reset | Fault::Refuse));
        tokio::select! {
            biased;
            _ = reset => {}
            () = swallow(&mut client) => return,
        }
    }
    // Closed with this, a socket resets its connection.
    for socket in [Some(client), server].into_iter().flatten() {
        let _ = socket.set_zero_linger();
    }
}

async fn swallow(client: &mut TcpStream) {
    let mut buffer = vec![0; 8 * 1024];
    while let Ok(1..) = client.read(&mut buffer).await {}
}

/// Passes on what comes from one side until that side ends it, and then its end.
async fn pump(
    mut from: ReadHalf<'_>,
    mut to: WriteHalf<'_>,
    direction: Direction,
    mut faults: watch::Receiver<Fault>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            let _ = piece(&mut faults, direction, 0).await;
            return to.shutdown().await;
        }
        let mut rest = &buffer[..count];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(piece(&mut faults, direction, rest.len()).await);
            to.write_all(now).await?;
            rest = later;
        }
    }
}

/// Waits until bytes may pass, and says how many of those that are there.
async fn piece(faults: &mut watch::Receiver<Fault>, direction: Direction, there: usize) -> usize {
    loop {
        let (wait, count) = match *faults.borrow_and_update() {
            Fault::None => return there,
            Fault::Mute if direction == Direction::ToServer => return there,
            Fault::Delay(delay) => (delay, there),
            Fault::Throttle(rate) => {
                let most = usize::try_from(rate / PIECES_PER_SECOND).unwrap_or(usize::MAX).max(1);
                let count = most.min(there);
                (Duration::from_secs_f64(count as f64 / rate.max(1) as f64), count)
            }
            Fault::Blackhole | Fault::Mute | Fault::Reset | Fault::Refuse | Fault::HalfClose => {
                (Duration::MAX, 0)
            }
        };
        tokio::select! {
            biased;
            changed = faults.changed() => if changed.is_err() { std::future::pending::<()>().await },
            () = tokio::time::sleep(wait) => return count,
        }
    }
}

/// Counts a connection while it is open.
struct Open<'a>(&'a watch::Sender<usize>);

impl<'a> Open<'a> {
    fn new(open: &'a watch::Sender<usize>) -> Self {
        open.send_modify(|open| *open += 1);
        Self(open)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}
