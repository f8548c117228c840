//! The outer ends of a server's interfaces: ends of veths in the daemon's namespace, behind the instance's ports. What the server
//! sends is switched there, in its own context.

use anyhow::Context;
use nfluid_netdev::NetNs;
use nfluid_netdev::own_stack::{self, Made};
use nfluid_switch::{Interface, Switch};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// The program that receives at all outer ends.
#[derive(Debug, Default)]
pub struct OuterEnds {
    program: OnceLock<OwnedFd>,
}

impl OuterEnds {
    /// Loads the program, if this has not been done yet. `netns`: the inode of the daemon's namespace.
    fn program(&self, switch: &Switch, netns: u32) -> anyhow::Result<BorrowedFd<'_>> {
        if self.program.get().is_none() {
            let loaded = switch.load_shared(netns);
            let loaded = loaded.context("the program for its interfaces")?;
            // Another thread may have been faster: its program is the same.
            let _first = self.program.set(loaded);
        }
        let program = self.program.get().context("the program is loaded")?;
        Ok(program.as_fd())
    }

    /// Puts outer ends behind the ports from number `first_port` on. Returns sockets that send to the stack, in the same order.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn put(
        &self,
        switch: &Switch,
        ends: &[Made],
        first_port: u32,
    ) -> anyhow::Result<Vec<OwnedFd>> {
        let netns = NetNs::open(None)?.inode();
        let program = self.program(switch, netns)?;
        let pairs = ends.iter().zip(first_port..);
        pairs
            .map(|(made, port)| {
                let index = made.outer;
                switch.put_veth(port, Interface { index, netns })?;
                Ok(own_stack::open_outer(index, program)?)
            })
            .collect()
    }
}
