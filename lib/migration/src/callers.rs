//! Callers of this daemon: a thread for each. Those that have not shown a certificate yet have places of their own
//! ([`strangers`](nfluid_tls::strangers)).

use crate::channel::Channel;
use crate::tls::Tls;
use nfluid_tls::strangers::{ALL_MAX, Unauthenticated};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Threads for unauthenticated callers. These include callers whose connection was closed and that have not noticed
/// yet: such threads end at once, so that a new caller waits a moment for its thread.
const THREADS_MAX: usize = 2 * ALL_MAX;
/// After a failed call of the kernel the next one may fail as well.
const PAUSE: Duration = Duration::from_millis(100);

/// Threads that there are.
#[derive(Default)]
struct Threads {
    count: Mutex<usize>,
    fewer: Condvar,
}

/// A thread is counted until this is dropped.
struct Thread(Arc<Threads>);

impl Thread {
    /// Waits until there are fewer than [`THREADS_MAX`].
    fn one_more(all: &Arc<Threads>) -> Self {
        let count = all.count.lock().unwrap_or_else(PoisonError::into_inner);
        let count = all.fewer.wait_while(count, |count| *count >= THREADS_MAX);
        *count.unwrap_or_else(PoisonError::into_inner) += 1;
        Thread(Arc::clone(all))
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.fewer.notify_one();
    }
}

/// Counts a connection, as long as this value lives.
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    /// Adds one to `all`.
    pub fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(all))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Authenticates callers, in a thread for each; `answer` is called in that thread for authenticated callers. The
/// function never returns.
pub fn listen(
    listener: &TcpListener,
    tls: &Tls,
    answer: impl Fn(Channel) + Clone + Send + 'static,
) -> ! {
    let unauthenticated = Arc::<Unauthenticated>::default();
    let threads = Arc::<Threads>::default();
    loop {
        let answered = listener.accept().and_then(|(stream, from)| {
            // The entry comes first: it may have to close another caller's connection, whose thread then ends.
            let caller = unauthenticated.enter(stream.try_clone()?, from.ip());
            let thread = Thread::one_more(&threads);
            let (tls, answer) = (tls.clone(), answer.clone());
            let serve = move || match tls.accept(stream) {
                Ok(channel) => {
                    drop((caller, thread));
                    answer(channel);
                }
                Err(why) => tracing::debug!("an unauthenticated caller: {why:#}"),
            };
            let thread = std::thread::Builder::new().name("arrival".to_owned());
            thread.spawn(serve).map(drop)
        });
        if let Err(error) = answered {
            tracing::warn!(%error, "a daemon that calls could not be answered");
            std::thread::sleep(PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::tests::{SOON, authority, host};
    use nfluid_formats::message::{Message, Taken};
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

    /// Connects from this loopback address and says nothing.
    fn silent(from: Ipv4Addr, to: &TcpListener) -> TcpStream {
        let own = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
        bind(&own, &SocketAddrV4::new(from, 0)).expect("an address of the loopback interface");
        connect(&own, &to.local_addr().expect("an address")).expect("it listens");
        own.into()
    }

    /// Connects silent callers from each of these addresses, one after the other; then an authenticated caller.
    fn is_answered_beside(addresses: &[Ipv4Addr]) {
        let authority = authority();
        let (ours, caller) = (
            host(&authority, &authority, "127.0.0.1"),
            host(&authority, &authority, "edge1"),
        );
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut unauthenticated = Vec::new();
        for address in addresses {
            unauthenticated.push(silent(*address, &listener));
        }
        let address = listener.local_addr().expect("an address").to_string();
        let tls = ours.tls.clone();
        std::thread::spawn(move || {
            listen(&listener, &tls, |mut channel| {
                let heard = channel.hear(SOON).expect("it asks");
                channel.say(&heard, SOON).expect("it listens");
            })
        });
        let mut channel = caller.tls.connect(&address).expect("it is known");
        let question = Message::Ready(Taken::default());
        assert_eq!(channel.ask(&question, SOON).expect("answered"), question);
        drop(unauthenticated);
    }

    // Catches: authenticated and unauthenticated callers share places, and the last caller is refused.
    // promise: 5.37
    #[test]
    fn an_authenticated_caller_is_answered_beside_any_number_of_silent_ones() {
        is_answered_beside(&[Ipv4Addr::LOCALHOST; 100]);
        let many = (2..102).map(|last| Ipv4Addr::new(127, 0, 0, last));
        is_answered_beside(&many.collect::<Vec<_>>());
    }
}
