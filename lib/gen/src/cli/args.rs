//! The arguments of `nfluid gen`, and how they become jobs.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use nfluid_wire::MacAddr;

use super::CliError;
use crate::interface;
use crate::io::IoError;
use crate::pingpong::{PingJob, ReflectJob};
use crate::receive::{Depth, ReceiveJob};
use crate::replay::{OnDamage, ReplayJob, Snapped, Timing};
use crate::script::Script;
use crate::send::SendJob;
use crate::spec::{
    AddressRange, Content, FlowSpec, PortRange, Rate, Sizes, Timespan, TrafficSpec, Transport,
};

/// Generate, receive and replay traffic, and measure round trips.
///
/// Frame sizes are those in a slot: without preamble and FCS (the 64-byte frame of RFC 2544 is 60).
#[derive(Clone, Debug, Subcommand)]
pub enum GenCommand {
    /// Send generated frames.
    Send(SendArgs),
    /// Receive frames and check loss, duplication, order, corruption and latency.
    Receive(ReceiveArgs),
    /// Measure round trips against a reflector.
    Ping(PingArgs),
    /// Reflect the probes of a ping.
    Reflect(ReflectArgs),
    /// Send the frames of a pcap or pcapng file.
    Replay(ReplayArgs),
}

/// Port or interface to send or receive.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct EndpointArgs {
    /// Network interface of this network namespace (NIC, veth, tap); needs CAP_NET_RAW
    #[arg(long, short, value_name = "NAME")]
    pub interface: Option<String>,
    /// Port of the running daemon
    #[arg(long, short, value_name = "NAME")]
    pub port: Option<String>,
}

/// Output format.
#[derive(Clone, Debug, Args)]
pub struct OutputArgs {
    /// Format of lines and report; json gives one object per line
    #[arg(long = "output", short = 'o', value_enum, default_value_t)]
    pub format: OutputFormat,
    /// Only the final report, no line per second
    #[arg(long, short)]
    pub quiet: bool,
}

/// Format of lines and report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text for readers.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Headers of the frames.
#[derive(Clone, Debug, Args)]
pub struct FlowArgs {
    /// Source MAC address [default: that of the interface, or 02:00:00:00:00:01]
    #[arg(long, value_name = "MAC")]
    pub src_mac: Option<MacAddr>,
    /// Destination MAC address [default: 02:00:00:00:00:02]
    #[arg(long, value_name = "MAC")]
    pub dst_mac: Option<MacAddr>,
    /// VLAN identifier; two, as in 100,7, are an 802.1ad and an 802.1Q tag
    #[arg(long = "vlan", value_name = "VID", value_delimiter = ',')]
    pub vlans: Vec<u16>,
    /// Source address, range or prefix, IPv4 or IPv6 [default: 198.18.0.1-198.18.255.254]
    #[arg(long, value_name = "ADDRESSES")]
    pub src: Option<AddressRange>,
    /// Destination address, range or prefix [default: 198.19.0.1]
    #[arg(long, value_name = "ADDRESSES")]
    pub dst: Option<AddressRange>,
    /// Protocol above IP
    #[arg(long, value_enum, default_value_t)]
    pub transport: Transport,
    /// Source port or range [default: 1024-65535]
    #[arg(long, value_name = "PORTS")]
    pub src_port: Option<PortRange>,
    /// Destination port or range [default: 9]
    #[arg(long, value_name = "PORTS")]
    pub dst_port: Option<PortRange>,
    /// TTL or hop limit
    #[arg(long, default_value_t = 64)]
    pub ttl: u8,
    /// TOS or traffic class, 0 to 255
    #[arg(long, default_value_t = 0, value_name = "BYTE")]
    pub traffic_class: u8,
    /// Number of the first stream; distinguishes generators at one receiver
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    pub first_stream: u32,
}

impl FlowArgs {
    fn spec(&self, endpoint: &EndpointArgs, count: u32) -> Result<FlowSpec, IoError> {
        let default = FlowSpec::default();
        let own_mac = || match &endpoint.interface {
            Some(name) => interface::hardware_address(name).map(MacAddr),
            None => Ok(default.src_mac),
        };
        Ok(FlowSpec {
            count,
            first_stream: self.first_stream,
            src_mac: self.src_mac.map_or_else(own_mac, Ok)?,
            dst_mac: self.dst_mac.unwrap_or(default.dst_mac),
            vlans: self.vlans.clone(),
            src: self.src.unwrap_or(default.src),
            dst: self.dst.unwrap_or(default.dst),
            transport: self.transport,
            src_ports: self.src_port.unwrap_or(default.src_ports),
            dst_ports: self.dst_port.unwrap_or(default.dst_ports),
            ttl: self.ttl,
            traffic_class: self.traffic_class,
            tcp_flags: default.tcp_flags,
        })
    }
}

/// Arguments of `nfluid gen send`.
#[derive(Clone, Debug, Args)]
pub struct SendArgs {
    /// Where to send.
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// Frame sizes in bytes without FCS: 64, 64,128, 64-1514, 60:7,1514:1 (size:weight) or imix
    #[arg(long, short, default_value = "64")]
    pub size: Sizes,
    /// Rate: 10kpps, 1.5Mpps, 2Gbps, 10Gbps/l1 (with preamble, FCS and gap) or max
    #[arg(long, short, default_value = "max", conflicts_with = "script")]
    pub rate: Rate,
    /// File with a rate per line for each second, or seconds and rate; ends with it
    #[arg(long, value_name = "FILE")]
    pub script: Option<PathBuf>,
    /// Number of flows
    #[arg(long, short = 'f', default_value_t = 1)]
    pub flows: u32,
    /// Headers of the frames.
    #[command(flatten)]
    pub headers: FlowArgs,
    /// Stamped frames can be checked; constant ones are cheaper and can only be counted
    #[arg(long, value_enum, default_value_t)]
    pub content: Content,
    /// Most frames handed over at once
    #[arg(long, short, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub burst: u16,
    /// Frames to send [default: until the time is up]
    #[arg(long, short)]
    pub count: Option<u64>,
    /// How long to send: 10s, 500ms, 2m [default: until the count is reached, or interrupted]
    #[arg(long, short, value_name = "TIME")]
    pub duration: Option<Timespan>,
    /// How to report.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl SendArgs {
    /// Returns the job of these arguments.
    ///
    /// # Errors
    /// When the script cannot be read or the interface does not exist.
    pub fn job(&self) -> Result<SendJob, CliError> {
        let script = self.script.as_deref().map(Script::load).transpose()?;
        let traffic = TrafficSpec {
            sizes: self.size.clone(),
            rate: self.rate,
            flows: self.headers.spec(&self.endpoint, self.flows)?,
            content: self.content,
            burst: usize::from(self.burst),
            count: self.count,
            duration: self.duration,
        };
        Ok(SendJob { traffic, script })
    }
}

/// Arguments of `nfluid gen receive`.
#[derive(Clone, Debug, Args)]
pub struct ReceiveArgs {
    /// Where to receive.
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// Count frames only, whatever they are
    #[arg(long)]
    pub count_only: bool,
    /// End after this many frames; loss is then counted against this number
    #[arg(long, short, value_name = "FRAMES")]
    pub expect: Option<u64>,
    /// End after this long
    #[arg(long, short, value_name = "TIME")]
    pub duration: Option<Timespan>,
    /// End when nothing has arrived for this long, once something has
    #[arg(long, value_name = "TIME")]
    pub idle: Option<Timespan>,
    /// Streams to check; further ones are only counted
    #[arg(long, default_value_t = 65_536, value_name = "NUMBER")]
    pub streams_max: u32,
    /// Fail unless something arrived and every frame came once, in order and whole
    #[arg(long)]
    pub require_clean: bool,
    /// How to report.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ReceiveArgs {
    /// Returns the job of these arguments.
    pub fn job(&self) -> ReceiveJob {
        ReceiveJob {
            depth: if self.count_only {
                Depth::Count
            } else {
                Depth::Check
            },
            duration: self.duration,
            expect: self.expect,
            idle: self.idle,
            streams_max: self.streams_max,
        }
    }
}

/// Arguments of `nfluid gen ping`.
#[derive(Clone, Debug, Args)]
pub struct PingArgs {
    /// Where to ask.
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// Frame sizes in bytes without FCS
    #[arg(long, short, default_value = "64")]
    pub size: Sizes,
    /// Time from probe to probe [default: the next leaves when the last is answered]
    #[arg(long, value_name = "TIME")]
    pub interval: Option<Timespan>,
    /// A probe unanswered for this long is lost
    #[arg(long, default_value = "1s", value_name = "TIME")]
    pub timeout: Timespan,
    /// Probes to send
    #[arg(long, short)]
    pub count: Option<u64>,
    /// How long to send probes
    #[arg(long, short, value_name = "TIME")]
    pub duration: Option<Timespan>,
    /// Never block while waiting for an answer
    #[arg(long)]
    pub busy: bool,
    /// Headers of the probes.
    #[command(flatten)]
    pub headers: FlowArgs,
    /// How to report.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl PingArgs {
    /// Returns the job of these arguments.
    ///
    /// # Errors
    /// When the interface does not exist.
    pub fn job(&self) -> Result<PingJob, CliError> {
        Ok(PingJob {
            sizes: self.size.clone(),
            flow: self.headers.spec(&self.endpoint, 1)?,
            interval: self.interval,
            timeout: self.timeout,
            count: self.count,
            duration: self.duration,
            busy: self.busy,
        })
    }
}

/// Arguments of `nfluid gen reflect`.
#[derive(Clone, Debug, Args)]
pub struct ReflectArgs {
    /// Where to reflect.
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// End after this long
    #[arg(long, short, value_name = "TIME")]
    pub duration: Option<Timespan>,
    /// End after this many probes
    #[arg(long, short)]
    pub count: Option<u64>,
    /// Never block while waiting for a probe
    #[arg(long)]
    pub busy: bool,
    /// How to report.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ReflectArgs {
    /// Returns the job of these arguments.
    pub fn job(&self) -> ReflectJob {
        ReflectJob {
            duration: self.duration,
            count: self.count,
            busy: self.busy,
        }
    }
}

/// Arguments of `nfluid gen replay`.
#[derive(Clone, Debug, Args)]
pub struct ReplayArgs {
    /// Where to send.
    #[command(flatten)]
    pub endpoint: EndpointArgs,
    /// pcap or pcapng file
    pub file: PathBuf,
    /// Times as fast as recorded
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub speed: f64,
    /// Rate instead of the recorded timing: 10kpps, 2Gbps, max
    #[arg(long, short, conflicts_with = "speed")]
    pub rate: Option<Rate>,
    /// How many times; 0 until interrupted
    #[arg(long, short, default_value_t = 1)]
    pub loops: u64,
    /// Treatment of frames that the capture had cut
    #[arg(long, value_enum, default_value_t)]
    pub snapped: Snapped,
    /// Treatment of a record that cannot be read
    #[arg(long, value_enum, default_value_t)]
    pub on_damage: OnDamage,
    /// Source MAC address put before bare IP packets
    #[arg(long, value_name = "MAC")]
    pub src_mac: Option<MacAddr>,
    /// Destination MAC address put before bare IP packets
    #[arg(long, value_name = "MAC")]
    pub dst_mac: Option<MacAddr>,
    /// Frames to send
    #[arg(long, short)]
    pub count: Option<u64>,
    /// How long to send
    #[arg(long, short, value_name = "TIME")]
    pub duration: Option<Timespan>,
    /// How to report.
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ReplayArgs {
    /// Returns the job of these arguments.
    pub fn job(&self) -> ReplayJob {
        let (src, dst) = ReplayJob::default().macs;
        ReplayJob {
            timing: self.rate.map_or(Timing::Recorded(self.speed), Timing::Rate),
            loops: self.loops,
            snapped: self.snapped,
            on_damage: self.on_damage,
            macs: (self.src_mac.unwrap_or(src), self.dst_mac.unwrap_or(dst)),
            count: self.count,
            duration: self.duration,
        }
    }
}
