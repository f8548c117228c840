//! Programs that experiments need in addition to the project's own, each with its Debian package.

use nfluid_testbed::program::{Need, missing};

pub const NETNS: &[Need] = &[("ip", "iproute2"), ("sysctl", "procps")];
pub const PING: &[Need] = &[("ping", "iputils-ping")];
pub const ETHTOOL: &[Need] = &[("ethtool", "ethtool")];
pub const IPERF3: &[Need] = &[("iperf3", "iperf3")];
pub const TC: &[Need] = &[("tc", "iproute2")];
pub const TASKSET: &[Need] = &[("taskset", "util-linux")];
pub const SS: &[Need] = &[("ss", "iproute2")];
pub const NFT: &[Need] = &[("nft", "nftables")];
pub const IPTABLES: &[Need] = &[("iptables-restore", "iptables")];
pub const OPENSSL: &[Need] = &[("openssl", "openssl")];
pub const PYTHON: &[Need] = &[("python3", "python3")];
pub const NDPI: &[Need] = &[("ndpiReader", "libndpi-bin")];
/// HTTP load generator and server.
pub const HTTP: &[Need] = &[("wrk", "wrk"), ("nginx", "nginx-light")];
pub const WRK: &[Need] = &[("wrk", "wrk")];
pub const HAPROXY: &[Need] = &[("haproxy", "haproxy")];
/// For compiling eBPF peers.
pub const CLANG: &[Need] = &[
    ("clang", "clang"),
    ("/usr/include/bpf/bpf_helpers.h", "libbpf-dev"),
];
/// For compiling C peers against Debian's DPDK.
pub const DPDK: &[Need] = &[
    ("dpdk-testpmd", "dpdk-dev"),
    ("/usr/include/dpdk/rte_ethdev.h", "libdpdk-dev"),
    ("pkg-config", "pkg-config"),
    ("cc", "gcc"),
];
/// For compiling C peers.
pub const COMPILER: &[Need] = &[("cc", "gcc")];
pub const OPEN_VSWITCH: &[Need] = &[
    (
        "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
        "openvswitch-switch-dpdk",
    ),
    ("ovs-vsctl", "openvswitch-switch-dpdk"),
];
/// Other programs that start something isolated.
pub const CONTAINERS: &[Need] = &[
    ("unshare", "util-linux"),
    ("bwrap", "bubblewrap"),
    ("crun", "crun"),
    ("runc", "runc"),
];

/// Servers that keep values by keys, and their clients.
pub const STORES: &[Need] = &[
    ("redis-server", "redis-server"),
    ("redis-benchmark", "redis-tools"),
    ("memcached", "memcached"),
    ("memcslap", "libmemcached-tools"),
];

/// Programs that run a container image.
pub const ENGINES: &[Need] = &[("crun", "crun"), ("runc", "runc"), ("podman", "podman")];

/// A web server.
pub const NGINX: &[Need] = &[("nginx", "nginx-light")];

/// The smallest virtual machines with a kernel's worth of devices.
pub const QEMU: &[Need] = &[("qemu-system-x86_64", "qemu-system-x86")];

/// Programs that one experiment needs.
#[derive(Clone, Copy, Default)]
pub struct Needs {
    /// The experiment does not run without these programs.
    pub required: &'static [&'static [Need]],
    /// Without these programs the experiment leaves out their peers.
    pub compared: &'static [&'static [Need]],
}

/// No program but the project's own.
pub const NOTHING: Needs = Needs {
    required: &[],
    compared: &[],
};

impl Needs {
    /// Returns the missing packages: the required ones, and those of peers.
    pub fn missing(&self) -> [Vec<&'static str>; 2] {
        [self.required, self.compared].map(|sets| missing(sets.iter().copied().flatten()))
    }
}
