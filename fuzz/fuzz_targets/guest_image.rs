//! A file that is said to be a guest image: no panic, and what is taken lies in the file, in the guest's memory and apart.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nfluid_guest::abi::{IMAGE, MEMORY_MAX};
use nfluid_vmm::image::parse;

fuzz_target!(|input: &[u8]| {
    let Ok((entry, segments)) = parse(input) else {
        return;
    };
    let mut end = IMAGE;
    let mut starts = false;
    for segment in &segments {
        assert!(segment.address >= end && segment.end() <= MEMORY_MAX);
        assert!(segment.at + segment.file_bytes <= input.len() as u64);
        assert!(!(segment.rights.write && segment.rights.execute));
        let covers = (segment.address..segment.end()).contains(&entry);
        starts |= segment.rights.execute && covers;
        end = segment.end();
    }
    assert!(starts);
});
