//! Commands of an operator: `sessions`, `top-talkers`, `flush`.

use super::clock::Tenths;
use super::endpoint::{Endpoint, Protocol};
use super::state::{Host, Mapping, Session, State};
use crate::function::CommandError;
use crate::table::NONE;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::net::Ipv4Addr;
use serde_json::{Value, json};

const COMMANDS: &[&str] = &["flush", "sessions", "top-talkers"];
/// Entries of an answer unless `limit=` says otherwise, and at most.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 10_000;

/// Runs a command.
pub(super) fn run(
    state: &mut State,
    now: Tenths,
    name: &str,
    args: &[String],
) -> Result<Value, CommandError> {
    match name {
        "sessions" => sessions(state, now, &Arguments::parse(args)?),
        "top-talkers" => top_talkers(state, &Arguments::parse(args)?),
        "flush" => flush(state, now, &Arguments::parse(args)?),
        _ => Err(CommandError::Unknown(COMMANDS)),
    }
}

/// `key=value` arguments.
struct Arguments<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Arguments<'a> {
    fn parse(args: &'a [String]) -> Result<Arguments<'a>, CommandError> {
        let mut pairs = BTreeMap::new();
        for arg in args {
            let (key, value) = arg
                .split_once('=')
                .ok_or_else(|| bad(format!("'{arg}': write key=value, for example limit=10")))?;
            if pairs.insert(key, value).is_some() {
                return Err(bad(format!("{key} is given twice")));
            }
        }
        Ok(Arguments(pairs))
    }

    /// Refuses keys that the command does not know.
    fn only(&self, known: &[&str]) -> Result<(), CommandError> {
        match self.0.keys().find(|key| !known.contains(key)) {
            Some(key) => Err(bad(format!(
                "unknown argument '{key}'; there are: {}",
                known.join(", ")
            ))),
            None => Ok(()),
        }
    }

    fn limit(&self) -> Result<usize, CommandError> {
        let Some(text) = self.0.get("limit") else {
            return Ok(LIMIT_DEFAULT);
        };
        let limit = text
            .parse()
            .ok()
            .filter(|limit| (1..=LIMIT_MAX).contains(limit));
        limit.ok_or_else(|| {
            bad(format!(
                "limit={text}: write a number from 1 to {LIMIT_MAX}"
            ))
        })
    }

    fn address(&self, key: &str) -> Result<Option<u32>, CommandError> {
        let Some(text) = self.0.get(key) else {
            return Ok(None);
        };
        let address: Result<Ipv4Addr, _> = text.parse();
        let address = address.map_err(|_| bad(format!("{key}={text}: write an IPv4 address")))?;
        Ok(Some(address.to_bits()))
    }

    fn protocol(&self) -> Result<Option<Protocol>, CommandError> {
        let Some(text) = self.0.get("protocol") else {
            return Ok(None);
        };
        let protocol = Protocol::ALL
            .into_iter()
            .find(|protocol| protocol.name() == *text);
        let protocol =
            protocol.ok_or_else(|| bad(format!("protocol={text}: write tcp, udp or icmp")))?;
        Ok(Some(protocol))
    }
}

fn bad(message: String) -> CommandError {
    CommandError::BadArgument(message)
}

/// Which mappings a command is about.
struct Filter {
    inside: Option<u32>,
    outside: Option<u32>,
    protocol: Option<Protocol>,
}

impl Filter {
    fn parse(arguments: &Arguments<'_>) -> Result<Filter, CommandError> {
        Ok(Filter {
            inside: arguments.address("host")?,
            outside: arguments.address("external")?,
            protocol: arguments.protocol()?,
        })
    }

    fn matches(&self, mapping: &Mapping) -> bool {
        self.inside
            .is_none_or(|address| address == mapping.inside.address)
            && self
                .outside
                .is_none_or(|address| address == mapping.outside.address)
            && self
                .protocol
                .is_none_or(|protocol| protocol == mapping.protocol)
    }
}

/// Mappings with their newest sessions: at most `limit` lines, a line being a session, or a mapping
/// that has none.
fn sessions(state: &State, now: Tenths, arguments: &Arguments<'_>) -> Result<Value, CommandError> {
    arguments.only(&["external", "host", "limit", "protocol"])?;
    let filter = Filter::parse(arguments)?;
    let limit = arguments.limit()?;
    let mut lines: Vec<Value> = Vec::new();
    let mut matched = 0;
    for (_, mapping) in state.mappings.iter().filter(|(_, m)| filter.matches(m)) {
        matched += 1;
        if mapping.newest == NONE && lines.len() < limit {
            lines.push(line(mapping, None, now));
        }
        let mut at = mapping.newest;
        while lines.len() < limit
            && let Some(session) = state.sessions.get(at)
        {
            lines.push(line(mapping, Some(session), now));
            at = session.older;
        }
    }
    Ok(json!({
        "mappings": state.mappings.len(),
        "sessions": state.sessions.len(),
        "sessions_max": state.config.sessions_max,
        "matched": matched,
        "list": lines,
    }))
}

fn line(mapping: &Mapping, session: Option<&Session>, now: Tenths) -> Value {
    let expires = match session {
        Some(session) => Some(session.expires),
        None => (!mapping.fixed).then_some(mapping.expires),
    };
    let tcp = session.filter(|_| mapping.protocol == Protocol::Tcp);
    json!({
        "protocol": mapping.protocol.name(),
        "vlan": mapping.vlan.describe(),
        "inside": mapping.inside.to_string(),
        "external": mapping.outside.to_string(),
        "peer": session.map(|session| describe_peer(session.peer)),
        "state": tcp.map(|session| session.tcp.name()),
        "forward": mapping.fixed,
        "expires_secs": expires.map(|expires| now.secs_until(expires)),
        "mapping_packets": mapping.packets,
    })
}

/// A peer that was kept without its port has port 0.
fn describe_peer(peer: Endpoint) -> String {
    match peer.port {
        0 => peer.addr().to_string(),
        _ => peer.to_string(),
    }
}

/// Lists the hosts that fill the tables.
fn top_talkers(state: &State, arguments: &Arguments<'_>) -> Result<Value, CommandError> {
    arguments.only(&["by", "limit"])?;
    let limit = arguments.limit()?;
    let mut packets: BTreeMap<u32, u64> = BTreeMap::new();
    for (_, mapping) in state.mappings.iter() {
        *packets.entry(mapping.host).or_default() += mapping.packets;
    }
    let packets_of = |index: u32, host: &Host| {
        host.packets_before + packets.get(&index).copied().unwrap_or_default()
    };
    let by: &dyn Fn(u32, &Host) -> u64 = match ranking(arguments) {
        "sessions" => &|_, host| u64::from(host.mappings.max(host.sessions)),
        "packets" => &packets_of,
        "refusals" => &|_, host| host.refusals,
        other => {
            return Err(bad(format!(
                "by={other}: write sessions, packets or refusals"
            )));
        }
    };
    let mut ranked: Vec<(u64, u32, &Host)> = state
        .hosts
        .iter()
        .map(|(index, host)| (by(index, host), index, host))
        .filter(|(rank, ..)| *rank > 0)
        .collect();
    ranked.sort_by_key(|&(rank, _, host)| (Reverse(rank), host.address));
    let list = ranked.iter().take(limit).map(|&(_, index, host)| {
        json!({
            "host": Ipv4Addr::from_bits(host.address).to_string(),
            "vlan": host.vlan.describe(),
            "mappings": host.mappings,
            "sessions": host.sessions,
            "packets": packets_of(index, host),
            "refusals": host.refusals,
        })
    });
    Ok(json!({
        "hosts": state.hosts.len(),
        "mappings": state.mappings.len(),
        "sessions": state.sessions.len(),
        "sessions_max": state.config.sessions_max,
        "list": list.collect::<Vec<_>>(),
    }))
}

fn ranking<'a>(arguments: &Arguments<'a>) -> &'a str {
    arguments.0.get("by").copied().unwrap_or("sessions")
}

/// Ends sessions and mappings, all or those of a host, an external address, a protocol. Static
/// forwards stay; their sessions go.
fn flush(state: &mut State, now: Tenths, arguments: &Arguments<'_>) -> Result<Value, CommandError> {
    arguments.only(&["external", "host", "protocol"])?;
    let filter = Filter::parse(arguments)?;
    let matching = state.mappings.iter().filter(|(_, m)| filter.matches(m));
    let mappings: Vec<(u32, bool)> = matching.map(|(index, m)| (index, m.fixed)).collect();
    let (mut sessions_closed, mut mappings_closed) = (0, 0);
    for (index, fixed) in mappings {
        while let Some(newest) = state.mappings.get(index).map(|m| m.newest)
            && newest != NONE
        {
            state.close_session(newest);
            sessions_closed += 1;
        }
        if !fixed {
            state.close_mapping(now, index);
            mappings_closed += 1;
        }
    }
    Ok(json!({ "mappings": mappings_closed, "sessions": sessions_closed }))
}
