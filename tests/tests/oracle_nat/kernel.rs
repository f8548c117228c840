//! The Linux kernel as a NAT.

use super::{EXTERNAL, HOSTS, INSIDE_MACS, OUTSIDE_MACS, SERVER, UPSTREAM};
use nfluid_tests::harness::oracle::{Namespaces, Oracle, marker};

/// A kernel with the addresses, neighbours and translation of the NAT under test; see [`Oracle::new`].
pub fn kernel() -> Oracle {
    let namespaces = Namespaces::new("nat");
    let kernel = &namespaces.kernel;
    namespaces.set(
        "net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 net.ipv4.ip_forward=1 \
         net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0 \
         net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.default.send_redirects=0",
    );
    for (port, (own, _)) in [INSIDE_MACS, OUTSIDE_MACS].into_iter().enumerate() {
        namespaces.join(port, own);
    }
    kernel.ip_batch(&addresses()).expect("addresses");
    kernel.run_with_input("nft -f -", &rules()).expect("rules");
    Oracle::new(namespaces, 2, marker(INSIDE_MACS.0, INSIDE_MACS.1), |_| {
        false
    })
}

fn addresses() -> String {
    let mut batch = format!(
        "addr add 10.0.0.1/24 dev n0\naddr add {EXTERNAL}/24 dev n1\n\
         neigh add {UPSTREAM} lladdr {} dev n1 nud permanent\nroute add default via {UPSTREAM}\n",
        OUTSIDE_MACS.1
    );
    for host in HOSTS {
        batch += &format!(
            "neigh add {host} lladdr {} dev n0 nud permanent\n",
            INSIDE_MACS.1
        );
    }
    batch
}

/// Returns the translation of the configuration of the NAT under test. Packets to an address without a mapping would go
/// to the kernel itself, which would answer.
fn rules() -> String {
    format!(
        "table ip nat {{
            chain pre {{
                type nat hook prerouting priority dstnat;
                ip daddr {EXTERNAL} tcp dport 80 dnat to {SERVER}:8080;
            }}
            chain post {{
                type nat hook postrouting priority srcnat;
                ip saddr 10.0.0.0/24 snat to {EXTERNAL};
            }}
            chain in {{ type filter hook input priority filter; policy drop; }}
        }}"
    )
}
