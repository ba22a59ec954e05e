//! A TCP proxy before a server that does to connections what networks do.

mod connection;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};

/// What happens to connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Everything comes through.
    #[default]
    None,
    /// Connections stay open, new ones are accepted, and nothing comes through. What was sent meanwhile arrives when
    /// the fault is over, as it does when a network drops packets for a while.
    Blackhole,
    /// What the client sends arrives, and no answer comes back before the fault is over.
    Mute,
    /// Connections are reset, also new ones.
    Reset,
    /// Connections are reset, and new ones are refused.
    Refuse,
    /// The client reads the end of the stream, and what it sends goes nowhere; the server notices nothing. The same for
    /// new connections. Those that were open stay so when the fault is over.
    HalfClose,
    /// Everything comes through so much later; each piece waits for the one before.
    Delay(Duration),
    /// So many bytes a second come through, in each direction of each connection.
    Throttle(u64),
}

/// A proxy before a server. It runs on a thread of its own, on real time, and ends with its connections when it is dropped.
///
/// ```
/// use posthaste_testkit::{Fault, FaultProxy};
///
/// let proxy = FaultProxy::start("127.0.0.1:5432");
/// let address = proxy.address(); // For the client to connect to.
/// proxy.set(Fault::Blackhole);
/// // … the client is expected to give up in time …
/// proxy.heal();
/// # let _ = address;
/// ```
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    /// Dropped, it ends the thread.
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    fault: watch::Sender<Fault>,
    server: Mutex<String>,
    /// How many connections are open now.
    open: watch::Sender<usize>,
    accepted: AtomicU64,
}

struct Command {
    fault: Fault,
    done: std::sync::mpsc::Sender<()>,
}

impl FaultProxy {
    /// Starts a proxy before a server at `host:port`.
    ///
    /// # Panics
    /// When this machine has no port or no thread left.
    pub fn start(server: impl Into<String>) -> Self {
        let shared = Arc::new(Shared {
            fault: watch::Sender::default(),
            server: Mutex::new(server.into()),
            open: watch::Sender::default(),
            accepted: AtomicU64::new(0),
        });
        let (commands, receiver) = mpsc::unbounded_channel();
        let (started, address) = std::sync::mpsc::channel();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name("fault-proxy".into()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                let door = Door::new().expect("a port on the loopback interface");
                let _ = started.send(door.address);
                run(door, receiver, of_thread).await;
            });
        });
        let thread = thread.expect("a thread");
        let address = address.recv().expect("the proxy's thread has started");
        Self { address, shared, commands: Some(commands), thread: Some(thread) }
    }

    /// Where clients are to connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Lets something happen to connections, from now on; returns when it does.
    ///
    /// # Panics
    /// When the proxy's thread has panicked.
    pub fn set(&self, fault: Fault) {
        let (done, is_done) = std::sync::mpsc::channel();
        let commands = self.commands.as_ref().expect("it is there until the drop");
        assert!(commands.send(Command { fault, done }).is_ok(), "the proxy runs");
        is_done.recv().expect("the proxy runs");
    }

    /// Lets everything through again.
    pub fn heal(&self) {
        self.set(Fault::None);
    }

    /// Further connections go to another server.
    pub fn lead_to(&self, server: impl Into<String>) {
        *self.shared.server.lock().unwrap_or_else(PoisonError::into_inner) = server.into();
    }

    /// How many connections clients have open.
    pub fn open(&self) -> usize {
        *self.shared.open.borrow()
    }

    /// How many connections were accepted since the start.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Waits until the number of open connections is as wished.
    ///
    /// # Panics
    /// When that is not so within a minute.
    pub async fn until_open(&self, wished: impl Fn(usize) -> bool) {
        let mut open = self.shared.open.subscribe();
        let waited = tokio::time::timeout(Duration::from_mins(1), open.wait_for(|open| wished(*open))).await;
        assert!(waited.is_ok(), "{} connections are open, which is not what was waited for", self.open());
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for FaultProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let fault = *self.shared.fault.borrow();
        f.debug_struct("FaultProxy")
            .field("address", &self.address)
            .field("fault", &fault)
            .finish_non_exhaustive()
    }
}

/// The port, whether it is listened on or not.
struct Door {
    address: SocketAddr,
    /// Bound, and never listening: it keeps the port while connections are refused.
    _keeper: TcpSocket,
    listener: Option<TcpListener>,
}

impl Door {
    fn new() -> io::Result<Self> {
        let keeper = socket(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = keeper.local_addr()?;
        let listener = Some(socket(address)?.listen(1024)?);
        Ok(Self { address, _keeper: keeper, listener })
    }

    fn close(&mut self) {
        self.listener = None;
    }

    fn open(&mut self) -> io::Result<()> {
        if self.listener.is_none() {
            self.listener = Some(socket(self.address)?.listen(1024)?);
        }
        Ok(())
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        match &self.listener {
            Some(listener) => Ok(listener.accept().await?.0),
            None => std::future::pending().await,
        }
    }
}

/// A socket that shares its port with the others of this proxy.
fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

async fn run(mut door: Door, mut commands: mpsc::UnboundedReceiver<Command>, shared: Arc<Shared>) {
    loop {
        tokio::select! {
            biased;
            command = commands.recv() => {
                let Some(Command { fault, done }) = command else { return };
                if fault == Fault::Refuse {
                    door.close();
                } else {
                    door.open().expect("the port is kept");
                }
                shared.fault.send_replace(fault);
                let _ = done.send(());
            }
            // An error belongs to a client that is gone already.
            accepted = door.accept() => if let Ok(client) = accepted {
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(connection::serve(client, shared.clone()));
            }
        }
    }
}
