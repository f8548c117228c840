//! Requests of programs: which port, which rings.

use crate::abi::{self, Header, LegacyRequest, OPTIONS_MAX, PortInfo, Register, flag, kind, mode};
use crate::descriptor::{Binding, Descriptor, in_order};
use crate::lane::Lane;
use std::ffi::{CStr, c_int};
use std::sync::PoisonError;

/// The identity of the one memory that all ports of the instance share, so that buffers can be swapped between them.
const MEMORY_ID: u16 = 1;

/// A request that fails: the errno value. Whatever the program cannot know was said in the log.
pub type Answer = Result<(), c_int>;

/// Says why, and returns the errno value.
macro_rules! refuse {
    ($errno:expr, $($why:tt)*) => {{
        crate::say(format_args!($($why)*));
        return Err($errno)
    }};
}

/// What a name and a mode choose.
struct Choice {
    /// All queues of the port.
    lanes: Vec<usize>,
    tx: Vec<usize>,
    rx: Vec<usize>,
}

/// `NIOCCTRL`.
///
/// # Safety
/// `header` is null, or a request as netmap(4) describes it: its body and its options are what its type says.
pub unsafe fn control(descriptor: &Descriptor, header: *mut Header) -> Answer {
    // SAFETY: null or a header, as the caller promises.
    let header = unsafe { header.as_mut() }.ok_or(libc::EFAULT)?;
    check_version(u32::from(header.version))?;
    if header.reserved != 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller promises options.
    unsafe { refuse_options(header.options)? };
    let body = std::ptr::with_exposed_provenance_mut::<u8>(header.body as usize);
    if body.is_null() && header.kind != kind::VALE_DELIF {
        return Err(libc::EFAULT);
    }
    let name = text(&header.name);
    match header.kind {
        kind::REGISTER => {
            // SAFETY: not null, and the body of such a request.
            let register = unsafe { &mut *body.cast::<Register>() };
            bind(descriptor, &name, register)
        }
        kind::PORT_INFO_GET => {
            let told = info(descriptor, &name)?;
            // SAFETY: as above.
            unsafe { body.cast::<PortInfo>().write(told) };
            Ok(())
        }
        kind::PORT_HEADER_GET => {
            // SAFETY: as above.
            unsafe { (*body.cast::<abi::PortHeader>()).len = 0 };
            Ok(())
        }
        kind::PORT_HEADER_SET => {
            // SAFETY: as above.
            match unsafe { (*body.cast::<abi::PortHeader>()).len } {
                0 => Ok(()),
                _ => refuse!(
                    libc::EOPNOTSUPP,
                    "'{name}': ports have no header before the frame"
                ),
            }
        }
        kind::VALE_ATTACH
        | kind::VALE_DETACH
        | kind::VALE_LIST
        | kind::VALE_NEWIF
        | kind::VALE_DELIF => refuse!(
            libc::EOPNOTSUPP,
            "'{name}': which port is on which switch is the deployment's to say: nfluid apply, nfluid get (docs/guide/netmap.md)"
        ),
        other => refuse!(
            libc::EOPNOTSUPP,
            "'{name}': request {other} of netmap is none of this library"
        ),
    }
}

/// `NIOCREGIF` and `NIOCGINFO`, the requests of older programs.
///
/// # Safety
/// `request` is null or can be read and written.
pub unsafe fn legacy(
    descriptor: &Descriptor,
    request: *mut LegacyRequest,
    registers: bool,
) -> Answer {
    // SAFETY: as the caller promises.
    let request = unsafe { request.as_mut() }.ok_or(libc::EFAULT)?;
    let version = std::mem::replace(&mut request.version, u32::from(abi::VERSION));
    check_version(version)?;
    let mut name = text(&request.name);
    if registers && request.command != 0 {
        refuse!(
            libc::EOPNOTSUPP,
            "'{name}': which port is on which switch is the deployment's to say: nfluid apply, nfluid get (docs/guide/netmap.md)"
        );
    }
    if !registers {
        if name.is_empty() {
            return Ok(());
        }
        let told = info(descriptor, &name)?;
        request.memory = told.memory as u32;
        (request.tx_slots, request.rx_slots) = (told.tx_slots, told.rx_slots);
        (request.tx_rings, request.rx_rings) = (told.tx_rings, told.rx_rings);
        request.memory_id = told.memory_id;
        return Ok(());
    }
    let ring = request.ring;
    let number = ring & abi::legacy_ring::NUMBER;
    let mode = match request.flags & mode::MASK {
        mode::DEFAULT if ring & abi::legacy_ring::ONE != 0 => mode::ONE_NIC,
        mode::DEFAULT if ring & abi::legacy_ring::HOST != 0 => mode::HOST,
        mode::DEFAULT => mode::ALL_NIC,
        mode::PIPE_MASTER | mode::PIPE_SLAVE => {
            name = format!("{name}{{{number}");
            mode::ALL_NIC
        }
        other => other,
    };
    let mut flags = u64::from(request.flags & abi::LEGACY_FLAGS);
    if ring & abi::legacy_ring::NO_TX_POLL != 0 {
        flags |= flag::NO_TX_POLL;
    }
    if ring & abi::legacy_ring::DO_RX_POLL != 0 {
        flags |= flag::DO_RX_POLL;
    }
    let mut register = Register {
        ring: number,
        mode,
        flags,
        memory_id: request.memory_id,
        extra_buffers: request.extra_buffers,
        ..Register::default()
    };
    bind(descriptor, &name, &mut register)?;
    request.offset = register.offset as u32;
    request.memory = register.memory as u32;
    (request.tx_slots, request.rx_slots) = (register.tx_slots, register.rx_slots);
    (request.tx_rings, request.rx_rings) = (register.tx_rings, register.rx_rings);
    request.memory_id = register.memory_id;
    request.extra_buffers = register.extra_buffers;
    Ok(())
}

fn check_version(version: u32) -> Answer {
    if (u32::from(abi::VERSION_MIN)..=u32::from(abi::VERSION)).contains(&version) {
        return Ok(());
    }
    refuse!(
        libc::EINVAL,
        "the program is for version {version} of netmap's interface; this is for {} to {}",
        abi::VERSION_MIN,
        abi::VERSION
    );
}

/// This library has no options of requests: says so in each of them, as the kernel does.
///
/// # Safety
/// `first` is 0 or the address of an option, as is the `next` of each.
unsafe fn refuse_options(first: u64) -> Answer {
    let mut at = first;
    for _ in 0..OPTIONS_MAX {
        let option = std::ptr::with_exposed_provenance_mut::<abi::RequestOption>(at as usize);
        // SAFETY: null or an option, as the caller promises.
        let Some(option) = (unsafe { option.as_mut() }) else {
            break;
        };
        option.status = libc::EOPNOTSUPP.cast_unsigned();
        at = option.next;
    }
    match first {
        0 => Ok(()),
        _ => Err(libc::EOPNOTSUPP),
    }
}

/// A name up to its NUL. Names of ports are ASCII: anything else is none of them.
fn text(name: &[u8]) -> String {
    let name = CStr::from_bytes_until_nul(name).map_or(name, CStr::to_bytes);
    String::from_utf8_lossy(name).into_owned()
}

/// The name of a port in what programs call it: `in`, `netmap:in`, `nfluid:in`, `vale0:in`; the end of a pipe, `out{1` or
/// `out}1`, is the port `out1`.
fn port_name(said: &str) -> String {
    let name = match said.split_once(':') {
        Some((scope, name))
            if ["netmap", "nfluid"].contains(&scope) || scope.starts_with("vale") =>
        {
            name
        }
        _ => said,
    };
    name.replace(['{', '}'], "")
}

/// The lanes of a port.
fn find(descriptor: &Descriptor, said: &str) -> Result<Vec<usize>, c_int> {
    let name = port_name(said);
    match descriptor.instance.port(&name) {
        Some(lanes) => Ok(lanes),
        None => refuse!(
            libc::ENXIO,
            "the instance has no port '{}' ({said}); it has: {}",
            name.escape_debug(),
            descriptor.instance.port_names()
        ),
    }
}

fn info(descriptor: &Descriptor, name: &str) -> Result<PortInfo, c_int> {
    let rings = find(descriptor, name)?.len() as u16;
    let slots = descriptor.instance.ring_slots();
    Ok(PortInfo {
        memory: descriptor.instance.region.bytes() as u64,
        tx_slots: slots,
        rx_slots: slots,
        tx_rings: rings,
        rx_rings: rings,
        host_tx_rings: 1,
        host_rx_rings: 1,
        memory_id: MEMORY_ID,
        ..PortInfo::default()
    })
}

fn choose(descriptor: &Descriptor, name: &str, register: &Register) -> Result<Choice, c_int> {
    let lanes = find(descriptor, name)?;
    let chosen = match register.mode {
        mode::ALL_NIC => lanes.clone(),
        mode::ONE_NIC => match lanes.get(usize::from(register.ring)) {
            Some(lane) => vec![*lane],
            None => refuse!(
                libc::EINVAL,
                "port '{name}' has {} rings, numbered from 0, and no ring {}: 'queues' in the deployment gives it more",
                lanes.len(),
                register.ring
            ),
        },
        mode::HOST | mode::NIC_AND_HOST | mode::ONE_HOST => refuse!(
            libc::EOPNOTSUPP,
            "'{name}': an instance has no host rings, for no stack of the host is behind its ports: leave '^' and '*' out; a program on the kernel's stack is an instance with 'kind: interface'"
        ),
        other => refuse!(
            libc::EOPNOTSUPP,
            "'{name}': mode {other} of a registration is none of this library"
        ),
    };
    if register.flags & (flag::MONITOR_TX | flag::MONITOR_RX | flag::ZERO_COPY_MONITOR) != 0 {
        refuse!(
            libc::EOPNOTSUPP,
            "'{name}': no monitors of other ports: 'nfluid capture' and NF mirror copy frames"
        );
    }
    let of = |is_left_out: u64| match register.flags & is_left_out {
        0 => chosen.clone(),
        _ => Vec::new(),
    };
    Ok(Choice {
        tx: of(flag::RX_RINGS_ONLY),
        rx: of(flag::TX_RINGS_ONLY),
        lanes,
    })
}

/// Gives a descriptor its rings, and describes them to the program.
fn bind(descriptor: &Descriptor, name: &str, register: &mut Register) -> Answer {
    let registering = descriptor.registering.lock();
    let _registering = registering.unwrap_or_else(PoisonError::into_inner);
    let instance = descriptor.instance;
    if descriptor.binding().is_some() {
        return Err(libc::EBUSY);
    }
    let choice = choose(descriptor, name, register)?;
    if ![0, MEMORY_ID].contains(&register.memory_id) {
        refuse!(
            libc::EINVAL,
            "'{name}': all ports of an instance share memory {MEMORY_ID}; there is no memory {}",
            register.memory_id
        );
    }
    if register.extra_buffers > 0 || name.contains(['{', '}']) {
        instance.buffers.keep();
    }
    let Some(interface) = instance.take_interface() else {
        refuse!(
            libc::ENOMEM,
            "'{name}': as many descriptors have ports as there can be"
        );
    };
    if let Err(errno) = take(descriptor, &choice, register.flags & flag::EXCLUSIVE != 0) {
        instance.give_interface_back(interface);
        refuse!(
            errno,
            "'{name}': another descriptor has these rings, and one of the two wants them alone"
        );
    }
    let tx = descriptor.rings(&choice.lanes, &choice.tx, Lane::tx_ring);
    let rx = descriptor.rings(&choice.lanes, &choice.rx, Lane::rx_ring);
    let region = &instance.region;
    let offset = region.describe_interface(interface, port_name(name).as_bytes(), (&tx, &rx));
    let wanted = register.extra_buffers;
    let (first, extra_buffers) = instance.buffers.chain(wanted, instance.reserved_buffers());
    region
        .extra_buffers(interface)
        .store(first, std::sync::atomic::Ordering::Relaxed);
    let told = info(descriptor, name)?;
    *register = Register {
        offset: offset as u64,
        memory: told.memory,
        tx_slots: told.tx_slots,
        rx_slots: told.rx_slots,
        tx_rings: told.tx_rings,
        rx_rings: told.rx_rings,
        host_tx_rings: told.host_tx_rings,
        host_rx_rings: told.host_rx_rings,
        memory_id: MEMORY_ID,
        extra_buffers,
        ..*register
    };
    descriptor.bind(Binding {
        interface,
        tx: choice.tx,
        rx: choice.rx,
        extra_buffers,
        no_tx_poll: register.flags & flag::NO_TX_POLL != 0,
        do_rx_poll: register.flags & flag::DO_RX_POLL != 0,
    });
    Ok(())
}

/// Counts the descriptor at its lanes, or at none of them.
fn take(descriptor: &Descriptor, choice: &Choice, is_alone: bool) -> Answer {
    // In this order no two threads wait for each other.
    let lanes = in_order(&choice.tx, &choice.rx).into_iter();
    let mut locked: Vec<_> = lanes.map(|lane| descriptor.instance.lane(lane)).collect();
    let is_refused = |lane: &Lane| lane.is_taken || is_alone && lane.users > 0;
    if locked.iter().any(|lane| is_refused(lane)) {
        return Err(libc::EBUSY);
    }
    for lane in &mut locked {
        lane.users += 1;
        lane.is_taken = is_alone;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{port_name, text};

    #[test]
    fn a_port_has_one_name_in_whatever_words() {
        for said in ["in", "netmap:in", "nfluid:in", "vale:in", "vale17:in"] {
            assert_eq!(port_name(said), "in", "{said}");
        }
        // The ends of a pipe.
        for said in ["out{1", "out}1", "netmap:out{1", "vale0:out}1"] {
            assert_eq!(port_name(said), "out1", "{said}");
        }
        // No scope of netmap.
        assert_eq!(port_name("eth0:in"), "eth0:in");
    }

    #[test]
    fn a_name_without_an_end_is_read_to_the_end_of_its_field() {
        assert_eq!(text(b"in\0rest"), "in");
        assert_eq!(text(b"0123456789abcdef"), "0123456789abcdef");
        assert_eq!(text(b"\xff\xfe\0"), "\u{fffd}\u{fffd}");
    }
}
