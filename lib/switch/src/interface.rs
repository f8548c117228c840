//! Interfaces behind ports. A frame that comes in at tc, in the namespace of such an interface, goes out of it at once: no process
//! is in between (`bpf/switch/hook_tc.h`).
//!
//! The frames that come in on an interface enter by a program. An uplink has its own; the outer ends of veths that lead to
//! the stacks of instances share one, which finds the port by the interface's number.

use crate::SwitchError;
use crate::abi::{INTERFACE_PEER, PORTS_MAX, PortState};
use crate::program::Switch;
use crate::uplink::{PortAccount, UplinkHook};
use libbpf_rs::{MapCore, MapFlags};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// An interface, by which the switch's programs find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number in its namespace.
    pub index: u32,
    /// The inode of its namespace.
    pub netns: u32,
}

impl Interface {
    /// Its key in the table of interfaces (`struct nfl_interface_key`).
    fn key(self) -> [u8; 8] {
        let mut key = [0; 8];
        key[..4].copy_from_slice(&self.index.to_ne_bytes());
        key[4..].copy_from_slice(&self.netns.to_ne_bytes());
        key
    }

    fn put_behind(self, state: &PortState, flags: u32) {
        let word = self.index | flags;
        if state.interface.load(Relaxed) == word && state.netns.load(Relaxed) == self.netns {
            return;
        }
        // A program that finds the number finds the namespace.
        state.interface.store(0, Release);
        state.netns.store(self.netns, Release);
        state.interface.store(word, Release);
    }
}

impl PortAccount {
    /// Puts an interface behind the port, or takes it away: frames for the port may go out of it.
    pub fn set_interface(&self, interface: Option<Interface>) {
        let state = self.state();
        match interface {
            Some(interface) => interface.put_behind(state, 0),
            None => state.interface.store(0, Release),
        }
    }
}

impl Switch {
    /// Loads the program that sends what comes in on each interface of a namespace from the port behind which
    /// [`Switch::put_veth`] has put it.
    ///
    /// # Errors
    /// When the kernel refuses the program.
    pub fn load_shared(&self, netns: u32) -> Result<OwnedFd, SwitchError> {
        self.load_uplink(PORTS_MAX, UplinkHook::Tc, netns)
    }

    /// Puts an end of a veth behind a port: frames for the port may go to the stack at the other end, and frames that come in on
    /// this end are the port's.
    ///
    /// # Errors
    /// When the kernel refuses the entry.
    pub fn put_veth(&self, port: u32, end: Interface) -> Result<(), SwitchError> {
        self.take_interface(port)?;
        let table = self.map("nfl_interfaces")?;
        table
            .update(&end.key(), &port.to_ne_bytes(), MapFlags::ANY)
            .map_err(SwitchError::bpf("noting the interface behind a port"))?;
        end.put_behind(self.state(port), INTERFACE_PEER);
        Ok(())
    }

    /// Takes the interface behind a port away, if there is one.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn take_interface(&self, port: u32) -> Result<(), SwitchError> {
        let state = self.state(port);
        let word = state.interface.swap(0, Acquire);
        if word & INTERFACE_PEER == 0 {
            return Ok(());
        }
        let end = Interface {
            index: word & !INTERFACE_PEER,
            netns: state.netns.load(Relaxed),
        };
        match self.map("nfl_interfaces")?.delete(&end.key()) {
            Err(why) if why.kind() != libbpf_rs::ErrorKind::NotFound => Err(SwitchError::bpf(
                "forgetting the interface behind a port",
            )(why)),
            _ => Ok(()),
        }
    }
}
