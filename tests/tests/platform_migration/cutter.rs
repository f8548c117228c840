//! A way between two daemons that is cut after so many TLS records.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Whose records are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToTarget,
    ToSource,
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Passing,
    /// So many have passed; the next one waits.
    Turn,
    Struck,
}

struct Shared {
    target: SocketAddr,
    way: Way,
    records: usize,
    stage: Mutex<Stage>,
    changed: Condvar,
    has_called: AtomicBool,
}

/// A proxy between two daemons: it cuts the first connection, others pass.
pub struct Cutter {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Cutter {
    /// A way to `target` that ends after `records` in the direction `way`.
    pub fn new(target: &str, way: Way, records: usize) -> Self {
        let target: SocketAddr = target.parse().expect("an address");
        // The certificate is for the target's address.
        let listener = TcpListener::bind((target.ip(), 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared {
            target,
            way,
            records,
            stage: Mutex::new(Stage::Passing),
            changed: Condvar::new(),
            has_called: AtomicBool::new(false),
        });
        let carrying = Arc::clone(&shared);
        // The thread ends with the test program.
        thread::spawn(move || {
            for source in listener.incoming().flatten() {
                carrying.carry(source);
            }
        });
        Self { address, shared }
    }

    /// Where the source calls.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Waits until the way is about to be cut. False: the move came to its end before.
    pub fn await_turn(&self, mut is_over: impl FnMut() -> bool) -> bool {
        let mut stage = self.shared.stage.lock().expect("no panic");
        loop {
            if *stage == Stage::Turn {
                return true;
            }
            if is_over() {
                return false;
            }
            let pause = Duration::from_millis(5);
            stage = self
                .shared
                .changed
                .wait_timeout(stage, pause)
                .expect("no panic")
                .0;
        }
    }

    /// Cuts it.
    pub fn strike(&self) {
        *self.shared.stage.lock().expect("no panic") = Stage::Struck;
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn carry(self: &Arc<Self>, source: TcpStream) {
        let Ok(target) = TcpStream::connect(self.target) else {
            return;
        };
        let _at_once = (source.set_nodelay(true), target.set_nodelay(true));
        let is_first = !self.has_called.swap(true, Ordering::Relaxed);
        for way in [Way::ToTarget, Way::ToSource] {
            let clone = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
            let (from, to) = match way {
                Way::ToTarget => (clone(&source), clone(&target)),
                Way::ToSource => (clone(&target), clone(&source)),
            };
            let shared = Arc::clone(self);
            thread::spawn(move || {
                let records = (is_first && way == shared.way).then_some(shared.records);
                let _cut = shared.pass(&from, &to, records);
                let _gone = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
    }

    /// Passes records on, until one end has gone or it is cut.
    fn pass(
        &self,
        mut from: &TcpStream,
        mut to: &TcpStream,
        records: Option<usize>,
    ) -> std::io::Result<()> {
        let mut passed = 0;
        loop {
            // RFC 8446, 5.1: type, version, length.
            let mut record = vec![0; 5];
            from.read_exact(&mut record)?;
            let length = u16::from_be_bytes([record[3], record[4]]);
            record.resize(5 + usize::from(length), 0);
            from.read_exact(&mut record[5..])?;
            if records == Some(passed) {
                let mut stage = self.stage.lock().expect("no panic");
                if *stage == Stage::Passing {
                    *stage = Stage::Turn;
                }
                self.changed.notify_all();
                while *stage != Stage::Struck {
                    stage = self.changed.wait(stage).expect("no panic");
                }
                return Ok(());
            }
            to.write_all(&record)?;
            passed += 1;
        }
    }
}
