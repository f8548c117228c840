//! The text form of rules, close to that of FreeBSD's ipfw(8). The README has the grammar.

use super::items::{self, Result, expected};
use super::rule::{
    ACK, Answer, Family, FlagsMatch, FragmentMatch, KeepState, Negatable, OneOf, Prefix, Rule,
    RuleAction, SYN,
};
use super::validate;
use crate::function::ConfigError;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Most rules of one firewall.
pub const RULES_MAX: usize = 100_000;
/// Highest rule number.
pub const NUMBER_MAX: u32 = 1_000_000_000;
/// Distance to the rule before of a rule without a number, as in ipfw.
const NUMBER_STEP: u32 = 100;

/// Names that a rule may refer to, and the numbering so far.
#[derive(Debug)]
pub struct Context<'a> {
    port_names: &'a [String],
    last_number: u32,
    rules: usize,
}

impl<'a> Context<'a> {
    /// For the first rule of a list; `port_names` are those of the instance, by index.
    pub fn new(port_names: &'a [String]) -> Self {
        Context {
            port_names,
            last_number: 0,
            rules: 0,
        }
    }

    /// Gives the next rule its number, `wanted` or the next in steps of 100.
    pub fn number(&mut self, wanted: Option<u32>) -> Result<u32> {
        if self.rules == RULES_MAX {
            return Err(format!("a firewall has at most {RULES_MAX} rules"));
        }
        let number = wanted.unwrap_or(self.last_number.saturating_add(NUMBER_STEP));
        if number < self.last_number {
            return Err(format!(
                "rule number {number} after {}: rules apply in the order of the list, so numbers must not fall",
                self.last_number
            ));
        }
        if number > NUMBER_MAX {
            return Err(format!("rule numbers end at {NUMBER_MAX}"));
        }
        self.last_number = number;
        self.rules += 1;
        Ok(number)
    }

    /// Index of the port with this name or number.
    pub fn port(&self, word: &str) -> Result<u8> {
        let by_name = self.port_names.iter().position(|name| name == word);
        match (by_name, word) {
            (Some(index), _) => Ok(index as u8),
            (None, "0") => Ok(0),
            (None, "1") => Ok(1),
            _ => Err(expected(
                format_args!("a port ({})", self.port_names.join(" or ")),
                word,
            )),
        }
    }
}

/// Reads a rule list, one rule per line; empty lines and comments (`#`, `//`) are skipped.
///
/// # Errors
/// The first line that is wrong, with its number, at `path`.
pub fn rules(
    text: &str,
    path: &str,
    context: &mut Context<'_>,
) -> core::result::Result<Vec<Rule>, ConfigError> {
    let mut rules = Vec::new();
    for (index, line) in text.lines().enumerate() {
        match rule(line, context) {
            Ok(Some(rule)) => rules.push(rule),
            Ok(None) => {}
            Err(message) => {
                let line = u32::try_from(index + 1).unwrap_or(u32::MAX);
                return Err(ConfigError::at(path, message).on_line(line));
            }
        }
    }
    Ok(rules)
}

/// Reads one line; `None` if it holds no rule.
///
/// # Errors
/// The error says what was expected and what stands there.
pub fn rule(line: &str, context: &mut Context<'_>) -> Result<Option<Rule>> {
    let words: Vec<&str> = line
        .split_once('#')
        .map_or(line, |(before, _)| before)
        .split_whitespace()
        .take_while(|word| !word.starts_with("//"))
        .collect();
    if words.is_empty() {
        return Ok(None);
    }
    let mut words = Words(&words);
    words.accept("add");
    let wanted = match words.peek() {
        Some(word) if word.starts_with(|c: char| c.is_ascii_digit()) => {
            words.advance();
            Some(items::number(word, "a rule number", NUMBER_MAX)?)
        }
        _ => None,
    };
    let action = action(&mut words)?;
    let mut rule = Rule::any(0, action);
    if action != RuleAction::CheckState {
        body(&mut words, &mut rule)?;
    } else if let Some(word) = words.peek() {
        return Err(expected("nothing after 'check-state'", word));
    }
    while let Some(word) = words.next() {
        option(word, &mut words, &mut rule, context)?;
    }
    validate::check(&rule)?;
    rule.number = context.number(wanted)?;
    Ok(Some(rule))
}

/// The rest of a line.
struct Words<'w, 'a>(&'w [&'a str]);

impl<'a> Words<'_, 'a> {
    fn peek(&self) -> Option<&'a str> {
        self.0.first().copied()
    }

    fn advance(&mut self) {
        self.0 = self.0.get(1..).unwrap_or_default();
    }

    fn next(&mut self) -> Option<&'a str> {
        let word = self.peek();
        self.advance();
        word
    }

    /// Skips `word` if it is next.
    fn accept(&mut self, word: &str) -> bool {
        let there = self.peek() == Some(word);
        if there {
            self.advance();
        }
        there
    }

    fn required(&mut self, what: &str) -> Result<&'a str> {
        self.next()
            .ok_or_else(|| expected(what, "the end of the line"))
    }

    fn keyword(&mut self, keyword: &str, after: &str) -> Result<()> {
        let what = format!("'{keyword}' after {after}");
        match self.required(&what)? {
            word if word == keyword => Ok(()),
            word => Err(expected(what, word)),
        }
    }

    /// A comma-separated list, or `{ a or b }`.
    fn list(&mut self, what: &str) -> Result<String> {
        let first = self.required(what)?;
        if first != "{" {
            return Ok(first.into());
        }
        let mut joined = String::from(self.required(what)?);
        loop {
            match self.required("'or' or '}'")? {
                "}" => return Ok(joined),
                "or" => {
                    joined.push(',');
                    joined.push_str(self.required(what)?);
                }
                word => return Err(expected("'or' or '}'", word)),
            }
        }
    }
}

fn action(words: &mut Words<'_, '_>) -> Result<RuleAction> {
    let word = words.required("an action")?;
    if word != "unreach" {
        return items::action(word);
    }
    let reason = items::unreachable(words.required("a reason after 'unreach'")?)?;
    Ok(RuleAction::Reject(Answer::Unreachable(reason)))
}

/// `PROTO from ADDRESSES [PORTS] to ADDRESSES [PORTS]`.
fn body(words: &mut Words<'_, '_>, rule: &mut Rule) -> Result<()> {
    let negated = words.accept("not");
    let text = words.list("a protocol (ip, tcp, udp, icmp, icmp6, ...)")?;
    let protocols = items::list(&text, items::protocol)?;
    let protocols = protocols.into_iter().collect::<Option<_>>();
    rule.protocol = items::negatable(negated, protocols.unwrap_or_default())?;
    words.keyword("from", "the protocol")?;
    rule.from.addresses = addresses(words, "source")?;
    rule.from.ports = ports(words)?;
    words.keyword("to", "the source")?;
    rule.to.addresses = addresses(words, "destination")?;
    rule.to.ports = ports(words)?;
    Ok(())
}

fn addresses(words: &mut Words<'_, '_>, which: &str) -> Result<OneOf<Prefix>> {
    let negated = words.accept("not");
    let text = words.list(&format!("a {which} address"))?;
    items::negatable(negated, items::prefixes(&text)?)
}

/// Ports if the next words look like some, else any.
fn ports(words: &mut Words<'_, '_>) -> Result<OneOf<(u16, u16)>> {
    let (negated, word) = match words.0 {
        ["not", word, ..] => (true, *word),
        [word, ..] => (false, *word),
        [] => return Ok(OneOf::default()),
    };
    // No option begins with a brace.
    if word != "{" && !items::looks_like_ports(word) {
        return Ok(OneOf::default());
    }
    if negated {
        words.advance();
    }
    let text = words.list("a port")?;
    items::negatable(negated, items::list(&text, items::ports)?)
}

fn option(
    word: &str,
    words: &mut Words<'_, '_>,
    rule: &mut Rule,
    context: &Context<'_>,
) -> Result<()> {
    let negated = word == "not";
    let word = if negated {
        words.required("an option after 'not'")?
    } else {
        word
    };
    match word {
        "in" | "out" | "recv" | "xmit" => direction(word, negated, words, rule, context),
        "src-port" => once_list(negated, words, &mut rule.from.ports, word, items::ports),
        "dst-port" => once_list(negated, words, &mut rule.to.ports, word, items::ports),
        "vlan" => once_list(negated, words, &mut rule.vlan, word, items::vlan),
        "icmptypes" => once_list(negated, words, &mut rule.icmp, word, |w| {
            items::icmp_type(w, Family::V4)
        }),
        "icmp6types" => once_list(negated, words, &mut rule.icmp, word, |w| {
            items::icmp_type(w, Family::V6)
        }),
        "frag" => fragment(negated, words, rule),
        "established" => push_flags(rule, negated, FlagsMatch::Established),
        "setup" => {
            let (set, clear) = (SYN, ACK);
            push_flags(rule, negated, FlagsMatch::Exact { set, clear })
        }
        "tcpflags" => {
            let flags = items::tcp_flags(words.required("TCP flags")?)?;
            push_flags(rule, negated, flags)
        }
        "keep-state" | "limit" | "max" | "timeout" if negated => {
            Err(format!("'not' cannot stand before '{word}'"))
        }
        "keep-state" | "limit" => keep_state(word, words, rule),
        "log" => Err("'log' is not supported: each rule has counters instead".into()),
        _ => Err(expected(
            "an option (in, out, recv, xmit, src-port, dst-port, vlan, frag, established, setup, \
             tcpflags, icmptypes, icmp6types, keep-state or limit)",
            word,
        )),
    }
}

fn once_list<T>(
    negated: bool,
    words: &mut Words<'_, '_>,
    into: &mut OneOf<T>,
    name: &str,
    item: impl FnMut(&str) -> Result<T>,
) -> Result<()> {
    if !into.is_any() {
        return Err(format!("'{name}' gives the same condition a second time"));
    }
    let text = words.list(&format!("a list after '{name}'"))?;
    *into = items::negatable(negated, items::list(&text, item)?)?;
    Ok(())
}

fn direction(
    word: &str,
    negated: bool,
    words: &mut Words<'_, '_>,
    rule: &mut Rule,
    context: &Context<'_>,
) -> Result<()> {
    let in_port = match word {
        "out" => 0,
        "in" => 1,
        _ => {
            let named = context.port(words.required("a port")?)?;
            if word == "recv" { named } else { named ^ 1 }
        }
    };
    let in_port = in_port ^ u8::from(negated);
    if rule.in_port.is_some_and(|port| port != in_port) {
        return Err(format!("'{word}' contradicts the direction given before"));
    }
    rule.in_port = Some(in_port);
    Ok(())
}

fn fragment(negated: bool, words: &mut Words<'_, '_>, rule: &mut Rule) -> Result<()> {
    if rule.fragment.is_some() {
        return Err("'frag' gives the same condition a second time".into());
    }
    let of = words.peek().and_then(items::fragment);
    if of.is_some() {
        words.advance();
    }
    rule.fragment = Some(Negatable {
        negated,
        of: of.unwrap_or(FragmentMatch::Later),
    });
    Ok(())
}

fn push_flags(rule: &mut Rule, negated: bool, of: FlagsMatch) -> Result<()> {
    rule.flags.push(Negatable { negated, of });
    Ok(())
}

/// `keep-state [max N] [timeout S]` or `limit src-addr N [max N] [timeout S]`.
fn keep_state(word: &str, words: &mut Words<'_, '_>, rule: &mut Rule) -> Result<()> {
    if rule.keep_state.is_some() {
        return Err(format!("'{word}' after another 'keep-state' or 'limit'"));
    }
    let mut keep = KeepState::default();
    if word == "limit" {
        words.keyword("src-addr", "'limit'")?;
        keep.max_per_source = Some(positive(words, "src-addr")?);
    }
    loop {
        if words.accept("max") {
            keep.max = Some(positive(words, "max")?);
        } else if words.accept("timeout") {
            keep.timeout_s = Some(positive(words, "timeout")?);
        } else {
            break;
        }
    }
    rule.keep_state = Some(keep);
    Ok(())
}

fn positive(words: &mut Words<'_, '_>, after: &str) -> Result<u32> {
    let what = format!("a positive number after '{after}'");
    let word = words.required(&what)?;
    match items::number(word, &what, 1_000_000_000_u32)? {
        0 => Err(expected(what, word)),
        value => Ok(value),
    }
}
