//! Pinned and learned addresses.

use crate::SwitchError;
use crate::abi::{fdb_address, split_address};
use crate::program::Switch;
use libbpf_rs::{MapCore, MapFlags};
use nfluid_ring::clock::monotonic_ns;
use std::sync::atomic::Ordering::Relaxed;

/// An entry of the forwarding data base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdbEntry {
    /// The switch.
    pub switch: u32,
    /// VLAN id, 0 if untagged.
    pub vlan: u16,
    /// The address; that of a multicast group if the group was joined from the port: see `bpf/switch/group.h`.
    pub mac: [u8; 6],
    /// The port behind which it is.
    pub port: u32,
    /// Pinned by the deployment: never learned elsewhere, never ages.
    pub pinned: bool,
    /// True if the address has not been seen for its port's ageing time, or was learned before the port was connected
    /// as it is now: frames no longer go by the entry, and the next sweep removes it.
    pub aged: bool,
}

/// The program's clock: units of 2^30 ns.
fn now() -> u32 {
    (monotonic_ns() >> 30) as u32
}

/// The key of an address.
fn key(switch: u32, address: u64) -> [u8; 16] {
    let mut key = [0u8; 16];
    key[..8].copy_from_slice(&address.to_ne_bytes());
    key[8..12].copy_from_slice(&switch.to_ne_bytes());
    key
}

impl FdbEntry {
    /// The key of the entry; of a group it names the port, for there is an entry for each port.
    fn key(&self) -> [u8; 16] {
        let mut key = key(self.switch, fdb_address(self.vlan, self.mac));
        if self.mac[0] & 1 != 0 {
            key[12..].copy_from_slice(&(self.port + 1).to_ne_bytes());
        }
        key
    }
}

/// Bit of an entry's owner: see `bpf/switch/way.h`.
const PINNED: u64 = 1 << 63;

/// The owner of an entry, by its value.
fn owner(value: &[u8]) -> u64 {
    u64::from(word(value, 1)) << 32 | u64::from(word(value, 0))
}

fn word(bytes: &[u8], index: usize) -> u32 {
    bytes
        .get(index * 4..index * 4 + 4)
        .map_or(0, |w| u32::from_ne_bytes(w.try_into().expect("four bytes")))
}

impl Switch {
    /// Pins (VLAN, MAC) of a switch to a port.
    ///
    /// # Errors
    /// When the table is full.
    pub fn pin_address(
        &self,
        switch: u32,
        vlan: u16,
        mac: [u8; 6],
        port: u32,
    ) -> Result<(), SwitchError> {
        let mut value = [0u8; 16];
        value[..8].copy_from_slice(&(u64::from(port) | PINNED).to_ne_bytes());
        let key = key(switch, fdb_address(vlan, mac));
        // The port that has learned the address has one address less.
        self.take_entry(&key)?;
        self.fdb
            .update(&key, &value, MapFlags::ANY)
            .map_err(SwitchError::bpf(
                "pinning an address (is the forwarding table full?)",
            ))
    }

    /// Removes an entry, and counts it no longer. False: there is none.
    fn take_entry(&self, key: &[u8]) -> Result<bool, SwitchError> {
        let taken = match self.fdb.lookup_and_delete(key) {
            Err(error) if error.kind() == libbpf_rs::ErrorKind::NotFound => None,
            taken => taken.map_err(SwitchError::bpf("removing an FDB entry"))?,
        };
        let Some(value) = taken else {
            return Ok(false);
        };
        let owner = owner(&value);
        let state = self.state(owner as u32);
        if owner & PINNED == 0 {
            let _ = state
                .fdb_used
                .fetch_update(Relaxed, Relaxed, |used| used.checked_sub(1));
        }
        // A sender skips the look-up for the address that it learned last: the next frame must cause a look-up.
        state.last_source.store(0, Relaxed);
        Ok(true)
    }

    /// All entries.
    ///
    /// # Errors
    /// When the kernel refuses to list them.
    pub fn fdb_entries(&self) -> Result<Vec<FdbEntry>, SwitchError> {
        let now = now();
        let mut entries = Vec::new();
        for key in self.fdb.keys() {
            let value = self
                .fdb
                .lookup(&key, MapFlags::ANY)
                .map_err(SwitchError::bpf("reading the FDB"))?;
            let Some(value) = value else { continue };
            let address = u64::from_ne_bytes(key[..8].try_into().expect("eight bytes"));
            let (vlan, mac) = split_address(address);
            let owner = owner(&value);
            let port = owner as u32;
            let pinned = owner & PINNED != 0;
            let is_old = now.wrapping_sub(word(&value, 2)) > word(&value, 3);
            let aged = !pinned && (is_old || self.destination_word(port).owner(port) != owner);
            entries.push(FdbEntry {
                switch: word(&key, 2),
                vlan,
                mac,
                port,
                pinned,
                aged,
            });
        }
        Ok(entries)
    }

    /// Removes entries that have aged out; the daemon calls it every few seconds. Returns how many.
    ///
    /// # Errors
    /// When the kernel refuses to list or remove them.
    pub fn fdb_sweep(&self) -> Result<usize, SwitchError> {
        self.fdb_remove(|entry| entry.aged)
    }

    /// Removes all addresses of ports, pinned ones too. Calls in progress may learn further addresses of the ports
    /// meanwhile. These are aged at once if the ports have another destination by now.
    pub(crate) fn forget_ports(&self, is_gone: impl Fn(u32) -> bool) -> Result<(), SwitchError> {
        self.fdb_remove(|entry| is_gone(entry.port)).map(|_| ())
    }

    fn fdb_remove(&self, doomed: impl Fn(&FdbEntry) -> bool) -> Result<usize, SwitchError> {
        let mut removed = 0;
        for entry in self.fdb_entries()?.into_iter().filter(doomed) {
            removed += usize::from(self.take_entry(&entry.key())?);
        }
        Ok(removed)
    }
}
