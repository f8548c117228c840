//! Connections segment by segment. The near end begins at sequence number 1000, the far end at 5000.

use super::End::{Far, Near};
use super::*;
use nfluid_wire::TcpFlags;
use nfluid_wire::build::{Frame, Transport};
use nfluid_wire::tcp::HEADER_LEN;
use proptest::prelude::*;
use std::net::SocketAddr;
use std::vec;
use std::vec::Vec;

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const FIN: TcpFlags = TcpFlags(0x11);
const RST: TcpFlags = TcpFlags::RST;
const SYN_ACK: TcpFlags = TcpFlags(0x12);
const STRICT: Policy = Policy {
    liberal: false,
    revives: false,
};

/// A segment to be sent.
#[derive(Clone, Debug)]
struct Sent {
    flags: TcpFlags,
    seq: u32,
    ack: u32,
    data: usize,
    window: u16,
    options: Vec<u8>,
}

fn sent(flags: TcpFlags, seq: u32, ack: u32) -> Sent {
    Sent {
        flags,
        seq,
        ack,
        data: 0,
        window: 10_000,
        options: Vec::new(),
    }
}

impl Sent {
    fn data(mut self, octets: usize) -> Sent {
        self.data = octets;
        self
    }

    fn window(mut self, window: u16) -> Sent {
        self.window = window;
        self
    }

    fn options(mut self, options: &[u8]) -> Sent {
        self.options = options.to_vec();
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let end = SocketAddr::from(([10, 0, 0, 1], 1));
        let transport = Transport::Tcp {
            src_port: 1,
            dst_port: 2,
            seq: self.seq,
            ack: self.ack,
            flags: self.flags,
            window: self.window,
            options: &self.options,
        };
        let mut buffer = vec![0; 54 + HEADER_LEN + self.options.len() + self.data];
        let frame = Frame::new(end.ip(), end.ip(), transport);
        let len = frame
            .write(&mut buffer, &vec![7; self.data])
            .expect("it fits");
        buffer[34..len].to_vec()
    }
}

/// A connection under test.
struct Bench(Connection, Policy);

impl Bench {
    fn new() -> Bench {
        Bench(Connection::default(), STRICT)
    }

    fn play(&mut self, from: End, sent: Sent) -> Result<Effect, OutOfWindow> {
        let bytes = sent.bytes();
        let segment = Segment::read(&bytes, true).expect("a whole header");
        self.0.segment(from, &segment, self.1)
    }

    fn passes(&mut self, from: End, sent: Sent) -> bool {
        self.play(from, sent).is_ok()
    }

    /// After the three segments of an opening, each end with a window of 10,000.
    fn open() -> Bench {
        let mut bench = Bench::new();
        assert!(bench.passes(Near, sent(SYN, 1000, 0)));
        assert!(bench.passes(Far, sent(SYN_ACK, 5000, 1001)));
        assert!(bench.passes(Near, sent(ACK, 1001, 5001)));
        assert_eq!(bench.0.stage(), Stage::Established);
        bench
    }
}

/// Catches: established by the SYN-ACK alone.
// promise: 10.32
#[test]
fn only_the_openers_ack_establishes() {
    let mut it = Bench::new();
    it.passes(Near, sent(SYN, 1000, 0));
    assert_eq!(it.0.stage(), Stage::Opening);
    it.passes(Far, sent(SYN_ACK, 5000, 1001));
    assert_eq!((it.0.stage(), it.0.is_half_open()), (Stage::Answered, true));
    // Catches: any ACK does.
    for guess in [0, 1001, 5000, 5002, 70_000] {
        assert!(!it.passes(Near, sent(ACK, 1001, guess)), "{guess}");
        assert_eq!(it.0.stage(), Stage::Answered);
    }
    assert!(it.passes(Near, sent(ACK, 1001, 5001)));
    assert_eq!(
        (it.0.stage(), it.0.is_half_open()),
        (Stage::Established, false)
    );
}

#[test]
fn a_syn_ack_has_to_acknowledge_the_syn() {
    let mut it = Bench::new();
    it.passes(Near, sent(SYN, 1000, 0));
    for guess in [0, 1000, 1002] {
        assert!(!it.passes(Far, sent(SYN_ACK, 5000, guess)), "{guess}");
    }
    assert!(it.passes(Far, sent(SYN_ACK, 5000, 1001)));
    assert!(it.passes(Far, sent(SYN_ACK, 5000, 1001)), "sent again");
    assert!(
        !it.passes(Near, sent(TcpFlags::PSH, 1001, 0)),
        "without ACK"
    );
}

#[test]
fn an_opener_speaks_after_the_answer_only() {
    let mut it = Bench::new();
    it.passes(Near, sent(SYN, 1000, 0));
    assert!(!it.passes(Near, sent(ACK, 1001, 5001)));
    assert_eq!(it.0.stage(), Stage::Opening);
    // Sent again: with the same number, or a new attempt.
    assert!(it.passes(Near, sent(SYN, 1000, 0)) && it.passes(Near, sent(SYN, 3000, 0)));
    assert!(it.passes(Far, sent(SYN_ACK, 5000, 3001)));
}

#[test]
fn a_simultaneous_open_establishes_when_both_have_acknowledged() {
    let mut it = Bench::new();
    assert!(it.passes(Near, sent(SYN, 1000, 0)) && it.passes(Far, sent(SYN, 5000, 0)));
    assert_eq!(it.0.stage(), Stage::Answered);
    assert!(it.passes(Near, sent(SYN_ACK, 1000, 5001)));
    assert_eq!(it.0.stage(), Stage::Answered);
    assert!(it.passes(Far, sent(SYN_ACK, 5000, 1001)));
    assert_eq!(it.0.stage(), Stage::Established);
}

/// Catches: no check of a bound, and one that is off by one.
// promise: 10.33
#[test]
fn data_passes_within_the_window_and_not_outside() {
    let fits = |seq: u32, data: usize| Bench::open().passes(Near, sent(ACK, seq, 5001).data(data));
    assert!(fits(1001, 100) && fits(1001, 10_000));
    // The last octet of the window, and a probe behind it.
    assert!(fits(11_000, 1) && fits(11_001, 1));
    assert!(!fits(11_002, 1), "beyond the window");
    assert!(!fits(1001_u32.wrapping_add(1 << 31), 1) && !fits(900_000_000, 1));
    // Sent again, as far as it may not have been acknowledged.
    assert!(fits(1000, 0), "keep-alive");
    let mut it = Bench::open();
    it.passes(Near, sent(ACK, 1001, 5001).data(10_000));
    it.passes(Far, sent(ACK, 5001, 11_001));
    assert!(it.passes(Near, sent(ACK, 1001, 5001).data(5)));
    assert!(
        !it.passes(Near, sent(ACK, 900, 5001).data(5)),
        "older than a window"
    );
}

#[test]
fn an_ack_is_of_what_was_sent() {
    let fits = |ack| Bench::open().passes(Far, sent(ACK, 5001, ack).data(1));
    assert!(fits(1001));
    assert!(!fits(1002), "of what nobody has sent");
    let mut it = Bench::open();
    let mut seq = 1001;
    for _ in 0..20 {
        assert!(it.passes(Near, sent(ACK, seq, 5001).data(5000)));
        seq += 5000;
        assert!(it.passes(Far, sent(ACK, 5001, seq)));
    }
    assert!(it.passes(Far, sent(ACK, 5001, seq - 66_000)), "delayed");
    assert!(
        !it.passes(Far, sent(ACK, 5001, seq - 66_001)),
        "from another age"
    );
}

#[test]
fn windows_are_scaled_if_both_offer_it() {
    let offer = |shift| [1, 3, 3, shift];
    let opened = |answer: &[u8]| {
        let mut it = Bench::new();
        it.passes(Near, sent(SYN, 1000, 0).options(&offer(7)));
        it.passes(Far, sent(SYN_ACK, 5000, 1001).options(answer));
        it.passes(Near, sent(ACK, 1001, 5001).window(1000));
        it
    };
    // The far end may send 1000 * 2^7 octets, or 10,000 as the SYN said.
    let data = |it: &mut Bench, seq| it.passes(Far, sent(ACK, seq, 1001).data(1));
    assert!(data(&mut opened(&offer(2)), 5001 + 128_000));
    assert!(!data(&mut opened(&offer(2)), 5001 + 128_001));
    assert!(
        !data(&mut opened(&[]), 5001 + 128_000),
        "nobody scales alone"
    );
    assert!(data(&mut opened(&[]), 5001 + 10_000));
    // Catches: a shift above 14 that overflows.
    assert!(data(&mut opened(&offer(255)), 5001));
    // Catches: the scale of one end in the place of the other's.
    let kept = serde_json::to_value(opened(&offer(2)).0.summary());
    assert_eq!(kept.expect("numbers")["scales"], 0x27);
}

#[test]
fn selective_acknowledgments_are_of_what_was_sent_too() {
    let block = |from: u32, to: u32| {
        let mut option = vec![1, 1, 5, 10];
        option.extend(from.to_be_bytes());
        option.extend(to.to_be_bytes());
        option
    };
    let mut it = Bench::open();
    it.passes(Near, sent(ACK, 1001, 5001).data(3000));
    assert!(it.passes(Far, sent(ACK, 5001, 1001).options(&block(2001, 4001))));
    assert!(!it.passes(Far, sent(ACK, 5001, 1001).options(&block(2001, 4002))));
    // Data behind a hole does not make the window smaller.
    assert!(it.passes(Near, sent(ACK, 4001, 5001).data(9000)));
}

/// RFC 5961 section 3. Catches: any RST ends the connection, and none does.
// promise: 10.33
#[test]
fn a_reset_is_exact_or_ends_nothing() {
    let reset = |seq: u32| {
        let mut it = Bench::open();
        it.passes(Near, sent(ACK, 1001, 5001).data(500));
        it.passes(Far, sent(ACK, 5001, 1301));
        let passes = it.passes(Near, sent(RST, seq, 0));
        (passes, it.0.stage())
    };
    assert_eq!(
        reset(1301),
        (true, Stage::Closed),
        "what the other end expects"
    );
    assert_eq!(
        reset(1501),
        (true, Stage::Closed),
        "behind what was sent last"
    );
    for seq in [1302, 1400, 11_301] {
        assert_eq!(reset(seq), (true, Stage::Established), "challenged: {seq}");
    }
    for seq in [1300, 0, 11_302, 1 << 31, u32::MAX] {
        assert_eq!(reset(seq), (false, Stage::Established), "{seq}");
    }
}

#[test]
fn a_challenge_is_answered_by_the_exact_reset() {
    let mut it = Bench::open();
    assert!(it.passes(Near, sent(RST, 1005, 0)));
    assert!(it.passes(Far, sent(ACK, 5001, 1001)), "the challenge");
    assert!(it.passes(Near, sent(RST, 1001, 0)));
    assert_eq!(it.0.stage(), Stage::Closed);
}

#[test]
fn a_refused_syn_is_reset_by_its_acknowledgment() {
    let refuse = |ack| {
        let mut it = Bench::new();
        it.passes(Near, sent(SYN, 1000, 0));
        let passes = it.passes(Far, sent(RST | ACK, 0, ack));
        (passes, it.0.stage())
    };
    assert_eq!(refuse(1001), (true, Stage::Closed));
    assert_eq!(refuse(1000), (false, Stage::Opening));
    assert_eq!(refuse(0), (false, Stage::Opening));
    let mut it = Bench::new();
    it.passes(Near, sent(SYN, 1000, 0));
    assert!(!it.passes(Far, sent(RST, 0, 0)), "without ACK");
    assert!(
        Bench::new().play(Near, sent(RST, 1, 1)).is_err(),
        "of no connection"
    );
}

/// RFC 5961 section 4. Catches: a SYN begins the connection anew, or is refused.
// promise: 10.33
#[test]
fn a_syn_into_a_connection_changes_nothing() {
    for seq in [1001, 7, 1 << 31] {
        let mut it = Bench::open();
        let before = it.0;
        assert_eq!(it.play(Near, sent(SYN, seq, 0)), Ok(Effect::None));
        assert_eq!(it.0.stage(), Stage::Established);
        assert!(it.passes(Far, sent(ACK, 5001, 1001)), "the challenge");
        assert!(
            it.passes(Near, sent(ACK, 1001, 5001).data(9)),
            "the forger was wrong"
        );
        assert_eq!(before.summary(), it.0.summary());
    }
    // A restarted end means it.
    let mut it = Bench::open();
    it.passes(Near, sent(SYN, 99_000, 0));
    it.passes(Far, sent(ACK, 5001, 1001));
    assert!(it.passes(Near, sent(RST, 1001, 0)));
    assert_eq!(it.0.stage(), Stage::Closed);
}

#[test]
fn a_syn_that_is_answered_begins_a_new_connection() {
    let mut it = Bench::open();
    assert!(it.passes(Near, sent(SYN, 99_000, 0)));
    assert!(
        !it.passes(Far, sent(SYN_ACK, 70_000, 99_000)),
        "another answer"
    );
    assert_eq!(it.0.stage(), Stage::Established, "it changes nothing");
    assert!(it.passes(Far, sent(SYN_ACK, 70_000, 99_001)));
    assert_eq!(it.0.stage(), Stage::Answered);
    assert!(it.passes(Near, sent(ACK, 99_001, 70_001)));
    assert_eq!(it.0.stage(), Stage::Established);
    assert!(!it.passes(Near, sent(ACK, 1001, 5001)));
}

/// Catches: the far end's SYN taken for one of the near end; its window shifted as if the near end had offered the scale.
#[test]
fn a_syn_of_the_far_end_that_is_answered_begins_a_new_connection_too() {
    let mut it = Bench::open();
    assert!(it.passes(Far, sent(SYN, 99_000, 0)));
    assert!(!it.passes(Far, sent(SYN_ACK, 70_000, 99_001)), "its own");
    assert!(it.passes(Near, sent(SYN_ACK, 70_000, 99_001).options(&[1, 3, 3, 0])));
    assert_eq!(it.0.stage(), Stage::Answered);
    assert!(it.passes(Far, sent(ACK, 99_001, 70_001).window(100)));
    assert_eq!(it.0.stage(), Stage::Established);
    // The far end's scale is not known: 100 may be 100 * 2^14.
    let last = 70_001 + (100 << 14);
    assert!(it.passes(Near, sent(ACK, last, 99_001)));
    assert!(!it.passes(Near, sent(ACK, last + 1, 99_001)));
}

/// RFC 9293 figure 10: the other end still has an older connection.
#[test]
fn an_older_connection_of_the_other_end_is_found_and_ended() {
    let mut it = Bench::new();
    it.passes(Near, sent(SYN, 1000, 0));
    assert_eq!(it.play(Far, sent(ACK, 700_000, 800_000)), Ok(Effect::None));
    assert_eq!(it.play(Near, sent(RST, 800_000, 0)), Ok(Effect::None));
    assert_eq!(it.0.stage(), Stage::Opening);
    assert!(it.passes(Near, sent(SYN, 1000, 0)));
    assert!(it.passes(Far, sent(SYN_ACK, 5000, 1001)));
}

#[test]
fn two_fins_close_and_the_timer_runs_on() {
    let mut it = Bench::open();
    assert_eq!(it.play(Near, sent(FIN, 1001, 5001)), Ok(Effect::Restarts));
    assert_eq!(it.0.stage(), Stage::Closing);
    assert_eq!(it.play(Far, sent(FIN, 5001, 1002)), Ok(Effect::Restarts));
    assert_eq!(it.0.stage(), Stage::Closed);
    assert_eq!(it.play(Near, sent(ACK, 1002, 5002)), Ok(Effect::None));
    assert_eq!(
        it.play(Near, sent(SYN, 9000, 0)),
        Ok(Effect::Restarts),
        "anew"
    );
    assert_eq!(it.0.stage(), Stage::Opening);
}

#[test]
fn what_goes_on_after_a_reset_was_not_ended_if_the_policy_says_so() {
    for revives in [false, true] {
        let mut it = Bench::open();
        it.1.revives = revives;
        it.passes(Far, sent(RST, 5001, 0));
        assert_eq!((it.0.stage(), it.0.name()), (Stage::Closed, "reset"));
        assert!(it.passes(Near, sent(ACK, 1001, 5001).data(1)));
        assert_eq!(it.0.stage() == Stage::Established, revives);
    }
}

#[test]
fn a_liberal_policy_refuses_resets_only() {
    let mut it = Bench::open();
    it.1.liberal = true;
    assert!(it.passes(Near, sent(ACK, 900_000_000, 77).data(1)));
    assert!(
        it.passes(Near, sent(ACK, 1001, 5001).data(1)),
        "nothing was learned of it"
    );
    assert!(!it.passes(Near, sent(RST, 900_000_000, 0)));
}

/// A connection from an image, in the middle of its life.
fn restored() -> Bench {
    Bench(Connection::restored(Bench::open().0.summary()), STRICT)
}

/// Catches: an end is believed before the other has acknowledged it, and recovery that never ends.
// promise: 10.34
#[test]
fn a_restored_connection_learns_its_windows_anew() {
    let mut it = restored();
    assert_eq!(it.0.stage(), Stage::Established);
    assert!(it.passes(Near, sent(ACK, 800_000, 900_000).data(100)));
    assert!(it.passes(Far, sent(ACK, 900_000, 800_100).data(50)));
    assert!(it.passes(Near, sent(ACK, 800_100, 900_050)));
    for from in [Near, Far] {
        assert!(!it.passes(from, sent(ACK, 7, 7).data(1)), "{from:?}");
        assert!(!it.passes(from, sent(RST, 7, 0)), "{from:?}");
    }
    assert!(it.passes(Near, sent(ACK, 800_100, 900_050).data(10)));
}

// promise: 10.34
#[test]
fn a_forged_segment_during_recovery_does_no_lasting_harm() {
    let mut it = restored();
    assert!(it.passes(Near, sent(ACK, 800_000, 900_000).data(100)));
    for _ in 0..3 {
        it.passes(Far, sent(ACK, 77, 66).data(5));
    }
    assert_eq!(it.play(Far, sent(RST, 12, 0)), Ok(Effect::None));
    assert_eq!(it.0.stage(), Stage::Established);
    for turn in 0..2 {
        let (near, far) = (800_100 + turn * 10, 900_000 + turn * 50);
        assert!(it.passes(Far, sent(ACK, far, near).data(50)), "{turn}");
        assert!(
            it.passes(Near, sent(ACK, near, far + 50).data(10)),
            "{turn}"
        );
    }
    assert!(!it.passes(Far, sent(ACK, 77, 66).data(5)));
}

#[test]
fn a_connection_that_is_picked_up_is_established_by_an_answer() {
    let mut it = Bench::new();
    assert!(it.passes(Near, sent(ACK, 800_000, 900_000).data(100)));
    assert_eq!((it.0.stage(), it.0.is_half_open()), (Stage::Opening, true));
    assert!(it.passes(Far, sent(ACK, 900_000, 800_100)));
    assert_eq!(it.0.stage(), Stage::Established);
    let mut refused = Bench::new();
    refused.passes(Near, sent(ACK, 800_000, 900_000).data(100));
    assert!(refused.passes(Far, sent(RST, 900_000, 0)));
    assert_eq!(refused.0.stage(), Stage::Closed);
}

#[test]
fn an_old_image_says_what_it_knows() {
    let stage =
        |spoke, fin, reset| Connection::restored(Summary::of_old(spoke, fin, reset)).stage();
    assert_eq!(stage([true, false], [false; 2], false), Stage::Opening);
    assert_eq!(stage([true; 2], [false; 2], false), Stage::Established);
    assert_eq!(stage([true; 2], [true, false], false), Stage::Closing);
    assert_eq!(stage([true; 2], [true; 2], false), Stage::Closed);
    assert_eq!(stage([true; 2], [false; 2], true), Stage::Closed);
}

/// Catches: the two ends' window scales exchanged or lost in an image, and a scale of a forged image that RFC 7323 forbids.
#[test]
fn an_image_keeps_the_window_scale_of_each_end() {
    let carried = |scales: u8| {
        let image = serde_json::json!({ "flags": 0, "scales": scales });
        let summary: Summary = serde_json::from_value(image).expect("valid");
        let restored = serde_json::to_value(Connection::restored(summary).summary());
        restored.expect("numbers")["scales"].clone()
    };
    assert_eq!((carried(0x73), carried(0x37)), (0x73.into(), 0x37.into()));
    assert_eq!((carried(0xf3), carried(0x3f)), (0xe3.into(), 0x3e.into()));
    let old = serde_json::to_value(Summary::of_old([true; 2], [false; 2], false));
    assert_eq!(
        old.expect("numbers")["scales"],
        0xee,
        "unknown: the largest"
    );
}

/// The first fragment of a packet does not say how long the segment is.
#[test]
fn a_fragmented_segment_may_be_as_long_as_the_window() {
    let mut it = Bench::open();
    let bytes = sent(ACK, 1001, 5001).data(100).bytes();
    let first = Segment::read(&bytes, false).expect("a whole header");
    assert!(it.0.segment(Near, &first, STRICT).is_ok());
    assert!(
        it.passes(Far, sent(ACK, 5001, 4001)),
        "of what the other fragments had"
    );
    assert!(it.passes(Near, sent(ACK, 4001, 5001).data(9)));
}

/// A working end of a connection: the octets that it has sent, got, and offers.
#[derive(Clone, Debug)]
struct Host {
    next: u32,
    unacknowledged: u32,
    expects: u32,
    window: u16,
}

proptest! {
    /// Segments of two ends that keep to each other's windows always pass, whatever the initial numbers, and whichever
    /// are lost on either side or sent again. Catches: a bound that is too tight, and arithmetic that does not wrap.
    // promise: 10.33
    #[test]
    fn what_two_proper_ends_send_passes(
        isn in any::<[u32; 2]>(),
        windows in any::<[u16; 2]>(),
        steps in proptest::collection::vec((any::<bool>(), 0u8..4, 0usize..1460, any::<bool>()), 1..200),
    ) {
        let mut it = Bench::new();
        let host = |i: usize| Host {
            next: isn[i].wrapping_add(1),
            unacknowledged: isn[i].wrapping_add(1),
            expects: isn[1 - i].wrapping_add(1),
            window: windows[i].max(1),
        };
        let mut hosts = [host(0), host(1)];
        prop_assert!(it.passes(Near, sent(SYN, isn[0], 0).window(hosts[0].window)));
        prop_assert!(it.passes(Far, sent(SYN_ACK, isn[1], hosts[1].expects).window(hosts[1].window)));
        prop_assert!(it.passes(Near, sent(ACK, hosts[0].next, hosts[0].expects).window(hosts[0].window)));
        for (near, what, data, arrives) in steps {
            let (i, from) = if near { (0, Near) } else { (1, Far) };
            let (me, peer) = (hosts[i].clone(), hosts[1 - i].clone());
            let in_flight = me.next.wrapping_sub(me.unacknowledged);
            let room = u32::from(peer.window).saturating_sub(in_flight);
            let seq = if what == 0 { me.unacknowledged } else { me.next };
            let data = if what == 0 { in_flight.min(data as u32) } else { room.min(data as u32) };
            let segment = sent(ACK, seq, me.expects).window(me.window).data(data as usize);
            prop_assert_eq!(it.play(from, segment.clone()), Ok(Effect::Restarts), "{:?}", segment);
            let end = seq.wrapping_add(data);
            if what != 0 {
                hosts[i].next = end;
            }
            if arrives {
                // In order, or a repetition of what has come before.
                if seq == peer.expects {
                    hosts[1 - i].expects = end;
                }
                hosts[1 - i].unacknowledged = me.expects;
            }
        }
        prop_assert_eq!(it.0.stage(), Stage::Established);
    }

    /// No segment panics, and none makes an established connection half-open but the answer to a SYN.
    #[test]
    fn segments_from_anybody(
        segments in proptest::collection::vec(
            (any::<bool>(), any::<u8>(), any::<u32>(), any::<u32>(), any::<u16>(), 0usize..3, any::<[u8; 8]>()), 0..60),
        liberal: bool,
    ) {
        let mut it = Bench(Connection::default(), Policy { liberal, revives: true });
        for (near, flags, seq, ack, window, data, options) in segments {
            let segment = sent(TcpFlags(flags), seq, ack).window(window).data(data).options(&options);
            let _ = it.play(if near { Near } else { Far }, segment);
        }
    }

    /// Blind: an attacker who does not know the numbers cannot end a connection. Catches: RST in any window.
    #[test]
    fn a_blind_reset_ends_nothing(seq: u32, near: bool) {
        prop_assume!(![1001, 5001].contains(&seq));
        let mut it = Bench::open();
        let _ = it.play(if near { Near } else { Far }, sent(RST, seq, 0));
        prop_assert_eq!(it.0.stage(), Stage::Established);
    }
}
