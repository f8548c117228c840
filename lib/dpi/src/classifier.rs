//! Flows and what they carry. The first packets of each are shown to nDPI until it knows the flow or gives up, with
//! `ndpiReader`'s limits; all are counted.

use crate::headers::{Heard, Key, Link, Unheard, read};
use crate::ledger::{Kind, Ledger};
use crate::library::{Answer, Application, Conversation, Library};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

const TCP: u8 = 6;

/// Limits of the remembered flows, in number and in time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Flows at once. A flow that is still inspected takes some 2 KiB.
    pub flows: usize,
    /// Packets of a TCP flow that nDPI is shown at most, but for one.
    pub tcp_packets: u64,
    /// Packets of a flow of another protocol that nDPI is shown at most, but for one.
    pub other_packets: u64,
    /// A flow ends when nothing was heard of it for so long.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            flows: 65_536,
            tcp_packets: 80,
            other_packets: 24,
            idle: Duration::from_secs(30),
        }
    }
}

/// Flows, packets and bytes of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// Flows.
    pub flows: u64,
    /// Packets.
    pub packets: u64,
    /// The bytes of the packets, from the Ethernet header on.
    pub bytes: u64,
}

impl Total {
    /// A flow that has no packet yet.
    const FLOW: Total = Total {
        flows: 1,
        packets: 0,
        bytes: 0,
    };

    /// A packet.
    fn packet(bytes: u64) -> Self {
        Total {
            flows: 0,
            packets: 1,
            bytes,
        }
    }

    /// Adds packets.
    fn add(&mut self, packets: u64, bytes: u64) {
        self.packets += packets;
        self.bytes += bytes;
    }
}

/// Packets that belong to no flow that is remembered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Neither IPv4 nor IPv6.
    pub not_ip: Total,
    /// Fragments other than the first.
    pub fragment: Total,
    /// Packets whose headers end too early or contradict themselves.
    pub malformed: Total,
    /// Packets of new flows for which the table had no room.
    pub full: Total,
}

/// A flow.
#[derive(Debug)]
pub struct Flow {
    number: u64,
    conversation: Option<Conversation>,
    answer: Answer,
    counted: Total,
    began_ms: u64,
    heard_ms: u64,
    is_taken_over: bool,
}

impl Flow {
    /// Returns the application of the flow, as far as it is known.
    pub fn application(&self) -> Application {
        self.answer.application
    }

    /// All that is known of it.
    pub(crate) fn answer(&self) -> Answer {
        self.answer
    }

    /// Returns the flow's counts so far.
    fn so_far(&self) -> Total {
        Total {
            flows: 1,
            ..self.counted
        }
    }

    /// Returns true if the application was guessed by ports or addresses.
    pub fn is_guessed(&self) -> bool {
        self.answer.guessed
    }

    /// A predecessor has decided about it, and knew how large it was.
    pub fn is_taken_over(&self) -> bool {
        self.is_taken_over
    }

    /// No further packet of it is looked at.
    pub fn is_decided(&self) -> bool {
        self.conversation.is_none()
    }

    /// Returns the flow's packets and bytes.
    pub fn counted(&self) -> (u64, u64) {
        (self.counted.packets, self.counted.bytes)
    }

    /// Bytes per second since it began, over a second at least.
    pub fn rate(&self) -> u64 {
        let ms = self.heard_ms.saturating_sub(self.began_ms).max(1000);
        self.counted.bytes.saturating_mul(1000) / ms
    }
}

/// The result of a packet.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// The packet belongs to this flow; true if the fast path could know the flow.
    Flow(Key, bool),
    /// The packet has no flow.
    Unheard(Unheard),
    /// The table had no room for the packet's flow.
    Full,
}

/// The flows.
#[derive(Debug)]
pub struct Classifier {
    library: Library,
    limits: Limits,
    flows: HashMap<Key, Flow>,
    began: u64,
    now_ms: u64,
    ledger: Arc<Ledger>,
}

impl Classifier {
    /// Makes a classifier without flows.
    pub fn new(library: Library, limits: Limits) -> Self {
        Classifier::counting(library, limits, Arc::new(Ledger::own()))
    }

    /// Makes a classifier that counts into a ledger, which may have counts already.
    pub fn counting(library: Library, limits: Limits, ledger: Arc<Ledger>) -> Self {
        Classifier {
            library,
            limits,
            flows: HashMap::new(),
            began: 0,
            now_ms: 0,
            ledger,
        }
    }

    /// Other limits from now on; flows that are there stay.
    pub(crate) fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Returns the classifying library.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// A flow that is remembered.
    pub fn flow(&self, key: &Key) -> Option<&Flow> {
        self.flows.get(key)
    }

    /// Returns the number of remembered flows.
    pub fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Packets without a flow.
    pub fn outside(&self) -> Outside {
        self.ledger.without_flow()
    }

    /// Counts a frame, of which perhaps only the beginning is there, and shows it to nDPI if its flow is not decided.
    /// `length`: bytes that it had. Time does not go back: an earlier one is taken for the last.
    pub fn packet(&mut self, frame: &[u8], link: Link, length: u64, time_ms: u64) -> Seen {
        self.now_ms = self.now_ms.max(time_ms);
        let heard = match read(frame, link, length) {
            Ok(heard) => heard,
            Err(why) => {
                let kind = match why {
                    Unheard::NotIp => Kind::NotIp,
                    Unheard::Fragment => Kind::Fragment,
                    Unheard::Malformed => Kind::Malformed,
                };
                self.ledger.outside(kind, length);
                return Seen::Unheard(why);
            }
        };
        if !self.flows.contains_key(&heard.key) && !self.begin(heard.key) {
            self.ledger.outside(Kind::Full, length);
            return Seen::Full;
        }
        self.hear(&heard, length);
        Seen::Flow(heard.key, heard.plain)
    }

    /// Looks at a packet of a decided flow as if the flow were not decided; the packet is not counted. Returns the
    /// application, if the packet shows it.
    pub(crate) fn look_again(&mut self, packet: &[u8], at: &mut Conversation) -> Option<Answer> {
        let answer = self.library.look(at, packet, self.now_ms);
        (answer.application.application != 0 && !answer.guessed).then_some(answer)
    }

    fn begin(&mut self, key: Key) -> bool {
        if self.flows.len() >= self.limits.flows {
            return false;
        }
        let Some(conversation) = self.library.begin() else {
            return false;
        };
        self.began += 1;
        let flow = Flow {
            number: self.began,
            conversation: Some(conversation),
            answer: Answer::default(),
            counted: Total::default(),
            began_ms: self.now_ms,
            heard_ms: self.now_ms,
            is_taken_over: false,
        };
        self.flows.insert(key, flow);
        self.ledger.add(0, Total::FLOW);
        true
    }

    /// Remembers a flow about which a predecessor has decided, and which it has counted.
    pub(crate) fn remember(&mut self, key: Key, answer: Answer, time_ms: u64) {
        self.now_ms = self.now_ms.max(time_ms);
        self.began += 1;
        let flow = Flow {
            number: self.began,
            conversation: None,
            answer,
            counted: Total::default(),
            began_ms: self.now_ms,
            heard_ms: self.now_ms,
            is_taken_over: true,
        };
        self.flows.insert(key, flow);
    }

    fn hear(&mut self, heard: &Heard<'_>, length: u64) {
        let flow = self.flows.get_mut(&heard.key).expect("it has begun");
        flow.counted.add(1, length);
        let was = flow.answer.application.id();
        // Before nDPI sees it: it may be the last thing that this process does.
        self.ledger.add(was, Total::packet(length));
        flow.heard_ms = self.now_ms;
        let Some(conversation) = &mut flow.conversation else {
            return;
        };
        let limit = match heard.key.protocol {
            TCP => self.limits.tcp_packets,
            _ => self.limits.other_packets,
        };
        let enough = flow.counted.packets > limit;
        flow.answer = self.library.look(conversation, heard.packet, self.now_ms);
        let known = flow.answer.application.application != 0;
        if enough || (known && !flow.answer.more) {
            if !known {
                flow.answer = self.library.give_up(conversation);
            }
            flow.conversation = None;
        }
        let is = flow.answer.application.id();
        self.ledger.move_flow(was, is, flow.so_far());
    }

    /// Changes the application of a flow from now on.
    pub(crate) fn change(&mut self, key: &Key, answer: Answer) {
        let Some(flow) = self.flows.get_mut(key) else {
            return;
        };
        flow.counted = Total::default();
        flow.answer = answer;
        flow.began_ms = self.now_ms;
        self.ledger.add(answer.application.id(), Total::FLOW);
    }

    /// Flows of which nothing was heard for long.
    pub fn idle(&mut self, time_ms: u64) -> Vec<Key> {
        self.now_ms = self.now_ms.max(time_ms);
        let idle = u64::try_from(self.limits.idle.as_millis()).unwrap_or(u64::MAX);
        let is_idle = |flow: &Flow| flow.heard_ms.saturating_add(idle) < self.now_ms;
        let flows = self.flows.iter();
        let idle = flows.filter(|(_, flow)| is_idle(flow));
        idle.map(|(key, _)| *key).collect()
    }

    /// Ends a flow: decides it, and counts it under its application.
    pub fn end(&mut self, key: &Key) {
        if let Some(mut flow) = self.flows.remove(key) {
            decide(&mut self.library, &self.ledger, &mut flow);
        }
    }

    /// Decides about all flows: no further packet will come.
    pub fn decide_all(&mut self) {
        let mut flows: Vec<_> = self.flows.values_mut().collect();
        flows.sort_unstable_by_key(|flow| flow.number);
        for flow in flows {
            decide(&mut self.library, &self.ledger, flow);
        }
    }

    /// Adds packets of a flow that were counted elsewhere.
    pub(crate) fn count(&mut self, key: &Key, packets: u64, bytes: u64, time_ms: u64) {
        self.now_ms = self.now_ms.max(time_ms);
        let mut application = 0;
        if let Some(flow) = self.flows.get_mut(key) {
            flow.counted.add(packets, bytes);
            flow.heard_ms = self.now_ms;
            application = flow.answer.application.id();
        }
        self.add(application, packets, bytes);
    }

    /// Adds packets of an application that were counted elsewhere.
    pub(crate) fn add(&mut self, application: u16, packets: u64, bytes: u64) {
        let more = Total {
            flows: 0,
            packets,
            bytes,
        };
        self.ledger.add(application, more);
    }

    /// Returns the counts of each application, by its number; flows that are not decided are unknown.
    pub fn totals(&self) -> BTreeMap<u16, Total> {
        self.ledger.totals()
    }
}

fn decide(library: &mut Library, ledger: &Ledger, flow: &mut Flow) {
    // Known flows are queried too: nDPI may then report the carrying protocol, as it does for `ndpiReader`.
    if let Some(mut conversation) = flow.conversation.take() {
        let was = flow.answer.application.id();
        flow.answer = library.give_up(&mut conversation);
        ledger.move_flow(was, flow.answer.application.id(), flow.so_far());
    }
}
