//! From the tables to instructions.
//!
//! `seccompiler` makes filters with one action for what matches and one for what does not. Ours has four actions, so it
//! is several of its filters in a row: each stage but the last ends, where nothing matched, with `return ALLOW`, and
//! without this last instruction it falls through into the next stage. (The alternative, several installed filters,
//! costs a call each for every setsockopt.)

use super::allowed::{ALWAYS, LOADER, MESSAGE_SOCKETS, PROCESSES, STRICT, THREADS_ONLY};
use super::hostile::HOSTILE;
use super::rule::{Allowed, Test, When};
use super::{Filter, Policy, PolicyError, Profile};
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, sock_filter,
};
use std::collections::BTreeMap;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Offsets in `struct seccomp_data` (linux/seccomp.h); the low half of an argument comes first on little-endian.
const DATA_NR: u32 = 0;
const DATA_ARCH: u32 = 4;
const DATA_ARG1_LOW: u32 = 24;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

pub(super) fn compile(policy: &Policy) -> Result<Filter, PolicyError> {
    let mut instructions = setsockopt_first(policy.setsockopt_level)?;
    instructions.extend(stage(hostile_rules(), SeccompAction::KillProcess)?);
    let no_clone3 = Rules::from([(libc::SYS_clone3, Vec::new())]);
    let enosys = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    instructions.extend(stage(no_clone3, enosys)?);
    let eperm = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let last = SeccompFilter::new(
        allowed_rules(policy)?,
        eperm,
        SeccompAction::Allow,
        architecture()?,
    )?;
    instructions.extend(BpfProgram::try_from(last)?);
    if instructions.len() > Filter::INSTRUCTIONS_MAX {
        return Err(BackendError::FilterTooLarge(instructions.len()).into());
    }
    Ok(Filter { instructions })
}

fn architecture() -> Result<seccompiler::TargetArch, BackendError> {
    std::env::consts::ARCH.try_into()
}

/// One filter that answers `action` to what matches and otherwise falls through its end.
fn stage(rules: Rules, action: SeccompAction) -> Result<BpfProgram, PolicyError> {
    let allow = u32::from(SeccompAction::Allow);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, architecture()?)?;
    let mut program = BpfProgram::try_from(filter)?;
    match program.pop() {
        Some(end) if end.code == RETURN && end.k == allow => Ok(program),
        _ => Err(PolicyError::Joint),
    }
}

/// Allows the hyperio call before anything else is looked at. Another architecture's numbers fall through to the
/// stages, which refuse them.
fn setsockopt_first(level: u32) -> Result<BpfProgram, PolicyError> {
    // The answer that the compiler's own preamble compares with: load arch, jump if equal, kill.
    let empty = SeccompFilter::new(
        Rules::new(),
        SeccompAction::Allow,
        SeccompAction::KillProcess,
        architecture()?,
    )?;
    let preamble = BpfProgram::try_from(empty)?;
    let audit_arch = match preamble.get(1) {
        Some(compare) if compare.code == JUMP_IF_EQUAL => compare.k,
        _ => return Err(PolicyError::Joint),
    };
    let setsockopt = u32::try_from(libc::SYS_setsockopt).unwrap_or(u32::MAX);
    Ok(vec![
        instruction(LOAD, 0, 0, DATA_ARCH),
        instruction(JUMP_IF_EQUAL, 0, 5, audit_arch),
        instruction(LOAD, 0, 0, DATA_NR),
        instruction(JUMP_IF_EQUAL, 0, 3, setsockopt),
        instruction(LOAD, 0, 0, DATA_ARG1_LOW),
        instruction(JUMP_IF_EQUAL, 0, 1, level),
        instruction(RETURN, 0, 0, u32::from(SeccompAction::Allow)),
    ])
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn hostile_rules() -> Rules {
    let numbers = HOSTILE.iter().map(|(number, _)| *number);
    numbers.map(|number| (number, Vec::new())).collect()
}

/// The tables that a policy consists of.
pub(super) fn tables(policy: &Policy) -> Vec<&'static [Allowed]> {
    let mut tables = vec![ALWAYS];
    tables.push(match policy.profile {
        Profile::Strict => STRICT,
        Profile::Loader => LOADER,
    });
    tables.push(if policy.processes {
        PROCESSES
    } else {
        THREADS_ONLY
    });
    if policy.message_sockets {
        tables.push(MESSAGE_SOCKETS);
    }
    tables
}

/// A later table replaces an earlier one's entry.
fn allowed_rules(policy: &Policy) -> Result<Rules, BackendError> {
    let mut rules = Rules::new();
    for entry in tables(policy).into_iter().flatten() {
        let conditions = match entry.when {
            When::Always => Vec::new(),
            When::AnyOf(alternatives) => alternatives
                .iter()
                .map(|tests| rule(tests))
                .collect::<Result<_, _>>()?,
        };
        rules.insert(entry.number, conditions);
    }
    let level = super::rule::is(1, policy.setsockopt_level.into());
    rules.insert(libc::SYS_setsockopt, vec![rule(&[level])?]);
    Ok(rules)
}

fn rule(tests: &[Test]) -> Result<SeccompRule, BackendError> {
    let conditions = tests.iter().map(|test| {
        let (length, full) = if test.wide {
            (SeccompCmpArgLen::Qword, u64::MAX)
        } else {
            (SeccompCmpArgLen::Dword, u64::from(u32::MAX))
        };
        let operator = if test.mask == full {
            SeccompCmpOp::Eq
        } else {
            SeccompCmpOp::MaskedEq(test.mask)
        };
        SeccompCondition::new(test.argument, length, operator, test.value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}
