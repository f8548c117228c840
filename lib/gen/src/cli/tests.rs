use clap::{CommandFactory, Parser};

use super::*;
use crate::clock::Clock;
use crate::memory::{Faults, MemoryReceiver, MemorySender, queue};
use crate::spec::{Rate, TrafficSpec};

#[derive(Debug, Parser)]
struct Program {
    #[command(subcommand)]
    command: GenCommand,
}

/// A port whose frames come back to the port itself.
struct Loopback(Option<(MemorySender, MemoryReceiver)>);

impl Loopback {
    fn new(faults: Faults) -> Self {
        Loopback(Some(queue(10_000, faults, 5)))
    }
}

impl PortSource for Loopback {
    type Sender = MemorySender;
    type Receiver = MemoryReceiver;

    fn open(&mut self, port: &str) -> Result<(MemorySender, MemoryReceiver), IoError> {
        let (sender, receiver) = self
            .0
            .take()
            .filter(|_| port == "p0")
            .ok_or(IoError::Open {
                port: port.to_owned(),
                cause: "no such port".into(),
                remedy: "there is only p0",
            })?;
        Ok((sender, receiver))
    }
}

fn parse(line: &str) -> Result<GenCommand, clap::Error> {
    let words = std::iter::once("gen").chain(line.split_whitespace());
    Program::try_parse_from(words).map(|program| program.command)
}

fn run_line(line: &str, ports: &mut Loopback) -> (Result<(), CliError>, String) {
    let mut output = Vec::new();
    let command = parse(line).unwrap();
    let result = run(&command, ports, &AtomicBool::new(false), &mut output);
    (result, String::from_utf8(output).unwrap())
}

#[test]
fn the_definitions_are_consistent() {
    Program::command().debug_assert();
}

#[test]
fn every_argument_reaches_its_job() {
    let line = "send -p p0 --size imix --rate 2Gbps --flows 9 --vlan 100,7 --src 2001:2::/64 \
                --dst 2001:2:0:1::1 --transport tcp --src-port 5-20 --dst-port 80 --ttl 3 \
                --content constant --burst 256 --count 12 --duration 500ms --first-stream 4 \
                --src-mac 02:00:00:00:00:09 --traffic-class 184";
    let GenCommand::Send(args) = parse(line).unwrap() else {
        panic!("not send")
    };
    let traffic = args.job().unwrap().traffic;
    traffic.flows.check().unwrap();
    assert_eq!(traffic.sizes, "imix".parse().unwrap());
    assert_eq!(traffic.rate, Rate::Bits(2e9));
    assert_eq!((traffic.flows.count, traffic.flows.first_stream), (9, 4));
    assert_eq!(traffic.flows.vlans, [100, 7]);
    assert_eq!(traffic.flows.src_ports, "5-20".parse().unwrap());
    assert_eq!((traffic.flows.ttl, traffic.flows.traffic_class), (3, 184));
    assert_eq!((traffic.burst, traffic.count), (256, Some(12)));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    for (line, reason) in [
        ("send", "--interface"),
        ("send -p a -i b", "cannot be used with"),
        ("send -p a --rate 1kpps --script f", "cannot be used with"),
        ("send -p a --size 13", "14 to 2032"),
        ("send -p a --burst 257", "257"),
        ("send -p a --rate fast", "1.5Mpps"),
        ("replay -p a", "<FILE>"),
        (
            "replay -p a f --rate 1kpps --speed 2",
            "cannot be used with",
        ),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(reason), "{line}: {error}");
    }
}

#[test]
fn a_port_is_opened_by_the_program() {
    let line = "send -p p0 --count 100 --rate 100kpps --output json --quiet";
    let (result, output) = run_line(line, &mut Loopback::new(Faults::default()));
    result.unwrap();
    let report: serde_json::Value = serde_json::from_str(&output).unwrap();
    assert_eq!(
        (&report["event"], &report["packets"]),
        (&"report".into(), &100.into())
    );
    let (result, output) = run_line("send -p p1 --count 1", &mut Loopback(None));
    let error = result.unwrap_err().to_string();
    assert!(
        error.contains("p1") && error.contains("only p0") && output.is_empty(),
        "{error}"
    );
}

#[test]
fn a_clean_path_is_distinguished_from_one_that_is_not() {
    for (loss, clean) in [(0.0, true), (0.2, false)] {
        let mut ports = Loopback::new(Faults {
            loss,
            ..Faults::default()
        });
        let (mut sender, receiver) = ports.open("p0").unwrap();
        let mut generator =
            crate::send::Generator::new(&TrafficSpec::default(), &mut sender).unwrap();
        generator
            .burst(&mut sender, 100, MonotonicClock.now_ns())
            .unwrap();
        ports.0 = Some((sender, receiver));
        let line = "receive -p p0 --idle 1ms --require-clean";
        let (result, output) = run_line(line, &mut ports);
        assert_eq!(result.is_ok(), clean, "{output}");
        assert!(output.contains("received"), "{output}");
    }
}

#[test]
fn an_interface_that_is_missing_is_named() {
    for command in ["send", "receive", "ping", "reflect", "replay x.pcap"] {
        let line = format!("{command} -i nfl-none0");
        let (result, _) = run_line(&line, &mut Loopback(None));
        let error = result.unwrap_err().to_string();
        assert!(error.contains("nfl-none0"), "{line}: {error}");
    }
}
