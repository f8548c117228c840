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
    /// The address.
    pub mac: [u8; 6],
    /// The port behind which it is.
    pub port: u32,
    /// Pinned by the deployment: never learned elsewhere, never ages.
    pub pinned: bool,
    /// Has not been seen for its port's ageing time; the next sweep removes it.
    pub aged: bool,
}

/// The program's clock: units of 2^30 ns.
fn now() -> u32 {
    (monotonic_ns() >> 30) as u32
}

fn key(switch: u32, address: u64) -> [u8; 16] {
    let mut key = [0u8; 16];
    key[..8].copy_from_slice(&address.to_ne_bytes());
    key[8..12].copy_from_slice(&switch.to_ne_bytes());
    key
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
        value[..4].copy_from_slice(&port.to_ne_bytes());
        value[8..12].copy_from_slice(&1u32.to_ne_bytes());
        self.fdb
            .update(&key(switch, fdb_address(vlan, mac)), &value, MapFlags::ANY)
            .map_err(SwitchError::bpf(
                "pinning an address (is the forwarding table full?)",
            ))
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
            let pinned = word(&value, 2) != 0;
            let aged = !pinned && now.wrapping_sub(word(&value, 1)) > word(&value, 3);
            entries.push(FdbEntry {
                switch: word(&key, 2),
                vlan,
                mac,
                port: word(&value, 0),
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

    pub(crate) fn forget_port(&self, switch: u32, port: u32) -> Result<(), SwitchError> {
        self.fdb_remove(|entry| entry.switch == switch && entry.port == port)
            .map(|_| ())
    }

    pub(crate) fn fdb_remove(
        &self,
        doomed: impl Fn(&FdbEntry) -> bool,
    ) -> Result<usize, SwitchError> {
        let doomed: Vec<FdbEntry> = self.fdb_entries()?.into_iter().filter(doomed).collect();
        for entry in &doomed {
            self.fdb
                .delete(&key(entry.switch, fdb_address(entry.vlan, entry.mac)))
                .map_err(SwitchError::bpf("removing an FDB entry"))?;
            if !entry.pinned {
                let used = &self.state(entry.port).fdb_used;
                let _ = used.fetch_update(Relaxed, Relaxed, |used| used.checked_sub(1));
            }
        }
        // A sender skips the look-up for the address that it learned last: let it look again.
        for entry in &doomed {
            self.state(entry.port).last_source.store(0, Relaxed);
        }
        Ok(doomed.len())
    }
}
