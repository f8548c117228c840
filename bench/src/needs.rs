//! Programs that experiments need beside the project's own, each with its Debian package.

use nfluid_testbed::program::{Need, missing};

pub const NETNS: &[Need] = &[("ip", "iproute2"), ("sysctl", "procps")];
pub const PING: &[Need] = &[("ping", "iputils-ping")];
pub const ETHTOOL: &[Need] = &[("ethtool", "ethtool")];
pub const IPERF3: &[Need] = &[("iperf3", "iperf3")];
pub const TASKSET: &[Need] = &[("taskset", "util-linux")];
pub const SS: &[Need] = &[("ss", "iproute2")];
pub const NFT: &[Need] = &[("nft", "nftables")];
pub const IPTABLES: &[Need] = &[("iptables-restore", "iptables")];
pub const OPENSSL: &[Need] = &[("openssl", "openssl")];
pub const PYTHON: &[Need] = &[("python3", "python3")];
pub const NDPI: &[Need] = &[("ndpiReader", "libndpi-bin")];
/// Load over HTTP, and who serves it.
pub const HTTP: &[Need] = &[("wrk", "wrk"), ("nginx", "nginx-light")];
pub const WRK: &[Need] = &[("wrk", "wrk")];
pub const HAPROXY: &[Need] = &[("haproxy", "haproxy")];
/// Peers in eBPF are compiled here.
pub const CLANG: &[Need] = &[
    ("clang", "clang"),
    ("/usr/include/bpf/bpf_helpers.h", "libbpf-dev"),
];
/// Peers in C are compiled here, against Debian's DPDK.
pub const DPDK: &[Need] = &[
    ("dpdk-testpmd", "dpdk-dev"),
    ("/usr/include/dpdk/rte_config.h", "libdpdk-dev"),
    ("pkg-config", "pkg-config"),
    ("cc", "gcc"),
];
pub const OPEN_VSWITCH: &[Need] = &[
    (
        "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
        "openvswitch-switch-dpdk",
    ),
    ("ovs-vsctl", "openvswitch-switch-dpdk"),
];
/// Others that start something isolated.
pub const CONTAINERS: &[Need] = &[
    ("unshare", "util-linux"),
    ("bwrap", "bubblewrap"),
    ("crun", "crun"),
    ("runc", "runc"),
];

/// Programs that one experiment needs.
#[derive(Clone, Copy, Default)]
pub struct Needs {
    /// Without these programs the experiment does not run.
    pub required: &'static [&'static [Need]],
    /// Without these programs the experiment leaves out the peers that they belong to.
    pub compared: &'static [&'static [Need]],
}

/// Nothing but the project's own programs.
pub const NOTHING: Needs = Needs {
    required: &[],
    compared: &[],
};

impl Needs {
    /// Missing packages: the required ones, and those of peers.
    pub fn missing(&self) -> [Vec<&'static str>; 2] {
        [self.required, self.compared].map(|sets| missing(sets.iter().copied().flatten()))
    }
}
