//! The path through nfluid: the demo's deployment, with other uplinks.

use super::{Ends, Network, Offloads};
use crate::host::platform;
use anyhow::{Context, ensure};
use nfluid_sandbox::cgroup::CgroupRoot;
use nfluid_testbed::command::output;
use nfluid_testbed::interrupt;
use nfluid_testbed::namespace::Namespace;
use nfluid_testbed::platform::Platform;
use serde_json::Value;
use std::time::{Duration, Instant};

/// The deployment of `make demo`.
const DEPLOYMENT: &str = include_str!("../../../../../examples/demo/deployment.yaml");
/// Names of the demo's uplinks; the demo's interfaces have these names after `nfl-`.
const NAMES: [&str; 2] = ["lan", "wan"];
/// The level of an uplink that takes super-frames.
const SUPER: &str = "super";
const PLAIN: &str = "plain";
/// Longest wait for the uplinks' level after a change of the deployment.
const LEVEL_PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(20);

/// The kind of the uplinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplinks {
    /// Veths between the ends and a further namespace.
    Veth,
    /// Taps in the namespaces of the ends.
    Tap,
}

/// The path; the daemon ends before its interfaces do.
pub struct NfluidPath {
    platform: Platform,
    network: Network,
    /// The ends' interface.
    interface: &'static str,
    /// The keys of each uplink that are not the demo's.
    keys: [String; 2],
    offloads: Offloads,
    _outside: Option<Namespace>,
}

impl NfluidPath {
    /// Starts a platform and applies the demo's deployment with its default settings.
    pub fn new(ends: &Ends, uplinks: Uplinks) -> anyhow::Result<Self> {
        let (network, interface) = match uplinks {
            Uplinks::Veth => (Network::VETH, "eth0"),
            Uplinks::Tap => (Network::TAP, "tap0"),
        };
        let outside = match uplinks {
            Uplinks::Veth => Some(Namespace::new()?),
            Uplinks::Tap => None,
        };
        let keys = match &outside {
            Some(outside) => {
                for (end, name) in ends.both().into_iter().zip(NAMES) {
                    Namespace::join((end, interface), (outside, name))?;
                }
                NAMES.map(|name| format!("interface: {name}, netns: {}", outside.name()))
            }
            None => ends.both().map(|end| {
                let netns = end.name();
                format!("interface: {interface}, netns: {netns}, kind: tap")
            }),
        };
        let path = NfluidPath {
            platform: platform::start_with(&format!("-{interface}"), &[])?,
            network,
            interface,
            keys,
            offloads: Offloads::AsTheyCome,
            _outside: outside,
        };
        path.apply()?;
        ends.enter(network, interface)?;
        Ok(path)
    }

    /// Returns the server's address.
    pub fn server(&self) -> String {
        self.network.server()
    }

    /// Changes the offloads, and waits for the level that the uplinks then have. By default the platform decides about the
    /// features of a veth and its other end, so only those that the platform leaves alone are set at the ends.
    pub fn set(&mut self, ends: &Ends, offloads: Offloads) -> anyhow::Result<()> {
        let (words, level) = match offloads {
            Offloads::AsTheyCome => ("gso on", SUPER),
            Offloads::Off => ("tso off gso off gro off", PLAIN),
        };
        if self.offloads != offloads {
            self.offloads = offloads;
            self.apply()?;
        }
        self.await_level(level)?;
        for end in ends.both() {
            end.run(&format!("ethtool -K {} {words}", self.interface))?;
        }
        Ok(())
    }

    fn apply(&self) -> anyhow::Result<()> {
        let deployment = deployment(self.network, &self.keys, self.offloads);
        self.platform.apply(&deployment)
    }

    /// Waits until both uplinks let in these frames, for a limited time.
    fn await_level(&self, level: &str) -> anyhow::Result<()> {
        let start = Instant::now();
        while self.levels()?.iter().any(|(found, _)| found != level)
            && start.elapsed() < LEVEL_PATIENCE
        {
            interrupt::check()?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Returns what the uplinks let in: "plain", "checksums" or "super"; of both if they differ.
    pub fn level(&self) -> anyhow::Result<String> {
        let [lan, wan] = self.levels()?.map(|(frames, _)| frames);
        Ok(if lan == wan {
            lan
        } else {
            format!("{lan} and {wan}")
        })
    }

    /// Makes sure that both uplinks let in super-frames.
    ///
    /// # Errors
    /// The level of an uplink that does not, with the platform's reason.
    pub fn require_super(&self) -> anyhow::Result<()> {
        for (name, (frames, why)) in NAMES.iter().zip(self.levels()?) {
            ensure!(
                frames == SUPER,
                "uplink '{name}' lets in frames that are '{frames}', not '{SUPER}': {why}"
            );
        }
        Ok(())
    }

    /// Returns the level of each uplink, and the reason why the level is not a higher one.
    fn levels(&self) -> anyhow::Result<[(String, String); 2]> {
        let uplinks = output(
            self.platform
                .nfluid()
                .args(["get", "uplinks", "-o", "json"]),
        )?;
        levels(&serde_json::from_str(&uplinks).context("what nfluid says of uplinks")?)
    }

    /// Returns the CPU time of all processes of the platform in seconds.
    pub fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let stats = CgroupRoot::new(self.platform.name())?.stats()?;
        let used = stats
            .cpu_usage_ns
            .context("this host counts no CPU time of cgroups")?;
        Ok(used as f64 / 1e9)
    }
}

/// Reads `frames` and `frames_reason` of the demo's uplinks from the output of `nfluid get uplinks`.
fn levels(uplinks: &Value) -> anyhow::Result<[(String, String); 2]> {
    let all = uplinks.as_array().into_iter().flatten();
    let text = |uplink: &Value, key: &str| uplink[key].as_str().unwrap_or_default().to_owned();
    let level = |name: &str| {
        let uplink = all.clone().find(|uplink| uplink["name"] == name);
        let uplink = uplink.with_context(|| format!("there is no uplink '{name}'"))?;
        anyhow::Ok((text(uplink, "frames"), text(uplink, "frames_reason")))
    };
    Ok([level(NAMES[0])?, level(NAMES[1])?])
}

/// Returns the demo's deployment with other addresses and uplinks.
fn deployment(network: Network, keys: &[String; 2], offloads: Offloads) -> String {
    let off = match offloads {
        Offloads::AsTheyCome => "",
        Offloads::Off => ", super: off",
    };
    let addresses = [
        (Network::VETH.inner(), network.inner()),
        (Network::VETH.outer(), network.outer()),
        (Network::VETH.public(), network.public()),
    ];
    let uplinks = NAMES
        .iter()
        .zip(keys)
        .map(|(name, keys)| (format!("interface: nfl-{name}"), format!("{keys}{off}")));
    addresses
        .into_iter()
        .chain(uplinks)
        .fold(DEPLOYMENT.to_owned(), |text, (from, to)| {
            text.replace(&from, &to)
        })
}

#[cfg(test)]
pub mod tests {
    use super::{DEPLOYMENT, deployment, levels};
    use crate::experiments::data_plane::tcp_paths::{Network, Offloads};
    use serde_json::json;

    fn keys() -> [String; 2] {
        ["lan", "wan"].map(|name| format!("interface: {name}, netns: there"))
    }

    #[test]
    fn the_demos_interfaces_are_replaced() {
        let text = deployment(Network::VETH, &keys(), Offloads::AsTheyCome);
        assert!(DEPLOYMENT.contains("interface: nfl-lan"));
        assert!(!text.contains("nfl-lan") && !text.contains("nfl-wan"));
        assert_eq!(text.matches("netns: there").count(), 2);
        assert!(!text.contains("super"), "the demo has default settings");
        let off = deployment(Network::VETH, &keys(), Offloads::Off);
        assert_eq!(off.matches(", super: off, ring: 1024").count(), 2);
    }

    #[test]
    fn a_further_path_has_addresses_of_its_own() {
        let text = deployment(Network::TAP, &keys(), Offloads::AsTheyCome);
        for (before, now) in [
            ("10.0.0.", "10.0.2."),
            ("198.51.100.", "198.51.102."),
            ("203.0.113.1", "203.0.113.3"),
        ] {
            let expected = DEPLOYMENT.matches(before).count();
            assert!(expected > 0 && !text.contains(before), "{before}");
            assert_eq!(text.matches(now).count(), expected, "{now}");
        }
    }

    #[test]
    fn levels_are_those_of_the_demos_uplinks() {
        let uplinks = json!([
            { "name": "wan", "frames": "super" },
            { "name": "lan", "frames": "plain", "frames_reason": "why" },
        ]);
        let found = levels(&uplinks).expect("two uplinks");
        let text = |frames: &str, why: &str| (frames.to_owned(), why.to_owned());
        assert_eq!(found, [text("plain", "why"), text("super", "")]);
        let error = levels(&json!([{ "name": "lan" }])).expect_err("one is missing");
        assert_eq!(error.to_string(), "there is no uplink 'wan'");
    }

    /// The number of rules of the demo's firewall.
    pub fn rules() -> usize {
        let own = |line: &&str| line.contains(" from any") || line.contains(" from 10.");
        DEPLOYMENT.lines().filter(own).count()
    }
}
