//! Functions: small programs that a client sends, and that run once in an instance of their own.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A program to run once, with its input and its limits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FunctionRequest {
    /// The name of the program, for messages and as its `argv[0]`.
    pub name: String,
    /// The executable file, in base64: an ELF program of this machine, or a script whose first line (`#!`) names an
    /// interpreter of the host.
    pub program: String,
    /// Arguments, without the program's own name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Standard input, in base64.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub input: String,
    /// Limits.
    #[serde(default)]
    pub limits: FunctionLimits,
}

/// The limits of a function. A function that exceeds a limit is ended.
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
    /// The maximum limits of a request.
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

/// The end of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FunctionEnd {
    /// The function ended by itself, with this status.
    Exited(u8),
    /// A signal ended the function; signal 31 (SIGSYS) comes from the system call filter.
    Killed(u8),
    /// The function ran for longer than its `timeout_ms`.
    Timeout,
    /// The function used more CPU time than its `cpu_time_ms`.
    CpuTime,
    /// The function needed more memory than its `memory_bytes`.
    Memory,
    /// The function wrote more than its `output_bytes`.
    Output,
    /// The end is unknown.
    #[default]
    Unknown,
}

/// The result of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunctionReport {
    /// The end of the function.
    pub end: FunctionEnd,
    /// Standard output, in base64.
    pub output: String,
    /// Standard error, in base64.
    pub errors: String,
    /// Microseconds until the program was executed, in an instance created for it.
    pub created_us: u64,
    /// Microseconds from then until its end.
    pub ran_us: u64,
    /// CPU time of the function in microseconds, its set-up included; 0 if the host does not count it.
    pub cpu_time_us: u64,
    /// Peak memory of the function in bytes; 0 if the host does not count it.
    pub memory_bytes_peak: u64,
}
