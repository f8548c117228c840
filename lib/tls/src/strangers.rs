//! Callers that have not shown a certificate yet. Any host may be such a caller.
//!
//! Unauthenticated callers have places of their own, few for each address, and take none from authenticated callers.
//! Where there are too many, the server closes the connection that has waited longest, of the address that has most:
//! a caller that shows a certificate at once is served, however many others call and send nothing.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Unauthenticated callers at a time.
pub const ALL_MAX: usize = 32;
/// Unauthenticated callers of an IPv4 address, or of an IPv6 network of 64 bits.
const OF_ADDRESS_MAX: usize = 4;

/// Unauthenticated callers that are connected now, in the order in which they came.
#[derive(Debug, Default)]
pub struct Unauthenticated(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    calling: VecDeque<Calling>,
}

#[derive(Debug)]
struct Calling {
    number: u64,
    address: IpAddr,
    /// To hang up.
    stream: TcpStream,
}

/// A caller that is not authenticated yet; dropped when the caller is authenticated, or gone.
#[derive(Debug)]
pub struct UnauthenticatedCaller {
    all: Arc<Unauthenticated>,
    number: u64,
}

impl Unauthenticated {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a caller, and closes the connection of another one if there are too many. `stream` is another descriptor of the
    /// caller's connection: whoever reads that connection notices that it is closed.
    pub fn enter(self: &Arc<Self>, stream: TcpStream, from: IpAddr) -> UnauthenticatedCaller {
        let address = network(from);
        let mut table = self.table();
        if let Some(gone) = table.supernumerary(address) {
            let gone = table.calling.remove(gone);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    // Catches: no bound for an address; the first of another address goes, instead of the first of the crowded one.
    // promise: 5.37
    #[test]
    fn of_too_many_the_first_of_the_crowded_address_goes() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let unauthenticated = Arc::<Unauthenticated>::default();
        let mut keep = Vec::new();
        let mut enter = |from: IpAddr| {
            let to = listener.local_addr().expect("an address");
            let stream = TcpStream::connect(to).expect("it listens");
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
