//! An uplink's hold on its interface: hook, way out, offloads, address, promiscuity. Made when the
//! interface appears, undone when the uplink is closed. All of it happens in the calling thread's
//! namespace.
//!
//! There are two forms. In the plain form frames are as on a wire: XDP receives, AF_XDP sends. In the other form frames may
//! have work left to be done: a program at tc receives, AF_PACKET sends ([`Levels`]). [`Connection::set_levels`] leads
//! from one form to the other, in an order in which each frame finds a program that takes it.

use crate::error::UplinkError;
use crate::outlet::{Outlet, Slots, Wanted};
use crate::packet::PacketSocket;
use crate::receive::{Receiver, TcSeat};
use crate::shared::Shared;
use crate::spec::{Levels, UplinkPath, UplinkSpec};
use crate::state::{Record, stop_steering};
use crate::steering::{self, Steered};
use nfluid_netdev::hook::Hooked;
use nfluid_netdev::nic::no_steering;
use nfluid_netdev::offload::{self, Undone, has_uso};
use nfluid_netdev::{Link, Netlink, Nic, ReceivePath, Steering};
use nfluid_ring::Level;
use nfluid_ring::port::Port;
use nfluid_switch::classifier::Rule;
use std::thread;
use std::time::{Duration, Instant};

/// Time in which frames that the other end of a veth has sent come to the hook.
const UNDER_WAY: Duration = Duration::from_millis(20);
/// Longest time for which frames in the ring are sent in the former form.
const DRAINED_WITHIN: Duration = Duration::from_millis(500);

/// The hold.
#[derive(Debug)]
pub struct Connection {
    /// The interface, as it was seen last.
    pub link: Link,
    /// The way out.
    pub outlet: Outlet,
    record: Record,
    /// At XDP; `None`: at tc.
    hooked: Option<Hooked>,
    levels_why: String,
    /// Keeps the interface promiscuous; absent: the interface cannot be.
    _promiscuous: Option<PacketSocket>,
}

/// Levels could not be changed.
#[derive(Debug)]
pub enum LevelsError {
    /// The hold is whole, and has the levels that its record says.
    Refused(UplinkError),
    /// A part has changed: the hold is to be made again.
    Half(UplinkError),
}

impl From<UplinkError> for LevelsError {
    fn from(error: UplinkError) -> Self {
        LevelsError::Half(error)
    }
}

/// An uplink's hold is made of these.
#[derive(Clone, Copy)]
pub struct Means<'a> {
    /// Requests to the kernel, in the interface's namespace.
    pub netlink: &'a Netlink,
    /// The uplink.
    pub spec: &'a UplinkSpec,
    /// Its programs.
    pub receiver: &'a Receiver,
    /// Its slots.
    pub slots: &'a Slots,
    /// Its state.
    pub shared: &'a Shared,
}

impl Means<'_> {
    fn keep(&self, record: &Record) -> Result<(), UplinkError> {
        let dir = self.spec.state_dir.as_deref();
        dir.map_or(Ok(()), |dir| record.keep(dir))
    }

    /// Leaves as much undone of frames that come in as this level says.
    fn allow(&self, link: &Link, record: &mut Record, level: Level) -> Result<(), UplinkError> {
        let undone = match level {
            Level::Plain => Undone::Nothing,
            Level::Checksums => Undone::Checksums,
            Level::Super => Undone::Segments { udp: has_uso() },
        };
        let plan = offload::plan(self.netlink, link, undone, &record.offloads)?;
        record.offloads = plan.changed().clone();
        self.keep(record)?;
        Ok(plan.carry_out(self.netlink)?)
    }

    /// Puts the program at tc on the interface. What has failed is undone.
    fn enter_tc(&self, record: &mut Record) -> Result<(), UplinkError> {
        let entered = self.try_tc(record);
        if entered.is_err() {
            self.leave_tc(record)?;
        }
        entered
    }

    fn try_tc(&self, record: &mut Record) -> Result<(), UplinkError> {
        let id = self.receiver.tc_id();
        let id = id.map_err(|why| {
            UplinkError::system("receiving at tc")(std::io::Error::other(why.to_owned()))
        })?;
        let place = self.spec.place();
        let before = record.tc.as_ref().map(|(_, seat)| seat);
        let seat = match before {
            Some(seat) if seat.is_attached(&place, record.index) => seat.clone(),
            _ => self
                .receiver
                .tc_seat(&place, self.spec.pins.as_deref(), before)?,
        };
        record.tc = Some((id, seat.clone()));
        self.keep(record)?;
        self.receiver.attach_tc(&place, &seat, record.index)
    }

    /// Takes the program at tc off the interface.
    fn leave_tc(&self, record: &mut Record) -> Result<(), UplinkError> {
        if let Some((_, seat)) = &record.tc {
            seat.remove(&self.spec.place())?;
        }
        record.tc = None;
        self.keep(record)
    }

    fn enter_xdp(&self, link: &Link, record: &mut Record) -> Result<Hooked, UplinkError> {
        let previous = record.program.replace(self.receiver.id());
        self.keep(record)?;
        let attached = self
            .receiver
            .attach(self.netlink, link, self.spec.mode, previous);
        if attached.is_err() {
            record.program = previous;
            self.keep(record)?;
        }
        attached
    }

    fn leave_xdp(&self, record: &mut Record) -> Result<(), UplinkError> {
        if let Some(program) = record.program
            && let Some(link) = self.netlink.link_by_index(record.index)?
        {
            crate::receive::detach_leftover(self.netlink, &link, program)?;
        }
        record.program = None;
        self.keep(record)
    }

    /// The levels that can be had, and the reason for which no higher ones can.
    fn possible(&self, asked: Levels) -> (Levels, String) {
        if asked.take == Level::Plain {
            return (asked, String::new());
        }
        match self.receiver.tc_id() {
            Err(why) => (Levels::default(), format!("no program at tc: {why}")),
            Ok(_) if asked.enter == Level::Super && !has_uso() => {
                let why = "UDP is cut into packets before it comes in: before Linux 6.2";
                (asked, why.to_owned())
            }
            Ok(_) => (asked, String::new()),
        }
    }
}

impl Connection {
    /// Takes hold of `link`. `before` is the record of an earlier hold on the same interface, by this daemon or its
    /// predecessor: its changes are still to be undone in the end, and its programs may be replaced.
    ///
    /// # Errors
    /// When the interface refuses; what had been changed by then is put back.
    pub fn make(
        means: Means<'_>,
        link: Link,
        port: &Port,
        before: Option<&Record>,
        levels: Levels,
    ) -> Result<Self, UplinkError> {
        let Means { netlink, spec, .. } = means;
        let (before, former) = match before {
            Some(record) if record.index != link.index => (None, Some(record)),
            before => (before, None),
        };
        // A link goes with its interface, which may have another name by now: a process has ended in between.
        if let Some((_, seat @ TcSeat::Link(_))) = former.and_then(|former| former.tc.as_ref()) {
            seat.remove(&spec.place())?;
        }
        // An interface that has another owner's program is not changed.
        let previous = before.and_then(|record| record.program);
        let seat = before.and_then(|record| record.tc.as_ref());
        means.receiver.check_free(netlink, &link, previous, seat)?;
        let mut record = before.cloned().unwrap_or_else(|| Record {
            name: spec.name.clone(),
            interface: spec.interface.clone(),
            netns: spec.netns.clone(),
            index: link.index,
            was_down: !link.up,
            made_tunnel: spec.tunnel.is_some(),
            ..Record::default()
        });
        means.receiver.queues().clear()?;
        record.stop_steering();
        if spec.mac.is_some() && spec.mac != link.mac {
            record.mac_before = record.mac_before.or(link.mac);
        }
        let (levels, levels_why) = means.possible(levels);
        record.levels = levels;
        means.keep(&record)?;
        if levels.take == Level::Plain {
            // The plain way out takes nothing else.
            means.shared.set_level(Level::Plain);
        }
        let made = Self::hold(means, &link, &mut record, levels).and_then(|hooked| {
            let outlet = Outlet::open(
                &link,
                wanted(spec, hooked.as_ref()),
                means.slots.clone(),
                port,
            )?;
            Ok((hooked, outlet))
        });
        let (hooked, outlet) = match made {
            Ok(made) => made,
            Err(error) => {
                undo(&record, spec);
                return Err(error);
            }
        };
        means.shared.set_level(levels.take);
        let connection = Connection {
            _promiscuous: promiscuous(&link),
            link: netlink.link_by_index(link.index)?.unwrap_or(link),
            outlet,
            record,
            hooked,
            levels_why,
        };
        connection.log(spec);
        Ok(connection)
    }

    /// Puts the program of the form of `levels` on the interface, before that of the other form is taken off.
    fn hold(
        means: Means<'_>,
        link: &Link,
        record: &mut Record,
        levels: Levels,
    ) -> Result<Option<Hooked>, UplinkError> {
        if let Some(mac) = means.spec.mac.filter(|mac| link.mac != Some(*mac)) {
            means.netlink.set_mac(link.index, mac)?;
        }
        let hooked = if levels.take == Level::Plain {
            means.allow(link, record, Level::Plain)?;
            let hooked = means.enter_xdp(link, record)?;
            means.leave_tc(record)?;
            Some(hooked)
        } else {
            means.enter_tc(record)?;
            means.leave_xdp(record)?;
            means.allow(link, record, levels.enter)?;
            None
        };
        if !link.up {
            means.netlink.set_up(link.index, true)?;
        }
        Ok(hooked)
    }

    /// Changes the levels. Frames that are under way in the former form are delivered: those that come in by its program,
    /// those in the ring by its way out.
    ///
    /// # Errors
    /// [`LevelsError`], when the interface refuses.
    pub fn set_levels(
        &mut self,
        means: Means<'_>,
        port: &mut Port,
        levels: Levels,
    ) -> Result<(), LevelsError> {
        let (levels, why) = means.possible(levels);
        self.levels_why = why;
        if levels.take > Level::Plain && self.hooked.is_some() {
            let entered = means.enter_tc(&mut self.record);
            entered.map_err(LevelsError::Refused)?;
        }
        self.change(means, port, levels)
    }

    /// Changes the levels once the program at tc is there, if they need one.
    fn change(
        &mut self,
        means: Means<'_>,
        port: &mut Port,
        levels: Levels,
    ) -> Result<(), LevelsError> {
        let link = self.link.clone();
        let is_plain = self.hooked.is_some();
        if levels.take > Level::Plain {
            if is_plain {
                self.replace_outlet(means, port, None)?;
                self.hooked = None;
            }
            means.shared.set_level(levels.take);
            if is_plain {
                means.leave_xdp(&mut self.record)?;
            }
            means.allow(&link, &mut self.record, levels.enter)?;
        } else {
            means.allow(&link, &mut self.record, Level::Plain)?;
            if !is_plain {
                thread::sleep(UNDER_WAY);
                let entered = means.enter_xdp(&link, &mut self.record);
                let hooked = entered.map_err(|error| {
                    // Plain frames come in by the program at tc as well.
                    self.record.levels.enter = Level::Plain;
                    LevelsError::Refused(error)
                })?;
                means.shared.set_level(Level::Plain);
                self.drain(means, port);
                self.replace_outlet(means, port, Some(&hooked))?;
                self.hooked = Some(hooked);
                thread::sleep(UNDER_WAY);
                means.leave_tc(&mut self.record)?;
            }
        }
        self.record.levels = levels;
        means.keep(&self.record)?;
        let shown = means.netlink.link_by_index(self.link.index);
        self.link = shown.map_err(UplinkError::from)?.unwrap_or(link);
        self.log(means.spec);
        Ok(())
    }

    /// Sends what was put into the ring before the level was lowered.
    fn drain(&mut self, means: Means<'_>, port: &mut Port) {
        // A call that has seen the former level is over in less.
        thread::sleep(UNDER_WAY);
        let start = Instant::now();
        while self.outlet.pump(port, means.shared) > 0 && start.elapsed() < DRAINED_WITHIN {}
    }

    fn replace_outlet(
        &mut self,
        means: Means<'_>,
        port: &mut Port,
        hooked: Option<&Hooked>,
    ) -> Result<(), UplinkError> {
        self.outlet.await_confirmations(means.shared);
        let wanted = wanted(means.spec, hooked);
        let new = Outlet::open(&self.link, wanted, means.slots.clone(), port)?;
        std::mem::replace(&mut self.outlet, new).abandon(port, means.shared);
        Ok(())
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
            level = ?path.levels.enter,
            "uplink is connected"
        );
    }

    /// Has the NIC send frames that `rules` match to queues of their ports' own, in place of its former rules. The
    /// answer names the rules that the NIC cannot take. The queues are their ports' once [`steering::DRAIN`] has
    /// passed: the caller enters them.
    ///
    /// # Errors
    /// The NIC steers nothing, with the reason; nothing is changed at the NIC then.
    pub fn steer(&mut self, means: Means<'_>, rules: &[Rule]) -> Result<Steered, UplinkError> {
        let spec = means.spec;
        means.receiver.queues().clear()?;
        if let Some(taken) = &self.record.steering {
            stop_steering(&spec.interface, taken)?;
            self.record.steering = None;
            means.keep(&self.record)?;
        }
        if rules.is_empty() {
            return Ok(Steered::default());
        }
        if self.hooked.is_none() {
            let why = "its frames come in at tc, which does not see the queues";
            return Err(no_steering(&spec.interface, why).into());
        }
        Steering::of(&spec.interface)?;
        let nic = Nic::open(&spec.interface)?;
        let record = &mut self.record;
        let steered = steering::take(&nic, rules, &mut |taken| {
            record.steering = Some(taken.clone());
            means.keep(record).map_err(|error| error.to_string())
        });
        match steered {
            Ok(steered) if steered.flows > 0 => Ok(steered),
            other => {
                self.record.stop_steering();
                means.keep(&self.record)?;
                Ok(other.map_err(|why| no_steering(&spec.interface, &why))?)
            }
        }
    }

    /// Returns the present path of frames.
    pub fn path(&self) -> UplinkPath {
        let (receive, receive_why) = match &self.hooked {
            Some(hooked) => (hooked.hook.path(), hooked.why.clone()),
            None => {
                let why = "frames may have work left to be done, which XDP does not see";
                (ReceivePath::Tc, why.to_owned())
            }
        };
        UplinkPath {
            receive,
            receive_why,
            transmit: self.outlet.path(),
            transmit_why: self.outlet.why().to_owned(),
            index: self.link.index,
            mtu: self.link.mtu,
            mac: self.link.mac,
            levels: self.record.levels,
            levels_why: self.levels_why.clone(),
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
        let has_program = match &self.record.tc {
            Some((_, seat)) => seat.is_attached(&spec.place(), self.link.index),
            None => link.xdp == self.record.program,
        };
        let valid = link.index == self.link.index && has_program;
        if link.up != self.link.up {
            let state = if link.up { "up" } else { "down" };
            tracing::warn!(
                uplink = spec.name,
                interface = spec.interface,
                state,
                "interface changed"
            );
        }
        self.link = link;
        Ok(valid)
    }

    /// Lets go of the interface if it has another name by now. Returns true if it has.
    pub fn give_back_renamed(&self, netlink: &Netlink, spec: &UplinkSpec) -> bool {
        forget_undone(&self.record, spec, self.record.undo_renamed(netlink))
    }

    /// Lets go of the interface: program detached, settings put back, record removed.
    pub fn close(self, spec: &UplinkSpec) -> Outlet {
        undo(&self.record, spec);
        self.outlet
    }
}

/// The way out of the form in which this hook receives; `None`: tc.
fn wanted(spec: &UplinkSpec, hooked: Option<&Hooked>) -> Wanted {
    hooked.map_or(Wanted::Offloads, |hooked| {
        Wanted::Plain(hooked.hook, spec.transmit)
    })
}

fn undo(record: &Record, spec: &UplinkSpec) {
    forget_undone(record, spec, record.undo_here().map(|()| true));
}

/// Removes the record if the changes were undone; they were not if there was no such interface. Returns true if they were.
fn forget_undone(record: &Record, spec: &UplinkSpec, undone: Result<bool, UplinkError>) -> bool {
    let forgotten = match (&undone, &spec.state_dir) {
        (Ok(true), Some(dir)) => record.forget(dir),
        _ => Ok(()),
    };
    let is_undone = matches!(undone, Ok(true));
    if let Err(error) = undone.map(drop).and(forgotten) {
        tracing::error!(uplink = spec.name, interface = spec.interface, %error, "not all settings could be put back");
    }
    is_undone
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
