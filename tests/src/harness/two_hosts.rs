//! Fixture of most platform tests: two hosts in one subnet, and chains between them.

use super::platform::Platform;

/// Address of the host `client`.
pub const CLIENT: &str = "10.0.0.1";
/// Address of the host `server`.
pub const SERVER: &str = "10.0.0.2";

/// The beginning of a deployment: an uplink to each host.
pub const UPLINKS: &str = "
version: 1
uplinks:
  lan: { interface: client, netns: EDGE }
  wan: { interface: server, netns: EDGE }
";

/// A chain of two bridges.
pub const BRIDGES: &str = "
version: 1
uplinks:
  lan: { interface: client, netns: EDGE }
  wan: { interface: server, netns: EDGE }
instances:
  a: { nf: bridge }
  b: { nf: bridge }
chains:
  web: { from: lan, to: wan, via: [a, b] }
";

/// A chain of one bridge, `a`, with these keys.
pub fn one_bridge(keys: &str) -> String {
    format!(
        "{UPLINKS}instances:
  a: {{ nf: bridge, {keys} }}
chains:
  web: {{ from: lan, to: wan, via: [a] }}
"
    )
}

/// A chain of a bridge and a firewall that lets pings pass.
pub const BRIDGE_AND_FIREWALL: &str = "
version: 1
uplinks:
  lan: { interface: client, netns: EDGE }
  wan: { interface: server, netns: EDGE }
instances:
  br: { nf: bridge }
  fw:
    nf: firewall
    config: { rules: 'allow icmp from any to any' }
chains:
  web: { from: lan, to: wan, via: [br, fw] }
";

/// Makes a platform between the hosts `client` and `server`, with nothing applied; reports the reason and returns
/// `None` where the test cannot run.
///
/// # Panics
/// If the platform cannot be made.
pub fn two_hosts(test: &str) -> Option<Platform> {
    let mut platform = Platform::new(test)?;
    platform.host("client", &format!("{CLIENT}/24"));
    platform.host("server", &format!("{SERVER}/24"));
    Some(platform)
}
