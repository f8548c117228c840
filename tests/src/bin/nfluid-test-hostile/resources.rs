//! Attempts to use more resources than the process's share.

use crate::kernel::{Answer, Errno, call, number};
use std::hint::black_box;
use std::time::{Duration, Instant};

type Attempt = fn(&[&str]) -> Answer;

/// All attempts by name.
pub const TABLE: &[(&str, Attempt)] = &[
    ("eat-memory", eat_memory),
    ("fork-bomb", fork_bomb),
    ("thread-bomb", thread_bomb),
    ("burn", burn),
    ("burn-until", burn_until),
    ("yield-until", yield_until),
    ("list-descriptors", list_descriptors),
    ("descriptor-open", |arguments| {
        call(
            libc::SYS_fcntl,
            [number(arguments, 0), libc::F_GETFD as usize, 0, 0, 0, 0],
        )
    }),
    ("write", |arguments| {
        call(
            libc::SYS_write,
            [number(arguments, 0), crate::kernel::at("x"), 1, 0, 0, 0],
        )
    }),
    ("flood", flood),
    ("wait-for-end", wait_for_end),
    ("crash", |_| std::process::abort()),
    ("exit", |arguments| {
        std::process::exit(number(arguments, 0) as i32)
    }),
];

/// Touches this many bytes and frees none.
fn eat_memory(arguments: &[&str]) -> Answer {
    let bytes = number(arguments, 0);
    let mut eaten = Vec::new();
    while eaten.len() << 16 < bytes {
        eaten.push(black_box(vec![1u8; 1 << 16]));
    }
    Ok(eaten.len() as i64)
}

/// Forks until fork fails or there are this many children; returns their number. The children end with their parent.
fn fork_bomb(arguments: &[&str]) -> Answer {
    let wanted = number(arguments, 0);
    let mut children = Vec::new();
    while children.len() < wanted {
        match call(libc::SYS_clone, [libc::SIGCHLD as usize, 0, 0, 0, 0, 0]) {
            Ok(0) => loop {
                let _signalled = call(libc::SYS_pause, [0; 6]);
            },
            Ok(pid) => children.push(pid as usize),
            Err(Errno(libc::EAGAIN)) => break,
            Err(errno) => return Err(errno),
        }
    }
    for child in &children {
        call(libc::SYS_kill, [*child, libc::SIGKILL as usize, 0, 0, 0, 0])?;
        call(libc::SYS_wait4, [*child, 0, 0, 0, 0, 0])?;
    }
    Ok(children.len() as i64)
}

/// Starts threads until that fails or there are this many; returns their number.
fn thread_bomb(arguments: &[&str]) -> Answer {
    let wanted = number(arguments, 0);
    let started = (0..wanted).map_while(|_| {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        thread.spawn(std::thread::park).ok()
    });
    let threads: Vec<_> = started.collect();
    for thread in &threads {
        thread.thread().unpark();
    }
    let count = threads.len() as i64;
    for thread in threads {
        let _ended = thread.join();
    }
    Ok(count)
}

/// Computes for this many milliseconds of wall time; returns the milliseconds that it took.
fn burn(arguments: &[&str]) -> Answer {
    let wanted = Duration::from_millis(number(arguments, 0) as u64);
    let begin = Instant::now();
    let mut sum = 0u64;
    while begin.elapsed() < wanted {
        for n in 0..10_000u64 {
            sum = black_box(sum.wrapping_add(n));
        }
    }
    Ok(begin.elapsed().as_millis() as i64)
}

/// Computes until it is killed.
fn burn_until(_: &[&str]) -> Answer {
    loop {
        burn(&["1000"])?;
    }
}

/// Polls until it is killed, and yields the CPU after each poll, as a polling network function does.
fn yield_until(_: &[&str]) -> Answer {
    let mut sum = 0u64;
    loop {
        for n in 0..2_000u64 {
            sum = black_box(sum.wrapping_add(n));
        }
        call(libc::SYS_sched_yield, [0; 6])?;
    }
}

/// Writes lines to this descriptor until it is killed.
fn flood(arguments: &[&str]) -> Answer {
    let mut lines = [b'x'; 4096];
    lines[4095] = b'\n';
    let line = crate::kernel::at(&lines);
    loop {
        let fd = number(arguments, 0);
        // The pipe is full: the reader is slow.
        let _full = call(libc::SYS_write, [fd, line, lines.len(), 0, 0, 0]);
        call(libc::SYS_sched_yield, [0; 6])?;
    }
}

/// Returns the number of open descriptors below 4096.
fn list_descriptors(_: &[&str]) -> Answer {
    let open =
        |fd: &usize| call(libc::SYS_fcntl, [*fd, libc::F_GETFD as usize, 0, 0, 0, 0]).is_ok();
    Ok((0..4096).filter(open).count() as i64)
}

/// Waits until the other end of the pipe at this descriptor is closed.
fn wait_for_end(arguments: &[&str]) -> Answer {
    let mut byte = [0u8];
    call(
        libc::SYS_read,
        [
            number(arguments, 0),
            crate::kernel::at_mut(&mut byte),
            1,
            0,
            0,
            0,
        ],
    )
}
