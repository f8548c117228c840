//! What is left of a host is what the check of a document leaves.

mod support;

use nfluid_control::capacity::{Amount, capacity};
use support::{TestHost, check, deployment};

fn of(text: &str) -> nfluid_control::capacity::Capacity {
    capacity(&deployment(text), &TestHost)
}

// promise: 6.13
#[test]
fn promises_are_counted_once_and_with_all_members() {
    let empty = of("version: 1\n");
    assert_eq!(empty.cpus, [0, 1]);
    assert_eq!((empty.share.total, empty.share.used), (2000, 0));
    assert_eq!(
        empty.memory,
        Amount {
            total: 4 << 30,
            used: 0
        }
    );
    let full = of("version: 1
uplinks:
  lan: { interface: eth1 }
pool:
  small: { flavor: small, ports: 1, size: 3 }
groups:
  acme: { share: 25% }
instances:
  fw: { nf: firewall, share: 20%, memory: 32MiB, replicas: 2 }
  sure: { nf: bridge, share: 5%, guarantee: 10% }
  inside: { nf: bridge, group: acme, share: 80% }
  free: { nf: bridge }
");
    // Members of a group share what the group has.
    assert_eq!(full.share.used, 2 * 200 + 100 + 250);
    let ports = 1 + 3 + 2 * 2 + 3 * 2;
    assert_eq!(full.ports.used, ports);
    assert_eq!(full.instances.used, 3 + 2 + 3);
    assert!(full.memory.used >= (2 * 32 + 3 * 64) << 20, "{full:?}");
}

// promise: 6.13
#[test]
fn what_is_left_can_be_had_and_no_more() {
    let with = |share: u64| {
        let percent = share as f64 / 10.0;
        format!(
            "version: 1
groups:
  acme: {{ share: 30% }}
instances:
  a: {{ nf: bridge, share: 45.5% }}
  b: {{ nf: firewall, guarantee: 10%, replicas: 3 }}
  c: {{ nf: bridge, share: {percent}% }}
"
        )
    };
    let before = of(&with(1)).share;
    let left = before.total - before.used + 1;
    assert!(check(&with(left)).is_ok(), "{left} of {before:?}");
    assert!(check(&with(left + 1)).is_err(), "{left} of {before:?}");
}
