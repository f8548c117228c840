//! Functions: small programs that a client sends, and that run once in an instance of their own.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A program to run once, with its input and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionRequest {
    /// The name of the program, for messages and as its own name.
    pub name: String,
    /// The executable file, in base64: an ELF program of this machine, or a script whose first line (`#!`) names an
    /// interpreter of the host.
    pub program: String,
    /// Its arguments, without its own name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Its standard input, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input: String,
    /// Its limits.
    #[serde(default)]
    pub limits: FunctionLimits,
}

/// The limits of a function. The function is ended when it exceeds one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FunctionLimits {
    /// Milliseconds of CPU time, of all its processes together.
    pub cpu_time_ms: u64,
    /// Milliseconds from its start to its end; the time in the queue is not counted.
    pub timeout_ms: u64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Bytes of standard output, and as many of standard error.
    pub output_bytes: u64,
    /// Processes and threads.
    pub tasks: u32,
    /// Weight of its CPU time against other functions, in thousandths of a core.
    pub share_per_mille: u32,
    /// Cap of its CPU time, in thousandths of a core.
    pub cap_per_mille: u32,
}

impl Default for FunctionLimits {
    fn default() -> Self {
        FunctionLimits {
            cpu_time_ms: 10_000,
            timeout_ms: 30_000,
            memory_bytes: 128 << 20,
            output_bytes: 1 << 20,
            tasks: 32,
            share_per_mille: 100,
            cap_per_mille: 1000,
        }
    }
}

impl FunctionLimits {
    /// The highest limits that can be asked for.
    pub const MOST: Self = FunctionLimits {
        cpu_time_ms: 600_000,
        timeout_ms: 600_000,
        memory_bytes: 4 << 30,
        output_bytes: 8 << 20,
        tasks: 512,
        share_per_mille: 10_000,
        cap_per_mille: 1_000_000,
    };
}

/// How a function ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FunctionEnd {
    /// It ended by itself, with this status.
    Exited(u8),
    /// A signal ended it; 31 (SIGSYS) comes from the system call filter.
    Killed(u8),
    /// It ran for longer than its `timeout_ms`.
    Timeout,
    /// It used more CPU time than its `cpu_time_ms`.
    CpuTime,
    /// It needed more memory than its `memory_bytes`.
    Memory,
    /// It wrote more than its `output_bytes`.
    Output,
    /// The end is unknown.
    #[default]
    Unknown,
}

/// The result of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunctionReport {
    /// How it ended.
    pub end: FunctionEnd,
    /// Its standard output, in base64.
    pub output: String,
    /// Its standard error, in base64.
    pub errors: String,
    /// Microseconds until the program was executed, in an instance made for it.
    pub created_us: u64,
    /// Microseconds from then until it had ended.
    pub ran_us: u64,
    /// Microseconds of CPU time that it used, its set-up included; 0 where the host does not count it.
    pub cpu_time_us: u64,
    /// Its peak memory in bytes; 0 where the host does not count it.
    pub memory_bytes_peak: u64,
}
