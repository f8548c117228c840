//! Tests of the checks of images. Files that are no images come from strangers.

use super::*;
use proptest::prelude::*;

/// A program header: type, flags, position, address, bytes in the file and in memory.
type Header = (u32, u32, u64, u64, u64, u64);

const CODE: u32 = 5;
const DATA: u32 = 6;

fn file(class: u8, machine: u16, kind: u16, entry: u64, headers: &[Header]) -> Vec<u8> {
    let mut file = vec![
        0x7f, b'E', b'L', b'F', class, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    for half in [kind, machine] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    file.extend_from_slice(&1u32.to_le_bytes());
    for word in [entry, 64, 0] {
        file.extend_from_slice(&u64::to_le_bytes(word));
    }
    file.extend_from_slice(&[0; 4]);
    for half in [64, 56, headers.len() as u16, 64, 0, 0] {
        file.extend_from_slice(&half.to_le_bytes());
    }
    for (kind, flags, at, address, in_file, in_memory) in headers {
        file.extend_from_slice(&kind.to_le_bytes());
        file.extend_from_slice(&flags.to_le_bytes());
        for word in [*at, *address, *address, *in_file, *in_memory, 4096] {
            file.extend_from_slice(&word.to_le_bytes());
        }
    }
    file.resize(3 * 4096, 0);
    file
}

fn static_file(headers: &[Header]) -> Vec<u8> {
    file(2, 62, 2, IMAGE, headers)
}

fn why(file: &[u8]) -> String {
    parse(file).expect_err("it is refused").to_string()
}

// promise: 18.3
#[test]
fn an_image_is_refused_with_the_reason() {
    let code = (1, CODE, 4096, IMAGE, 4096, 4096);
    parse(&static_file(&[code])).expect("an image");
    let cases: &[(&str, Vec<u8>)] = &[
        ("64-bit", Vec::new()),
        ("64-bit", b"#!/bin/sh\n".to_vec()),
        ("64-bit", file(1, 62, 2, IMAGE, &[code])),
        ("64-bit", file(2, 183, 2, IMAGE, &[code])),
        ("statically", file(2, 62, 3, IMAGE, &[code])),
        (
            "statically",
            static_file(&[code, (3, 4, 4096, IMAGE, 1, 1)]),
        ),
        ("begins outside", file(2, 62, 2, IMAGE + 4096, &[code])),
        (
            "begins outside",
            static_file(&[(1, DATA, 4096, IMAGE, 1, 1)]),
        ),
        ("begins outside", static_file(&[])),
        (
            "end of the file",
            static_file(&[(1, CODE, 4096, IMAGE, 1 << 40, 1 << 40)]),
        ),
        (
            "end of the file",
            static_file(&[(1, CODE, u64::MAX, IMAGE, 2, 2)]),
        ),
        (
            "more bytes in the file",
            static_file(&[(1, CODE, 4096, IMAGE, 2, 1)]),
        ),
        ("is not between", static_file(&[(1, CODE, 4096, 0, 1, 1)])),
        (
            "is not between",
            static_file(&[code, (1, DATA, 0, u64::MAX, 0, 2)]),
        ),
        (
            "is not between",
            static_file(&[code, (1, DATA, 0, IMAGE + 8192, 0, 1 << 30)]),
        ),
        ("written and run", static_file(&[(1, 7, 4096, IMAGE, 1, 1)])),
        (
            "overlaps",
            static_file(&[code, (1, CODE, 4096, IMAGE + 4095, 1, 1)]),
        ),
        (
            "shares a page",
            static_file(&[
                (1, CODE, 4096, IMAGE, 9, 9),
                (1, DATA, 4112, IMAGE + 16, 9, 9),
            ]),
        ),
        ("segments", static_file(&[code; 9])),
    ];
    for (expected, file) in cases {
        let why = why(file);
        assert!(why.contains(expected), "'{why}', not '{expected}'");
    }
}

#[test]
fn only_pages_that_nobody_writes_are_shared() {
    let (_, segments) = parse(&static_file(&[
        (1, CODE, 4096, IMAGE, 100, 100),
        (1, 4, 8192 + 8, IMAGE + 4096, 100, 100),
        (1, DATA, 8192, IMAGE + 8192, 100, 300),
    ]))
    .expect("an image");
    let shared: Vec<_> = segments.iter().map(Segment::shared_pages).collect();
    assert_eq!(shared, [Some((IMAGE, IMAGE + 4096)), None, None]);
}

#[test]
fn the_image_of_this_program_is_one() {
    let image = Image::functions().expect("an image");
    assert!(
        image
            .segments()
            .iter()
            .any(|it| it.shared_pages().is_some())
    );
    assert!(image.bytes().as_ptr().addr().is_multiple_of(4096));
}

proptest! {
    // promise: 18.3
    #[test]
    fn no_file_makes_the_reader_fail(mut bytes in prop::collection::vec(any::<u8>(), 0..600), is_elf in any::<bool>()) {
        if is_elf {
            let head = static_file(&[(1, CODE, 4096, IMAGE, 4096, 4096)]);
            for (at, byte) in bytes.iter_mut().enumerate() {
                // Most of the file is as it should be.
                if at < head.len() && *byte < 240 {
                    *byte = head[at];
                }
            }
        }
        let _ = parse(&bytes);
    }
}
