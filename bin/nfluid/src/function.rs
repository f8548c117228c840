//! `nfluid run-function`.

use crate::args::FunctionArgs;
use crate::failure::Failure;
use crate::screen::{Screen, short_bytes, short_ns};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use nfluid_api::client::Client;
use nfluid_api::types::{FunctionEnd, FunctionLimits, FunctionReport, FunctionRequest};
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::Path;

/// Longest program and longest input that the daemon takes.
const BYTES_MAX: u64 = 8 << 20;

/// Exit codes, as `nfluid run-function --help` lists them; those of timeout(1) where it has them.
const TIME_IS_OVER: u8 = 124;
const NOT_RUN: u8 = 125;
const TOO_MUCH_OUTPUT: u8 = 126;
const OUT_OF_MEMORY: u8 = 137;
const SIGNALLED: u8 = 128;

/// Runs a program, and ends with its exit status.
pub async fn run(client: &Client, screen: Screen, args: &FunctionArgs) -> Result<(), Failure> {
    let request = request(args)?;
    let report = client.run_function(&request).await.map_err(|error| {
        let message = match Failure::from(error) {
            Failure::Operation(message)
            | Failure::Diagnostics(message, _)
            | Failure::Usage(message)
            | Failure::NotReachable(message)
            | Failure::NotPermitted(message) => message,
            other => return other,
        };
        Failure::Function(NOT_RUN, message)
    })?;
    let errors = decoded(&report.errors)?;
    // A closed standard error does not lose the output on standard output.
    let _unread = std::io::stderr().write_all(&errors);
    screen.bytes(&decoded(&report.output)?)?;
    if args.verbose {
        eprintln!("{}", used(&report));
    }
    outcome(&request, report.end)
}

fn request(args: &FunctionArgs) -> Result<FunctionRequest, Failure> {
    let (path, program_args) = match args.command.as_slice() {
        [program, args @ ..] => (Path::new(program), args),
        [] => (Path::new(""), [].as_slice()),
    };
    let text = |arg: &OsString| {
        let text = arg.to_str().map(str::to_owned);
        text.ok_or_else(|| Failure::Function(NOT_RUN, format!("{arg:?} is no UTF-8 text")))
    };
    let failed = |error: std::io::Error| {
        Failure::Function(NOT_RUN, format!("reading {}: {error}", path.display()))
    };
    let program = std::fs::File::open(path).map_err(failed)?;
    if !program.metadata().map_err(failed)?.is_file() {
        let message = format!("{} is not a file", path.display());
        return Err(Failure::Function(NOT_RUN, message));
    }
    let program = read(program, &path.display().to_string())?;
    let input = std::io::stdin();
    // Input from a terminal is not waited for.
    let input = if input.is_terminal() {
        Vec::new()
    } else {
        read(input, "standard input")?
    };
    let hundredths = |share: nfluid_control::quantity::Share| share.hundredths().div_ceil(10);
    let name = path
        .file_name()
        .unwrap_or(Path::new("function").as_os_str());
    Ok(FunctionRequest {
        name: name.to_string_lossy().into_owned(),
        program: STANDARD.encode(program),
        args: program_args.iter().map(text).collect::<Result<_, _>>()?,
        input: STANDARD.encode(input),
        limits: FunctionLimits {
            cpu_time_ms: args.cpu_time.0,
            timeout_ms: args.timeout.0,
            memory_bytes: args.memory.0,
            output_bytes: args.max_output.0,
            tasks: args.tasks,
            share_per_mille: hundredths(args.share),
            cap_per_mille: hundredths(args.cap),
        },
    })
}

fn read(from: impl Read, what: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    from.take(BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::Function(NOT_RUN, format!("reading {what}: {error}")))?;
    if bytes.len() as u64 > BYTES_MAX {
        let message = format!(
            "{what} is longer than the {} that a function may have",
            short_bytes(BYTES_MAX)
        );
        return Err(Failure::Function(NOT_RUN, message));
    }
    Ok(bytes)
}

fn decoded(text: &str) -> Result<Vec<u8>, Failure> {
    STANDARD.decode(text).map_err(|error| {
        Failure::Function(NOT_RUN, format!("the daemon's answer is damaged: {error}"))
    })
}

fn used(report: &FunctionReport) -> String {
    let time = |us: u64| short_ns(us.saturating_mul(1000));
    format!(
        "created in {}, ran for {}, used {} of CPU time and {} of memory",
        time(report.created_us),
        time(report.ran_us),
        time(report.cpu_time_us),
        short_bytes(report.memory_bytes_peak),
    )
}

fn outcome(request: &FunctionRequest, end: FunctionEnd) -> Result<(), Failure> {
    let limits = &request.limits;
    let (code, why) = match end {
        FunctionEnd::Exited(0) => return Ok(()),
        // The program has reported the fault itself.
        FunctionEnd::Exited(status) => return Err(Failure::Function(status, String::new())),
        FunctionEnd::Killed(signal) => (
            SIGNALLED.saturating_add(signal),
            format!("signal {signal} ended the function"),
        ),
        FunctionEnd::Timeout => (
            TIME_IS_OVER,
            format!(
                "the function was ended after {} ms (--timeout allows more)",
                limits.timeout_ms
            ),
        ),
        FunctionEnd::CpuTime => (
            TIME_IS_OVER,
            format!(
                "the function was ended after {} ms of CPU time (--cpu-time allows more)",
                limits.cpu_time_ms
            ),
        ),
        FunctionEnd::Memory => (
            OUT_OF_MEMORY,
            format!(
                "the function was ended because it needed more than {} of memory (--memory allows more)",
                short_bytes(limits.memory_bytes)
            ),
        ),
        FunctionEnd::Output => (
            TOO_MUCH_OUTPUT,
            format!(
                "the function was ended because it wrote more than {} (--max-output allows more)",
                short_bytes(limits.output_bytes)
            ),
        ),
        FunctionEnd::Unknown => (NOT_RUN, "the end of the function is unknown".to_owned()),
    };
    Err(Failure::Function(code, format!("{}: {why}", request.name)))
}
