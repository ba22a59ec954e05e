//! A door before a server: connections go through it while it is open, and are cut when it is closed.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A door on a port of its own. While it is closed, connections are refused.
pub(crate) struct Door {
    address: SocketAddr,
    server: String,
    passing: Arc<Mutex<Vec<TcpStream>>>,
    opened: Option<Arc<Mutex<bool>>>,
}

impl Door {
    /// A closed door before a server (`host:port`).
    pub(crate) fn before(server: impl Into<String>) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { address, server: server.into(), passing: Arc::default(), opened: None }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn open(&mut self) {
        let listener = TcpListener::bind(self.address).unwrap();
        let open = Arc::new(Mutex::new(true));
        let (server, passing, is_open) = (self.server.clone(), self.passing.clone(), open.clone());
        thread::spawn(move || {
            while let Ok((inside, _)) = listener.accept() {
                if !*is_open.lock().unwrap() {
                    return;
                }
                if let Ok(outside) = TcpStream::connect(&server) {
                    passing
                        .lock()
                        .unwrap()
                        .extend([inside.try_clone().unwrap(), outside.try_clone().unwrap()]);
                    pass(&inside, &outside);
                    pass(&outside, &inside);
                }
            }
        });
        self.opened = Some(open);
    }

    /// Cuts every connection, and refuses new ones.
    pub(crate) fn close(&mut self) {
        if let Some(open) = self.opened.take() {
            *open.lock().unwrap() = false;
            // It is let in, so that the listener notices.
            let _ = TcpStream::connect(self.address);
        }
        for stream in self.passing.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

fn pass(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Both);
    });
}
