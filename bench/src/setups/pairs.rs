//! Two processes of an experiment that send to each other.

use crate::io_model::Model;
use crate::peer::Peer;
use crate::roles::work::Waits;
use crate::roles::{Role, Task};
use crate::workload::Workload;
use nfluid_switch::{LongSlots, PortSpec};
use nfluid_testbed::cgroups::Cgroups;
use nfluid_testbed::scratch::{Scratch, ScratchInstance, mac_of};

/// The processes, and the resources that live as long.
pub struct Pair {
    /// The processes in the order of the constructor's name.
    pub peers: Vec<Peer>,
    /// The processes' instances, joined by links.
    _instances: Vec<ScratchInstance>,
}

/// A pair whose first process is served by an I/O model.
pub struct Served {
    /// The processes of the pair; then that of the I/O threads, if there is one.
    pub peers: Vec<Peer>,
    _instances: Vec<ScratchInstance>,
    _shares: Cgroups,
}

/// Makes a pair of processes and the instances that they use; foreign programs need no instances.
pub fn of(peers: Vec<Peer>, instances: Vec<ScratchInstance>) -> Pair {
    Pair {
        peers,
        _instances: instances,
    }
}

/// Makes a sender and a receiver that reads the payload, on rings of `slots`; each yields after a turn if they share a
/// core.
pub fn one_way(
    scratch: &mut Scratch,
    len: usize,
    batch: usize,
    slots: u32,
    cores: [usize; 2],
) -> anyhow::Result<Pair> {
    one_way_long(scratch, len, batch, slots, LongSlots::NONE, cores)
}

/// As [`one_way`], where the sender has `long.tx` slots for long frames, and the receiver `long.rx`.
pub fn one_way_long(
    scratch: &mut Scratch,
    len: usize,
    batch: usize,
    slots: u32,
    long: LongSlots,
    cores: [usize; 2],
) -> anyhow::Result<Pair> {
    let waits = if cores[0] == cores[1] {
        Waits::Yielding
    } else {
        Waits::Spinning
    };
    let at = [(cores[0], waits), (cores[1], waits)];
    let roles = one_way_roles(len, batch, at, true);
    let sender = with_long(scratch, slots, LongSlots { rx: 0, ..long })?;
    let receiver = with_long(scratch, slots, LongSlots { tx: 0, ..long })?;
    one_way_pair(scratch, sender, receiver, roles)
}

/// Makes an instance with one port, which has slots for long frames.
fn with_long(
    scratch: &mut Scratch,
    slots: u32,
    long: LongSlots,
) -> anyhow::Result<ScratchInstance> {
    let id = scratch.port_ids(1);
    let spec = PortSpec {
        long,
        ..PortSpec::new(id, "p0", mac_of(id), slots)
    };
    Ok(scratch.instance_with(&[spec])?)
}

/// Makes a sender that is served by `model` on core 0, and on another core a receiver that does not touch the payload:
/// the sender is measured, and must not have to wait.
pub fn one_way_by(
    scratch: &mut Scratch,
    model: Model,
    len: usize,
    batch: usize,
    slots: u32,
) -> anyhow::Result<Served> {
    // Frames that an I/O thread has not yet consumed need additional slots; a hyperio call leaves none.
    let (waits, tx_slots) = match model {
        Model::Inline => (Waits::Spinning, 64),
        _ => (Waits::Sleeping, slots),
    };
    let at = [(Model::nf_core(), waits), model.traffic()];
    let roles = one_way_roles(len, batch, at, false);
    let sender = scratch.instance(1, slots, tx_slots)?;
    let receiver = scratch.instance(1, slots, 64)?;
    one_way_pair(scratch, sender, receiver, roles)?.served(scratch, model)
}

fn one_way_roles(len: usize, batch: usize, at: [(usize, Waits); 2], reads: bool) -> [Role; 2] {
    let [(sender, sender_waits), (receiver, waits)] = at;
    let send = Task::Send {
        len,
        batch,
        flows: 64,
        waits: sender_waits,
    };
    [
        Role {
            core: sender,
            task: send,
        },
        Role {
            core: receiver,
            task: Task::Receive {
                batch,
                reads,
                waits,
            },
        },
    ]
}

fn one_way_pair(
    scratch: &mut Scratch,
    mut sender: ScratchInstance,
    mut receiver: ScratchInstance,
    [send, receive]: [Role; 2],
) -> anyhow::Result<Pair> {
    scratch.link((&mut sender, 0), (&mut receiver, 0))?;
    Ok(Pair {
        peers: vec![
            Peer::start(&sender, &send)?,
            Peer::start(&receiver, &receive)?,
        ],
        _instances: vec![sender, receiver],
    })
}

/// Makes an NF alone on core 0, and on core 1 one process that sends to it and receives from it, with at most a ring of
/// frames in flight.
pub fn around(
    scratch: &mut Scratch,
    workload: Workload,
    len: usize,
    batch: usize,
    slots: u32,
) -> anyhow::Result<Pair> {
    around_at(
        scratch,
        Task::Nf { workload },
        workload,
        (len, batch, slots),
        Model::Inline.traffic(),
    )
}

/// As [`around`]; the NF is served by `model`.
pub fn around_by(
    scratch: &mut Scratch,
    model: Model,
    workload: Workload,
    len: usize,
    batch: usize,
    slots: u32,
) -> anyhow::Result<Served> {
    let task = Task::Nf { workload };
    let sizes = (len, batch, slots);
    around_at(scratch, task, workload, sizes, model.traffic())?.served(scratch, model)
}

/// As [`around_by`], where the NF is in a KVM guest.
pub fn around_guest_by(
    scratch: &mut Scratch,
    model: Model,
    workload: Workload,
    len: usize,
    batch: usize,
    slots: u32,
) -> anyhow::Result<Served> {
    let task = Task::Guest { workload };
    let sizes = (len, batch, slots);
    around_at(scratch, task, workload, sizes, model.traffic())?.served(scratch, model)
}

/// Makes an NF that does `task`; the sizes are those of a frame, a batch and a ring.
fn around_at(
    scratch: &mut Scratch,
    task: Task,
    workload: Workload,
    (len, batch, slots): (usize, usize, u32),
    (core, waits): (usize, Waits),
) -> anyhow::Result<Pair> {
    let mut nf = scratch.instance(2, slots, 64)?;
    let mut traffic = scratch.instance(2, slots, slots)?;
    scratch.link((&mut traffic, 0), (&mut nf, 0))?;
    scratch.link((&mut traffic, 1), (&mut nf, 1))?;
    let around = Task::Around {
        workload,
        to: nf.mac(0),
        len,
        batch,
        window: slots,
        waits,
    };
    let role = |core, task| Role { core, task };
    Ok(Pair {
        peers: vec![
            Peer::start(&nf, &role(Model::nf_core(), task))?,
            Peer::start(&traffic, &role(core, around))?,
        ],
        _instances: vec![nf, traffic],
    })
}

impl Pair {
    /// Starts the I/O threads of the first process, with the caps of the model.
    fn served(self, scratch: &Scratch, model: Model) -> anyhow::Result<Served> {
        let Pair {
            mut peers,
            _instances: instances,
        } = self;
        let io = model.start(scratch, &[&instances[0]])?;
        let mut shares = Cgroups::new()?;
        model.cap(&mut shares, &peers[0], io.as_ref())?;
        peers.extend(io);
        Ok(Served {
            peers,
            _instances: instances,
            _shares: shares,
        })
    }
}
