//! The switch keeps its promises: frames arrive whole, in order, at the right port; what does not
//! arrive is counted under its reason; both loop forms behave alike.

mod switch_fixture;

use nfluid_ring::port::WhenFull;
use nfluid_switch::DropReason;
use switch_fixture::{BROADCAST, bridge, for_each_form, frame, received, send};

// promise: 1.1
#[test]
fn a_link_delivers_every_length_unchanged_and_in_order() {
    for_each_form("link", |scratch| {
        let mut a = scratch.instance(1, 64, 64).expect("instance");
        let mut b = scratch.instance(1, 64, 64).expect("instance");
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        let (mut from, mut to) = (a.attach().expect("attach"), b.attach().expect("attach"));
        let lengths: Vec<usize> = (14..=300)
            .chain([511, 512, 1023, 1514, 1518, 2031, 2032])
            .collect();
        for chunk in lengths.chunks(37) {
            for &len in chunk {
                send(
                    &mut from.ports[0],
                    &frame(b.mac(0), a.mac(0), len, len as u8),
                );
            }
            assert_eq!(
                from.ports[0].flush(WhenFull::Drop).expect("flush") as usize,
                chunk.len()
            );
            let got = received(&mut to.ports[0]);
            let want: Vec<_> = chunk
                .iter()
                .map(|&len| frame(b.mac(0), a.mac(0), len, len as u8))
                .collect();
            assert_eq!(got, want);
        }
    });
}

// promise: 1.2
#[test]
fn a_full_link_drops_and_counts_or_keeps_as_asked() {
    for_each_form("full", |scratch| {
        let mut a = scratch.instance(1, 128, 128).expect("instance");
        let mut b = scratch.instance(1, 64, 64).expect("instance");
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        let (mut from, mut to) = (a.attach().expect("attach"), b.attach().expect("attach"));
        let (from, to) = (&mut from.ports[0], &mut to.ports[0]);
        let one = frame(b.mac(0), a.mac(0), 60, 7);
        for _ in 0..100 {
            send(from, &one);
        }
        assert_eq!(from.flush(WhenFull::Keep).expect("flush"), 64);
        assert_eq!(from.queued(), 36);
        assert_eq!(received(to).len(), 64);
        assert_eq!(from.flush(WhenFull::Keep).expect("flush"), 36);
        for _ in 0..100 {
            send(from, &one);
        }
        assert_eq!(from.flush(WhenFull::Drop).expect("flush"), 100);
        let counters = scratch.switch.counters(b.id(0));
        assert_eq!(counters.rx_frames, 128);
        assert_eq!(counters.dropped(DropReason::RingFull), 72);
        assert_eq!(scratch.switch.counters(a.id(0)).tx_frames, 200);
    });
}

// promise: 1.3
#[test]
fn a_switch_finds_pinned_addresses_and_floods_the_rest() {
    for_each_form("flood", |scratch| {
        let (instances, mut ports) = bridge(scratch, 3, 4);
        let mac = |i: usize| instances[i].mac(0);
        send(&mut ports[0], &frame(mac(2), mac(0), 60, 1));
        send(&mut ports[0], &frame(BROADCAST, mac(0), 700, 2));
        send(&mut ports[0], &frame([2, 9, 9, 9, 9, 9], mac(0), 61, 3));
        assert_eq!(ports[0].flush(WhenFull::Drop).expect("flush"), 3);
        let got: Vec<usize> = ports.iter_mut().map(|port| received(port).len()).collect();
        assert_eq!(got, [0, 2, 3, 2]);
        assert_eq!(
            scratch.switch.counters(instances[0].id(0)).tx_frames,
            1 + 3 + 3
        );
    });
}

// promise: 1.4
#[test]
fn foreign_sources_and_reserved_destinations_are_dropped_and_counted() {
    for_each_form("foreign", |scratch| {
        let (instances, mut ports) = bridge(scratch, 0, 2);
        let mac = |i: usize| instances[i].mac(0);
        send(&mut ports[0], &frame(mac(1), mac(1), 60, 1));
        send(&mut ports[0], &frame(mac(1), [2, 7, 7, 7, 7, 7], 60, 1));
        send(
            &mut ports[0],
            &frame([1, 0x80, 0xc2, 0, 0, 0x0e], mac(0), 60, 1),
        );
        send(&mut ports[0], &frame(mac(0), mac(0), 60, 1));
        send(&mut ports[0], &frame(mac(1), mac(0), 60, 9));
        ports[0].flush(WhenFull::Drop).expect("flush");
        assert_eq!(received(&mut ports[1]), [frame(mac(1), mac(0), 60, 9)]);
        let counters = scratch.switch.counters(instances[0].id(0));
        assert_eq!(counters.dropped(DropReason::ForeignMac), 2);
        assert_eq!(counters.dropped(DropReason::ReservedMac), 1);
        assert_eq!(counters.dropped(DropReason::SamePort), 1);
        assert_eq!(counters.tx_frames, 5);
    });
}

// promise: 1.5
#[test]
fn bad_lengths_and_slots_are_dropped_and_counted() {
    for_each_form("bad", |scratch| {
        let mut a = scratch.instance(1, 64, 64).expect("instance");
        let mut b = scratch.instance(1, 64, 64).expect("instance");
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        let (mut from, mut to) = (a.attach().expect("attach"), b.attach().expect("attach"));
        for (len, slot) in [
            (13, 0),
            (0, 0),
            (2033, 0),
            (u16::MAX, 0),
            (60, 128),
            (60, u32::MAX),
            (60, 64),
        ] {
            from.ports[0].queue_raw(len, slot);
        }
        from.ports[0].flush(WhenFull::Drop).expect("flush");
        assert_eq!(received(&mut to.ports[0]).len(), 1, "holes are skipped");
        let counters = scratch.switch.counters(a.id(0));
        assert_eq!(counters.dropped(DropReason::BadLength), 3);
        assert_eq!(counters.dropped(DropReason::BadIndex), 2);
        assert_eq!(counters.tx_frames, 7);
        let receiver = scratch.switch.counters(b.id(0));
        assert_eq!(receiver.rx_frames, 1);
        assert_eq!(receiver.dropped(DropReason::TooLong), 1);
    });
}

// promise: 1.6
#[test]
fn a_port_that_is_down_or_not_connected_loses_nothing_uncounted() {
    for_each_form("down", |scratch| {
        let mut a = scratch.instance(1, 64, 64).expect("instance");
        let mut b = scratch.instance(1, 64, 64).expect("instance");
        let mut from = a.attach().expect("attach");
        let one = frame(b.mac(0), a.mac(0), 60, 1);
        send(&mut from.ports[0], &one);
        from.ports[0].flush(WhenFull::Drop).expect("flush");
        assert_eq!(
            scratch
                .switch
                .counters(a.id(0))
                .dropped(DropReason::NoRoute),
            1
        );
        scratch.link((&mut a, 0), (&mut b, 0)).expect("link");
        scratch.switch.set_up(b.id(0), false);
        send(&mut from.ports[0], &one);
        from.ports[0].flush(WhenFull::Drop).expect("flush");
        assert_eq!(
            scratch
                .switch
                .counters(a.id(0))
                .dropped(DropReason::PortDown),
            1
        );
        scratch.switch.set_up(a.id(0), false);
        send(&mut from.ports[0], &one);
        let error = from.ports[0]
            .flush(WhenFull::Drop)
            .expect_err("own port is down");
        assert_eq!(error.raw_os_error(), Some(100), "ENETDOWN: {error}");
    });
}
