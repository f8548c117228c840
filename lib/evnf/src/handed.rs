//! Tables by inherited descriptors alone, for a process that may neither load programs nor open pinned objects.
//!
//! The kernel wants addresses for keys, values and memory: the only `unsafe` of this crate is here.

use crate::load::{LoadError, because};
use libbpf_rs::{MapInfo, libbpf_sys};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::{CString, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const PROGRAM: &str = "handed table";
const WORD_BYTES: usize = size_of::<u64>();

/// A table.
#[derive(Debug)]
pub(crate) struct Handed {
    fd: OwnedFd,
    key_bytes: usize,
    /// Size of a value over all CPUs, if the table is per CPU.
    value_bytes: usize,
    entries_max: u32,
}

impl Handed {
    /// `cpus`: the number of CPUs that the kernel can have, which is the number of parts of each value; 1: not a
    /// per-CPU table.
    ///
    /// # Errors
    /// When the descriptor is not a table.
    pub fn new(fd: OwnedFd, cpus: usize) -> Result<Self, LoadError> {
        let found = MapInfo::new(fd.as_fd()).map_err(because(PROGRAM, "looking at it"))?;
        let info = found.info;
        let value_bytes = (info.value_size as usize).next_multiple_of(WORD_BYTES) * cpus.max(1);
        Ok(Handed {
            key_bytes: info.key_size as usize,
            value_bytes,
            entries_max: info.max_entries,
            fd,
        })
    }

    /// Duplicates the descriptor.
    pub fn try_clone(&self) -> Result<Self, LoadError> {
        let fd = self.fd.try_clone();
        Ok(Handed {
            fd: fd.map_err(because(PROGRAM, "duplicating its descriptor"))?,
            ..*self
        })
    }

    pub fn into_descriptor(self) -> OwnedFd {
        self.fd
    }

    pub fn entries_max(&self) -> u32 {
        self.entries_max
    }

    fn check(&self, key: &[u8]) -> Result<(), LoadError> {
        if key.len() == self.key_bytes {
            return Ok(());
        }
        let why = format!("a key has {} bytes, not {}", self.key_bytes, key.len());
        Err(because(PROGRAM, "its keys")(why))
    }

    /// Enters a value, as long as the table's are.
    pub fn enter(&self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        self.check(key)?;
        if value.len() != self.value_bytes {
            return Err(because(PROGRAM, "its values")("of another length"));
        }
        // SAFETY: key and value have the sizes that the kernel reports for the table; the kernel only reads them.
        let done = unsafe {
            libbpf_sys::bpf_map_update_elem(
                self.fd.as_raw_fd(),
                key.as_ptr().cast(),
                value.as_ptr().cast(),
                u64::from(libbpf_sys::BPF_ANY),
            )
        };
        answer(done, "entering")
    }

    pub fn remove(&self, key: &[u8]) -> Result<(), LoadError> {
        self.check(key)?;
        // SAFETY: the key is as long as the table's are.
        let done =
            unsafe { libbpf_sys::bpf_map_delete_elem(self.fd.as_raw_fd(), key.as_ptr().cast()) };
        answer(done, "removing")
    }

    /// The value of a key, those of all CPUs one after the other.
    pub fn value(&self, key: &[u8]) -> Result<Vec<u8>, LoadError> {
        self.check(key)?;
        let mut value = vec![0; self.value_bytes];
        // SAFETY: the key is as long as the table's are, and there is room for what the kernel writes: a value of the
        // table's size, rounded up, for each CPU that it can have.
        let done = unsafe {
            libbpf_sys::bpf_map_lookup_elem(
                self.fd.as_raw_fd(),
                key.as_ptr().cast(),
                value.as_mut_ptr().cast(),
            )
        };
        answer(done, "reading").map(|()| value)
    }

    /// All keys; no more than the table can have, whatever happens to it meanwhile.
    pub fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        while keys.len() < self.entries_max as usize {
            let mut next = vec![0; self.key_bytes];
            let last = keys
                .last()
                .map_or(ptr::null(), |key| key.as_ptr().cast::<c_void>());
            // SAFETY: both are as long as the table's keys, or there is no last one.
            let found = unsafe {
                libbpf_sys::bpf_map_get_next_key(
                    self.fd.as_raw_fd(),
                    last,
                    next.as_mut_ptr().cast(),
                )
            };
            if found != 0 {
                break;
            }
            keys.push(next);
        }
        keys
    }
}

/// A pinned table, to read only.
pub(crate) fn open_read_only(pin: &Path) -> Result<OwnedFd, LoadError> {
    let name = CString::new(pin.as_os_str().as_bytes());
    let name = name.map_err(because(PROGRAM, "opening it"))?;
    let options = libbpf_sys::bpf_obj_get_opts {
        sz: size_of::<libbpf_sys::bpf_obj_get_opts>() as libbpf_sys::size_t,
        file_flags: libbpf_sys::BPF_F_RDONLY,
        ..Default::default()
    };
    // SAFETY: the name ends with zero; the call returns an open descriptor that has no other owner.
    unsafe {
        let fd = libbpf_sys::bpf_obj_get_opts(name.as_ptr(), &raw const options);
        answer(fd.min(0), "opening it")?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

fn answer(done: c_int, what: &'static str) -> Result<(), LoadError> {
    if done == 0 {
        return Ok(());
    }
    let why = std::io::Error::from_raw_os_error(-done);
    Err(because(PROGRAM, what)(why))
}

/// Numbers in memory of their own, or in that of an array in the kernel, which others see and which outlives the
/// process.
#[derive(Debug)]
pub struct Words(Memory);

#[derive(Debug)]
enum Memory {
    Own(Box<[AtomicU64]>),
    Mapped(NonNull<AtomicU64>, usize),
}

// SAFETY: they are atomic, and the mapping is the process's, not a thread's.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Words {
    /// Makes `count` zeros in this process's own memory.
    pub fn own(count: usize) -> Self {
        Words(Memory::Own((0..count).map(|_| AtomicU64::new(0)).collect()))
    }

    /// Maps an array of 64-bit numbers.
    ///
    /// # Errors
    /// When the descriptor is not such an array, or the kernel refuses.
    pub fn map(array: BorrowedFd<'_>) -> Result<Self, LoadError> {
        let found = MapInfo::new(array).map_err(because(PROGRAM, "looking at it"))?;
        let count = found.info.max_entries as usize;
        if found.info.value_size as usize != WORD_BYTES || count == 0 {
            return Err(because(PROGRAM, "mapping it")("it is no array of numbers"));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: it is a new mapping, of no more than the array has.
        let at = unsafe {
            mmap(
                ptr::null_mut(),
                count * WORD_BYTES,
                protection,
                MapFlags::SHARED,
                array,
                0,
            )
        };
        let at = at.map_err(because(PROGRAM, "mapping it"))?;
        let at = NonNull::new(at.cast()).ok_or("at address 0");
        let at = at.map_err(because(PROGRAM, "mapping it"))?;
        Ok(Words(Memory::Mapped(at, count)))
    }

    fn all(&self) -> &[AtomicU64] {
        match &self.0 {
            Memory::Own(words) => words,
            // SAFETY: so many words are mapped as long as this value lives; other writers write whole words.
            Memory::Mapped(at, count) => unsafe { std::slice::from_raw_parts(at.as_ptr(), *count) },
        }
    }

    /// Returns the number of words.
    pub fn count(&self) -> usize {
        self.all().len()
    }

    /// A number; 0 where there is none.
    pub fn get(&self, at: usize) -> u64 {
        let word = self.all().get(at);
        word.map_or(0, |word| word.load(Ordering::Relaxed))
    }

    /// Replaces the number at a place.
    pub fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.all().get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Adds to a number, of which there is one writer.
    pub fn add(&self, at: usize, more: u64) {
        self.set(at, self.get(at).wrapping_add(more));
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if let Memory::Mapped(at, count) = self.0 {
            // SAFETY: this value has made the mapping, and no reference to it is left.
            let unmapped = unsafe { munmap(at.as_ptr().cast(), count * WORD_BYTES) };
            debug_assert!(unmapped.is_ok());
        }
    }
}

type Take<'a> = Box<dyn FnMut(&[u8]) -> bool + Send + 'a>;

/// A reader of a ring.
pub(crate) struct Ring<'a> {
    ring: NonNull<libbpf_sys::ring_buffer>,
    /// The receiver of the records; owned by a box.
    take: *mut Take<'a>,
    _fd: OwnedFd,
}

// SAFETY: no part of libbpf's ring belongs to a thread, and the receiver of the records may move with it.
unsafe impl Send for Ring<'_> {}

impl<'a> Ring<'a> {
    /// `take` gets each record and returns false to stop for now.
    ///
    /// # Errors
    /// When the descriptor is not a ring, or cannot be mapped.
    pub fn new(
        ring: BorrowedFd<'_>,
        take: impl FnMut(&[u8]) -> bool + Send + 'a,
    ) -> Result<Self, LoadError> {
        let failed = "reading copies";
        let fd = ring.try_clone_to_owned();
        let fd = fd.map_err(because(PROGRAM, failed))?;
        let take: *mut Take<'a> = Box::into_raw(Box::new(Box::new(take)));
        // SAFETY: the descriptor is open, and `take` is there as long as the ring.
        let ring = unsafe {
            libbpf_sys::ring_buffer__new(fd.as_raw_fd(), Some(hand_over), take.cast(), ptr::null())
        };
        let Some(ring) = NonNull::new(ring) else {
            let why = std::io::Error::last_os_error();
            // SAFETY: the pointer is the box's, and no other code has it.
            drop(unsafe { Box::from_raw(take) });
            return Err(because(PROGRAM, failed)(why));
        };
        Ok(Ring {
            ring,
            take,
            _fd: fd,
        })
    }

    /// Waits for records and hands them over, until there are no more or a stop is requested. Returns libbpf's
    /// result.
    pub fn poll(&self, patience: Duration) -> i32 {
        let ms = c_int::try_from(patience.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the ring is there.
        unsafe { libbpf_sys::ring_buffer__poll(self.ring.as_ptr(), ms) }
    }

    /// Hands over the records that are there, without waiting.
    pub fn consume(&self) -> i32 {
        // SAFETY: the ring is there.
        unsafe { libbpf_sys::ring_buffer__consume(self.ring.as_ptr()) }
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        // SAFETY: this has made both; libbpf, which knows of the box, is ended first.
        unsafe {
            libbpf_sys::ring_buffer__free(self.ring.as_ptr());
            drop(Box::from_raw(self.take));
        }
    }
}

/// # Safety
/// `to` is the pointer that [`Ring::new`] has passed to libbpf, and `record` has `size` bytes: libbpf guarantees both.
unsafe extern "C" fn hand_over(
    to: *mut c_void,
    record: *mut c_void,
    size: libbpf_sys::size_t,
) -> c_int {
    // SAFETY: see above; no other code has the receiver while libbpf calls.
    let take = unsafe { &mut *to.cast::<Take<'_>>() };
    // SAFETY: see above; it stays as it is until this returns.
    let record = unsafe { std::slice::from_raw_parts(record.cast::<u8>(), size as usize) };
    if take(record) { 0 } else { -1 }
}

#[cfg(test)]
mod tests {
    use super::Words;

    #[test]
    fn numbers_that_are_not_there_are_zero_and_stay_so() {
        let words = Words::own(2);
        words.set(1, 7);
        words.add(1, u64::MAX);
        words.set(2, 9);
        assert_eq!([0, 1, 2].map(|at| words.get(at)), [0, 6, 0]);
        assert_eq!(words.count(), 2);
    }
}
