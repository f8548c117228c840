//! The promise: the steps of the guide "Write a network function in C" produce a network function. The test builds it
//! by the guide's own commands and places it between two instances; every byte arrives, both ways, and its counters are
//! right.

mod c_fixture;

use c_fixture::{GuideCopy, Running, blocks, project, read};
use nfluid_ring::attach::Attached;
use nfluid_ring::doorbell::AGEING;
use nfluid_ring::layout::{FRAME_MAX, FRAME_MIN};
use nfluid_ring::port::WhenFull;
use nfluid_testbed::scratch::Scratch;
use std::process::Stdio;

const RING: u32 = 64;

/// A frame that no other number gives: header and `number` repeated, of a length that depends on it.
fn frame(number: u16) -> Vec<u8> {
    let len = 14 + usize::from(number) * 7 % 1500;
    let [high, low] = number.to_be_bytes();
    (0..len)
        .map(|at| if at % 2 == 0 { high } else { low } ^ at as u8)
        .collect()
}

/// Sends the frames of `numbers` in batches and receives as many at the other end, comparing each.
fn through(
    from: &mut Attached,
    to: &mut Attached,
    numbers: std::ops::Range<u16>,
    running: &mut Running,
) {
    let numbers: Vec<u16> = numbers.collect();
    for batch in numbers.chunks(RING as usize / 2) {
        let port = &mut from.ports[0];
        for &number in batch {
            let bytes = frame(number);
            let queued = port.send(|slot| {
                slot[..bytes.len()].copy_from_slice(&bytes);
                bytes.len()
            });
            assert!(queued, "frame {number}");
        }
        assert_eq!(port.flush(WhenFull::Drop).unwrap(), batch.len() as u32);
        let mut arrived: Vec<Vec<u8>> = Vec::new();
        while arrived.len() < batch.len() {
            assert_eq!(running.child.try_wait().unwrap(), None, "the bridge lives");
            to.doorbell.wait(&mut to.ports, None, AGEING).unwrap();
            to.ports[0].receive(batch.len(), |bytes| arrived.push(bytes.to_vec()));
        }
        let sent: Vec<Vec<u8>> = batch.iter().map(|&number| frame(number)).collect();
        assert_eq!(arrived, sent);
    }
}

/// Frames and bytes of a range of numbers.
fn total(numbers: std::ops::Range<u16>) -> (usize, usize) {
    (
        numbers.len(),
        numbers.map(|number| frame(number).len()).sum(),
    )
}

// promise: 11.3
#[test]
fn the_guide_shows_what_is_in_the_files() {
    let guide = read(project().join("docs/guide/nf-in-c.md"));
    let example = |name: &str| read(project().join("examples/nf-in-c").join(name));
    let code = blocks(&guide, "c");
    assert!(code.len() >= 6, "{code:?}");
    for block in code {
        let is_shown = ["bridge.c", "meter.c"].map(|name| example(name).contains(&block));
        assert!(is_shown.contains(&true), "in no example:\n{block}");
    }
    let shown = blocks(&guide, "yaml");
    assert_eq!(shown.len(), 2, "{shown:?}");
    for block in shown {
        let is_shown =
            ["deployment.yaml", "super-frames.yaml"].map(|name| example(name).contains(&block));
        assert!(is_shown.contains(&true), "in no deployment:\n{block}");
    }
}

// promise: 11.3
#[test]
fn the_bridge_of_the_guide_passes_every_frame_both_ways() {
    let test = "the_bridge_of_the_guide_passes_every_frame_both_ways";
    let Some(copy) = GuideCopy::new(test) else {
        return;
    };
    let guide = read(project().join("docs/guide/nf-in-c.md"));
    let commands = blocks(&guide, "sh");
    assert!(!commands.is_empty());
    for block in &commands {
        copy.run(block);
    }
    let alone = copy
        .command(copy.folder.join("my-nf/bridge"))
        .output()
        .unwrap();
    assert_eq!(alone.status.code(), Some(1));
    let said = String::from_utf8(alone.stderr).unwrap();
    assert_eq!(blocks(&guide, "text"), [said]);

    let mut scratch = Scratch::new("nf-in-c").unwrap();
    let mut left = scratch.instance(1, RING, RING).unwrap();
    let mut bridge = scratch.instance(2, RING, RING).unwrap();
    let mut right = scratch.instance(1, RING, RING).unwrap();
    scratch.link((&mut left, 0), (&mut bridge, 0)).unwrap();
    scratch.link((&mut bridge, 1), (&mut right, 0)).unwrap();
    let child = bridge
        .spawn(
            copy.command(copy.folder.join("my-nf/bridge"))
                .stdout(Stdio::piped()),
        )
        .unwrap();
    let mut running = Running::new(child);
    assert_eq!(running.line(), "bridge: p0 <-> p1\n");

    let (mut left, mut right) = (left.attach().unwrap(), right.attach().unwrap());
    let (there, back) = (0..500, 500..730);
    through(&mut left, &mut right, there.clone(), &mut running);
    through(&mut right, &mut left, back.clone(), &mut running);

    let (status, said) = running.stop();
    assert!(status.success(), "{status}: {said}");
    let ((sent, sent_bytes), (answered, answered_bytes)) = (total(there), total(back));
    let expected = format!(
        "bridge: p0 received {sent} frames, {sent_bytes} bytes; sent {answered} frames\n\
         bridge: p1 received {answered} frames, {answered_bytes} bytes; sent {sent} frames\n"
    );
    assert_eq!(said, expected);
}

// promise: 11.3
#[test]
fn every_function_does_what_the_header_says() {
    let test = "every_function_does_what_the_header_says";
    let Some(copy) = GuideCopy::new(test) else {
        return;
    };

    let mut scratch = Scratch::new("nf-in-c-functions").unwrap();
    let mut peer = scratch.instance(1, RING, RING).unwrap();
    let mut subject = scratch.instance(2, RING, RING).unwrap();
    scratch.link((&mut peer, 0), (&mut subject, 0)).unwrap();
    let mut program = copy.compiled("functions");
    let child = subject.spawn(program.stdout(Stdio::piped())).unwrap();
    let mut running = Running::new(child);

    let mut peer = peer.attach().unwrap();
    let mut receive = |peer: &mut Attached, count: usize| -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while frames.len() < count {
            assert_eq!(running.child.try_wait().unwrap(), None, "it has failed");
            peer.doorbell.wait(&mut peer.ports, None, AGEING).unwrap();
            peer.ports[0].receive(count, |bytes| frames.push(bytes.to_vec()));
        }
        frames
    };
    let expected = (0..RING as usize).map(|i| match i {
        1 => vec![1; FRAME_MAX],
        _ => vec![i as u8; FRAME_MIN + i],
    });
    assert_eq!(
        receive(&mut peer, RING as usize),
        expected.collect::<Vec<_>>()
    );

    let mut question = frame(77);
    assert!(peer.ports[0].send(|slot| {
        slot[..question.len()].copy_from_slice(&question);
        question.len()
    }));
    assert_eq!(peer.ports[0].flush(WhenFull::Drop).unwrap(), 1);
    assert!(running.child.wait().unwrap().success());
    question[0] ^= 0xff;
    let mut answers = Vec::new();
    peer.ports[0].receive(2, |bytes| answers.push(bytes.to_vec()));
    assert_eq!(answers, [question]);
}
