//! Callers that have not shown a certificate yet. Any host may be such a caller.
//!
//! Unauthenticated callers have places of their own, few for each address, and take none from authenticated callers.
//! Where there are too many, the server closes the connection that has waited longest, of the address that has most:
//! a caller that shows a certificate at once is served, however many others call and send nothing.

use crate::channel::Channel;
use crate::tls::Tls;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Unauthenticated callers at a time.
const ALL_MAX: usize = 32;
/// Unauthenticated callers of an IPv4 address, or of an IPv6 network of 64 bits.
const OF_ADDRESS_MAX: usize = 4;
/// Threads for unauthenticated callers. These include callers whose connection was closed and that have not noticed
/// yet: such threads end at once, so that a new caller waits a moment for its thread.
const THREADS_MAX: usize = 2 * ALL_MAX;
/// After a failed call of the kernel the next one may fail as well.
const PAUSE: Duration = Duration::from_millis(100);

/// Unauthenticated callers that are connected now, in the order in which they came.
#[derive(Default)]
struct Unauthenticated(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    calling: VecDeque<Calling>,
}

struct Calling {
    number: u64,
    address: IpAddr,
    /// To hang up.
    stream: TcpStream,
}

/// A caller that is not authenticated yet; dropped when the caller is authenticated, or gone.
struct UnauthenticatedCaller {
    all: Arc<Unauthenticated>,
    number: u64,
}

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

impl Unauthenticated {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(self: &Arc<Self>, stream: TcpStream, from: IpAddr) -> UnauthenticatedCaller {
        let address = network(from);
        let mut table = self.table();
        if let Some(gone) = table.supernumerary(address) {
            let gone = table.calling.remove(gone);
            // The caller's thread notices, and ends.
            let _gone = gone.map(|gone| gone.stream.shutdown(Shutdown::Both));
        }
        let number = table.next;
        table.next += 1;
        table.calling.push_back(Calling {
            number,
            address,
            stream,
        });
        UnauthenticatedCaller {
            all: Arc::clone(self),
            number,
        }
    }
}

impl Table {
    /// Returns the caller that has to go before another caller of `address` comes.
    fn supernumerary(&self, address: IpAddr) -> Option<usize> {
        let of = |address: IpAddr| {
            let all = self.calling.iter();
            all.filter(|it| it.address == address).count()
        };
        let crowded = if of(address) >= OF_ADDRESS_MAX {
            address
        } else if self.calling.len() >= ALL_MAX {
            // The last of equal entries is the maximum of `max_by_key`. The reversed order makes that the entry that
            // has waited longest.
            let all = self.calling.iter().rev();
            all.max_by_key(|it| of(it.address))?.address
        } else {
            return None;
        };
        self.calling.iter().position(|it| it.address == crowded)
    }
}

impl Drop for UnauthenticatedCaller {
    fn drop(&mut self) {
        let mut table = self.all.table();
        table.calling.retain(|it| it.number != self.number);
    }
}

/// The part of an address that a caller cannot choose freely: callers that share it count as one.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from(address.to_bits() >> 64 << 64).into(),
        address => address,
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
    use std::net::{Ipv4Addr, SocketAddrV4};

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

    // Catches: no bound for an address; the first of another address goes, instead of the first of the crowded one.
    // promise: 5.37
    #[test]
    fn of_too_many_the_first_of_the_crowded_address_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let unauthenticated = Arc::<Unauthenticated>::default();
        let mut keep = Vec::new();
        let mut enter = |from: IpAddr| {
            let stream = silent(Ipv4Addr::LOCALHOST, &listener);
            keep.push(unauthenticated.enter(stream, from));
            let table = unauthenticated.table();
            let all = table.calling.iter();
            all.map(|it| (it.number, it.address)).collect::<Vec<_>>()
        };
        let one: IpAddr = "fd00::1".parse().expect("an address");
        let neighbour: IpAddr = "fd00::ffff".parse().expect("an address");
        let mut present = Vec::new();
        for _ in 0..OF_ADDRESS_MAX {
            present = enter(one);
        }
        assert_eq!(present.len(), OF_ADDRESS_MAX);
        present = enter(neighbour);
        assert_eq!(present.len(), OF_ADDRESS_MAX, "the same network");
        assert_eq!(
            present.first().map(|it| it.0),
            Some(1),
            "the first has gone"
        );
        for last in 0..(ALL_MAX - OF_ADDRESS_MAX) as u8 {
            present = enter(Ipv4Addr::new(10, 0, 0, last).into());
        }
        assert_eq!(present.len(), ALL_MAX);
        present = enter(Ipv4Addr::new(10, 0, 1, 0).into());
        assert_eq!(present.len(), ALL_MAX);
        let crowd = present.iter().filter(|it| it.1 == network(one)).count();
        assert_eq!(crowd, OF_ADDRESS_MAX - 1, "the crowd has one less");
    }
}
