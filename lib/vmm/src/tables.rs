//! The page tables of a guest: addresses are the same inside and outside, and each page has the rights that it needs.
//!
//! The tables are read-only memory of the guest, and not mapped by themselves. All entries say that they were used
//! before, so that the processor never writes them.

use crate::image::Rights;
use nfluid_guest::abi::{DEVICE, DOORBELL, IMAGE, MEMORY, POOL, POOL_MAX, STACK};

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a large page, and what one table of small pages covers.
pub const LARGE_PAGE: u64 = 2 << 20;
/// Longest part of the address space that an image takes.
pub const IMAGE_SPAN_MAX: u64 = 16 << 20;
/// Tables of small pages: mailbox and stack, and the image.
const SMALL_TABLES: u64 = (IMAGE + IMAGE_SPAN_MAX - MEMORY) / LARGE_PAGE;
/// The first table of small pages, behind the root, the next level, and a table for each of two GiB.
const FIRST_SMALL: u64 = 4;
/// Bytes of all tables.
pub const TABLES_BYTES: u64 = (FIRST_SMALL + SMALL_TABLES) * PAGE;

/// Makes the page tables for guest-physical address 0: of an image whose pages have rights, and memory behind it.
/// `pages`: first address, address behind the last byte, rights.
pub fn tables(pages: &[(u64, u64, Rights)]) -> Vec<u64> {
    let mut tables = Tables(vec![0; (TABLES_BYTES / 8) as usize]);
    let inner = PRESENT | WRITE | USER | ACCESSED;
    tables.set(0, 0, PAGE | inner);
    tables.set(1, 0, (2 * PAGE) | inner);
    tables.set(1, 1, (3 * PAGE) | inner);
    let data = Rights {
        write: true,
        execute: false,
    };
    let constant = Rights {
        write: false,
        execute: false,
    };
    for number in 0..SMALL_TABLES {
        let at = (MEMORY / LARGE_PAGE + number) as usize;
        tables.set(2, at, ((FIRST_SMALL + number) * PAGE) | inner);
    }
    tables.map_large(DEVICE, DEVICE + LARGE_PAGE, constant);
    tables.map_large(
        MEMORY + SMALL_TABLES * LARGE_PAGE,
        DOORBELL + LARGE_PAGE,
        data,
    );
    tables.map_large(POOL, POOL + POOL_MAX, data);
    // The page below the stack is left out.
    tables.map_small(MEMORY, STACK - PAGE, data);
    tables.map_small(STACK, MEMORY + SMALL_TABLES * LARGE_PAGE, data);
    for (from, to, rights) in pages {
        tables.map_small(*from, *to, *rights);
    }
    tables.0
}

/// Tables of 512 entries.
struct Tables(Vec<u64>);

impl Tables {
    fn set(&mut self, table: u64, entry: usize, value: u64) {
        self.0[table as usize * 512 + entry] = value;
    }

    fn map_large(&mut self, from: u64, to: u64, rights: Rights) {
        for page in from / LARGE_PAGE..to / LARGE_PAGE {
            let (table, entry) = (2 + page / 512, (page % 512) as usize);
            self.set(table, entry, (page * LARGE_PAGE) | LARGE | bits(rights));
        }
    }

    fn map_small(&mut self, from: u64, to: u64, rights: Rights) {
        for page in from / PAGE..to.div_ceil(PAGE) {
            let number = page - MEMORY / PAGE;
            let (table, entry) = (FIRST_SMALL + number / 512, (number % 512) as usize);
            self.set(table, entry, (page * PAGE) | bits(rights));
        }
    }
}

fn bits(rights: Rights) -> u64 {
    let mut bits = PRESENT | USER | ACCESSED | DIRTY;
    if rights.write {
        bits |= WRITE;
    }
    if !rights.execute {
        bits |= NO_EXECUTE;
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use nfluid_guest::abi::{DEVICE_BYTES, STACK_TOP};

    /// What a processor finds for an address: the address behind the tables, and the rights of all levels.
    fn walk(tables: &[u64], address: u64) -> Option<(u64, bool, bool)> {
        let (mut table, mut write, mut execute) = (0, true, true);
        for shift in [39, 30, 21, 12] {
            let entry = tables[(table / 8 + ((address >> shift) & 511)) as usize];
            if entry & PRESENT == 0 {
                return None;
            }
            assert!(entry & USER != 0, "guests run in user mode");
            write &= entry & WRITE != 0;
            execute &= entry & NO_EXECUTE == 0;
            table = entry & 0x000f_ffff_ffff_f000;
            if entry & LARGE != 0 && shift == 21 || shift == 12 {
                let within = address & ((1 << shift) - 1);
                return Some((table + within, write, execute));
            }
        }
        None
    }

    #[test]
    fn addresses_are_the_same_inside_and_outside_and_have_their_rights() {
        let code = Rights {
            write: false,
            execute: true,
        };
        let constant = Rights {
            write: false,
            execute: false,
        };
        let (end_of_code, end) = (IMAGE + 3 * PAGE, IMAGE + 5 * PAGE);
        let tables = tables(&[(IMAGE, end_of_code, code), (end_of_code, end, constant)]);
        for (address, write, execute) in [
            (DEVICE, false, false),
            (DEVICE + DEVICE_BYTES - 1, false, false),
            (MEMORY, true, false),
            (STACK, true, false),
            (STACK_TOP - 1, true, false),
            (IMAGE, false, true),
            (end_of_code - 1, false, true),
            (end_of_code, false, false),
            (end - 1, false, false),
            (end, true, false),
            (IMAGE + IMAGE_SPAN_MAX, true, false),
            (DOORBELL, true, false),
            (POOL, true, false),
            (POOL + POOL_MAX - 1, true, false),
        ] {
            assert_eq!(
                walk(&tables, address),
                Some((address, write, execute)),
                "{address:#x}"
            );
        }
        for address in [0, PAGE, TABLES_BYTES, STACK - 1, POOL + POOL_MAX, 1 << 40] {
            assert_eq!(walk(&tables, address), None, "{address:#x}");
        }
    }
}
