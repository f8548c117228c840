//! The kernel's description of a loaded eBPF program.

use libbpf_rs::Program;
use std::os::fd::{AsRawFd, OwnedFd};

/// The program of this number, if there is one.
pub fn program_by_id(id: u32) -> Option<OwnedFd> {
    Program::fd_from_id(id).ok()
}

/// Returns the kernel's description of a program. Fills `maps` with the numbers of its maps, as far as there is room.
pub(crate) fn program_info(
    program: &OwnedFd,
    maps: &mut [u32],
) -> Option<libbpf_sys::bpf_prog_info> {
    let mut info = libbpf_sys::bpf_prog_info {
        nr_map_ids: maps.len() as u32,
        map_ids: maps.as_mut_ptr() as u64,
        ..Default::default()
    };
    let mut len = size_of::<libbpf_sys::bpf_prog_info>() as u32;
    // SAFETY: `info` is a live structure of the length that is passed; the pointer in it is to as many
    // numbers as it says, and the others are zero, which ask for nothing to be written elsewhere.
    let status = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_raw_fd(),
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    (status == 0).then_some(info)
}

/// The number of a program; 0 if the kernel does not say.
pub fn program_id(program: &OwnedFd) -> u32 {
    program_info(program, &mut []).map_or(0, |info| info.id)
}

/// The name of a program.
pub fn program_name(program: &OwnedFd) -> Option<String> {
    let info = program_info(program, &mut [])?;
    let name = info.name.iter().map(|&c| c as u8);
    let name: Vec<u8> = name.take_while(|&c| c != 0).collect();
    Some(String::from_utf8_lossy(&name).into_owned())
}
