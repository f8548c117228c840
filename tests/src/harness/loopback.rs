//! A TCP port on the loopback address that leads to a UNIX socket, for programs that only speak TCP.

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// The listener; closed when dropped. Open connections last until their ends close them.
#[derive(Debug)]
pub struct Loopback {
    address: SocketAddr,
    closed: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl Loopback {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When no port is free.
    pub fn to(socket: &Path) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let closed = Arc::new(AtomicBool::new(false));
        let (socket, end) = (socket.to_owned(), Arc::clone(&closed));
        let listener = thread::spawn(move || accept(&listener, &socket, &end));
        Ok(Self {
            address,
            closed,
            listener: Some(listener),
        })
    }

    /// The address for a URL, `127.0.0.1:port`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        // The listener checks `stop` when a connection arrives.
        let _knock = TcpStream::connect(self.address);
        if let Some(listener) = self.listener.take() {
            let _ended = listener.join();
        }
    }
}

fn accept(listener: &TcpListener, socket: &PathBuf, closed: &AtomicBool) {
    for client in listener.incoming() {
        if closed.load(Ordering::Acquire) {
            return;
        }
        // If the daemon is gone, the connection ends.
        if let (Ok(client), Ok(server)) = (client, UnixStream::connect(socket)) {
            let _joined = join(&client, &server);
        }
    }
}

/// Copies in both directions; each direction ends independently.
fn join(client: &TcpStream, server: &UnixStream) -> io::Result<()> {
    let (mut request, mut to_server) = (client.try_clone()?, server.try_clone()?);
    let (mut answer, mut to_client) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ended = io::copy(&mut request, &mut to_server);
        let _told = to_server.shutdown(Shutdown::Write);
    });
    thread::spawn(move || {
        let _ended = io::copy(&mut answer, &mut to_client);
        let _told = to_client.shutdown(Shutdown::Write);
    });
    Ok(())
}
