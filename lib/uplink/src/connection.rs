//! An uplink's hold on its interface: hook, way out, offloads, address, promiscuity. Made when the
//! interface appears, undone when the uplink is closed. All of it happens in the calling thread's
//! namespace.

use crate::error::UplinkError;
use crate::outlet::{Outlet, Slots};
use crate::packet::PacketSocket;
use crate::receive::Receiver;
use crate::spec::{UplinkPath, UplinkSpec};
use crate::state::{Record, stop_steering};
use crate::steering::{self, Steered};
use nfluid_netdev::hook::Hooked;
use nfluid_netdev::nic::no_steering;
use nfluid_netdev::{Link, Netlink, Nic, Steering, XdpHook, offload};
use nfluid_ring::port::Port;
use nfluid_switch::classifier::Rule;

/// The hold.
#[derive(Debug)]
pub struct Connection {
    /// The interface, as it was seen last.
    pub link: Link,
    /// The way out.
    pub outlet: Outlet,
    record: Record,
    hook: XdpHook,
    receive_why: String,
    /// Keeps the interface promiscuous; absent: the interface cannot be.
    _promiscuous: Option<PacketSocket>,
}

impl Connection {
    /// Takes hold of `link`. `before` is the record of an earlier hold on the same interface, by this daemon or its
    /// predecessor: its changes are still to be undone in the end, and its program may be replaced.
    ///
    /// # Errors
    /// When the interface refuses; what had been changed by then is put back.
    pub fn make(
        netlink: &Netlink,
        link: Link,
        spec: &UplinkSpec,
        receiver: &Receiver,
        (slots, port): (Slots, &Port),
        before: Option<&Record>,
    ) -> Result<Self, UplinkError> {
        let before = before.filter(|record| record.index == link.index);
        let previous = before.and_then(|record| record.program);
        // An interface that has another owner's program is not changed.
        receiver.check_free(&link, previous)?;
        let mut record = before.cloned().unwrap_or_else(|| Record {
            name: spec.name.clone(),
            interface: spec.interface.clone(),
            netns: spec.netns.clone(),
            index: link.index,
            was_down: !link.up,
            ..Record::default()
        });
        receiver.queues().clear()?;
        record.stop_steering();
        record.program = Some(receiver.id());
        if spec.mac.is_some() && spec.mac != link.mac {
            record.mac_before = record.mac_before.or(link.mac);
        }
        let keep = |record: &Record| {
            spec.state_dir
                .as_deref()
                .map_or(Ok(()), |dir| record.keep(dir))
        };
        keep(&record)?;
        let made =
            Self::hold(netlink, &link, spec, receiver, &mut record, previous).and_then(|hooked| {
                keep(&record)?;
                let outlet = Outlet::open(&link, hooked.hook, spec.transmit, slots, port)?;
                Ok((hooked, outlet))
            });
        let (hooked, outlet) = match made {
            Ok(made) => made,
            Err(error) => {
                undo(&record, spec);
                return Err(error);
            }
        };
        let connection = Connection {
            _promiscuous: promiscuous(&link),
            link: netlink.link_by_index(link.index)?.unwrap_or(link),
            outlet,
            record,
            hook: hooked.hook,
            receive_why: hooked.why,
        };
        connection.log(spec);
        Ok(connection)
    }

    fn hold(
        netlink: &Netlink,
        link: &Link,
        spec: &UplinkSpec,
        receiver: &Receiver,
        record: &mut Record,
        previous: Option<u32>,
    ) -> Result<Hooked, UplinkError> {
        if let Some(mac) = spec.mac.filter(|mac| link.mac != Some(*mac)) {
            netlink.set_mac(link.index, mac)?;
        }
        let changed = offload::prepare(netlink, link)?;
        record.offloads.merge(changed);
        let hooked = receiver.attach(netlink, link, spec.mode, previous)?;
        if !link.up {
            netlink.set_up(link.index, true)?;
        }
        Ok(hooked)
    }

    fn log(&self, spec: &UplinkSpec) {
        let path = self.path();
        tracing::info!(
            uplink = spec.name,
            interface = spec.interface,
            receive = %path.receive,
            receive_why = path.receive_why,
            transmit = %path.transmit,
            transmit_why = path.transmit_why,
            "uplink is connected"
        );
    }

    /// Has the NIC send frames that `rules` match to queues of their ports' own, in place of its former rules. The
    /// answer names the rules that the NIC cannot take. The queues are their ports' once [`steering::DRAIN`] has
    /// passed: the caller enters them.
    ///
    /// # Errors
    /// The NIC steers nothing, with the reason; nothing is changed at the NIC then.
    pub fn steer(
        &mut self,
        spec: &UplinkSpec,
        receiver: &Receiver,
        rules: &[Rule],
    ) -> Result<Steered, UplinkError> {
        receiver.queues().clear()?;
        if let Some(taken) = &self.record.steering {
            stop_steering(&spec.interface, taken)?;
            self.record.steering = None;
            self.keep(spec)?;
        }
        if rules.is_empty() {
            return Ok(Steered::default());
        }
        Steering::of(&spec.interface)?;
        let nic = Nic::open(&spec.interface)?;
        let record = &mut self.record;
        let steered = steering::take(&nic, rules, &mut |taken| {
            record.steering = Some(taken.clone());
            let dir = spec.state_dir.as_deref();
            let kept = dir.map_or(Ok(()), |dir| record.keep(dir));
            kept.map_err(|error| error.to_string())
        });
        match steered {
            Ok(steered) if steered.flows > 0 => Ok(steered),
            other => {
                self.record.stop_steering();
                self.keep(spec)?;
                Ok(other.map_err(|why| no_steering(&spec.interface, &why))?)
            }
        }
    }

    fn keep(&self, spec: &UplinkSpec) -> Result<(), UplinkError> {
        let dir = spec.state_dir.as_deref();
        dir.map_or(Ok(()), |dir| self.record.keep(dir))
    }

    /// Returns the present path of frames.
    pub fn path(&self) -> UplinkPath {
        UplinkPath {
            receive: self.hook.path(),
            receive_why: self.receive_why.clone(),
            transmit: self.outlet.path(),
            transmit_why: self.outlet.why().to_owned(),
            index: self.link.index,
            mtu: self.link.mtu,
            mac: self.link.mac,
        }
    }

    /// Returns the changes that the connection has made.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Looks at the interface again. Is it still the one that is held, with our program on it?
    ///
    /// # Errors
    /// When the kernel refuses to say.
    pub fn is_valid(&mut self, netlink: &Netlink, spec: &UplinkSpec) -> Result<bool, UplinkError> {
        let Some(link) = netlink.link(&spec.interface)? else {
            return Ok(false);
        };
        let valid = link.index == self.link.index && link.xdp == self.record.program;
        if link.up != self.link.up {
            let state = if link.up { "up" } else { "down" };
            tracing::warn!(
                uplink = spec.name,
                interface = spec.interface,
                state,
                "interface changed"
            );
        }
        self.outlet.set_mtu(link.mtu);
        self.link = link;
        Ok(valid)
    }

    /// Lets go of the interface: program detached, settings put back, record removed.
    pub fn close(self, spec: &UplinkSpec) -> Outlet {
        undo(&self.record, spec);
        self.outlet
    }
}

fn undo(record: &Record, spec: &UplinkSpec) {
    let undone = record.undo_here();
    let forgotten = match (&undone, &spec.state_dir) {
        (Ok(()), Some(dir)) => record.forget(dir),
        _ => Ok(()),
    };
    if let Err(error) = undone.and(forgotten) {
        tracing::error!(uplink = spec.name, interface = spec.interface, %error, "not all settings could be put back");
    }
}

fn promiscuous(link: &Link) -> Option<PacketSocket> {
    let socket = PacketSocket::open(link.index).and_then(|socket| {
        socket.promiscuous(link.index)?;
        Ok(socket)
    });
    socket
        .inspect_err(|error| tracing::warn!(interface = link.name, %error, "frames for addresses of NFs may not be received"))
        .ok()
}
