//! Changing tables of maps. Each change waits for a grace period of the kernel, in the caller or in a thread of its own.

use crate::SwitchError;
use crate::grace::{Call, Waiters};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Inserts inner maps in one batch.
pub(crate) fn insert(
    outer: &MapHandle,
    inner: &[(u32, BorrowedFd<'_>)],
    what: &str,
) -> Result<(), SwitchError> {
    if inner.is_empty() {
        return Ok(());
    }
    let keys: Vec<u8> = inner.iter().flat_map(|(id, _)| id.to_ne_bytes()).collect();
    let fds: Vec<u8> = inner
        .iter()
        .flat_map(|(_, fd)| fd.as_raw_fd().to_ne_bytes())
        .collect();
    outer
        .update_batch(
            &keys,
            &fds,
            inner.len() as u32,
            MapFlags::ANY,
            MapFlags::ANY,
        )
        .map_err(SwitchError::bpf(what))
}

/// A table of maps, its new content, and the purpose of the change.
type Entry<'a> = (&'a MapHandle, &'a [(u32, BorrowedFd<'a>)], &'a str);

/// Has a thread make [`insert`].
pub(crate) fn begin_insert(
    waiters: &Waiters,
    outer: &MapHandle,
    inner: Vec<(u32, Arc<OwnedFd>)>,
    what: &str,
) -> Result<Call, SwitchError> {
    let table = MapHandle::try_from(outer).map_err(SwitchError::bpf(what))?;
    let name = what.to_owned();
    let call = waiters.make(move || {
        let inner: Vec<_> = inner.iter().map(|(id, fd)| (*id, fd.as_fd())).collect();
        insert(&table, &inner, &name)
    });
    call.map_err(SwitchError::system(format!("{what}: starting a thread")))
}

/// Inserts as [`insert`], without waiting for the grace period: threads wait, and the caller goes on. On success the
/// tables have the maps.
pub(crate) fn insert_soon(waiters: &Waiters, tables: &[Entry<'_>]) -> Result<(), SwitchError> {
    let mut calls = Vec::with_capacity(tables.len());
    for (outer, inner, what) in tables {
        if inner.is_empty() {
            continue;
        }
        let own = inner
            .iter()
            .map(|(id, fd)| Ok((*id, Arc::new(fd.try_clone_to_owned()?))));
        let own: std::io::Result<Vec<_>> = own.collect();
        let own = own.map_err(SwitchError::system(format!("{what}: keeping a map")))?;
        calls.push((begin_insert(waiters, outer, own, what)?, *outer, *inner));
    }
    for (call, outer, inner) in calls {
        // In the order of the batch: with the last one, all are there.
        if let Some((id, fd)) = inner.last() {
            await_entered(&call, outer, *id, *fd)?;
        }
    }
    Ok(())
}

/// Waits until a table has the map that a call enters last. Returns true if the call itself is over by then.
pub(crate) fn await_entered(
    call: &Call,
    outer: &MapHandle,
    last: u32,
    fd: BorrowedFd<'_>,
) -> Result<bool, SwitchError> {
    let wanted = map_id(fd)?;
    call.await_begin();
    while entered(outer, last)? != Some(wanted) {
        if let Some(outcome) = call.result() {
            return outcome.map(|()| true);
        }
        std::thread::yield_now();
    }
    Ok(false)
}

/// The number of a map that this process has.
fn map_id(fd: BorrowedFd<'_>) -> Result<u32, SwitchError> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut length = size_of::<libbpf_sys::bpf_map_info>() as u32;
    // SAFETY: the kernel writes at most `length` bytes into `info`, which has as many.
    let result =
        unsafe { libbpf_sys::bpf_map_get_info_by_fd(fd.as_raw_fd(), &mut info, &mut length) };
    if result != 0 {
        let error = std::io::Error::from_raw_os_error(-result);
        return Err(SwitchError::system("asking for a map's number")(error));
    }
    Ok(info.id)
}

/// The number of the map that a table has for `id`.
fn entered(outer: &MapHandle, id: u32) -> Result<Option<u32>, SwitchError> {
    let value = outer
        .lookup(&id.to_ne_bytes(), MapFlags::ANY)
        .map_err(SwitchError::bpf("looking up a map"))?;
    Ok(value.and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?))))
}
