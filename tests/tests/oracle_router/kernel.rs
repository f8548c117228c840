//! The Linux kernel as a router.

use super::traffic::Routes;
use super::{HOSTS, MTUS, PORTS, host_addresses, host_mac, own_addresses, port_mac};
use nfluid_tests::harness::command::{must, must_with_input};
use nfluid_tests::harness::oracle::{MARKER, Namespaces, Oracle};
use nfluid_tests::harness::patience::PATIENCE;
use std::fmt::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};

/// A kernel with these routes, the addresses and neighbours of the router under test; see [`Oracle::new`].
pub fn kernel(name: &str, routes: Option<&Routes>) -> Oracle {
    let namespaces = Namespaces::new(name);
    let Namespaces { kernel, hosts } = &namespaces;
    namespaces.set(
"net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.forwarding=1 \
             net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
             net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0 \
             net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0 \
             net.ipv6.conf.default.dad_transmits=0 net.ipv6.conf.default.router_solicitations=0 \
             net.ipv4.conf.all.accept_source_route=0 net.ipv4.conf.default.accept_source_route=0 \
             net.ipv6.auto_flowlabels=0 net.ipv4.icmp_ratelimit=0 net.ipv4.icmp_ratemask=0 net.ipv6.icmp.ratelimit=0 \
             net.ipv4.icmp_msgs_per_sec=1000000 net.ipv4.icmp_msgs_burst=1000000",
);
    kernel.ip_batch(&links(hosts.name())).expect("links");
    for port in 0..PORTS {
        must(&format!(
            "ip -n {hosts} link set h{port} arp off promisc on mtu 9000 up"
        ));
        // Otherwise the kernel leaves the checksums of its own TCP segments to the interface.
        must(&format!("ip netns exec {kernel} ethtool -K r{port} tx off"));
        must(&format!("ip -n {kernel} link set r{port} up"));
    }
    // Addresses after the links are up, routes after the addresses.
    kernel.ip_batch(&addresses()).expect("addresses");
    for (family, lines) in routes
        .map(|r| [(4, &r.v4), (6, &r.v6)])
        .into_iter()
        .flatten()
    {
        let mut batch = String::new();
        for line in lines {
            let _ = writeln!(batch, "route add {line}");
        }
        must_with_input(&format!("ip -n {kernel} -{family} -batch -"), &batch);
    }
    wait_for_link_local(kernel.name());
    Oracle::new(
        namespaces,
        PORTS,
        super::traffic::marker(MARKER),
        is_background,
    )
}

/// Multicast listener reports, which a kernel sends by itself, and IPv6 redirects, which it has no switch for.
fn is_background(frame: &[u8]) -> bool {
    let is_ipv6 = frame.len() > 62 && frame[12..14] == [0x86, 0xdd];
    let report = frame.len() > 62 && frame[20] == 0 && frame[62] == 143;
    let redirect = frame.len() > 62 && frame[20] == 58 && frame[54] == 137;
    is_ipv6 && (report || redirect)
}

/// Until every port has a link-local address that may be used.
fn wait_for_link_local(namespace: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = Command::new("ip")
            .args(["-n", namespace, "-6", "-o", "addr", "show", "scope", "link"])
            .output()
            .expect("ip starts");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        let ready = listed.lines().filter(|line| !line.contains("tentative"));
        if ready.count() == usize::from(PORTS) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "no link-local addresses: {listed}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn links(hosts: &str) -> String {
    let mut batch = String::new();
    for port in 0..PORTS {
        let mac = port_mac(port);
        let mtu = MTUS[usize::from(port)];
        let _ = writeln!(
            batch,
            "link add r{port} address {mac} mtu {mtu} type veth peer name h{port} netns {hosts}"
        );
    }
    batch
}

fn addresses() -> String {
    let mut batch = String::new();
    for port in 0..PORTS {
        for address in own_addresses(port) {
            let _ = writeln!(batch, "addr add {address} dev r{port}");
        }
        for host in 0..HOSTS {
            for address in host_addresses(port, host) {
                let mac = host_mac(port, host);
                let _ = writeln!(
                    batch,
                    "neigh add {address} lladdr {mac} dev r{port} nud permanent"
                );
            }
        }
    }
    batch
}
