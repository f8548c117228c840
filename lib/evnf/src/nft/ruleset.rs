//! Reading `nft -j list ruleset`.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::Command;

/// The reason why a rule set could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// `nft` could not be run.
    #[error("running nft: {0} (is nftables installed?)")]
    Run(std::io::Error),
    /// `nft` has refused.
    #[error("nft -j list ruleset: {0}")]
    Nft(String),
    /// The output of nft is no rule set.
    #[error("this is no output of 'nft -j list ruleset': {0}")]
    Form(String),
}

/// Family and name of a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Table {
    /// `ip`, `ip6`, `inet`, `netdev`, ...
    pub family: String,
    /// The name of the table.
    pub name: String,
}

/// A chain that packets come to by a hook of the kernel.
#[derive(Clone, Debug)]
pub struct Base {
    /// `ingress`, `prerouting`, `forward`, `input`, ...
    pub hook: String,
    /// Lower ones come first.
    pub priority: i64,
    /// `filter`, `nat`, `route`.
    pub kind: String,
    /// True if packets that no rule matches are dropped.
    pub drops: bool,
    /// Interfaces of an ingress or egress chain. Empty if nft does not print them, as version 1.0.6.
    pub devices: Vec<String>,
}

/// A chain of rules.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The hook by which packets enter; `None`: only from other chains.
    pub base: Option<Base>,
    /// Number of each rule, and its statements.
    pub rules: Vec<(u64, Vec<Value>)>,
}

/// A rule set.
#[derive(Clone, Debug, Default)]
pub struct Ruleset {
    /// Chains by table and name.
    pub chains: BTreeMap<(Table, String), Chain>,
    /// Sets by table and name, as they are printed.
    pub sets: BTreeMap<(Table, String), Value>,
    /// Sets that rules use other than for look-ups, by table and name: packets may fill those sets, whatever
    /// their flags say.
    pub filled: BTreeSet<(Table, String)>,
    /// Tables with flags, as they are printed.
    pub flags: BTreeMap<Table, String>,
    /// True if a table has flow tables: then packets may pass without meeting its rules.
    pub has_flow_tables: bool,
    /// True if the older iptables, which nft does not show, have tables.
    pub has_legacy_tables: bool,
    /// True if the older iptables translate addresses.
    pub has_legacy_nat: bool,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.family, self.name)
    }
}

impl Ruleset {
    /// The rule set in force in the calling thread's network namespace.
    ///
    /// # Errors
    /// `nft` is missing or refuses.
    pub fn in_force() -> Result<Self, Error> {
        let output = Command::new("nft")
            .args(["-j", "-n", "list", "ruleset"])
            .output()
            .map_err(Error::Run)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::Nft(said));
        }
        let mut ruleset = Self::read(&output.stdout)?;
        let tables = legacy_tables();
        ruleset.has_legacy_tables = !tables.is_empty();
        ruleset.has_legacy_nat = tables.iter().any(|name| name == "nat");
        Ok(ruleset)
    }

    /// Reads what `nft -j list ruleset` has printed.
    ///
    /// # Errors
    /// The text is something else.
    pub fn read(json: &[u8]) -> Result<Self, Error> {
        let document: Value =
            serde_json::from_slice(json).map_err(|error| Error::Form(error.to_string()))?;
        let objects = document["nftables"].as_array();
        let objects = objects.ok_or_else(|| Error::Form("it has no list \"nftables\"".into()))?;
        let mut ruleset = Ruleset::default();
        for object in objects {
            let Some((kind, object)) = object.as_object().and_then(|object| object.iter().next())
            else {
                continue;
            };
            ruleset.add(kind, object)?;
        }
        Ok(ruleset)
    }

    /// Returns true if a table is disabled. `None`: the table has flags, and nft does not print which: version
    /// 1.0.6 prints the table's name in their place.
    pub fn is_dormant(&self, table: &Table) -> Option<bool> {
        match self.flags.get(table) {
            None => Some(false),
            Some(flags) if flags.contains("dormant") => Some(true),
            Some(flags) if flags.contains("owner") || flags.contains("persist") => Some(false),
            Some(_) => None,
        }
    }

    fn add(&mut self, kind: &str, object: &Value) -> Result<(), Error> {
        match kind {
            "table" if !object["flags"].is_null() => {
                let (family, name) = (text(object, "family")?, text(object, "name")?);
                let flags = object["flags"].to_string();
                self.flags.insert(Table { family, name }, flags);
            }
            "chain" => {
                let key = (table_of(object)?, text(object, "name")?);
                self.chains.entry(key).or_default().base = base_of(object)?;
            }
            "rule" => {
                let key = (table_of(object)?, text(object, "chain")?);
                let handle = object["handle"].as_u64().unwrap_or(0);
                let statements = object["expr"].as_array().cloned();
                let statements =
                    statements.ok_or_else(|| Error::Form(format!("rule {handle} has no expr")))?;
                let looks_up = |statement: &&Value| statement.get("match").is_some();
                for statement in statements.iter().filter(|one| !looks_up(one)) {
                    self.fill(&key.0, statement);
                }
                let chain = self.chains.entry(key).or_default();
                chain.rules.push((handle, statements));
            }
            "set" => {
                let key = (table_of(object)?, text(object, "name")?);
                self.sets.insert(key, object.clone());
            }
            "flowtable" => self.has_flow_tables = true,
            // Other tables, counters, limits, maps, helpers: rules that use them name them.
            _ => {}
        }
        Ok(())
    }

    /// Notes the sets that a statement names, also those in what nft prints as text.
    fn fill(&mut self, table: &Table, statement: &Value) {
        match statement {
            Value::String(text) => {
                let names = text
                    .split_whitespace()
                    .filter_map(|word| word.strip_prefix('@'));
                let keys = names.map(|name| (table.clone(), name.to_owned()));
                self.filled.extend(keys);
            }
            Value::Array(parts) => parts.iter().for_each(|part| self.fill(table, part)),
            Value::Object(parts) => parts.values().for_each(|part| self.fill(table, part)),
            _ => {}
        }
    }
}

/// Returns the tables of the older iptables in the calling thread's network namespace, IPv4's first. A new table is
/// not announced.
pub fn legacy_tables() -> Vec<String> {
    let files = ["ip_tables_names", "ip6_tables_names"];
    let files = files.map(|name| format!("/proc/thread-self/net/{name}"));
    let texts = files.map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.map(str::to_owned).collect()
}

fn base_of(chain: &Value) -> Result<Option<Base>, Error> {
    if chain["hook"].is_null() {
        return Ok(None);
    }
    let devices = match &chain["dev"] {
        Value::Array(devices) => devices.iter().filter_map(Value::as_str).collect(),
        Value::String(device) => vec![device.as_str()],
        _ => Vec::new(),
    };
    let name = text(chain, "name")?;
    let priority = chain["prio"].as_i64();
    Ok(Some(Base {
        hook: text(chain, "hook")?,
        priority: priority.ok_or_else(|| Error::Form(format!("chain {name} has no prio")))?,
        kind: text(chain, "type")?,
        drops: chain["policy"].as_str() == Some("drop"),
        devices: devices.into_iter().map(str::to_owned).collect(),
    }))
}

fn table_of(object: &Value) -> Result<Table, Error> {
    Ok(Table {
        family: text(object, "family")?,
        name: text(object, "table")?,
    })
}

fn text(object: &Value, key: &str) -> Result<String, Error> {
    let found = object[key].as_str().map(str::to_owned);
    found.ok_or_else(|| Error::Form(format!("an object has no \"{key}\"")))
}
